//! Paths that servers read in more than one way never pass where a plain one would not.

use crate::rig::case::{Case, cases};
use crate::rig::site::Site;
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

/// Asks for a path of each spelling, as `request` makes it of host and target. Each is refused, and none arrives.
#[track_caller]
fn refuses(stage: &Stage, spellings: &[(&str, &str)], request: impl Fn(&str, &str) -> Request) {
    let site = stage.site();
    let (mut wrong, mut words) = (Vec::new(), Vec::new());
    for (host, pattern) in spellings {
        let (target, word) = spelled(pattern);
        let answer = site.gateway.ask(&request(host, &target));
        if !matches!(answer.status, 400 | 401 | 403) {
            wrong.push(format!("{host}{target}: {}", answer.status));
        }
        words.push(word);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(words.len() > 5, "{words:?}");
    site.are_unseen(&words);
}

/// Spellings that are all for the tenant that most cases use.
fn at_acme<'a>(spellings: &[&'a str]) -> Vec<(&'static str, &'a str)> {
    spellings.iter().map(|pattern| (ACME, *pattern)).collect()
}

fn an_ambiguous_path_is_never_public(stage: &Stage) {
    let mut spellings = LOOSE.to_vec();
    spellings.retain(|pattern| !HARMLESS.contains(pattern));
    refuses(stage, &at_acme(&spellings), Request::get);
}

fn an_ambiguous_path_does_not_get_around_a_denied_route(stage: &Stage) {
    let (_, key) = stage.agent(4);
    let spellings = at_acme(&[
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
    ]);
    refuses(stage, &spellings, Request::get);
    refuses(stage, &spellings, |host, target| Request::get(host, target).key(&key));
}

/// Denied or for agents, in front of a folder that is public.
fn no_spelling_of_a_denied_path_below_a_public_one_passes(stage: &Stage) {
    let upstream = Upstream::start();
    let tenant = Tenant::new("t", ACME, upstream.address)
        .route("/public/secret", r#"access = "deny""#)
        .route("/public/agents/*", r#"access = "agents""#)
        .public();
    let Site { gateway, .. } = &Site::of(stage).only(vec![tenant]).start();
    let status = |target: &str| gateway.ask(&Request::get(ACME, target)).status;
    let mut wrong = Vec::new();
    for (name, escaped, wanted) in [("secret", "73ecret", 403), ("agents/x", "61gents/x", 401)] {
        for target in [
            format!("/public/{name}"),
            format!("/public/{name}/below"),
            format!("/public/%{escaped}"),
            format!("/public/%25{escaped}"),
            format!("/public/./{name}"),
            format!("/public//{name}"),
            format!("/public/x/%2e%2e/{name}"),
            format!("/public/x/..;/{name}"),
            format!("/public/{name};x"),
            format!("/public/{name}%2f"),
            format!("/public/{name}."),
            format!("/public\\{name}"),
            format!("/%70ublic/{name}"),
        ] {
            let status = status(&target);
            // A path that leads anywhere is denied: one of the routes is.
            wrong.extend((status != wanted && status != 403).then(|| format!("{target}: {status}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for target in ["/public/secrets", "/public/other", "/public/agents", "/public/x/secret"] {
        assert_eq!(status(target), 200, "{target}");
    }
    assert_eq!(upstream.seen().len(), 4);
}

fn an_ambiguous_path_does_not_get_a_lower_tier(stage: &Stage) {
    let (_, key) = stage.agent(2);
    // golden.test wants tier 3, and tier 2 below /silver; acme.test tier 1, and 3 below /gold.
    let spellings = [
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
    ];
    refuses(stage, &spellings, |host, target| Request::get(host, target).key(&key));
}

fn with_a_credential_an_ambiguous_path_goes_through_as_it_is_or_is_refused(stage: &Stage) {
    let (_, key) = stage.agent(4);
    let site = stage.site();
    let (mut passed, mut refused) = (0, Vec::new());
    for pattern in LOOSE {
        let (target, word) = spelled(pattern);
        let answer = site.gateway.ask(&Request::get(ACME, &target).key(&key));
        match answer.status {
            200 => {
                let seen = site.upstream.seen_with(&word);
                let line = format!("GET {target} HTTP/1.1\r\n");
                assert!(seen.len() == 1 && seen[0].head.starts_with(line.as_bytes()), "{target}: {seen:?}");
                passed += 1;
            }
            400 | 403 => refused.push(word),
            other => panic!("{target}: {other} {}", answer.text()),
        }
    }
    assert!(passed > 10, "an API of a tenant may use such paths for agents: {passed}");
    site.are_unseen(&refused);
}

fn targets_in_another_form_than_a_path_are_refused(stage: &Stage) {
    let (_, key) = stage.agent(4);
    let spellings = at_acme(&[
        "http://acme.test/public/{}",
        "http://golden.test/public/{}",
        "https://acme.test/public/{}",
        "acme.test/public/{}",
        "public/{}",
        "*{}",
        "?{}",
        ":/public/{}",
        "/public/{}#x",
    ]);
    refuses(stage, &spellings, Request::get);
    refuses(stage, &spellings, |host, target| Request::get(host, target).key(&key));
    let asterisk = stage.site().gateway.ask(&Request::new("OPTIONS", ACME, "*"));
    assert_eq!(asterisk.status, 403, "{}", asterisk.text());
}
