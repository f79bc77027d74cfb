//! The headers about an agent's window on answers of upstreams, and the budget of refused credentials. `entry points` has the windows.

use crate::rig::case::{Case, cases};
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::rig::{scripts, upstream::Then};
use crate::support::{client::Answer, wire::Request};

pub(crate) const CASES: &[Case] =
    cases![an_upstreams_own_rate_headers_do_not_survive, the_headers_are_on_errors_of_the_upstream_too,];

/// The fields of the IETF draft, as written for the agent's window of a minute.
#[track_caller]
fn says(answer: &Answer, limit: u32, remaining: u32) {
    assert_eq!(answer.allowance(), (limit, remaining));
    assert_eq!(answer.header("ratelimit-policy"), Some(format!("\"agent\";q={limit};w=60").as_str()));
    assert_eq!(answer.header("retry-after"), None, "only with 429");
    assert_eq!(answer.header("ratelimit"), Some(format!("\"agent\";r={remaining}").as_str()));
}

/// What an upstream with a limiter and agents of its own may send.
const FOREIGN: &[(&str, &str)] = &[
    ("X-RateLimit-Limit", "9999"),
    ("x-ratelimit-remaining", "9998"),
    ("X-RateLimit-Reset", "9997"),
    ("RateLimit", "\"up\";r=9996"),
    ("ratelimit", "\"again\";r=9995"),
    ("RateLimit-Policy", "\"up\";q=9994;w=1"),
    ("RateLimit-Limit", "9993"),
    ("RateLimit-Remaining", "9992"),
    ("RateLimit-Reset", "9991"),
];

/// Names of rate headers that are not one of ours.
fn strange(answer: &Answer) -> Vec<&(String, String)> {
    answer.headers.iter().filter(|(_, value)| value.contains("999")).collect()
}

// threat: An upstream's own limit headers
fn an_upstreams_own_rate_headers_do_not_survive(stage: &Stage) {
    let (_, key) = stage.agent(3);
    let site = stage.site();
    let ask = |path: &str| {
        site.upstream.on(path, scripts::bytes(scripts::answer("200 OK", FOREIGN, b"ok"), Then::Goes));
        let answer = site.gateway.ask(&Request::get(ACME, path).key(&key));
        assert_eq!((answer.status, answer.text().as_str()), (200, "ok"));
        assert!(strange(&answer).is_empty(), "{answer:?}");
        answer
    };
    says(&ask(&agents_path()), 166, 165);
    ask(&public_path());
}

fn the_headers_are_on_errors_of_the_upstream_too(stage: &Stage) {
    let (_, key) = stage.agent(3);
    let site = stage.site();
    let path = agents_path();
    let mut wire = site.gateway.connect();
    for (spent, status) in [(1, "404 Not Found"), (2, "500 No"), (3, "304 Same"), (4, "503 No")] {
        site.upstream.on(&path, scripts::bytes(scripts::answer(status, &[], b""), Then::Goes));
        let answer = Request::get(ACME, &path).key(&key).ask_on(&mut wire);
        assert!(status.starts_with(&answer.status.to_string()), "{}", answer.text());
        says(&answer, 166, 166 - spent);
    }
}
