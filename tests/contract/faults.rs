//! A chain that is dead, hung, lying or misconfigured is 503, never 404 and never 200; and it may come back.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::agents::Agent;
use crate::support::client::Answer;
use crate::support::harness::{Case, cases};
use crate::support::relay::{Behaviour, Relay};
use crate::support::service::{SIGNED_ENDPOINTS, Service};
use crate::support::settings::Settings;
use crate::support::signing::{ALICE, BOB};
use crate::support::time::{SOON, Stopwatch, is_undelayed, until};
use crate::support::world::World;

pub(crate) const CASES: &[Case<World>] = cases![
    a_node_that_answers_anything_but_the_truth_is_503_and_recovers,
    a_dead_node_is_503_everywhere_and_comes_back_at_the_same_address,
    a_hung_node_is_503_within_the_time_limit_and_delays_nobody_else,
    a_503_burns_neither_nonce_nor_budget,
    an_unknown_key_is_401_also_without_a_chain,
    the_next_node_answers_when_the_first_does_not,
];

/// About what a node itself says.
pub(crate) const NODES: &[Case<World>] = cases![a_revert_that_is_not_about_the_token_is_503];

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

/// `chain::reader::tests::answers` has more of what is no answer.
fn a_node_that_answers_anything_but_the_truth_is_503_and_recovers(world: &World) {
    let relay = Relay::new(world.chain().node);
    let service = Service::start(behind(world, &relay));
    let agent = world.agent(4);
    let key = agent.generate(&service);
    let word = "0".repeat(64);
    let result = |result: Value| Behaviour::Members(json!({ "result": result }));
    let error = |code: i64, message: &str, data: Value| {
        Behaviour::Members(json!({ "error": { "code": code, "message": message, "data": data } }))
    };
    for behaviour in [
        Behaviour::Close,
        Behaviour::Http(200, "<html>welcome</html>".to_owned()),
        Behaviour::Http(500, "{\"error\":\"no\"}".to_owned()),
        Behaviour::Http(429, "slow down".to_owned()),
        result(Value::Null),
        result(json!("0x")),
        result(json!(format!("0x{word}"))),
        error(-32_005, "limit exceeded", Value::Null),
        error(3, "execution reverted", json!("0x")),
        error(-32_000, "ERC721NonexistentToken", Value::Null),
    ] {
        relay.behave(behaviour.clone());
        let by_key = until_refused(&service, &key);
        assert_eq!(by_key.status, 503, "{behaviour:?}: {}", by_key.text());
        by_key.is_unreadable(relay.address, "eth_call");
        // A zero word is what some registries answer for a token that was never minted.
        let says_zero_owner = matches!(&behaviour, Behaviour::Members(members)
            if members["result"] == json!(format!("0x{word}")));
        let body = agent.signed();
        let by_signature = service.verify_signature(&body);
        // Unless the node was just asked for its chain, too, and is not believed any more.
        if says_zero_owner && by_signature.status != 503 {
            by_signature.error(404, "AGENT_NOT_FOUND");
        } else {
            assert_eq!(by_signature.status, 503, "{behaviour:?}: {}", by_signature.text());
            by_signature.is_unreadable(relay.address, "eth_call");
            service.rotate(&agent.signed()).error(503, "RPC_ERROR");
        }
        relay.behave(Behaviour::Honest);
        until_answered(&service, &body).success(200);
        until_used(|| service.verify(&key)).success(200);
    }
}

/// The answer once the node is used again: one that failed is left alone for a moment, and once more when an answer from
/// before comes late.
#[track_caller]
fn until_used(ask: impl Fn() -> Answer) -> Answer {
    until("the node is used again", SOON, || Some(ask()).filter(|answer| answer.status != 503))
}

#[track_caller]
fn until_answered(service: &Service, signed: &Value) -> Answer {
    until_used(|| service.verify_signature(signed))
}

fn a_dead_node_is_503_everywhere_and_comes_back_at_the_same_address(world: &World) {
    let mut relay = Relay::new(world.chain().node);
    let service = Service::start(behind(world, &relay));
    let (agent, missing) = (world.agent(4), world.known_agent(666_666_666_u64.try_into().unwrap(), ALICE));
    let key = agent.generate(&service);
    relay.close();
    until_refused(&service, &key).is_unreadable(relay.address, "eth_call");
    for endpoint in SIGNED_ENDPOINTS {
        service.signed(endpoint, &agent.signed()).is_unreadable(relay.address, "eth_call");
        service.signed(endpoint, &missing.signed()).is_unreadable(relay.address, "eth_call");
    }
    assert_eq!(service.status(&agent.text()).success(200)["hasKey"], json!(true), "needs no chain");
    relay.reopen();
    until_answered(&service, &agent.signed()).success(200);
    until_used(|| service.verify(&key)).success(200);
    until_answered(&service, &missing.signed()).error(404, "AGENT_NOT_FOUND");
    service.verify_signature(&agent.signed()).success(200);
}

