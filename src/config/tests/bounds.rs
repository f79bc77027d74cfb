//! Texts that keys take and refuse, and rules between keys. Counts, numbers, durations, words and types are walked in `declared`.

use std::time::Duration;

use toml::Value;

use super::environment::variable;
use super::{ROUTE, TENANT, minimal_with, parse, problems};
use crate::config::{Settings, store::StoreSettings};

pub(super) fn settings(keys: &[(&str, &str)]) -> Settings {
    parse(&minimal_with(keys), &[]).unwrap_or_else(|problems| panic!("{keys:?}: {problems}"))
}

/// Each of the values, listed as in an array of TOML, is accepted, or is the one problem of the file.
pub(super) fn check(path: &str, accepted: &str, refused: &str) {
    // Wide enough for every window that is tried.
    let wide = [("signature.nonce_retention", "'366 days'"), ("chain.max_staleness", "'10m'")];
    let tenant = if path.starts_with("tenants[1]") { &TENANT[..] } else { &[] };
    let route = if path.starts_with("tenants[1].routes[1]") { &[ROUTE][..] } else { &[] };
    check_with(&[&wide[..], tenant, route].concat(), path, accepted, refused);
}

/// The same beside other keys.
pub(super) fn check_with(base: &[(&str, &str)], path: &str, accepted: &str, refused: &str) {
    let values = |list: &str| -> Vec<String> {
        let list: Value = format!("[{list}]").parse().unwrap_or_else(|error| panic!("{list}: {error}"));
        list.as_array().unwrap().iter().map(ToString::to_string).collect()
    };
    let (accepted, refused) = (values(accepted), values(refused));
    assert!(!accepted.is_empty() && !refused.is_empty(), "{path}");
    let with = |literal| [base, &[(path, literal)]].concat();
    for literal in &accepted {
        settings(&with(literal));
    }
    for literal in &refused {
        let found = problems(&minimal_with(&with(literal)), &[]);
        assert_eq!(found.len(), 1, "{path} = {literal}: {found:?}");
        assert!(found[0].starts_with(&format!("{path}: ")), "{path} = {literal}: {found:?}");
    }
}

