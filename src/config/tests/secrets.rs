//! A provider's key in an RPC URL shows up nowhere, nor does a password of Redis.

use super::{MINIMAL, TENANT, minimal_with, parse};

/// Ways to write a URL that holds a key, right and wrong ones.
const URLS: &[&str] = &[
    "https://node.example/v3/SECRET",
    "https://SECRET:SECRET@node.example:8443/?key=SECRET",
    "ws://node.example/v3/SECRET",
    "ws://user:SECRET@node.example",
    "https://user:SEC/SECRET@node.example",
    "https://user:SECRET",
    "https://node.example:99999/SECRET",
    "https:/node.example/SECRET",
    "https:SECRET",
    "https://node.example/SECRET blank",
    " https://node.example/SECRET",
    "https://node.example/#SECRET",
    "node.example/v3/SECRET",
    "SECRET@node.example",
    "[https://node.example/SECRET",
    "[https://node.example/SECRET]",
    "[\"https://node.example/\\qSECRET\"]",
    "[\"ws://node.example/SECRET\"]",
    "x = \"https://node.example/SECRET\"",
];

/// Everything that a caller could print.
fn printed(text: &str, environment: &[(&str, &str)]) -> String {
    match parse(text, environment) {
        Ok(settings) => format!("{settings:?} {settings:#?} {:?}", settings.fixed.chain.pool.urls),
        Err(problems) => format!("{problems} {problems:?} {problems:#?}"),
    }
}

// threat: Providers' keys in `rpcUrl`
#[test]
fn a_key_in_an_rpc_url_is_in_no_debug_display_or_problem() {
    let mut accepted = 0;
    for url in URLS {
        let quoted = format!("{:?}", toml::Value::from(*url).to_string());
        let literal = toml::Value::from(*url).to_string();
        let rest = "\n[chain.contracts]\nidentity = \"x\"";
        for (text, environment) in [
            (minimal_with(&[("chain.rpc_urls", &format!("[{literal}]"))]), None),
            (minimal_with(&[("chain.rpc_urls", &literal)]), None),
            (minimal_with(&[("chain.rpc_urls", &format!("{{ x = {literal} }}"))]), None),
            (MINIMAL.to_owned(), Some(*url)),
            // Not TOML, in as many ways as come to mind.
            (format!("[chain]\nrpc_urls = {url}{rest}"), None),
            (format!("[chain]\nrpc_urls = [{url}]{rest}"), None),
            (format!("[chain]\nrpc_urls = [{literal}{rest}"), None),
            (format!("[chain]\nrpc_urls = [\"{url}{rest}"), None),
            (format!("[chain]\nrpc_urls = {quoted} x{rest}"), None),
            (format!("[chain]\nrpc_urls {literal}{rest}"), None),
            (format!("[chain]\n{literal} = 1\n{literal} = 2{rest}"), None),
        ] {
            let environment: Vec<_> =
                environment.map(|url| ("TIERGATE__CHAIN__RPC_URLS", url)).into_iter().collect();
            accepted += usize::from(parse(&text, &environment).is_ok());
            let printed = printed(&text, &environment);
            assert!(!printed.contains("SECRET"), "{text}\n{environment:?}\n{printed}");
            assert!(!printed.contains("Url {"), "{printed}");
        }
    }
    assert_eq!(
        accepted, 5,
        "the two right ones from file and environment, and there the one with a blank in front"
    );
}

#[test]
fn a_url_pasted_under_another_key_or_as_a_key_shows_no_more_than_its_host() {
    let url = "https://user:SECRET@node.example/SECRET";
    for path in ["listen.api", "chain.multicall", "chain.poll_interval", "keys.prefix", "store.kind"] {
        let printed = printed(&minimal_with(&[(path, &format!("{url:?}"))]), &[]);
        assert!(printed.contains("https://node.example") && !printed.contains("SECRET"), "{printed}");
    }
    for key in
        ["id", "hosts", "upstreams", "host_header", "tls.cert", "health.path", "upstream_tls.server_name"]
    {
        for literal in [format!("{url:?}"), format!("[{url:?}]")] {
            let of_tenant = (&*format!("tenants[1].{key}"), &*literal);
            let printed = printed(&minimal_with(&[&TENANT[..], &[of_tenant]].concat()), &[]);
            assert!(!printed.contains("SECRET"), "{key}: {printed}");
        }
    }
    let printed = printed(&format!("{url:?} = 1\n{MINIMAL}"), &[(&format!("TIERGATE__{url}"), url)]);
    assert!(
        printed.contains("https://node.example: is not a known key") && !printed.contains("SECRET"),
        "{printed}"
    );
}