/// The six seconds that a read may take, and some for a machine that is busy with other things.
const REFUSED_WITHIN: Duration = Duration::from_secs(12);

fn a_hung_node_is_503_within_the_time_limit_and_delays_nobody_else(world: &World) {
    let relay = Relay::new(world.chain().node);
    let service = Service::start(behind(world, &relay));
    let agents: Vec<Agent> = (0..20).map(|_| world.agent(4)).collect();
    let others = || {
        service.get("/livez").success(200);
        service.status("1").success(200);
    };
    let calm = Stopwatch::of(others);
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
        is_undelayed(calm, Stopwatch::of(others));
    });
    relay.behave(Behaviour::Honest);
    for agent in &agents {
        until_answered(&service, &agent.signed()).success(200);
    }
}

fn a_503_burns_neither_nonce_nor_budget(world: &World) {
    let mut relay = Relay::new(world.chain().node);
    let service = Service::start(behind(world, &relay));
    let (one, other) = (world.agent(1), world.agent(0));
    let (verify, rotate) = (one.signed(), other.signed());
    relay.close();
    for _ in 0..3 {
        service.verify_signature(&verify).error(503, "RPC_ERROR");
        service.rotate(&rotate).error(503, "RPC_ERROR");
    }
    relay.reopen();
    let answer = until_answered(&service, &verify);
    answer.success(200);
    assert_eq!(answer.allowance(), (1, 0));
    service.rotate(&rotate).success(200);
}

fn an_unknown_key_is_401_also_without_a_chain(world: &World) {
    let mut relay = Relay::new(world.chain().node);
    let service = Service::start(behind(world, &relay));
    relay.close();
    service.verify(&crate::support::agents::unknown_key(6)).error(401, "INVALID_API_KEY");
    service
        .verify_signature(&world.known_agent(0.try_into().unwrap(), ALICE).signed())
        .error(404, "AGENT_NOT_FOUND");
    let old = world.agent(4).draft().timestamp(1);
    service.verify_signature(&old.body()).error(400, "REPLAY_DETECTED");
}

fn the_next_node_answers_when_the_first_does_not(world: &World) {
    let (first, second) = (Relay::new(world.chain().node), Relay::new(world.chain().node));
    let urls = vec![format!("http://{}", first.address), format!("http://{}", second.address)];
    // A node that hangs leaves time for the next one.
    let settings = behind(world, &first).set("chain.request_timeout", "2s");
    let service = Service::start(settings.set("chain.rpc_urls", urls));
    let agent = world.agent(4);
    for behaviour in [
        Behaviour::Close,
        Behaviour::Hang,
        Behaviour::Http(429, "slow down".to_owned()),
        Behaviour::Http(200, "garbage".to_owned()),
        Behaviour::Members(json!({ "error": { "code": -32_005, "message": "limit exceeded" } })),
    ] {
        first.behave(behaviour.clone());
        let answer = service.verify_signature(&agent.signed());
        assert_eq!(answer.status, 200, "{behaviour:?}: {}", answer.text());
        // A refusal is not passed over for another node's word either.
        service.verify_signature(&agent.draft().by(BOB).body()).error(401, "SIGNATURE_INVALID");
    }
    second.behave(Behaviour::Close);
    first.behave(Behaviour::Honest);
    until_answered(&service, &agent.signed()).success(200);
    first.behave(Behaviour::Close);
    let details = service.verify_signature(&agent.signed()).error(503, "RPC_ERROR");
    let shown = [first, second].map(|node| json!(format!("http://{}", node.address)));
    assert!(shown.contains(&details["rpcUrl"]), "{details}");
}

fn a_revert_that_is_not_about_the_token_is_503(world: &World) {
    // A vault in place of the registry: it has code, and reverts whatever it is asked as a registry.
    let vault = world.chain().contracts.stake_vault;
    let service = Service::start_unready(world.settings().at("chain.contracts.identity", vault));
    let agent = world.agent(4);
    let signed = Agent::on(vault, agent.id, ALICE).signed();
    let details = service.verify_signature(&signed).error(503, "RPC_ERROR");
    assert_eq!(details["method"], json!("eth_call"));
}
