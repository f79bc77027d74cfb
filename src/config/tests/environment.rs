//! Overrides from the environment.

use super::{MINIMAL, minimal_with, parse, problems, shipped_keys};

/// For each key: its value in the environment, the same as TOML writes it, and one that is wrong.
const OVERRIDES: &[(&str, &str, &str, &str)] = &[
    ("abuse.failures_per_minute", "7", "7", "many"),
    ("assertion.issuer", "urn:gate", "\"urn:gate\"", "a b"),
    ("assertion.key_file", "other.pem", "\"other.pem\"", ""),
    ("authz.secret_file", "secret.txt", "\"secret.txt\"", ""),
    ("authz.timeout", "2s", "\"2s\"", "26s"),
    ("authz.tls.cert", "a.pem", "\"a.pem\"", ""),
    ("authz.tls.client_ca", "ca.pem", "\"ca.pem\"", ""),
    ("authz.tls.key", "b.pem", "\"b.pem\"", ""),
    ("chain.calls_per_second", "9", "9", "0"),
    ("chain.chain_id", "5", "5", "0"),
    ("chain.contracts.identity", ADDRESS, QUOTED_ADDRESS, "0x12"),
    ("chain.contracts.organization", ADDRESS, QUOTED_ADDRESS, "0x12"),
    ("chain.contracts.reputation", ADDRESS, QUOTED_ADDRESS, "0x12"),
    ("chain.contracts.stake_vault", ADDRESS, QUOTED_ADDRESS, "0x12"),
    ("chain.contracts.validation", ADDRESS, QUOTED_ADDRESS, ""),
    ("chain.development", "true", "true", "yes"),
    ("chain.feedback_max", "7", "7", "0"),
    ("chain.gas_cap", "2000000", "2000000", "5"),
    ("chain.http_proxy", "http://proxy.example:3128", "\"http://proxy.example:3128\"", "proxy.example"),
    ("chain.max_head_age", "1h", "\"1h\"", "9s"),
    ("chain.max_staleness", "6s", "\"6s\"", "11m"),
    ("chain.multicall", ADDRESS, QUOTED_ADDRESS, "0x12"),
    ("chain.poll_interval", "2s", "\"2s\"", "5"),
    ("chain.registries", "erc8004", "\"erc8004\"", "other"),
    ("chain.request_timeout", "4s", "\"4s\"", "6s"),
    ("chain.reread_after", "2h", "\"2h\"", "59s"),
    (
        "chain.rpc_urls",
        "http://a.example, http://b.example",
        r#"["http://a.example", "http://b.example"]"#,
        "",
    ),
    ("console.chain_name", "Chain", "\"Chain\"", "a\tb"),
    ("console.currency", "XDAI", "\"XDAI\"", "TOOLONG"),
    ("console.development_rpc_url", "http://127.0.0.1:8545", "\"http://127.0.0.1:8545\"", "127.0.0.1"),
    ("console.enabled", "true", "true", "yes"),
    ("console.gateway_url", "https://gate.example", "\"https://gate.example\"", "gate.example"),
    ("console.images", "true", "true", "yes"),
    ("console.rpc_url", "https://rpc.example/key", "\"https://rpc.example/key\"", "ws://rpc.example"),
    ("console.sample_path", "/forecast", "\"/forecast\"", "forecast"),
    ("console.title", "Agents", "\"Agents\"", ""),
    ("gateway.allow_empty", "true", "true", "yes"),
    ("gateway.allow_link_local", "true", "true", "yes"),
    ("gateway.max_in_flight", "7", "7", "-1"),
    ("gateway.strict_tenants", "true", "true", "yes"),
    ("gateway.via", "edge-1", "\"edge-1\"", "a b"),
    ("keys.end_with_signer", "true", "true", "yes"),
    ("keys.expires_max", "7d", "\"7d\"", "4000d"),
    ("keys.per_agent_max", "2", "2", "33"),
    ("keys.prefix", "other_", "\"other_\"", "a b"),
    ("keys.public_url", "https://keys.example", "\"https://keys.example\"", "https://keys.example/?x"),
    ("keys.requests_per_hour", " 11 ", "11", "1.5"),
    ("listen.admin", "127.0.0.1:1", "\"127.0.0.1:1\"", "1"),
    ("listen.api", "127.0.0.1:1", "\"127.0.0.1:1\"", "127.0.0.1:8082"),
    ("listen.authz", "127.0.0.1:1", r#"["127.0.0.1:1"]"#, "127.0.0.1:8080"),
    ("listen.gateway", "127.0.0.1:1,[::1]:2", r#"["127.0.0.1:1", "[::1]:2"]"#, "127.0.0.1:1, 127.0.0.1:8080"),
    ("listen.idle", "7s", "\"7s\"", "25h"),
    ("listen.max_connections", "7", "7", "0"),
    ("listen.max_connections_per_network", "7", "7", "-1"),
    ("listen.owners", "127.0.0.1:1", r#"["127.0.0.1:1"]"#, "127.0.0.1:8080"),
    ("listen.proxy_protocol", "gateway", "[\"gateway\"]", "admin"),
    ("listen.tls.cert", "a.pem", "\"a.pem\"", ""),
    ("listen.tls.key", "b.pem", "\"b.pem\"", ""),
    ("listen.trusted_headers", "X-Real-IP,forwarded", "[\"X-Real-IP\", \"forwarded\"]", "Host"),
    ("listen.trusted_proxies", "[\"::1\"]", "[\"::1\"]", "::1,"),
    ("listen.workers", "7", "7", "-1"),
    ("log.access", "true", "true", "yes"),
    ("log.audit", "stdout", "\"stdout\"", "a\0b"),
    ("log.audit_required", "true", "true", "yes"),
    ("log.format", "json", "\"json\"", "xml"),
    ("log.level", "warn,tiergate=debug", "\"warn,tiergate=debug\"", "inof"),
    ("shutdown.delay", "7s", "\"7s\"", "61m"),
    ("shutdown.grace", "7s", "\"7s\"", "25h"),
    // Refused where registries have no wallets.
    ("signature.agent_wallet", "false", "false", "yes"),
    ("signature.chain_id", "5", "5", "9223372036854775808"),
    ("signature.contract_max_age", "5m", "\"5m\"", "25h"),
    ("signature.contracts", "true", "true", "yes"),
    ("signature.domain_name", "true", "\"true\"", ""),
    ("signature.domain_version", "2", "\"2\"", ""),
    ("signature.key_operations", "own_types", "\"own_types\"", "own"),
    ("signature.max_age", "20s", "\"20s\"", "25h"),
    ("signature.max_ahead", "0s", "\"0s\"", "2h"),
    ("signature.nonce_retention", "7m", "\"7m\"", "359s"),
    ("signature.service_name", "2", "\"2\"", "a\nb"),
    ("store.embedded.create", "true", "true", "yes"),
    ("store.embedded.path", "elsewhere", "\"elsewhere\"", ""),
    ("store.kind", "redis", "\"redis\"", "memory"),
    ("store.redis.ca", "ca.pem", "\"ca.pem\"", ""),
    ("store.redis.cert", "a.pem", "\"a.pem\"", ""),
    ("store.redis.key", "b.pem", "\"b.pem\"", ""),
    ("store.redis.password", "word", "\"word\"", ""),
    ("store.redis.password_file", "word.txt", "\"word.txt\"", ""),
    ("store.redis.prefix", "blue:", "\"blue:\"", "a{b}"),
    ("store.redis.sentinel_password", "word", "\"word\"", ""),
    ("store.redis.sentinel_password_file", "word.txt", "\"word.txt\"", ""),
    ("store.redis.sentinel_username", "tiergate", "\"tiergate\"", ""),
    ("store.redis.timeout", "1s", "\"1s\"", "0s"),
    ("store.redis.url", "rediss://other", "\"rediss://other\"", "http://other"),
    ("store.redis.wait_replicas", "1", "1", "-1"),
    ("store.redis.wait_timeout", "1s", "\"1s\"", "6s"),
    ("tiers.average_over", "1", "1", "2"),
    ("tiers.clients", ADDRESS, LISTED_ADDRESS, "0x12"),
    ("tiers.contract", ADDRESS, QUOTED_ADDRESS, "0x12"),
    ("tiers.decimals", "3", "3", "37"),
    ("tiers.file", "others.txt", "\"others.txt\"", ""),
    ("tiers.function", "rank(uint256)", "\"rank(uint256)\"", "rank"),
    ("tiers.of", "agent_wallet", "\"agent_wallet\"", "wallet"),
    ("tiers.requests_per_minute", "1,2,3,4", "[1, 2, 3, 4]", "1,2,3"),
    ("tiers.source", "everyone", "\"everyone\"", "nobody"),
    ("tiers.stake", "1, 2,3 ,4", r#"["1", "2", "3", "4"]"#, "1,2,3"),
    ("tiers.tag", "uptime", "\"uptime\"", LONG_TAG),
    ("tiers.thresholds", "2,3", r#"["2", "3"]"#, "2,1"),
    ("tiers.tier", "3", "3", "5"),
    (
        "tiers.token",
        "0xa513E6E4b8f2a923D98304ec87F64353C4D5C853",
        "\"0xa513E6E4b8f2a923D98304ec87F64353C4D5C853\"",
        "0x1",
    ),
    ("tiers.token_decimals", "19", "19", "37"),
    ("traces.continued_per_second", "7", "7", "0"),
    ("traces.endpoint", "http://a.example/v1/traces", "\"http://a.example/v1/traces\"", "a.example"),
    ("traces.one_in", "7", "7", "-1"),
    ("web_bot_auth.domains", "a.example,*.b.example", r#"["a.example", "*.b.example"]"#, "a b"),
    ("web_bot_auth.private_domains", "a.internal:8443", r#"["a.internal:8443"]"#, "10.0.0.1"),
];

const LONG_TAG: &str =
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
const ADDRESS: &str = "0xdc64a140aa3e981100a9beca4e685f962f0cf6c9";
const QUOTED_ADDRESS: &str = "\"0xdc64a140aa3e981100a9beca4e685f962f0cf6c9\"";
const OTHER_ADDRESS: &str = "'0x9fe46736679d2d9a65f0992f2272de9f3c7fa6e0'";
const LISTED_ADDRESS: &str = "[\"0xdc64a140aa3e981100a9beca4e685f962f0cf6c9\"]";

/// The source of tiers that has this key, with what it needs.
fn source_with(path: &str) -> &'static [(&'static str, &'static str)] {
    match path {
        "tiers.contract" | "tiers.decimals" | "tiers.of" | "tiers.thresholds" => &[
            ("chain.registries", "'erc8004'"),
            ("tiers.source", "'erc20'"),
            ("tiers.contract", OTHER_ADDRESS),
            ("tiers.thresholds", "['1']"),
        ],
        "tiers.function" => &[
            ("tiers.source", "'call'"),
            ("tiers.contract", OTHER_ADDRESS),
            ("tiers.function", "'score(uint256)'"),
            ("tiers.thresholds", "['1']"),
        ],
        "tiers.average_over" | "tiers.clients" | "tiers.tag" => &[
            ("chain.registries", "'erc8004'"),
            ("chain.contracts.reputation", OTHER_ADDRESS),
            ("tiers.source", "'reputation'"),
            ("tiers.clients", "['0x9fe46736679d2d9a65f0992f2272de9f3c7fa6e0']"),
            ("tiers.thresholds", "['1']"),
        ],
        "tiers.file" => &[("tiers.source", "'list'"), ("tiers.file", "'agents.txt'")],
        "tiers.tier" => &[("tiers.source", "'everyone'")],
        _ => &[],
    }
}

/// The file in which a key is overridden: what has no default, and what goes together or has to be chosen.
fn base_with(path: &str, keys: &[(&str, &str)]) -> String {
    let base = [
        ("authz.tls.cert", "\"cert.pem\""),
        ("authz.tls.key", "\"key.pem\""),
        ("listen.tls.cert", "\"cert.pem\""),
        ("listen.tls.key", "\"key.pem\""),
        ("console.chain_name", "\"Somewhere\""),
        ("signature.service_name", "\"Somebody\""),
        ("assertion.issuer", "\"gate\""),
        ("assertion.key_file", "\"keys.pem\""),
    ];
    let redis = [
        ("store.kind", "\"redis\""),
        ("store.redis.url", "\"rediss://redis.example\""),
        ("store.redis.cert", "\"cert.pem\""),
        ("store.redis.key", "\"key.pem\""),
    ];
    let sentinels = [
        ("store.redis.url", "\"rediss-sentinel://sentinel.example/service\""),
        ("store.redis.sentinel_password", "\"first\""),
    ];
    let trusted = [("listen.trusted_proxies", "[\"10.0.0.0/8\"]")];
    let trusted = if path == "listen.proxy_protocol" { &trusted[..] } else { &[] };
    let audit = if path == "log.audit_required" { &[("log.audit", "\"stdout\"")][..] } else { &[] };
    let erc8004 = if path == "chain.feedback_max" { &[("chain.registries", "\"erc8004\"")][..] } else { &[] };
    let of_redis = path.starts_with("store.redis.");
    let of_sentinels = path.starts_with("store.redis.sentinel_");
    // One of two ways to write the same password.
    let last = if path.ends_with("_file") { 1 } else { sentinels.len() };
    let sentinels = if of_sentinels { &sentinels[..last] } else { &[] };
    minimal_with(
        &[
            &base[..],
            trusted,
            audit,
            erc8004,
            source_with(path),
            if of_redis { &redis } else { &[] },
            sentinels,
            keys,
        ]
        .concat(),
    )
}

pub(super) fn variable(path: &str) -> String {
    format!("TIERGATE__{}", path.to_uppercase().replace('.', "__"))
}

#[test]
fn every_key_is_tried() {
    let tried: Vec<&str> = OVERRIDES.iter().map(|(path, ..)| *path).collect();
    let mut shipped: Vec<String> = shipped_keys().into_iter().map(|(path, _)| path).collect();
    shipped.retain(|path| !path.starts_with("tenants"));
    assert_eq!(tried, shipped);
}

#[test]
fn every_key_is_overridden_by_its_variable_whether_or_not_the_file_has_its_section() {
    for (path, text, literal, _) in OVERRIDES {
        let overridden = parse(&base_with(path, &[]), &[(&variable(path), text)]);
        assert_eq!(overridden, parse(&base_with(path, &[(path, literal)]), &[]), "{path}");
        let changed = overridden.unwrap() != parse(&base_with(path, &[]), &[]).unwrap();
        assert!(changed || *path == "signature.agent_wallet", "{path}");
    }
}

#[test]
fn a_wrong_override_is_named_by_its_variable_and_a_right_one_mends_the_file() {
    for (path, text, _, wrong) in OVERRIDES {
        let found = problems(&base_with(path, &[]), &[(&variable(path), wrong)]);
        assert_eq!(found.len(), 1, "{path}: {found:?}");
        assert!(found[0].starts_with(&format!("{}: ", variable(path))), "{path}: {found:?}");
        let file = base_with(path, &[(path, "{}")]);
        assert!(parse(&file, &[]).is_err(), "{path}");
        assert!(parse(&file, &[(&variable(path), text)]).is_ok(), "{path}");
    }
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
