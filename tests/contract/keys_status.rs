//! `GET /keys/status`: public, within a budget of the client's own.

use alloy::primitives::U256;
use serde_json::{Value, json};

use crate::support::agents::unknown_key;
use crate::support::harness::{Case, cases};
use crate::support::service::Service;
use crate::support::world::World;

pub(crate) const CASES: &[Case<World>] = cases![
    status_follows_the_key,
    status_of_an_agent_that_does_not_exist_is_false,
    leading_zeros_name_the_same_agent,
    status_shows_the_budget_and_does_not_spend_it,
    a_client_that_asks_too_often_is_limited_and_nobody_else,
];

/// About the query.
pub(crate) const QUERIES: &[Case<World>] = cases![a_wrong_query_is_a_validation_error];

fn status_follows_the_key(world: &World) {
    let (service, agent) = (world.service(), world.agent(0));
    let shows = |has_key: bool| {
        let body = service.status(&agent.text()).success(200);
        assert_eq!(body, json!({ "hasKey": has_key, "agentId": agent.text() }));
    };
    shows(false);
    agent.generate(service);
    shows(true);
    service.rotate(&agent.signed()).success(200);
    shows(true);
    service.revoke(&agent.signed()).success(200);
    shows(false);
}

fn status_of_an_agent_that_does_not_exist_is_false(world: &World) {
    for id in [U256::ZERO, U256::from(999_999_999), U256::MAX] {
        let body = world.service().status(&id.to_string()).success(200);
        assert_eq!(body, json!({ "hasKey": false, "agentId": id.to_string() }));
    }
}

fn leading_zeros_name_the_same_agent(world: &World) {
    let (service, agent) = (world.service(), world.agent(0));
    agent.generate(service);
    for zeros in ["0", "00"] {
        let body = service.status(&format!("{zeros}{}", agent.id)).success(200);
        assert_eq!(body, json!({ "hasKey": true, "agentId": agent.text() }));
    }
}

fn status_shows_the_budget_and_does_not_spend_it(world: &World) {
    let (service, agent) = (world.service(), world.agent(0));
    for _ in 0..20 {
        assert_eq!(service.status(&agent.text()).allowance(), (10, 10));
    }
    agent.generate(service);
    assert_eq!(service.status(&agent.text()).allowance(), (10, 9));
}

fn a_client_that_asks_too_often_is_limited_and_nobody_else(world: &World) {
    let trusted: Vec<toml::Value> = vec!["127.0.0.0/8".into()];
    let settings =
        world.settings().set("abuse.failures_per_minute", 4).set("listen.trusted_proxies", trusted);
    let (service, agent) = (&Service::start(settings), world.agent(4));
    let key = agent.generate(service);
    let ask = |client: &str, id: &str| {
        service.request("GET", &format!("/keys/status?agentId={id}"), &[("X-Forwarded-For", client)], None)
    };
    // Whatever agents it asks for.
    for id in ["1", "2", &agent.text(), "999999999"] {
        ask("203.0.113.1", id).success(200);
    }
    let retry_after = ask("203.0.113.1", &agent.text()).is_limited(json!(agent.text()), Value::Null, 4);
    assert!((1..=60).contains(&retry_after), "{retry_after}");
    assert_eq!(ask("203.0.113.2", &agent.text()).success(200)["hasKey"], json!(true));
    // It has used up nothing but its questions.
    let headers = [("X-Forwarded-For", "203.0.113.1")];
    let unknown = json!({ "apiKey": unknown_key(2) }).to_string();
    service.request("POST", "/verify", &headers, Some(unknown.as_bytes())).error(401, "INVALID_API_KEY");
    let good = json!({ "apiKey": key }).to_string();
    service.request("POST", "/verify", &headers, Some(good.as_bytes())).success(200);
}

fn a_wrong_query_is_a_validation_error(world: &World) {
    let too_large = "115792089237316195423570985008687907853269984665640564039457584007913129639936";
    for (query, received) in [
        ("", Value::Null),
        ("?", Value::Null),
        ("?agent=7", Value::Null),
        ("?agentid=7", Value::Null),
        ("?agentId", json!("")),
        ("?agentId=", json!("")),
        ("?agentId=abc", json!("abc")),
        ("?agentId=-1", json!("-1")),
        ("?agentId=+1", json!(" 1")),
        ("?agentId=%2B1", json!("+1")),
        ("?agentId=1.5", json!("1.5")),
        ("?agentId=0x1", json!("0x1")),
        ("?agentId=1%00", json!("1\0")),
        ("?agentId=%D9%A7", json!("٧")),
        ("?agentId=1&agentId=1", json!("1")),
        (format!("?agentId={too_large}").as_str(), json!(too_large)),
        (format!("?agentId={}", "1".repeat(500)).as_str(), json!("1".repeat(100))),
        (format!("?agentId=svc_live_v1_{}", "ab".repeat(32)).as_str(), json!("svc_live_v1_abababab…")),
    ] {
        let answer = world.service().get(&format!("/keys/status{query}"));
        answer.is_invalid("agentId", received);
    }
}
