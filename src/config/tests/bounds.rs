//! Each bound at, below and above; and what a value means.

use std::time::Duration;

use toml::Value;

use super::environment::variable;
use super::{ROUTE, TENANT, minimal_with, parse, problems};
use crate::config::Settings;
use crate::config::store::StoreSettings;

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

#[test]
fn a_listener_is_an_ip_address_and_a_port() {
    check(
        "listen.api",
        "'0.0.0.0:1', '[::]:65535', '127.0.0.1:0'",
        "'', '127.0.0.1', 'localhost:80', ':80', '127.0.0.1:65536', ' 127.0.0.1:80'",
    );
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
fn gateway_owners_and_authz_have_up_to_16_addresses_each() {
    let many = |count: usize| -> String {
        let items: Vec<String> = (1..=count).map(|port| format!("'127.0.0.1:{port}'")).collect();
        format!("[{}]", items.join(","))
    };
    for key in ["listen.gateway", "listen.owners", "listen.authz"] {
        check(
            key,
            &format!("[], {}, {}, ['127.0.0.1:0', '127.0.0.1:0']", many(1), many(16)),
            &format!("{}, [''], ['localhost:80'], ['127.0.0.1'], '127.0.0.1:80', [80]", many(17)),
        );
    }
    let gateway = settings(&[("listen.gateway", "['0.0.0.0:80', '[::]:443']")]).fixed.listen.gateway;
    assert_eq!(gateway, ["0.0.0.0:80", "[::]:443"].map(|address| address.parse().unwrap()));
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
        "['admin'], true, 'api', ['']",
    );
    let phrase = "is spoken by listen.trusted_proxies alone, and there are none; write both or neither";
    let found = problems(&minimal_with(&[("listen.proxy_protocol", "['api']")]), &[]);
    assert_eq!(found, [format!("listen.proxy_protocol: {phrase}")]);
}

#[test]
fn a_trusted_proxy_is_a_network_or_a_single_host() {
    let proxies = "['10.1.2.3/8', '192.0.2.1', '2001:db8::/32', '::1']";
    let nets = settings(&[("listen.trusted_proxies", proxies)]).fixed.listen.trusted_proxies;
    let nets: Vec<String> = nets.iter().map(ToString::to_string).collect();
    assert_eq!(nets, ["10.0.0.0/8", "192.0.2.1/32", "2001:db8::/32", "::1/128"]);
    check(
        "listen.trusted_proxies",
        "[], ['0.0.0.0/0']",
        "['10.0.0.0/33'], ['proxy.example'], [''], ['10.0.0.0/']",
    );
}

