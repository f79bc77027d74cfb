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

/// Spellings that some server may read as any path, so that a denied route denies them. `{}` is a word of the case.
const LIKE_ANY: &[&str] = &[
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
    "/public/.;/{}",
    "/public/./{}",
    "/./public/{}",
    "/x/../public/{}",
    "/public/{}/.",
    "/public/{}/..",
    "/public/{}%00",
    "/public/{}%0d%0a",
    "/public/{}%7f",
    "/public/{}%",
    "/public/{}%zz",
    "/public/{}%2",
    "/public/{}%u002f",
    "/public/%c0%ae%c0%ae/{}",
    "/public/{}/%2e%2e/%2e%2e/x",
];

/// Spellings that some server reads as a path outside of `/public`, but none as a denied one.
const LIKE_AGENTS: &[&str] = &[
    "/public;x/{}",
    "/public/{};x",
    "/public//{}",
    "//public/{}",
    "/public/{}%2f",
    "/public/{}%5c",
    "/public/{}%3b",
    "/public/{}%3f",
    "/public/{}%23",
    "/public/{}%25",
    "/%70ublic/{}",
    "/public/{}%2e",
];

fn spelled(pattern: &str) -> (String, String) {
    let word = unique();
    (pattern.replace("{}", &word), word)
}

/// Asks for a path of each spelling, as `request` makes it of host and target. Each gets this status, and none arrives.
#[track_caller]
fn refuses(stage: &Stage, status: u16, spellings: &[(&str, &str)], request: impl Fn(&str, &str) -> Request) {
    let site = stage.site();
    let (mut wrong, mut words) = (Vec::new(), Vec::new());
    for (host, pattern) in spellings {
        let (target, word) = spelled(pattern);
        let answer = site.gateway.ask(&request(host, &target));
        if answer.status != status {
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
    refuses(stage, 403, &at_acme(LIKE_ANY), Request::get);
    refuses(stage, 401, &at_acme(LIKE_AGENTS), Request::get);
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
        "/denied;x/{}",
        "/;/denied/{}",
        "/x;/../denied/{}",
        "/public/../denied/{}",
        "/denied/x/../{}",
    ]);
    refuses(stage, 403, &spellings, Request::get);
    refuses(stage, 403, &spellings, |host, target| Request::get(host, target).key(&key));
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
    refuses(stage, 403, &spellings, |host, target| Request::get(host, target).key(&key));
}

fn with_a_credential_an_ambiguous_path_goes_through_as_it_is_or_is_refused(stage: &Stage) {
    let (_, key) = stage.agent(4);
    let site = stage.site();
    refuses(stage, 403, &at_acme(LIKE_ANY), |host, target| Request::get(host, target).key(&key));
    // A tenant's API may use such paths for agents. The last is below `/public` for every reader.
    for pattern in LIKE_AGENTS.iter().chain(&["/public/%61{}"]) {
        let (target, word) = spelled(pattern);
        let answer = site.gateway.ask(&Request::get(ACME, &target).key(&key));
        assert_eq!(answer.status, 200, "{target}: {}", answer.text());
        let seen = site.upstream.seen_with(&word);
        let line = format!("GET {target} HTTP/1.1\r\n");
        assert!(seen.len() == 1 && seen[0].head.starts_with(line.as_bytes()), "{target}: {seen:?}");
    }
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
        "\\public\\{}",
        "\\denied\\{}",
    ]);
    refuses(stage, 400, &spellings, Request::get);
    refuses(stage, 400, &spellings, |host, target| Request::get(host, target).key(&key));
    let asterisk = stage.site().gateway.ask(&Request::new("OPTIONS", ACME, "*"));
    assert_eq!(asterisk.status, 403, "{}", asterisk.text());
}
