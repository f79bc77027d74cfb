//! The window of each tenant and agent, and what is said of it in headers.

use serde_json::json;

use crate::rig::case::{Case, cases};
use crate::rig::credentials::signed;
use crate::rig::scripts;
use crate::rig::site::Site;
use crate::rig::stage::{ACME, Stage, TRUSTED, agents_path, public_path};
use crate::rig::upstream::Then;
use crate::support::agents::{LIMITS, unknown_key};
use crate::support::client::Answer;
use crate::support::wire::{Request, Wire};

pub(crate) const CASES: &[Case] = cases![
    each_tier_has_its_budget_and_the_headers_say_so,
    a_tenants_own_numbers_count_there_and_only_there,
    one_tenants_traffic_spends_nobody_elses_budget_nor_the_apis,
    keys_and_signatures_share_a_budget,
    refused_requests_spend_nothing,
    at_once_exactly_the_limit_passes,
    a_change_of_tier_is_not_a_fresh_budget,
    an_upstreams_own_rate_headers_do_not_survive,
    the_headers_are_on_errors_of_the_upstream_too,
    refused_credentials_are_limited_per_client_whatever_it_says_of_itself,
];

/// The fields of the IETF draft, as written for the agent's window of a minute.
#[track_caller]
fn says(answer: &Answer, limit: u32, remaining: u32) {
    assert_eq!(answer.allowance(), (limit, remaining));
    assert_eq!(answer.header("ratelimit-policy"), Some(format!("\"agent\";q={limit};w=60").as_str()));
    let rest = match answer.header("retry-after") {
        Some(seconds) if answer.status == 429 => format!(";t={seconds}"),
        Some(_) => panic!("only with 429: {answer:?}"),
        None => String::new(),
    };
    assert_eq!(answer.header("ratelimit"), Some(format!("\"agent\";r={remaining}{rest}").as_str()));
}

/// Uses up what is left of a budget on one connection, and gives the 429.
#[track_caller]
fn use_up(wire: &mut Wire, request: &Request, limit: u32, from: u32) -> Answer {
    for left in (0..from).rev() {
        let answer = request.ask_on(wire);
        assert_eq!(answer.status, 200, "{}", answer.text());
        says(&answer, limit, left);
    }
    let answer = request.ask_on(wire);
    says(&answer, limit, 0);
    answer
}

fn each_tier_has_its_budget_and_the_headers_say_so(stage: &Stage) {
    for tier in 1..=3 {
        let (agent, key) = stage.agent(tier);
        let path = agents_path();
        let limit = LIMITS[tier - 1];
        let mut wire = stage.site().gateway.connect();
        let limited = use_up(&mut wire, &Request::get(ACME, &path).key(&key), limit, limit);
        limited.is_limited(json!(agent.text()), json!(tier), limit);
        let seen = stage.site().upstream.count_at(&path);
        assert_eq!(seen, usize::try_from(limit).unwrap(), "what is refused reaches no upstream");
    }
}

fn a_tenants_own_numbers_count_there_and_only_there(stage: &Stage) {
    for tier in 1..=4 {
        let (agent, key) = stage.agent(tier);
        let own = u32::try_from(tier).unwrap();
        let mut wire = stage.site().gateway.connect();
        let limited = use_up(&mut wire, &Request::get("own.test", &agents_path()).key(&key), own, own);
        limited.is_limited(json!(agent.text()), json!(tier), own);
        let answer = Request::get(ACME, &agents_path()).key(&key).ask_on(&mut wire);
        says(&answer, LIMITS[tier - 1], LIMITS[tier - 1] - 1);
    }
}

fn one_tenants_traffic_spends_nobody_elses_budget_nor_the_apis(stage: &Stage) {
    let (agent, key) = stage.agent(1);
    let site = stage.site();
    let mut wire = site.gateway.connect();
    let at = |host: &str| Request::get(host, &agents_path()).key(&key);
    use_up(&mut wire, &at(ACME), 1, 1).is_limited(json!(agent.text()), json!(1), 1);
    use_up(&mut wire, &at("beta.test"), 1, 1).is_limited(json!(agent.text()), json!(1), 1);
    let api = site.gateway.service.verify(&key);
    api.success(200);
    assert_eq!(api.allowance(), (1, 0));
    site.gateway.service.verify(&key).is_limited(json!(agent.text()), json!(1), 1);
    use_up(&mut wire, &at("keys.test"), 1, 1).is_limited(json!(agent.text()), json!(1), 1);
}

fn keys_and_signatures_share_a_budget(stage: &Stage) {
    let (agent, key) = stage.agent(2);
    let mut wire = stage.site().gateway.connect();
    for left in (1..16).rev() {
        let answer = Request::get(ACME, &agents_path()).with_all(&signed(&agent.draft())).ask_on(&mut wire);
        says(&answer, 16, left);
    }
    let limited = use_up(&mut wire, &Request::get(ACME, &agents_path()).key(&key), 16, 1);
    limited.is_limited(json!(agent.text()), json!(2), 16);
    let draft = agent.draft();
    let answer = Request::get(ACME, &agents_path()).with_all(&signed(&draft)).ask_on(&mut wire);
    answer.is_limited(json!(agent.text()), json!(2), 16);
    let answer = Request::get("beta.test", &agents_path()).with_all(&signed(&draft)).ask_on(&mut wire);
    says(&answer, 16, 15);
}