#[test]
fn nodes_have_urls_and_times_have_units() {
    check(
        "chain.rpc_urls",
        "['https://u:p@node.example/key?x=y']",
        "['ws://node.example'], ['node.example'], ['']",
    );
    check("chain.poll_interval", "'500ms', '1m'", "'0s', '1', '0', '', '-1s', 'soon', 5");
    check("chain.http_proxy", "'http://u:p@proxy.example:3128'", "'proxy.example', '', 1");
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
fn a_contract_is_an_address_other_than_zero_whose_checksum_is_right_if_it_has_one() {
    for path in ["chain.multicall", "chain.contracts.identity", "chain.contracts.organization"] {
        check(
            path,
            "'0xcA11bde05977b3631167028862bE2a173976CA11', '0xca11bde05977b3631167028862be2a173976ca11',
             '0xCA11BDE05977B3631167028862BE2A173976CA11'",
            "'', '0x', 'cA11bde05977b3631167028862bE2a173976CA11', '0xcA11bde05977b3631167028862bE2a173976CA1',
             '0xcA11bde05977b3631167028862bE2a173976CA111', '0xcA11bde05977b3631167028862bE2a173976CA1g',
             '0xCa11bde05977b3631167028862bE2a173976CA11', '0x0000000000000000000000000000000000000000'",
        );
    }
}

#[test]
fn limits_are_four_and_do_not_fall_and_0_failures_are_no_limit() {
    check(
        "tiers.requests_per_minute",
        "[1, 1, 1, 1], [1, 2, 3, 1_000_000]",
        "[0, 1, 2, 3], [1, 2, 3, 1_000_001], [1, 3, 2, 4]",
    );
    assert_eq!(settings(&[("abuse.failures_per_minute", "0")]).fixed.abuse.failures_per_minute, None);
}

#[test]
fn a_signing_domain_has_name_and_version_and_its_window_is_whole_seconds() {
    check("signature.domain_name", "'x'", "''");
    check("signature.domain_version", "'2.0'", "''");
    check("signature.service_name", &format!("'', 'Hafen 東京', '{}'", "é".repeat(100)), "\"a\\tb\", true");
    check("signature.max_age", "'1s', '1m 30s'", "'1500ms', 300, 1.5, '300'");
    check("signature.max_ahead", "'0s', '1s'", "'1ms', 0, '0'");
}

#[test]
fn a_log_level_is_a_word_for_all_or_one_for_each_target() {
    check(
        "log.level",
        "'off', 'trace', 'info,tiergate::chain=debug,h2=off'",
        "'', 'inof', 'tiergate', 'a=b', '=info', 5",
    );
    check("log.audit", "'', 'stdout', '/var/log/audit.log', 'audit.log'", "\"a\\u0000b\", 5");
    check("log.audit_required", "false", "true");
    assert!(settings(&[("log.audit", "'stdout'"), ("log.audit_required", "true")]).fixed.log.audit_required);
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
fn a_prefix_is_1_to_64_plain_characters() {
    let (longest, too_long) = ("x".repeat(64), "x".repeat(65));
    let refused = format!(r#"'', '{too_long}', 'a b', 'a.b', 'é', "a\n""#);
    check("keys.prefix", &format!("'x', '{longest}', 'Az09_-'"), &refused);
}

#[test]
fn a_store_is_embedded_or_redis_and_its_path_stays_as_it_is_written() {
    check("store.embedded.path", "'data', '/var/lib/tiergate'", r#"'', "a\u0000b""#);
    let store = settings(&[("store.embedded.path", "'../x/./data'")]).fixed.store;
    let StoreSettings::Embedded { path, .. } = store else { panic!("{store:?}") };
    assert_eq!(path.as_os_str(), "../x/./data");
}

#[test]
fn the_owners_page_is_given_what_anybody_may_know() {
    check("console.title", "'Agents of Ünïcode', 'x'", r#"'', "a\nb", 5"#);
    let named = [("console.chain_name", "'Chain'")];
    check_with(
        &named,
        "console.rpc_url",
        "'', 'https://rpc.example/key?x=1', 'http://127.0.0.1:8545'",
        "'ws://rpc.example', 'rpc.example', 'https://user@rpc.example', 'https://:word@rpc.example', 'https://a#b', 5",
    );
    check(
        "console.development_rpc_url",
        "'', 'http://127.0.0.1:8545'",
        "'ws://127.0.0.1:8545', 'https://user@rpc.example', 5",
    );
    check("console.chain_name", "'', 'Chain'", r#""a\tb", 5"#);
    check("console.currency", "'ETH', 'E'", "'', 'TOOLONG', 5");
    check(
        "console.gateway_url",
        "'', 'https://gate.example', 'http://127.0.0.1:8000/below/'",
        "'gate.example', 'ftp://gate.example', 'https://user@gate.example', 'https://gate.example/?x', 5",
    );
    check("console.sample_path", "'/', '/v1/x?y=1'", r#"'', 'x', '/a b', '/a#b', '/é', '/"', 5"#);
    let unnamed = problems(&minimal_with(&[("console.rpc_url", "'https://rpc.example'")]), &[]);
    assert!(unnamed.len() == 1 && unnamed[0].starts_with("console.chain_name: is empty"), "{unnamed:?}");
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
fn a_collector_is_a_url_without_a_login_and_of_a_million_requests_one_is_traced_at_least_or_none() {
    check("traces.continued_per_second", "1, 1_000_000", "0, 1_000_001, '1'");
    check("traces.one_in", "0, 1, 1_000_000", "-1, 1_000_001, 0.5, '1'");
    check(
        "traces.endpoint",
        "'http://a.example/v1/traces', 'https://a.example:4318/x?key=1'",
        "'', 'a.example', 'ftp://a.example', 'http://user:word@a.example', 'http://user@a.example', 5",
    );
}
