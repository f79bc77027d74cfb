//! How mistakes are reported: all at once, each with its place, in plain words.

use std::io::Write;

use proptest::prelude::{ProptestConfig as Config, any, proptest};

use super::{MINIMAL, ROUTE, TENANT, load, minimal_with, parse, problems, variable};
use crate::config::problem::{Position, Problem};
use crate::config::{ConfigReport, tree::CONFIG_BYTES_MAX};

#[test]
fn nothing_but_the_chain_and_the_required_contracts_is_required() {
    assert_eq!(
        problems("", &[]),
        [
            "chain.chain_id: is required; write the id of the chain that rpc_urls are on, as eth_chainId says it",
            "chain.contracts.identity: is required",
            "chain.contracts.stake_vault: is required"
        ]
    );
}

#[test]
fn a_near_miss_and_a_key_in_the_wrong_section_get_a_suggestion() {
    for (written, meant) in [
        ("listen.apii", Some("listen.api")),
        ("listn", Some("listen")),
        ("chain.contract", Some("chain.contracts")),
        ("chain.rpc_url", Some("chain.rpc_urls")),
        ("chain.contracts.stakevault", Some("chain.contracts.stake_vault")),
        ("chain.contracts.multicall", Some("chain.multicall")),
        ("chain_id", Some("chain.chain_id")),
        ("signature.max_aged", Some("signature.max_age")),
        ("listen.id", None),
        ("listen.ask", None),
        ("listen.gatweay", Some("listen.gateway")),
        ("tenant", Some("tenants")),
        ("hosts", None),
        ("listen.tls_cert", None),
        ("tenants[1].hots", Some("hosts")),
        ("tenants[1].route", Some("routes")),
        ("tenants[1].timeout", Some("timeouts")),
        ("tenants[1].timeouts.conect", Some("timeouts.connect")),
        ("tenants[1].tls.min_tier", Some("min_tier")),
        ("tenants[1].server_name", Some("upstream_tls.server_name")),
        ("tenants[1].upstream_tls.certs", Some("upstream_tls.cert")),
        ("tenants[1].listen", None),
        ("tenants[1].surprise", None),
        ("tenants[1].routes[1].acess", Some("access")),
        ("tenants[1].routes[1].hosts", None),
    ] {
        let suggestion = meant.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
        let base = if written.starts_with("tenants[1]") { &TENANT[..] } else { &[] };
        let route = if written.contains("routes") { &[ROUTE][..] } else { &[] };
        let found = problems(&minimal_with(&[base, route, &[(written, "1")]].concat()), &[]);
        assert_eq!(found, [format!("{written}: is not a known key{suggestion}")]);
    }
    let found = problems(&format!("\"listen.api\" = 1\n{MINIMAL}"), &[]);
    assert_eq!(found, ["\"listen.api\": is not a known key"], "a point in quotes parts no sections");
}

#[test]
fn only_the_first_hundred_problems_of_a_file_get_suggestions_in_whatever_tables_they_are() {
    let wrong = |key: &str| (0..60).map(|number| format!("{key}{number:02} = 1\n")).collect::<String>();
    let tables = format!("[[tenants]]\n{}[listen]\n{}", wrong("host"), wrong("gatewa"));
    let found = problems(&format!("{}{MINIMAL}\n{tables}", wrong("tenant")), &[]);
    let is_hinted = |problem: &String| problem.contains("did you mean");
    assert!(found.len() >= 180 && is_hinted(&found[90]) && !found[100..].iter().any(is_hinted), "{found:#?}");
}

/// Each problem with its place.
fn places(text: &str) -> Vec<String> {
    let found = parse(text, &[]).unwrap_err();
    let place = |problem: &Problem| {
        let Some(Position { line, column, .. }) = &problem.position else { panic!("{problem} has no place") };
        format!("{line}:{column} {problem}")
    };
    found.0.iter().map(place).collect()
}

