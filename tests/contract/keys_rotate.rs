//! `POST /keys/rotate`: make this the agent's key.

use serde_json::json;

use crate::support::agents::key_of;
use crate::support::harness::{Case, cases};
use crate::support::world::World;

pub(crate) const CASES: &[Case<World>] =
    cases![the_old_key_is_invalid_at_once, without_a_key_one_is_made, a_new_key_is_not_a_new_budget,];

fn the_old_key_is_invalid_at_once(world: &World) {
    let (service, agent) = (world.service(), world.agent(4));
    let old = agent.generate(service);
    service.verify(&old).success(200);
    let answer = service.rotate(&agent.signed());
    service.verify(&old).is_error(401, "INVALID_API_KEY", json!({ "agentId": null }));
    let body = answer.success(200);
    assert_eq!(body["agentId"], json!(agent.text()));
    assert!(body["message"].as_str().is_some_and(|message| !message.is_empty()));
    assert_eq!(body.as_object().unwrap().len(), 3, "these fields and no others: {body}");
    assert_eq!(answer.allowance(), (10, 8));
    let new = key_of(&body);
    assert_ne!(old, new);
    service.verify(&new).success(200);
    let named = service.post("/verify", &json!({ "apiKey": old, "agentId": agent.text() }));
    named.is_error(401, "INVALID_API_KEY", json!({ "agentId": agent.text() }));
}

fn without_a_key_one_is_made(world: &World) {
    let (service, agent) = (world.service(), world.agent(3));
    let key = key_of(&service.rotate(&agent.signed()).success(200));
    service.verify(&key).success(200);
    assert_eq!(service.status(&agent.text()).success(200)["hasKey"], json!(true));
    service.generate(&agent.signed()).error(409, "KEY_ALREADY_EXISTS");
}

fn a_new_key_is_not_a_new_budget(world: &World) {
    let (service, agent) = (world.service(), world.agent(1));
    service.verify(&agent.generate(service)).success(200);
    let new = key_of(&service.rotate(&agent.signed()).success(200));
    service.verify(&new).is_limited(json!(agent.text()), json!(1), 1);
}
