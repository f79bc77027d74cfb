//! Overrides from the environment.

use super::{MINIMAL, minimal_with, parse, problems};

pub(super) fn variable(path: &str) -> String {
    format!("TIERGATE__{}", path.to_uppercase().replace('.', "__"))
}

#[test]
fn the_environment_alone_is_enough() {
    let required = [
        ("TIERGATE__CHAIN__CHAIN_ID", "8004"),
        ("TIERGATE__CHAIN__CONTRACTS__IDENTITY", "0x5FbDB2315678afecb367f032d93F642f64180aa3"),
        ("TIERGATE__CHAIN__CONTRACTS__STAKE_VAULT", "0xe7f1725E7734CE288F8367e1Bb143E90bb3F0512"),
    ];
    assert_eq!(parse("", &required), parse(MINIMAL, &[]));
}

#[test]
fn a_comma_inside_an_item_is_kept_in_an_array() {
    let urls = "[\n\"https://a.example/x,y\",\n\"https://b.example\",\n]";
    let settings = parse(MINIMAL, &[("TIERGATE__CHAIN__RPC_URLS", urls)]).unwrap();
    let read: Vec<_> = settings.fixed.chain.pool.urls.iter().map(|url| url.reveal().as_str()).collect();
    assert_eq!(read, ["https://a.example/x,y", "https://b.example/"]);
}

#[test]
fn an_empty_text_is_an_empty_list() {
    let file = minimal_with(&[("listen.trusted_proxies", "[\"10.0.0.0/8\"]")]);
    let settings = parse(&file, &[("TIERGATE__LISTEN__TRUSTED_PROXIES", "")]).unwrap();
    assert!(settings.fixed.listen.trusted_proxies.is_empty());
}

#[test]
fn a_broken_array_is_refused() {
    for text in ["[1, 2", "[1, 2] # three", "[1]\nx = 2", "[1][2]"] {
        let found = problems(MINIMAL, &[("TIERGATE__TIERS__REQUESTS_PER_MINUTE", text)]);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
    }
}

#[test]
fn a_relation_that_does_not_hold_names_the_variable_that_broke_it() {
    for (name, value) in [
        ("TIERGATE__SIGNATURE__MAX_AGE", "24h"),
        ("TIERGATE__SIGNATURE__MAX_AHEAD", "1h"),
        ("TIERGATE__SIGNATURE__NONCE_RETENTION", "1m"),
        ("TIERGATE__LISTEN__API", "127.0.0.1:8082"),
        ("TIERGATE__LISTEN__GATEWAY", "127.0.0.1:8082"),
        ("TIERGATE__LISTEN__ADMIN", "127.0.0.1:8080"),
    ] {
        let file = minimal_with(&[("signature.nonce_retention", "\"1h\"")]);
        let found = problems(&file, &[(name, value)]);
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        assert!(found[0].starts_with(&format!("{name}: ")), "{found:?}");
    }
}

#[test]
fn a_variable_of_ours_that_means_nothing_is_refused_and_others_are_none_of_our_business() {
    let environment = [
        ("TIERGATE__LISTEN__APY", "x"),
        ("TIERGATE__LISTEN", "x"),
        ("TIERGATE__LISTEN__api", "x"),
        ("TIERGATE__", "x"),
        ("TIERGATE__TENANTS", "x"),
        ("TIERGATE__TENANTS__ID", "x"),
        ("TIERGATE_LISTEN_API", "tcp://127.0.0.1:8080"),
        ("TIERGATE_LISTEN_TCP_API", "x"),
        ("TIERGATE_PORT", "8080"),
        ("Tiergate_Surprise", "x"),
        ("tiergate__listen__api", "x"),
        ("TIERGATE_LOG_LEVEL", "x"),
        ("TIERGATE_LOG", "x"),
        ("TIERGATES", "x"),
        ("PATH", "x"),
    ];
    assert_eq!(
        problems(MINIMAL, &environment),
        [
            "TIERGATE_LISTEN_API: is not a known variable; did you mean TIERGATE__LISTEN__API?",
            "TIERGATE_LISTEN_TCP_API: is not a known variable; TIERGATE__SECTION__KEY overrides a key, and other names of ours mean nothing",
            "TIERGATE_LOG: is not a known variable; did you mean TIERGATE__LOG__LEVEL?",
            "TIERGATE_LOG_LEVEL: is not a known variable; did you mean TIERGATE__LOG__LEVEL?",
            "TIERGATE_PORT: is not a known variable; TIERGATE__SECTION__KEY overrides a key, and other names of ours mean nothing",
            "TIERGATE__: is not a known variable; TIERGATE__SECTION__KEY overrides a key, and other names of ours mean nothing",
            "TIERGATE__LISTEN: is not a known variable; TIERGATE__SECTION__KEY overrides a key, and other names of ours mean nothing",
            "TIERGATE__LISTEN__APY: is not a known variable; did you mean TIERGATE__LISTEN__API?",
            "TIERGATE__LISTEN__api: is not a known variable; did you mean TIERGATE__LISTEN__API?",
            "TIERGATE__TENANTS: is not a known variable; TIERGATE__SECTION__KEY overrides a key, and other names of ours mean nothing",
            "TIERGATE__TENANTS__ID: is not a known variable; TIERGATE__SECTION__KEY overrides a key, and other names of ours mean nothing",
            "Tiergate_Surprise: is not a known variable; TIERGATE__SECTION__KEY overrides a key, and other names of ours mean nothing",
            "tiergate__listen__api: is not a known variable; did you mean TIERGATE__LISTEN__API?",
        ]
    );
}

#[test]
fn variables_that_kubernetes_sets_for_a_service_called_tiergate_are_none_of_ours() {
    let environment = [
        ("TIERGATE_SERVICE_HOST", "10.96.0.1"),
        ("TIERGATE_SERVICE_PORT", "8080"),
        ("TIERGATE_SERVICE_PORT_HTTP", "8080"),
        ("TIERGATE_API_SERVICE_HOST", "10.96.0.1"),
        ("TIERGATE_PORT", "tcp://10.96.0.1:8080"),
        ("TIERGATE_PORT_8080_TCP", "tcp://10.96.0.1:8080"),
        ("TIERGATE_PORT_8080_TCP_PROTO", "tcp"),
        ("TIERGATE_PORT_8080_TCP_PORT", "8080"),
        ("TIERGATE_PORT_8080_TCP_ADDR", "10.96.0.1"),
    ];
    assert_eq!(problems(MINIMAL, &environment), [""; 0]);
    let ours = [("TIERGATE__LISTEN__SERVICE_HOST", "tcp://10.96.0.1")];
    assert_eq!(
        problems(MINIMAL, &ours),
        [
            "TIERGATE__LISTEN__SERVICE_HOST: is not a known variable; TIERGATE__SECTION__KEY overrides a key, and other names of ours mean nothing"
        ]
    );
}
