//! Paths that servers read in more than one way never pass where a plain one would not.

use crate::rig::case::{Case, cases};
use crate::rig::gateway::Gateway;
use crate::rig::stage::{ACME, Stage, unique};
use crate::rig::tenants::Tenant;
use crate::rig::upstream::Upstream;
use crate::support::wire::Request;

pub(crate) const CASES: &[Case] = cases![
    an_ambiguous_path_is_never_public,
    an_ambiguous_path_does_not_get_around_a_denied_route,
    no_spelling_of_a_denied_path_below_a_public_one_passes,
    an_ambiguous_path_does_not_get_a_lower_tier,
    with_a_credential_an_ambiguous_path_goes_through_as_it_is_or_is_refused,
    targets_in_another_form_than_a_path_are_refused,
    no_spelling_of_a_path_that_is_public_goes_anywhere_else,
];

/// Spellings of a path that some server reads as one below another folder than `/public`; `{}` is a word of the case.
const LOOSE: &[&str] = &[
    "/public/../{}",
    "/public/./../{}",
    "/public/x/../../{}",
    "/public/..?{}",
    "/public/../{}/",
    "/public/%2e%2e/{}",
    "/public/%2E%2e/{}",
    "/public/.%2e/{}",
    "/public/%2e./{}",
    "/public/%252e%252e/{}",
    "/public/..%2f{}",
    "/public/..%2F{}",
    "/public%2f..%2f{}",
    "/public/%2e%2e%2f{}",
    "/public/..%252f{}",
    "/public/..%5c{}",
    "/public/..\\{}",
    "/public\\..\\{}",
    "/public/\\../{}",
    "/public/..;/{}",
    "/public/..;x=y/{}",
    "/public/;/../{}",
    "/public;/../{}",
    "/public;x/{}",
    "/public/{};x",
    "/public/.;/{}",
    "/public//{}",
    "//public/{}",
    "/public/./{}",
    "/./public/{}",
    "/x/../public/{}",
    "/public/{}/.",
    "/public/{}/..",
    "/public/{}%2f",
    "/public/{}%5c",
    "/public/{}%3b",
    "/public/{}%3f",
    "/public/{}%23",
    "/public/{}%25",
    "/public/{}%00",
    "/public/{}%0d%0a",
    "/public/{}%7f",
    "/public/%61{}",
    "/%70ublic/{}",
    "/public/{}%2e",
    "/public/{}%",
    "/public/{}%zz",
    "/public/{}%2",
    "/public/{}%u002f",
    "/public/%c0%ae%c0%ae/{}",
    "/public/{}/%2e%2e/%2e%2e/x",
];

/// Of these every reader makes something below `/public`, so that they may pass, as the bytes that they are.
const HARMLESS: &[&str] = &["/public/%61{}"];

fn spelled(pattern: &str) -> (String, String) {
    let word = unique();
    (pattern.replace("{}", &word), word)
}

