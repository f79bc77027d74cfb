//! Texts that keys take and refuse, and rules between keys. Counts, numbers, durations, words and types are walked in `declared`.

use toml::Value;

use super::declared::file_with;
use super::{TENANT, minimal_with, parse, problems};
use crate::config::{Settings, store::StoreSettings};

pub(super) fn settings(keys: &[(&str, &str)]) -> Settings {
    parse(&minimal_with(keys), &[]).unwrap_or_else(|problems| panic!("{keys:?}: {problems}"))
}

/// Each of the values, listed as in an array of TOML, is accepted where all is there that the key needs, or is the one problem
/// of the file.
pub(super) fn check(path: &str, accepted: &str, refused: &str) {
    // Wide enough for every window that is tried.
    let wide = [("signature.nonce_retention", "'366 days'"), ("chain.max_staleness", "'10m'")];
    let values = |list: &str| -> Vec<String> {
        let list: Value = format!("[{list}]").parse().unwrap_or_else(|error| panic!("{list}: {error}"));
        list.as_array().unwrap().iter().map(ToString::to_string).collect()
    };
    let (accepted, refused) = (values(accepted), values(refused));
    assert!(!accepted.is_empty() && !refused.is_empty(), "{path}");
    let found = |literal: &str| problems(&file_with(path, &[&wide[..], &[(path, literal)]].concat()), &[]);
    for literal in &accepted {
        assert_eq!(found(literal), [""; 0], "{path} = {literal}");
    }
    for literal in &refused {
        let found = found(literal);
        assert_eq!(found.len(), 1, "{path} = {literal}: {found:?}");
        assert!(found[0].starts_with(&format!("{path}: ")), "{path} = {literal}: {found:?}");
    }
}

