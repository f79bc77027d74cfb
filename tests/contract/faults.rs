//! A chain that is dead, hung, lying or misconfigured is 503, never 404 and never 200; and it may come back.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::client::{Answer, once_read};
use crate::support::harness::{Case, cases};
use crate::support::relay::{Behaviour, Relay};
use crate::support::service::{SIGNED_ENDPOINTS, Service};
use crate::support::time::{SOON, Stopwatch, is_undelayed, quickest, until};
use crate::support::{agents::Agent, settings::Settings, signing::ALICE, world::World};

pub(crate) const CASES: &[Case<World>] = cases![
    a_dead_node_is_503_everywhere_and_comes_back_and_a_503_burns_neither_nonce_nor_budget,
    a_hung_node_is_503_within_the_time_limit_and_delays_nobody_else,
];

fn behind(world: &World, relay: &Relay) -> Settings {
    world
        .settings()
        .set("chain.rpc_urls", vec![format!("http://{}", relay.address)])
        .set("chain.max_staleness", "500ms")
        .set("keys.requests_per_hour", 1_000)
}

/// The same request again and again until the cached profile has lapsed and something else than success comes.
fn until_refused(service: &Service, key: &str) -> Answer {
    until("the cached profile lapses", SOON, || {
        Some(service.verify(key)).filter(|answer| answer.status != 200)
    })
}

/// The answer once the node is used again: one that failed is left alone for a moment, and once more when an answer from
/// before comes late.
#[track_caller]
fn until_answered(service: &Service, signed: &Value) -> Answer {
    once_read(|| service.verify_signature(signed))
}

// threat: A nonce passes twice, or a stranger burns it
// threat: A failure admits somebody, or looks like an answer
fn a_dead_node_is_503_everywhere_and_comes_back_and_a_503_burns_neither_nonce_nor_budget(world: &World) {
    let mut relay = Relay::new(world.chain().node);
    let service = Service::start(behind(world, &relay));
    let (agent, missing) = (world.agent(4), world.known_agent(666_666_666_u64.try_into().unwrap(), ALICE));
    let bronze = world.agent(1);
    let (key, verification) = (agent.generate(&service), bronze.signed());
    relay.close();
    until_refused(&service, &key).is_unreadable(relay.address, "eth_call");
    for endpoint in SIGNED_ENDPOINTS {
        service.signed(endpoint, &verification).is_unreadable(relay.address, "eth_call");
        service.signed(endpoint, &missing.signed()).is_unreadable(relay.address, "eth_call");
    }
    // Requests that need no chain.
    assert_eq!(service.status(&agent.text()).success(200)["hasKey"], json!(true));
    service.verify(&crate::support::agents::unknown_key(6)).error(401, "INVALID_API_KEY");
    let nobody = world.known_agent(0.try_into().unwrap(), ALICE);
    service.verify_signature(&nobody.signed()).error(404, "AGENT_NOT_FOUND");
    let old = agent.draft().timestamp(1);
    service.verify_signature(&old.body()).error(400, "REPLAY_DETECTED");
    relay.reopen();
    assert_eq!(until_answered(&service, &verification).allowance(), (1, 0));
    service.rotate(&verification).error(400, "REPLAY_DETECTED");
    once_read(|| service.verify(&key)).success(200);
    until_answered(&service, &missing.signed()).error(404, "AGENT_NOT_FOUND");
}

/// The six seconds that a read may take, and more for a machine that is busy with other things.
const REFUSED_WITHIN: Duration = Duration::from_secs(20);

fn a_hung_node_is_503_within_the_time_limit_and_delays_nobody_else(world: &World) {
    let relay = Relay::new(world.chain().node);
    let service = Service::start(behind(world, &relay));
    let agents: Vec<Agent> = (0..20).map(|_| world.agent(4)).collect();
    let others = || {
        service.get("/livez").success(200);
        service.status("1").success(200);
    };
    let calm = quickest(3, others);
    relay.behave(Behaviour::Hang);
    std::thread::scope(|scope| {
        for agent in &agents {
            let (body, service, relay) = (agent.signed(), &service, &relay);
            scope.spawn(move || {
                let watch = Stopwatch::start();
                service.verify_signature(&body).is_unreadable(relay.address, "eth_call");
                assert!(watch.elapsed() < REFUSED_WITHIN, "{:?}", watch.elapsed());
            });
        }
        until("the node holds a call", SOON, || (relay.held() > 0).then_some(()));
        is_undelayed(calm, others);
    });
    relay.behave(Behaviour::Honest);
    for agent in &agents {
        until_answered(&service, &agent.signed()).success(200);
    }
}