/// Keys with texts that each takes, and some that it refuses; `{N}` stands for so many characters.
const TEXTS: [[&str; 3]; 39] = [
    [
        "listen.api",
        "'0.0.0.0:1', '[::]:65535', '127.0.0.1:0'",
        "'', '127.0.0.1', 'localhost:80', ':80', ' 127.0.0.1:80'",
    ],
    ["listen.gateway", "[], ['127.0.0.1:0', '127.0.0.1:0']", "[''], ['localhost:80'], ['127.0.0.1']"],
    [
        "listen.trusted_proxies",
        "[], ['0.0.0.0/0']",
        "['10.0.0.0/33'], ['proxy.example'], [''], ['10.0.0.0/']",
    ],
    [
        "chain.rpc_urls",
        "['https://u:p@node.example/key?x=y']",
        "['ws://node.example'], ['node.example'], ['']",
    ],
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
    [
        "tiers.requests_per_minute",
        "[1, 1, 1, 1], [1, 2, 3, 1_000_000]",
        "[0, 1, 2, 3], [1, 2, 3, 1_000_001], [1, 3, 2, 4]",
    ],
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
    ["log.audit_required", "false", "true"],
    ["keys.prefix", "'x', '{64}', 'Az09_-'", r#"'', '{65}', 'a b', 'a.b', 'é', "a\n""#],
    ["store.embedded.path", "'data', '/var/lib/tiergate'", r#"'', "a\u0000b""#],
    ["console.title", "'Agents of Ünïcode', 'x'", r#"'', "a\nb""#],
    [
        "console.development_rpc_url",
        "'', 'http://127.0.0.1:8545'",
        "'ws://127.0.0.1:8545', 'https://user@rpc.example'",
    ],
    ["console.chain_name", "'', 'Chain'", r#""a\tb""#],
    ["console.currency", "'ETH', 'E'", "'', 'TOOLONG'"],
    [
        "console.gateway_url",
        "'', 'https://gate.example', 'http://127.0.0.1:8000/below/'",
        "'gate.example', 'ftp://gate.example', 'https://user@gate.example', 'https://gate.example/?x'",
    ],
    ["console.sample_path", "'/', '/v1/x?y=1'", r#"'', 'x', '/a b', '/a#b', '/é', '/"'"#],
    [
        "traces.endpoint",
        "'http://a.example/v1/traces', 'https://a.example:4318/x?key=1'",
        "'', 'a.example', 'ftp://a.example', 'http://user:word@a.example', 'http://user@a.example'",
    ],
    ["tenants[1].id", "'x', '{64}', 'Az09-_.', '_x', '.x', '--'", "'', '{65}', 'a b', 'a/b', 'é', '-'"],
    [
        "tenants[1].hosts",
        "['*', '*.example'], ['*.example', '192.0.2.1', '[2001:db8::1]']",
        "[''], ['api.example:80'], ['a b'], ['api.*']",
    ],
    ["tenants[1].signed_hosts", "['*.example', '192.0.2.1']", "[''], ['api.example:80'], ['api.*']"],
    [
        "tenants[1].upstreams",
        "['h2c://a.example', 'https://[::1]:8443 weight=100']",
        "['a.example'], ['ftp://a.example'], ['a:1 weight=101']",
    ],
    [
        "tenants[1].credentials",
        "['api_key'], ['signature', 'api_key'], ['erc8128_untagged', 'erc8128', 'api_key', 'signature']",
        "[], ['api_key', 'api_key'], ['api_key', 'signature', 'api_key'], ['password']",
    ],
    [
        "tenants[1].requests_per_minute",
        "[], [1, 1, 1, 1], [1, 2, 3, 1_000_000]",
        "[1], [1, 2, 3], [1, 2, 3, 4, 5], [0, 1, 2, 3], [1, 3, 2, 4]",
    ],
    [
        "tenants[1].health.path",
        "'/', '/health?x=1&y=%20', '/{1023}'",
        r#"'', 'health', '/a b', "/a\nb", '/a#b', '/é', "/a\u007f", '/{1024}'"#,
    ],
    [
        "tenants[1].routes[1].path",
        "'/', '/*', '/a/*/b', '/{1023}'",
        "'', 'a', '/a//b', '/a/../b', '/a?b', '/%61', '/a b', '/{1024}'",
    ],
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
        "'', '*', '*.example', 'api.example:443', 'https://api.example', '::1'",
    ],
    [
        "tenants[1].routes[1].methods",
        "['{32}'], ['GET', 'VERSION-CONTROL'], ['tools/call'], ['resources/*', 'ping']",
        "['{33}'], ['get'], [''], ['GET POST'], ['GET', 'PUT', 'GET'], ['CONNECT'], ['GET', 'TRACE'],
         ['GET', 'tools/call'], ['a/ b']",
    ],
    [
        "tenants[1].routes[1].tools",
        "['search', 'a.b-c', 'billing_*', '*']",
        "[''], ['a b'], ['*a'], ['a', 'a']",
    ],
];

/// The text with `{N}` replaced by so many letters.
fn filled(text: &str) -> String {
    let Some((before, rest)) = text.split_once('{') else { return text.to_owned() };
    let (count, after) = rest.split_once('}').unwrap();
    format!("{before}{}{}", "X".repeat(count.parse().unwrap()), filled(after))
}

// threat: Pages of other origins
#[test]
fn each_text_is_taken_or_refused_by_its_key() {
    for [path, accepted, refused] in TEXTS {
        check(path, &filled(accepted), &filled(refused));
    }
}

#[test]
fn a_port_that_is_too_large_is_named() {
    for (address, port) in [("127.0.0.1:99999", "99999"), ("[::1]:65536", "65536")] {
        let found = problems(&minimal_with(&[("listen.api", &format!("'{address}'"))]), &[]);
        let expected =
            format!("listen.api: is \"{address}\", and the port {port} is too large; write one up to 65535");
        assert_eq!(found, [expected]);
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
fn every_two_listeners_that_overlap_are_named() {
    let keys = [
        ("listen.gateway", "[\"127.0.0.1:8080\", \"0.0.0.0:8082\", \"127.0.0.1:8082\"]"),
        ("listen.api", "\"127.0.0.1:8080\""),
        ("listen.owners", "[\"127.0.0.1:8081\", \"[::]:8080\"]"),
        ("listen.authz", "[\"127.0.0.1:8081\"]"),
    ];
    let end = "; write two addresses that do not overlap";
    assert_eq!(
        problems(&minimal_with(&keys), &[]),
        [
            format!("listen.gateway: api is 127.0.0.1:8080 and gateway item 1 is 127.0.0.1:8080{end}"),
            format!(
                "listen.gateway: gateway item 2 is 0.0.0.0:8082 and gateway item 3 is 127.0.0.1:8082{end}"
            ),
            format!("listen.owners: api is 127.0.0.1:8080 and owners item 2 is [::]:8080{end}"),
            format!("listen.owners: gateway item 1 is 127.0.0.1:8080 and owners item 2 is [::]:8080{end}"),
            format!("listen.authz: owners item 1 is 127.0.0.1:8081 and authz item 1 is 127.0.0.1:8081{end}"),
            format!("listen.admin: gateway item 2 is 0.0.0.0:8082 and admin is 127.0.0.1:8082{end}"),
            format!("listen.admin: gateway item 3 is 127.0.0.1:8082 and admin is 127.0.0.1:8082{end}"),
        ]
    );
}

#[test]
fn a_listener_has_both_a_certificate_and_its_key_or_neither() {
    let tls =
        settings(&[("listen.tls", "{ cert = \"a.crt\", key = \"../a.key\" }")]).live.listen.tls.unwrap();
    assert_eq!((tls.cert.as_os_str(), tls.key.as_os_str()), ("a.crt".as_ref(), "../a.key".as_ref()));
    for section in ["listen.tls", "authz.tls", "tenants[1].tls", "tenants[1].upstream_tls"] {
        let base = if section.starts_with("tenants") { &TENANT[..] } else { &[] };
        for (given, missing) in [("cert", "key"), ("key", "cert")] {
            let [given, missing] = [given, missing].map(|name| format!("{section}.{name}"));
            let phrase = "cert and key go together; write both or neither";
            let found = problems(&minimal_with(&[base, &[(&given, "\"x\"")]].concat()), &[]);
            assert_eq!(found, [format!("{missing}: {phrase}")]);
            if base.is_empty() {
                let name = variable(&given);
                assert_eq!(problems(&minimal_with(&[]), &[(&name, "x")]), [format!("{name}: {phrase}")]);
            }
            let other = [base, &[(&missing, "'y'")]].concat();
            check_with(&other, &given, "'x'", r#"'', "a\u0000b", 7, ['x']"#);
        }
    }
}

// threat: Forged PROXY headers
#[test]
fn the_proxy_protocol_is_spoken_on_listeners_of_clients_by_proxies_that_are_trusted() {
    check_with(
        &[("listen.trusted_proxies", "['10.0.0.0/8']")],
        "listen.proxy_protocol",
        "[], ['api'], ['gateway'], ['gateway', 'api']",
        "['admin'], ['']",
    );
    let phrase = "is spoken by listen.trusted_proxies alone, and there are none; write both or neither";
    let found = problems(&minimal_with(&[("listen.proxy_protocol", "['api']")]), &[]);
    assert_eq!(found, [format!("listen.proxy_protocol: {phrase}")]);
}

#[test]
fn silence_is_borne_for_at_least_two_polls_and_at_most_ten_minutes() {
    check("chain.max_staleness", "'2s'", "'1999ms'");
    let found = problems(&minimal_with(&[("chain.poll_interval", "'3s'")]), &[]);
    let phrase =
        "is shorter than two of chain.poll_interval; write a duration that is at least twice as long";
    assert_eq!(found, [format!("chain.max_staleness: {phrase}")]);
}

#[test]
fn nonces_are_remembered_for_the_whole_window_at_least() {
    let window = [("signature.max_age", "\"100s\""), ("signature.max_ahead", "\"20s\"")];
    let [age, ahead] = window;
    for (retention, accepted) in [("120s", true), ("119s", false), ("119s 999ms", false), ("0s", false)] {
        let literal = format!("\"{retention}\"");
        let file = minimal_with(&[age, ahead, ("signature.nonce_retention", &literal)]);
        let found = problems(&file, &[]);
        assert_eq!(found.is_empty(), accepted, "{retention}: {found:?}");
        assert!(found.iter().all(|line| line.starts_with("signature.nonce_retention: ")), "{found:?}");
    }
    let kept = settings(&[("signature.nonce_retention", "\"6m\"")]).fixed.signature.nonce_retention;
    assert_eq!(kept, Duration::from_secs(360));
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
        ("log.audit", "'stdout'"),
        ("log.audit_required", "true"),
        ("store.embedded.path", "'../x/./data'"),
    ])
    .fixed;
    assert_eq!(read.listen.gateway, ["0.0.0.0:80", "[::]:443"].map(|address| address.parse().unwrap()));
    let nets: Vec<String> = read.listen.trusted_proxies.iter().map(ToString::to_string).collect();
    assert_eq!(nets, ["10.0.0.0/8", "192.0.2.1/32", "2001:db8::/32", "::1/128"]);
    assert_eq!(read.abuse.failures_per_minute, None, "0 failures are no limit");
    assert!(read.log.audit_required);
    let StoreSettings::Embedded { path, .. } = read.store else { panic!("{:?}", read.store) };
    assert_eq!(path.as_os_str(), "../x/./data", "as it is written");
    let name = [&TENANT[..], &[("tenants[1].upstream_tls.server_name", "'[::1]'")]].concat();
    assert_eq!(settings(&name).live.tenants[0].proxy.upstream_tls.server_name.as_deref(), Some("::1"));
}

#[test]
fn the_owners_page_is_given_what_anybody_may_know() {
    check_with(
        &[("console.chain_name", "'Chain'")],
        "console.rpc_url",
        "'', 'https://rpc.example/key?x=1', 'http://127.0.0.1:8545'",
        "'ws://rpc.example', 'rpc.example', 'https://user@rpc.example', 'https://:word@rpc.example', 'https://a#b'",
    );
    let unnamed = problems(&minimal_with(&[("console.rpc_url", "'https://rpc.example'")]), &[]);
    assert!(unnamed.len() == 1 && unnamed[0].starts_with("console.chain_name: is empty"), "{unnamed:?}");
}

#[test]
fn pages_of_every_origin_have_no_credentials() {
    let both = [("tenants[1].cors.origins", "['*']"), ("tenants[1].cors.credentials", "true")];
    let expected = "tenants[1].cors.credentials: can't be true for every origin; name the origins";
    assert_eq!(problems(&minimal_with(&[&TENANT[..], &both].concat()), &[]), [expected]);
}