#[test]
fn every_syntax_error_has_its_line_and_column() {
    let found = places("[listen]\napi = \"127.0.0.1:1\"\n  api = \"127.0.0.1:2\"\nadmin = = 1\n");
    assert_eq!(
        found,
        [
            "3:3 tiergate.toml: is not TOML: duplicate key",
            "4:9 tiergate.toml: is not TOML: extra `=`, expected nothing"
        ]
    );
    let found = places("[signature]\nchain_id = 9223372036854775808\n");
    assert!(found.len() == 1 && found[0].starts_with("2:12 tiergate.toml: is not TOML: "), "{found:?}");
}

#[test]
fn a_file_that_is_not_toml_hides_no_unknown_variable_and_a_mark_of_the_byte_order_is_no_character() {
    let found = problems("[listen\n", &[("TIERGATE__LISTEN__APY", "x")]);
    assert!(found.len() == 2 && found[1].starts_with("TIERGATE__LISTEN__APY: is not a known"), "{found:?}");
    assert!(places("\u{feff}surprise = 1\n").contains(&"1:1 surprise: is not a known key".to_owned()));
}

#[test]
fn twenty_mistakes_are_found_at_once_each_with_its_line_and_column() {
    let text = r#"surprise = true
[listen]
api = "localhost:80"
admin = 9090
gatewy = []
[chain]
rpc_urls = [
  "https://node.example",
  "ws://node.example",
]
chain_id = 8004
poll_interval = 1
[chain.contracts]
stake_vault = "0x12"
[tiers]
token_decimals = 37
stake = ["1", "2", "three", "4"]
requests_per_minute = [1, 5, 4]
[signature]
max_age = "1500ms"
[keys]
prefix = "a b"
[store]
kind = "memory"
[abuse]
failures_per_minit = 5
[[routes]]
path = "/v1"
[[tenants]]
id = "acme"
hosts = ["acme.example", "acme.example", "a b"]
upstreams = "api:80"
[[tenants.routes]]
path = "/v1"
[[tenants.routes]]
path = "/v1"
min_tier = 5
[tenants.timeouts]
reed = "5s"
[[tenants]]
id = "acme"
hosts = ["b.example"]
upstreams = ["b:80"]
"#;
    let expected = [
        "3:7 listen.api: is \"localhost:80\"; write an IP address and a port, such as \"127.0.0.1:8080\" or \"[::1]:8080\"",
        "4:9 listen.admin: is an integer; write a string in quotes",
        "9:3 chain.rpc_urls: item 2 is ws://node.example; write an absolute http:// or https:// URL without blanks, backslashes and #",
        "12:17 chain.poll_interval: is 1, a number without a unit; write one, such as \"300s\", \"24h\" or \"1m 30s\"",
        "13:8 chain.contracts.identity: is required",
        "14:15 chain.contracts.stake_vault: is \"0x12\"; write a contract's address, 0x and 40 hex digits",
        "16:18 tiers.token_decimals: is 37; write a whole number from 0 to 36",
        "17:20 tiers.stake: item 3 is \"three\"; write an amount of tokens, such as \"1000\" or \"0.5\"",
        "18:23 tiers.requests_per_minute: has 3 items; write 4",
        "20:11 signature.max_age: is 1s 500ms; write whole seconds",
        "22:10 keys.prefix: is \"a b\"; write 1 to 64 characters of A-Z, a-z, 0-9, _ and -",
        "24:8 store.kind: is \"memory\"; write \"embedded\" or \"redis\"",
        "31:42 tenants[1].hosts: item 3 is \"a b\"",
        "32:13 tenants[1].upstreams: is a string",
        "37:12 tenants[1].routes[2].min_tier: is 5",
        "35:1 tenants[1].routes[2]: is never reached; routes[1] before it",
        "39:1 tenants[1].timeouts.reed: is not a known key; did you mean timeouts.read?",
        "41:6 tenants[2].id: is \"acme\", the id of tenants[1]",
        "26:1 abuse.failures_per_minit: is not a known key; did you mean abuse.failures_per_minute?",
        "5:1 listen.gatewy: is not a known key; did you mean listen.gateway?",
        "27:3 routes: is not a known key",
        "1:1 surprise: is not a known key",
    ];
    let found = places(text);
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}\n{expected}");
    }
}

