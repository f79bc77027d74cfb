//! `POST /keys/generate`: from no key to one.

use serde_json::json;

use crate::support::agents::key_of;
use crate::support::client::with;
use crate::support::harness::{Case, cases};
use crate::support::service::Service;
use crate::support::world::World;

pub(crate) const CASES: &[Case<World>] = cases![
    a_key_is_made_and_shown_once,
    an_agent_that_has_a_key_is_409_and_keeps_it,
    after_a_revoke_a_new_key_is_made,
    an_agent_without_stake_may_have_a_key,
    at_once_only_one_of_many_generates_makes_a_key,
];

/// About what is configured and declared.
pub(crate) const FORMATS: &[Case<World>] =
    cases![the_longest_endpoint_is_2048_bytes, the_prefix_may_be_configured_and_counts_then];

fn a_key_is_made_and_shown_once(world: &World) {
    let (service, agent) = (world.service(), world.agent(3));
    let answer = service.generate(&agent.signed());
    let body = answer.success(201);
    let key = key_of(&body);
    assert_eq!(body["agentId"], json!(agent.text()));
    assert!(body["message"].as_str().is_some_and(|message| !message.is_empty()));
    assert_eq!(body.as_object().unwrap().len(), 3, "these fields and no others: {body}");
    assert_eq!(answer.allowance(), (10, 9));
    assert_eq!(answer.header("cache-control"), Some("no-store"), "a key must not stay in caches");
    assert_eq!(service.verify(&key).success(200)["agentId"], json!(agent.text()));
    let status = service.status(&agent.text());
    assert!(!status.text().contains(&key[12..]), "no answer shows it again");
}

fn an_agent_that_has_a_key_is_409_and_keeps_it(world: &World) {
    let (service, agent) = (world.service(), world.agent(3));
    let key = agent.generate(service);
    let details = json!({ "agentId": agent.text() });
    service.generate(&agent.signed()).is_error(409, "KEY_ALREADY_EXISTS", details);
    service.verify(&key).success(200);
}

fn after_a_revoke_a_new_key_is_made(world: &World) {
    let (service, agent) = (world.service(), world.agent(3));
    let old = agent.generate(service);
    service.revoke(&agent.signed()).success(200);
    service.verify(&old).error(401, "INVALID_API_KEY");
    let new = agent.generate(service);
    assert_ne!(old, new);
    service.verify(&new).success(200);
    service.verify(&old).is_error(401, "INVALID_API_KEY", json!({ "agentId": null }));
}

fn an_agent_without_stake_may_have_a_key(world: &World) {
    let (service, agent) = (world.service(), world.agent(0));
    let key = agent.generate(service);
    service.verify(&key).error(403, "TIER_BLOCKED");
}

fn at_once_only_one_of_many_generates_makes_a_key(world: &World) {
    let (service, agent) = (world.service(), world.agent(3));
    let answers: Vec<_> = std::thread::scope(|scope| {
        let requests: Vec<_> = (0..10).map(|_| scope.spawn(|| service.generate(&agent.signed()))).collect();
        requests.into_iter().map(|request| request.join().unwrap()).collect()
    });
    let (made, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status == 201);
    assert_eq!(made.len(), 1);
    service.verify(&key_of(&made[0].json())).success(200);
    for answer in refused {
        answer.error(409, "KEY_ALREADY_EXISTS");
    }
}

fn the_longest_endpoint_is_2048_bytes(world: &World) {
    let (service, agent) = (world.service(), world.agent(3));
    let endpoint = |bytes: usize| format!("https://app.example/{}", "x".repeat(bytes - 20));
    let longer = with(&agent.signed(), "declaredEndpoint", json!(endpoint(2_049)));
    let cut: String = endpoint(2_049).chars().take(100).collect();
    service.generate(&longer).is_invalid("declaredEndpoint", json!(cut));
    let key = agent.generate_for(service, &endpoint(2_048));
    let verify = |origin: String| service.post("/verify", &json!({ "apiKey": key, "origin": origin }));
    assert_eq!(verify(endpoint(2_048)).success(200)["endpointMismatch"], json!(false));
    verify(endpoint(2_049)).is_invalid("origin", json!(cut));
}

fn the_prefix_may_be_configured_and_counts_then(world: &World) {
    let settings = world.settings().set("keys.prefix", "acme-").set("keys.requests_per_hour", 2);
    let (service, agent) = (Service::start(settings), world.agent(4));
    let answer = service.generate(&agent.signed());
    assert_eq!(answer.allowance(), (2, 1));
    let body = answer.success(201);
    let key = body["apiKey"].as_str().unwrap();
    assert_eq!(key.strip_prefix("acme-").map(str::len), Some(64), "{key}");
    service.verify(key).success(200);
    service.verify(&key.replace("acme-", "svc_live_v1_")).error(400, "VALIDATION_ERROR");
}
