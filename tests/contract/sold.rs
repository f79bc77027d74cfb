//! Agents that are sold: their keys with `keys.end_with_signer`.

use serde_json::json;

use crate::support::agents::{Agent, THRESHOLDS, key_of};
use crate::support::client::once_read;
use crate::support::harness::{Case, cases};
use crate::support::signing::{ALICE, BOB};
use crate::support::time::{SOON, until};
use crate::support::{service::Service, settings::Settings, world::World};

pub(crate) const CASES: &[Case<World>] =
    cases![a_sold_agents_key_is_refused_within_two_polls_or_by_the_first_request_after_a_start];

pub(crate) const REPLICAS: &[Case<World>] =
    cases![replicas_refuse_a_sold_agents_key_each_within_two_polls_and_take_the_buyers_at_once];

fn ending(world: &World) -> Settings {
    let settings = world.settings().set("keys.end_with_signer", true);
    settings.set("tiers.requests_per_minute", vec![1_000_000; 4])
}

/// Sells the agent; its buyer.
fn sell(world: &World, agent: &Agent) -> Agent {
    world.chain().transfer(ALICE, BOB, agent.id);
    world.known_agent(agent.id, BOB)
}

/// Polls that confirmed a head.
fn polls(service: &Service) -> f64 {
    service.samples().sum("tiergate_follower_polls_total", &["result=\"followed\""])
}

/// The key is refused when two polls that began after now have ended, if not before.
#[track_caller]
fn ends_within_two_polls(service: &Service, agent: &Agent, key: &str) {
    // One may be under way that began before the sale.
    let bound = polls(service) + 3.0;
    until("the key is refused", SOON, || {
        let seen = polls(service);
        let body = json!({ "apiKey": key, "agentId": agent.text() });
        let answer = once_read(|| service.post("/verify", &body));
        if answer.status == 401 {
            answer.is_error(401, "INVALID_API_KEY", json!({ "agentId": agent.text() }));
            return Some(());
        }
        answer.success(200);
        assert!(seen < bound, "admitted after {seen} polls");
        None
    });
    service.verify(key).is_error(401, "INVALID_API_KEY", json!({ "agentId": null }));
}

// threat: A seller keeps the agent's key
fn a_sold_agents_key_is_refused_within_two_polls_or_by_the_first_request_after_a_start(world: &World) {
    let (mut service, agent) = (Service::start(ending(world)), world.agent(4));
    let old = agent.generate(&service);
    service.verify(&old).success(200);
    let buyer = sell(world, &agent);
    ends_within_two_polls(&service, &agent, &old);
    // Nobody has replaced it: it is the agent's key still, which is refused.
    assert_eq!(service.status(&agent.text()).success(200)["hasKey"], json!(true));
    service.generate(&buyer.signed()).error(409, "KEY_ALREADY_EXISTS");
    let new = key_of(&service.rotate(&buyer.signed()).success(200));
    assert_eq!(service.verify(&new).success(200)["owner"], json!(BOB.address.to_checksum(None)));
    service.verify(&old).error(401, "INVALID_API_KEY");
    service.kill();
    world.chain().transfer(BOB, ALICE, agent.id);
    service.start_again("");
    service.await_ready();
    service.verify(&new).error(401, "INVALID_API_KEY");
    // Below every tier it says no more.
    world.chain().unstake(agent.id, THRESHOLDS[3]);
    service.verify(&new).error(401, "INVALID_API_KEY");
    service.revoke(&buyer.signed()).error(401, "SIGNATURE_INVALID");
}

// threat: A seller keeps the agent's key
fn replicas_refuse_a_sold_agents_key_each_within_two_polls_and_take_the_buyers_at_once(world: &World) {
    let settings = ending(world);
    let services = [Service::start(settings.clone()), Service::start(settings)];
    let agent = world.agent(4);
    let key = agent.generate(&services[0]);
    services.iter().for_each(|service| drop(service.verify(&key).success(200)));
    let buyer = sell(world, &agent);
    services.iter().for_each(|service| ends_within_two_polls(service, &agent, &key));
    // The replica that did not make the key takes it at once, whatever its cache holds.
    for (maker, other, owner) in [(0, 1, &buyer), (1, 0, &agent)] {
        if owner.owner.address == ALICE.address {
            world.chain().transfer(BOB, ALICE, agent.id);
        }
        let new = key_of(&services[maker].rotate(&owner.signed()).success(200));
        services[other].verify(&new).success(200);
        services[maker].verify(&new).success(200);
    }
}