#[test]
fn every_value_is_listed_with_its_origin_and_without_a_secret() {
    let text = format!(
        "[store]\nkind = \"redis\"\n[store.redis]\nurl = \"redis://:SECRET@redis.example/1\"\n[listen]\ngateway = [\"127.0.0.1:8000\"]\n\
         [[tenants]]\nid = \"acme\"\nhosts = [\"a.example\"]\nupstreams = [\"a:1\"]\n[tenants.upstream_tls]\nca = \"a\"\n{MINIMAL}"
    );
    let urls = ("TIERGATE__CHAIN__RPC_URLS".to_owned(), "https://u:SECRET@n.example:8545/SECRET".to_owned());
    let report = ConfigReport::of_text(&text, std::iter::once(urls), usize::MAX);
    let values = report.loaded.as_ref().unwrap().values.iter();
    let listed = values.map(|value| format!("{} = {} # {}", value.key, value.value, value.origin));
    let listed: Vec<String> = listed.collect();
    for expected in [
        "listen.api = \"127.0.0.1:8080\" # default",
        "listen.gateway = [\"127.0.0.1:8000\"] # tiergate.toml:6:11",
        "chain.rpc_urls = \"https://n.example:8545\" # TIERGATE__CHAIN__RPC_URLS",
        "store.redis.url = \"redis://redis.example:6379\" # tiergate.toml:4:7",
        "tenants[1].hosts = [\"a.example\"] # tiergate.toml:9:9",
        "tenants[1].timeouts.read = \"60s\" # default",
    ] {
        assert!(listed.iter().any(|line| line == expected), "{expected}\n{listed:#?}");
    }
    assert!(!listed.concat().contains("SECRET") && !format!("{report:?}").contains("SECRET"), "{listed:#?}");
    assert!(!listed.iter().any(|line| line.starts_with("store.embedded.")), "of the other kind: {listed:#?}");
}

#[test]
fn an_odd_name_or_value_stays_on_its_line_and_is_cut() {
    let long = "x".repeat(1_000);
    let text = format!("\"a\\nb\" = 1\n{long} = 1\n[listen]\napi = \"\\n{long}\"\n{MINIMAL}");
    let found = problems(&text, &[]);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found.iter().all(|line| line.chars().count() < 200), "{found:?}");
}

#[test]
fn a_file_that_cannot_be_read_is_the_problem() {
    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("absent.toml");
    let too_long = folder.path().join("long.toml");
    let mut file = std::fs::File::create(&too_long).unwrap();
    file.write_all(MINIMAL.as_bytes()).unwrap();
    file.write_all(&vec![b'\n'; CONFIG_BYTES_MAX - MINIMAL.len()]).unwrap();
    assert!(load(&too_long).is_ok(), "the longest");
    file.write_all(b"\n").unwrap();
    let not_text = folder.path().join("bytes.toml");
    std::fs::write(&not_text, [0xff]).unwrap();
    for (path, phrase) in
        [(&absent, "can't be read: "), (&too_long, "is longer than "), (&not_text, "is not UTF-8 text")]
    {
        let found = load(path).unwrap_err();
        let [problem] = &*found.0 else { panic!("{found}") };
        assert_eq!(problem.place, path.display().to_string());
        assert!(problem.phrase.starts_with(phrase), "{found}");
    }
}

proptest! {
    #![proptest_config(Config { cases: Config::default().cases / 4, ..Config::default() })]

    #[test]
    fn no_text_panics(text in any::<String>(), value in any::<String>()) {
        for path in ["listen.trusted_proxies", "chain.rpc_urls", "signature.max_age", "tiers.stake", "keys.prefix"] {
            let variable = variable(path);
            let _ = parse(MINIMAL, &[(&variable, &value)]);
            let _ = parse(MINIMAL, &[(&variable, &format!("[{value}]"))]);
            let _ = parse(&format!("{path} = {value}\n{text}"), &[]);
        }
        let _ = parse(&text, &[(&format!("TIERGATE__{value}"), &text)]);
    }
}