#[test]
fn a_password_of_redis_is_in_no_debug_display_or_problem() {
    let urls = [
        "redis://user:SECRET@redis.example/1",
        "rediss://:SECRET@redis.example",
        "redis-sentinel://:SECRET@a,b/service",
        "rediss-sentinel://:SECRET@a,b/service",
        "redis+cluster://:SECRET@a,b",
        "redis://user:SECRET",
        "redis://user:SEC/SECRET@redis.example",
        "redis://:SECRET@redis.example/x",
        "redis://:SEC#RETSECRET@a",
        "http://:SECRET@redis.example",
        "redis://SECRET@redis.example",
        "redis://:SECRET@redis.example?SECRET",
        ":SECRET@redis.example",
    ];
    let mut accepted = 0;
    for kind in ["embedded", "redis"] {
        for url in urls {
            let (kind, literal) = (format!("{kind:?}"), format!("{url:?}"));
            let keys = [
                ("store.kind", kind.as_str()),
                ("store.redis.url", &literal),
                ("store.redis.password", "\"SECRET\""),
            ];
            let sentinel = ("store.redis.sentinel_password", "\"SECRET\"");
            for text in [
                minimal_with(&keys),
                minimal_with(&keys[..2]),
                minimal_with(&[keys[0], keys[2]]),
                minimal_with(&[keys[0], keys[1], sentinel]),
                minimal_with(&[
                    keys[0],
                    keys[1],
                    sentinel,
                    ("store.redis.sentinel_password_file", "\"SECRET\""),
                ]),
            ] {
                accepted += usize::from(parse(&text, &[]).is_ok());
                let printed = printed(&text, &[]);
                assert!(!printed.contains("SECRET"), "{text}\n{printed}");
            }
            let overridden =
                [("TIERGATE__STORE__REDIS__URL", url), ("TIERGATE__STORE__REDIS__PASSWORD", "SECRET")];
            assert!(!printed(&minimal_with(&[("store.kind", &kind)]), &overridden).contains("SECRET"));
        }
    }
    assert_eq!(accepted, 21);
    let printed =
        printed(&minimal_with(&[("store.redis.password", "[\"SECRET\"]"), ("store.kind", "\"redis\"")]), &[]);
    assert!(printed.contains("store.redis.password: is an array"), "{printed}");
}

#[test]
fn no_problem_shows_a_value_that_may_be_a_secret() {
    for text in [
        "[store.redis]\npassword = [\"5ecret\"]",
        "[store.redis]\npassword = 55555",
        "[store.redis]\npassword_file = \"\"\npassword_file = \"5ecret\"",
        "[store.redis]\nsentinel_username = \"5ecret\"",
        "[store.redis]\npasword = \"5ecret word\"",
        "[chain]\nrpc_urls = [\"5ecret\"]",
        "[chain]\nrpc_headers = \"key: 5ecret\"",
        "[chain]\nrpc_headers = [{ valu = \"5ecret\" }]",
        "[listen]\napi = \"http://a.example/5ecret\"",
        "[listen]\napi = \"user:5ecret@a.example\"",
        "[listen]\napi = \"here\" # not \"5ecret\"",
        "[store.redis]\npassword = 5ecret",
        "[store.redis]\npassword =\n5ecret",
        "[store.redis]\npassword 5ecret",
        "[store.redis]\npassword = \"\"\"\n5ecret = 1\n\"\"\" x",
        "\"https://a.example/5ecret\" = 1",
        "[store.redis]\npassword = 55555555555555555555",
    ] {
        let printed = printed(&format!("{text}\n"), &[]);
        assert!(!printed.contains("5ecret") && !printed.contains("5555"), "{printed}");
    }
}