/// Keys with texts that each takes, and some that it refuses; `{N}` stands for so many characters.
const TEXTS: &[[&str; 3]] = &[
    ["listen.api", "'[::]:65535', '127.0.0.1:0'", "'', '127.0.0.1', 'localhost:80', ' 127.0.0.1:80'"],
    ["listen.gateway", "[], ['127.0.0.1:0', '127.0.0.1:0']", "['localhost:80']"],
    ["listen.trusted_proxies", "['0.0.0.0/0']", "['10.0.0.0/33'], ['proxy.example'], [''], ['10.0.0.0/']"],
    ["listen.proxy_protocol", "['owners', 'gateway', 'api']", "['admin'], ['']"],
    ["chain.rpc_urls", "['https://u:p@node.example/key?x=y']", "['ws://node.example']"],
    ["chain.poll_interval", "'500ms'", "'1', '0', '', '-1s', 'soon'"],
    ["chain.http_proxy", "'http://u:p@proxy.example:3128'", "'proxy.example', ''"],
    [
        "chain.multicall",
        "'0xcA11bde05977b3631167028862bE2a173976CA11', '0xca11bde05977b3631167028862be2a173976ca11',
         '0xCA11BDE05977B3631167028862BE2A173976CA11'",
        "'', '0x', 'cA11bde05977b3631167028862bE2a173976CA11', '0xcA11bde05977b3631167028862bE2a173976CA1',
         '0xcA11bde05977b3631167028862bE2a173976CA111', '0xcA11bde05977b3631167028862bE2a173976CA1g',
         '0xCa11bde05977b3631167028862bE2a173976CA11', '0x0000000000000000000000000000000000000000'",
    ],
    ["tiers.requests_per_minute", "[1, 1, 1, 1_000_000]", "[0, 1, 2, 3], [1, 2, 3, 1_000_001], [1, 3, 2, 4]"],
    [
        "tiers.stake",
        "['0.000000000000000001', '1', '2.50', '03']",
        "['0', '2', '3', '4'], ['0.0', '2', '3', '4'], ['1', '1', '3', '4'], ['1', '3', '2', '4'],
         ['0.0000000000000000001', '2', '3', '4'], ['1', '2', '3', '-4'], ['1', '2', '3', '4.'],
         ['1', '2', '3', '.4'], ['1', '2', '3', '4e3'], ['1', '2', '3', '4_000'], ['1', '2', '3', '']",
    ],
    [
        "tiers.thresholds",
        "['0.000000000000000001'], ['1', '1'], ['1', '1', '2', '2'],
         ['115792089237316195423570985008687907853269984665640564039457.584007913129639935']",
        "['0'], ['0', '1'], ['2', '1'], ['1', '2', '1'], ['1', '1', '0.9'], ['-1'], ['x'], ['0.0000000000000000001'],
         ['115792089237316195423570985008687907853269984665640564039457.584007913129639936']",
    ],
    ["tiers.contract", "'0xdc64a140aa3e981100a9beca4e685f962f0cf6c9'", "'', '0x12', 'token.eth'"],
    [
        "tiers.function",
        "'score(uint256)', '_s$1(uint256)', 'S(uint256)'",
        "'', 'score', 'score()', 'score(uint)', 'score(uint256, uint256)', 'score( uint256)', '(uint256)',
         '1score(uint256)', 'a-b(uint256)', 'score(uint256) view', 'function score(uint256)', 'é(uint256)'",
    ],
    ["tiers.tag", "'', 'a b', '{100}'", "'{101}'"],
    ["tiers.clients", "['0xdc64a140aa3e981100a9beca4e685f962f0cf6c9']", "['0x12']"],
    ["tiers.file", "'a'", r#"'', "a\u0000b""#],
    ["signature.domain_name", "'x'", "''"],
    ["signature.service_name", "'', 'Hafen 東京', '{100}'", r#""a\tb""#],
    ["signature.max_age", "'1s', '1m 30s'", "'1500ms', '300'"],
    ["signature.max_ahead", "'0s', '1s'", "'1ms', '0'"],
    [
        "log.level",
        "'off', 'trace', 'info,tiergate::chain=debug,h2=off'",
        "'', 'inof', 'tiergate', 'a=b', '=info'",
    ],
    ["log.audit", "'', 'stdout', '/var/log/audit.log', 'audit.log'", r#""a\u0000b""#],
    ["keys.prefix", "'x', '{64}', 'Az09_-'", r#"'', '{65}', 'a b', 'a.b', 'é', "a\n""#],
    ["store.embedded.path", "'data', '/var/lib/tiergate'", r#"'', "a\u0000b""#],
    [
        "store.redis.prefix",
        "'', 'blue:', 'a-b_c.D9', '{64}'",
        "'{65}', 'a{b}', 'a*', 'a?', 'a[b]', 'a b', 'ä'",
    ],
    ["console.title", "'Agents of Ünïcode', 'x'", r#"'', "a\nb""#],
    [
        "console.rpc_url",
        "'', 'https://rpc.example/key?x=1', 'http://127.0.0.1:8545'",
        "'ws://rpc.example', 'https://user@rpc.example', 'https://:word@rpc.example'",
    ],
    ["console.development_rpc_url", "'', 'http://127.0.0.1:8545'", "'https://user@rpc.example'"],
    ["console.chain_name", "'', 'Chain'", r#""a\tb""#],
    ["console.currency", "'ETH', 'E'", "'', 'TOOLONG'"],
    [
        "console.gateway_url",
        "'', 'http://127.0.0.1:8000/below/'",
        "'gate.example', 'https://gate.example/?x'",
    ],
    ["console.sample_path", "'/', '/v1/x?y=1'", r#"'', 'x', '/a b', '/a#b', '/é', '/"'"#],
    ["traces.endpoint", "'https://a.example:4318/x?key=1'", "'', 'a.example', 'http://user@a.example'"],
    [
        "assertion.issuer",
        "'gate', 'urn:example:gate', 'https://gate.example/x', '{256}'",
        "'', 'a b', ':gate', 'https://', 'gäte', '{257}'",
    ],
    [
        "web_bot_auth.private_domains",
        "['bots.internal', 'bots.internal:8443', 'localhost:1']",
        "['Bots.internal'], ['bots.internal:443'], ['10.0.0.1'], ['*.internal'], ['https://bots.internal']",
    ],
    ["tenants[1].id", "'x', '{64}', 'Az09-_.', '_x', '.x', '--'", "'', '{65}', 'a b', 'a/b', 'é', '-'"],
    ["tenants[1].hosts", "['*', '*.example', '192.0.2.1', '[2001:db8::1]']", "['api.example:80']"],
    ["tenants[1].signed_hosts", "['*.example', '192.0.2.1']", "['api.example:80']"],
    ["tenants[1].upstreams", "['h2c://a.example', 'https://[::1]:8443 weight=100']", "['a.example']"],
    [
        "tenants[1].credentials",
        "['api_key'], ['erc8128_untagged', 'erc8128', 'api_key', 'signature']",
        "['api_key', 'signature', 'api_key'], ['password']",
    ],
    ["tenants[1].requests_per_minute", "[], [1, 1, 1, 1]", "[1, 2, 3], [1, 2, 3, 4, 5], [0, 1, 2, 3]"],
    [
        "tenants[1].health.path",
        "'/', '/health?x=1&y=%20', '/{1023}'",
        r#"'', 'health', '/a b', "/a\nb", '/a#b', '/é', "/a\u007f", '/{1024}'"#,
    ],
    ["tenants[1].routes[1].path", "'/', '/*', '/a/*/b', '/{1023}'", "'', '/a?b', '/{1024}'"],
    [
        "tenants[1].cors.origins",
        "[], ['*'], ['http://localhost:3000', 'https://[::1]']",
        "['null'], ['https://a.example/'], ['https://A.example'], ['https://a.example:443'], ['a.example'],
         ['*', 'https://a.example'], ['https://*.example']",
    ],
    ["tenants[1].cors.methods", "[], ['GET', 'PUT']", "['get'], ['GET,PUT']"],
    ["tenants[1].cors.headers", "[], ['x-a', 'X-B']", "[''], ['x a'], ['x:a'], ['X, Y']"],
    ["tenants[1].cors.exposed_headers", "[], ['x-a']", "['x a']"],
    [
        "tenants[1].upstream_tls.server_name",
        "'api.example', '192.0.2.1', '[::1]'",
        "'', '*', '*.example', 'api.example:443', '::1'",
    ],
    [
        "tenants[1].routes[1].methods",
        "['{32}'], ['GET', 'VERSION-CONTROL'], ['tools/call'], ['resources/*', 'ping']",
        "['{33}'], ['get'], [''], ['GET POST'], ['GET', 'PUT', 'GET'], ['CONNECT'], ['GET', 'TRACE'],
         ['GET', 'tools/call'], ['a/ b']",
    ],
    ["tenants[1].routes[1].tools", "['search', 'a.b-c', 'billing_*', '*']", "[''], ['a b'], ['a', 'a']"],
];

/// The text with `{N}` replaced by so many letters.
fn filled(text: &str) -> String {
    let Some((before, rest)) = text.split_once('{') else { return text.to_owned() };
    let (count, after) = rest.split_once('}').unwrap();
    let letters = count.parse().map_or_else(|_| format!("{{{count}}}"), |count| "X".repeat(count));
    format!("{before}{letters}{}", filled(after))
}

// threat: Pages of other origins
#[test]
fn each_text_is_taken_or_refused_by_its_key() {
    for [path, accepted, refused] in TEXTS {
        check(path, &filled(accepted), &filled(refused));
    }
}

#[test]
fn api_and_admin_listen_on_different_addresses_unless_the_port_is_chosen_by_the_system() {
    for (api, admin, same) in [
        ("127.0.0.1:80", "127.0.0.1:80", true),
        ("0.0.0.0:80", "127.0.0.1:80", true),
        ("127.0.0.1:80", "0.0.0.0:80", true),
        ("[::]:80", "[::1]:80", true),
        ("127.0.0.1:80", "127.0.0.2:80", false),
        ("127.0.0.1:80", "127.0.0.1:81", false),
        ("127.0.0.1:80", "[::]:80", true),
        ("0.0.0.0:80", "[::]:80", true),
        ("0.0.0.0:80", "[::1]:80", false),
        ("127.0.0.1:0", "127.0.0.1:0", false),
    ] {
        let (api, admin) = (format!("\"{api}\""), format!("\"{admin}\""));
        let found = problems(&minimal_with(&[("listen.api", &api), ("listen.admin", &admin)]), &[]);
        assert_eq!(found.len(), usize::from(same), "{api} {admin}: {found:?}");
        assert!(found.iter().all(|line| line.starts_with("listen.admin: ")), "{found:?}");
    }
}

#[test]
fn a_collector_that_is_named_by_its_address_alone_is_sent_traces_where_it_takes_them() {
    for (written, meant) in [
        ("http://a.example:4318", "http://a.example:4318/v1/traces"),
        ("http://a.example:4318/", "http://a.example:4318/v1/traces"),
        ("http://a.example/x", "http://a.example/x"),
        ("http://a.example/?key=1", "http://a.example/?key=1"),
    ] {
        let settings = parse(&minimal_with(&[("traces.endpoint", &format!("{written:?}"))]), &[]).unwrap();
        assert_eq!(settings.fixed.traces.endpoint.unwrap().reveal().as_str(), meant);
    }
}

#[test]
fn values_mean_what_they_say() {
    let read = settings(&[
        ("listen.gateway", "['0.0.0.0:80', '[::]:443']"),
        ("listen.trusted_proxies", "['10.1.2.3/8', '192.0.2.1', '2001:db8::/32', '::1']"),
        ("abuse.failures_per_minute", "0"),
        ("store.embedded.path", "'../x/./data'"),
    ])
    .fixed;
    assert_eq!(read.listen.gateway, ["0.0.0.0:80", "[::]:443"].map(|address| address.parse().unwrap()));
    let nets: Vec<String> = read.listen.trusted_proxies.iter().map(ToString::to_string).collect();
    assert_eq!(nets, ["10.0.0.0/8", "192.0.2.1/32", "2001:db8::/32", "::1/128"]);
    assert_eq!(read.abuse, None, "0 failures are no limit");
    let StoreSettings::Embedded { path, .. } = read.store else { panic!("{:?}", read.store) };
    assert_eq!(path.as_os_str(), "../x/./data", "as it is written");
    let name = [&TENANT[..], &[("tenants[1].upstream_tls.server_name", "'[::1]'")]].concat();
    assert_eq!(settings(&name).live.tenants[0].proxy.upstream_tls.server_name.as_deref(), Some("::1"));
}