fn refused_requests_spend_nothing(stage: &Stage) {
    let (agent, key) = stage.agent(1);
    let site = stage.site();
    let path = agents_path();
    let both = Request::get(ACME, &path).key(&key).with("Authorization", &format!("Bearer {key}"));
    let stranger = agent.draft().by(crate::support::signing::BOB);
    for (request, status) in [
        (Request::get(ACME, &path).key(&unknown_key(20)), 401),
        (both, 401),
        (Request::get(ACME, &path).key(&key).key(&key), 401),
        (Request::get(ACME, &path).key(&key).with_all(&signed(&agent.draft())), 400),
        (Request::get(ACME, "/denied/x").key(&key), 403),
        (Request::get(ACME, "/gold/x").key(&key), 403),
        (Request::get("unknown.test", &path).key(&key), 404),
        (Request::get(ACME, &path).with_all(&signed(&stranger)), 401),
        (Request::get(ACME, &path).key(&key).with("Content-Length", "x"), 400),
    ] {
        let answer = site.gateway.ask(&request);
        assert_eq!(answer.status, status, "{request:?}: {}", answer.text());
        assert_eq!(answer.header("ratelimit"), None, "{answer:?}");
        assert_eq!(answer.header("ratelimit-policy"), None, "{answer:?}");
    }
    let mut wire = site.gateway.connect();
    use_up(&mut wire, &Request::get(ACME, &path).key(&key), 1, 1);
}

fn at_once_exactly_the_limit_passes(stage: &Stage) {
    let (agent, key) = stage.agent(2);
    let path = agents_path();
    let gateway = &stage.site().gateway;
    let request = Request::get(ACME, &path).key(&key);
    let answers: Vec<Answer> = std::thread::scope(|scope| {
        let client = || {
            let mut wire = gateway.connect();
            (0..8).map(|_| request.ask_on(&mut wire)).collect::<Vec<_>>()
        };
        let clients: Vec<_> = (0..8).map(|_| scope.spawn(client)).collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    let (passed, limited): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status == 200);
    let mut left: Vec<u32> = passed.iter().map(|answer| answer.allowance().1).collect();
    left.sort_unstable();
    assert_eq!(left, (0..16).collect::<Vec<_>>(), "each that passes counts once");
    for answer in limited {
        answer.is_limited(json!(agent.text()), json!(2), 16);
    }
    assert_eq!(stage.site().upstream.count_at(&path), 16);
}

fn a_change_of_tier_is_not_a_fresh_budget(stage: &Stage) {
    let (agent, key) = stage.agent(1);
    let request = Request::get(ACME, &agents_path()).key(&key);
    let mut wire = stage.site().gateway.connect();
    assert_eq!(use_up(&mut wire, &request, 1, 1).status, 429);
    let more = crate::support::agents::THRESHOLDS[1] - crate::support::agents::THRESHOLDS[0];
    stage.world().chain().stake(agent.id, more);
    let answer = crate::support::time::until("the tier shows", crate::support::time::SOON, || {
        let answer = request.ask_on(&mut wire);
        (answer.status == 200).then_some(answer)
    });
    says(&answer, 16, 14);
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

/// Clients behind a trusted proxy are told apart; whoever only says that there is one is not believed.
fn refused_credentials_are_limited_per_client_whatever_it_says_of_itself(stage: &Stage) {
    let site = Site::of(stage).set("abuse.failures_per_minute", 5);
    let site = site.set("listen.trusted_proxies", vec![TRUSTED]).start();
    let bad = |at: u32| {
        Request::get(ACME, &agents_path())
            .key(&unknown_key(u64::from(at)))
            .with("X-Forwarded-For", &format!("198.51.100.{at}"))
            .with("Forwarded", &format!("for=198.51.100.{at}"))
    };
    let statuses: Vec<u16> = (0..8).map(|at| site.gateway.ask(&bad(at)).status).collect();
    assert_eq!(statuses, [401, 401, 401, 401, 401, 429, 429, 429], "one client, whatever it forwards");
    let proxy: std::net::IpAddr = "127.0.0.2".parse().unwrap();
    let mut wire = Wire::open_from(proxy, site.gateway.address);
    let statuses: Vec<u16> = (0..8).map(|at| bad(at).ask_on(&mut wire).status).collect();
    assert_eq!(statuses, [401; 8], "eight clients behind a proxy");
    assert_eq!(
        site.gateway.ask(&Request::get(ACME, &public_path())).status,
        200,
        "what is public is not limited"
    );
    assert_eq!(site.upstream.count(|_| true), 1);
}
