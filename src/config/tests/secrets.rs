//! A provider's key in an RPC URL shows up nowhere, nor does a password of Redis.

use super::declared::file_with;
use super::{MINIMAL, minimal_with, parse};
use crate::config::schema::declared;

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
    for key in declared() {
        let path = key.path.replace("[]", "[1]");
        for literal in [format!("{url:?}"), format!("[{url:?}]"), format!("{{ x = {url:?} }}")] {
            let Err(found) = parse(&file_with(&path, &[(&path, &literal)]), &[]) else { continue };
            assert!(!format!("{found} {found:?} {found:#?}").contains("SECRET"), "{path}: {found}");
        }
    }
    let printed = printed(&format!("{url:?} = 1\n{MINIMAL}"), &[(&format!("TIERGATE__{url}"), url)]);
    assert!(printed.contains("https://node.example: is not a known key"), "{printed}");
    assert!(!printed.contains("SECRET"), "{printed}");
}

#[test]
fn a_password_of_redis_is_in_no_debug_display_or_problem() {
    let urls = [
        "redis://user:SECRET@redis.example/1",
        "redis-sentinel://:SECRET@a,b/service",
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
    let (password, sentinel) = ("password = 'SECRET'", "sentinel_password = 'SECRET'");
    let both = format!("{sentinel}, sentinel_password_file = 'SECRET'");
    let mut accepted = 0;
    for url in urls {
        let text = format!("url = '{url}'");
        for keys in [
            &text,
            password,
            &format!("{text}, {password}"),
            &format!("{text}, {sentinel}"),
            &format!("{text}, {both}"),
            "password = ['SECRET']",
        ] {
            for kind in ["'embedded'", "'redis'"] {
                let text = minimal_with(&[("store.kind", kind), ("store.redis", &format!("{{ {keys} }}"))]);
                accepted += usize::from(parse(&text, &[]).is_ok());
                let printed = printed(&text, &[]);
                assert!(!printed.contains("SECRET"), "{text}\n{printed}");
            }
        }
        let overridden =
            ["KIND", "REDIS__URL", "REDIS__PASSWORD"].map(|key| format!("TIERGATE__STORE__{key}"));
        let overridden = [(&*overridden[0], "redis"), (&overridden[1], url), (&overridden[2], "SECRET")];
        assert!(!printed(MINIMAL, &overridden).contains("SECRET"), "{url}");
    }
    assert_eq!(accepted, 16);
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