fn an_ambiguous_path_is_never_public(stage: &Stage) {
    let house = stage.house();
    let mut wrong = Vec::new();
    for pattern in LOOSE.iter().filter(|pattern| !HARMLESS.contains(pattern)) {
        let (target, word) = spelled(pattern);
        let answer = house.gateway.ask(&Request::get(ACME, &target));
        if !matches!(answer.status, 400 | 401 | 403) || !house.upstream.seen_with(&word).is_empty() {
            wrong.push(format!("{target}: {}", answer.status));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn an_ambiguous_path_does_not_get_around_a_denied_route(stage: &Stage) {
    let (_, key) = stage.agent(4);
    let house = stage.house();
    let mut wrong = Vec::new();
    for pattern in [
        "/x/../denied/{}",
        "//denied/{}",
        "/denied//{}",
        "/./denied/{}",
        "/denied/./{}",
        "/%64enied/{}",
        "/%2564enied/{}",
        "/denied%2f{}",
        "/denied%252f{}",
        "/x/%2e%2e/denied/{}",
        "/x/..%2fdenied/{}",
        "/denied\\{}",
        "\\denied\\{}",
        "/denied;x/{}",
        "/;/denied/{}",
        "/x;/../denied/{}",
        "/public/../denied/{}",
        "/denied/x/../{}",
    ] {
        let (target, word) = spelled(pattern);
        for request in [Request::get(ACME, &target), Request::get(ACME, &target).key(&key)] {
            let answer = house.gateway.ask(&request);
            if !matches!(answer.status, 400 | 401 | 403) || !house.upstream.seen_with(&word).is_empty() {
                wrong.push(format!("{target}: {}", answer.status));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Denied, for agents, or of a higher tier below a folder that is public, and a neighbour that is not.
fn no_spelling_of_a_denied_path_below_a_public_one_passes(stage: &Stage) {
    let upstream = Upstream::start();
    let tenant = Tenant::new("t", "t.test", upstream.address)
        .route("/public/secret", r#"access = "deny""#)
        .route("/public/agents/*", r#"access = "agents""#)
        .public();
    let gateway = Gateway::start(stage, &[tenant]);
    let mut wrong = Vec::new();
    for name in ["secret", "agents/x"] {
        let (first, rest) = name.split_at(1);
        let escaped = format!("%{:02x}{rest}", first.as_bytes()[0]);
        let twice = format!("%25{:02x}{rest}", first.as_bytes()[0]);
        for target in [
            format!("/public/{name}"),
            format!("/public/{name}/below"),
            format!("/public/{escaped}"),
            format!("/public/{twice}"),
            format!("/public/./{name}"),
            format!("/public//{name}"),
            format!("//public/{name}"),
            format!("/public/x/../{name}"),
            format!("/public/x/%2e%2e/{name}"),
            format!("/public/x/..%2f{name}"),
            format!("/public/x/..;/{name}"),
            format!("/public/;/{name}"),
            format!("/public/{name};x"),
            format!("/public/{name}%2f"),
            format!("/public/{name}%3bx"),
            format!("/public/{name}%3fx"),
            format!("/public/{name}%23x"),
            format!("/public/{name}%00"),
            format!("/public/{name}%20"),
            format!("/public/{name}."),
            format!("/public/{name}/."),
            format!("/public/{name}/x/.."),
            format!("/public%2f{name}"),
            format!("/public\\{name}"),
            format!("/public/\\{name}"),
            format!("/%70ublic/{name}"),
        ] {
            let answer = gateway.ask(&Request::get("t.test", &target));
            if !matches!(answer.status, 400 | 401 | 403) {
                wrong.push(format!("{target}: {}", answer.status));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(upstream.seen().is_empty(), "{:?}", upstream.seen());
    for target in ["/public/secrets", "/public/other", "/public/agents", "/public/x/secret"] {
        assert_eq!(gateway.ask(&Request::get("t.test", target)).status, 200, "{target}");
    }
}

fn an_ambiguous_path_does_not_get_a_lower_tier(stage: &Stage) {
    let (_, key) = stage.agent(2);
    let house = stage.house();
    let mut wrong = Vec::new();
    // golden.test wants tier 3, and tier 2 below /silver; acme.test tier 1, and 3 below /gold.
    for (host, pattern) in [
        ("golden.test", "/silver/../{}"),
        ("golden.test", "/silver/%2e%2e/{}"),
        ("golden.test", "/silver/..%2f{}"),
        ("golden.test", "/silver//{}"),
        ("golden.test", "/silver/..;/{}"),
        ("golden.test", "/%73ilver/{}"),
        (ACME, "/x/../gold/{}"),
        (ACME, "//gold/{}"),
        (ACME, "/%67old/{}"),
        (ACME, "/gold%2f{}"),
        (ACME, "/gold;x/{}"),
        (ACME, "/.;/gold/{}"),
        (ACME, "/public/../gold/{}"),
    ] {
        let (target, word) = spelled(pattern);
        let answer = house.gateway.ask(&Request::get(host, &target).key(&key));
        if !matches!(answer.status, 400 | 403) || !house.upstream.seen_with(&word).is_empty() {
            wrong.push(format!("{host}{target}: {}", answer.status));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn with_a_credential_an_ambiguous_path_goes_through_as_it_is_or_is_refused(stage: &Stage) {
    let (_, key) = stage.agent(4);
    let house = stage.house();
    let mut passed = 0;
    for pattern in LOOSE {
        let (target, word) = spelled(pattern);
        let answer = house.gateway.ask(&Request::get(ACME, &target).key(&key));
        let seen = house.upstream.seen_with(&word);
        match answer.status {
            200 => {
                assert_eq!(seen.len(), 1, "{target}");
                assert!(
                    seen[0].head.starts_with(format!("GET {target} HTTP/1.1\r\n").as_bytes()),
                    "{target}"
                );
                passed += 1;
            }
            400 | 403 => assert!(seen.is_empty(), "{target}"),
            other => panic!("{target}: {other} {}", answer.text()),
        }
    }
    assert!(passed > 10, "an API of a tenant may use such paths for agents: {passed}");
}

fn targets_in_another_form_than_a_path_are_refused(stage: &Stage) {
    let (_, key) = stage.agent(4);
    let house = stage.house();
    for pattern in [
        "http://acme.test/public/{}",
        "http://golden.test/public/{}",
        "https://acme.test/public/{}",
        "acme.test/public/{}",
        "public/{}",
        "*{}",
        "?{}",
        ":/public/{}",
        "/public/{}#x",
    ] {
        let (target, word) = spelled(pattern);
        for request in [Request::get(ACME, &target), Request::get(ACME, &target).key(&key)] {
            let answer = house.gateway.ask(&request);
            assert!(matches!(answer.status, 400 | 403), "{target}: {}", answer.text());
            assert!(house.upstream.seen_with(&word).is_empty(), "{target}");
        }
    }
    let asterisk = house.gateway.ask(&Request::new("OPTIONS", ACME, "*"));
    assert!(matches!(asterisk.status, 400 | 401 | 403), "{}", asterisk.text());
    for target in ["acme.test:80", "127.0.0.1:80", "/public/x"] {
        let answer = house.gateway.ask(&Request::new("CONNECT", ACME, target).key(&key));
        assert!(matches!(answer.status, 400 | 403 | 405), "CONNECT {target}: {}", answer.text());
    }
}

/// A route that is public under one name only; whatever passes without a credential must be that name, byte for byte.
fn no_spelling_of_a_path_that_is_public_goes_anywhere_else(stage: &Stage) {
    let upstream = Upstream::start();
    let tenant = Tenant::new("t", "t.test", upstream.address)
        .route("/health", r#"access = "public""#)
        .route("/static/*.css", r#"access = "public""#);
    let gateway = Gateway::start(stage, &[tenant]);
    let pieces =
        ["/", "health", "static", "a.css", "..", ".", "%2e%2e", "%2f", ";", "\\", "%5c", "%00", "admin"];
    let mut targets = Vec::new();
    for first in pieces {
        for second in pieces {
            for third in pieces {
                targets.push(format!("/health{first}{second}{third}"));
                targets.push(format!("/{first}{second}{third}.css"));
                targets.push(format!("/static/{first}{second}{third}.css"));
            }
        }
    }
    let mut wire = gateway.connect();
    for target in &targets {
        let answer = Request::get("t.test", target).ask_on(&mut wire);
        if answer.status == 400 || answer.header("connection").is_some_and(|option| option == "close") {
            wire = gateway.connect();
        }
    }
    let seen = upstream.seen();
    assert!(!seen.is_empty(), "some of them are plain");
    for seen in seen {
        let path = seen.path();
        let path = path.replace("%2e", ".");
        let odd = ["//", "%2", "%5", "%00", ";", "\\"].iter().any(|odd| path.contains(odd));
        let plain = !odd && !path.split('/').any(|segment| segment == "." || segment == "..");
        let below_health =
            path.strip_prefix("/health").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let style =
            path.strip_prefix("/static/").is_some_and(|rest| rest.ends_with(".css") && !rest.contains('/'));
        assert!(plain && (below_health || style), "{} passed without a credential", seen.target);
    }
    assert!(upstream.broken().is_empty(), "{:?}", upstream.broken());
}
