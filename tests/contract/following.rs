//! A change on the chain shows in the verification within two polls, and an agent in use costs no call.
//!
//! How soon is counted in polls that the service has completed, not in time.

use alloy::primitives::{I256, U256};
use serde_json::{Value, json};

use crate::support::agents::{Agent, THRESHOLDS};
use crate::support::chain::Chain;
use crate::support::client::Answer;
use crate::support::harness::{Case, cases};
use crate::support::relay::{Behaviour, Relay};
use crate::support::service::Service;
use crate::support::settings::Settings;
use crate::support::signing::{ALICE, BOB};
use crate::support::time::{SOON, until};
use crate::support::world::{World, anvil};

pub(crate) const CASES: &[Case<World>] = cases![
    a_thousand_verifications_of_cached_agents_cost_no_call,
    a_follower_that_hears_nothing_vouches_for_nothing,
    a_follower_whose_node_hangs_is_lost_until_it_answers,
    a_node_without_logs_is_reported_in_three_places_and_profiles_stay_fresh,
    a_chain_that_comes_late_makes_ready_and_is_followed,
];

/// About what happens on the chain.
pub(crate) const EVENTS: &[Case<World>] = cases![
    stake_shows_within_two_polls,
    unstake_shows_within_two_polls,
    a_transfer_shows_within_two_polls,
    a_mint_shows_at_once,
    a_burn_shows_within_two_polls,
    feedback_shows_within_two_polls,
    a_validation_shows_within_two_polls,
    joining_and_leaving_an_organization_show_within_two_polls,
    a_verified_organization_shows_within_two_polls_with_each_member,
    a_changed_uri_shows_within_two_polls,
];

/// Reorganizations and several chains, which the development chain has not.
pub(crate) const ON_A_REAL_NODE: &[Case<World>] = cases![
    a_reorganization_that_takes_stake_and_ownership_back_is_followed,
    a_preferred_node_of_another_chain_is_left_out_from_the_start_and_when_it_moves_there,
];

/// Many requests for one agent, which is what a case is made of.
pub(crate) fn settings(settings: Settings) -> Settings {
    settings.set("tiers.requests_per_minute", vec![1_000_000; 4]).set("keys.requests_per_hour", 1_000)
}

/// Polls that confirmed a head.
fn polls(service: &Service) -> f64 {
    let samples = service.samples();
    let of = |result| samples.sum("tiergate_follower_polls_total", &[result]);
    of("result=\"followed\"") + of("result=\"restarted\"")
}

pub(crate) fn await_polls(service: &Service, count: f64) {
    let before = polls(service);
    until("polls", SOON, || (polls(service) >= before + count).then_some(()));
}

/// A service of its own, and an agent with a key whose profile is in its cache, read at the followed block.
pub(crate) struct Scene {
    pub(crate) service: Service,
    pub(crate) agent: Agent,
    pub(crate) key: String,
}

impl Scene {
    fn new(world: &World) -> Self {
        Self::of(world, settings(world.settings()))
    }

    fn of(world: &World, settings: Settings) -> Self {
        Self::with(settings, world.agent(4))
    }

    /// With an agent that passes.
    pub(crate) fn with(settings: Settings, agent: Agent) -> Self {
        let service = Service::start(settings);
        let key = agent.generate(&service);
        warm(&service, &key);
        Self { service, agent, key }
    }

    pub(crate) fn answer(&self) -> Answer {
        self.service.verify(&self.key)
    }

    /// Makes a change, and sees that it shows when two polls that began after it have ended, if not before.
    #[track_caller]
    pub(crate) fn shows(&self, change: impl FnOnce(), is_shown: impl Fn(&Answer) -> bool) {
        self.shows_of(|| self.answer(), change, is_shown);
    }

    /// The same of another question.
    #[track_caller]
    pub(crate) fn shows_of(
        &self,
        answer: impl Fn() -> Answer,
        change: impl FnOnce(),
        is_shown: impl Fn(&Answer) -> bool,
    ) {
        assert!(!is_shown(&answer()), "not before the change");
        change();
        let before = polls(&self.service);
        // One may be under way that began before the change; the second surely began after it.
        let bound = before + 2.0;
        until("the change shows", SOON, || {
            let seen = polls(&self.service);
            if is_shown(&answer()) {
                return Some(());
            }
            assert!(seen < bound, "not shown by {} polls", seen - before);
            None
        });
        // And it stays.
        await_polls(&self.service, 2.0);
        assert!(is_shown(&answer()));
    }
}

/// Asks until the agent's profile is cached for longer than an interval: it costs no call over two polls.
pub(crate) fn warm(service: &Service, key: &str) {
    until("the profile is cached", SOON, || {
        service.verify(key).success(200);
        await_polls(service, 2.0);
        let calls = calls(service);
        service.verify(key).success(200);
        (self::calls(service) == calls).then_some(())
    });
}

/// Contract calls sent.
pub(crate) fn calls(service: &Service) -> f64 {
    service.samples().get("tiergate_rpc_calls_total{method=\"eth_call\"}")
}

pub(crate) fn has(answer: &Answer, pointer: &str, value: Value) -> bool {
    answer.status == 200 && answer.json().pointer(pointer) == Some(&value)
}

fn stake_shows_within_two_polls(world: &World) {
    let scene = Scene::new(world);
    let staked = THRESHOLDS[3] + U256::from(7);
    scene.shows(
        || world.chain().stake(scene.agent.id, U256::from(7)),
        |answer| has(answer, "/stakedAmount", json!(staked.to_string())),
    );
}

fn unstake_shows_within_two_polls(world: &World) {
    let scene = Scene::new(world);
    scene.shows(
        || world.chain().unstake(scene.agent.id, THRESHOLDS[3]),
        |answer| answer.status == 403 && answer.json()["errorType"] == json!("TIER_BLOCKED"),
    );
}

fn a_transfer_shows_within_two_polls(world: &World) {
    let scene = Scene::new(world);
    let owner = json!(BOB.address.to_checksum(None));
    scene.shows(
        || world.chain().transfer(ALICE, BOB, scene.agent.id),
        |answer| {
            let shown = answer.json()["owner"].as_str().map(str::to_lowercase);
            answer.status == 200 && shown == owner.as_str().map(str::to_lowercase)
        },
    );
}

fn a_mint_shows_at_once(world: &World) {
    let scene = Scene::new(world);
    let id = U256::from(70_000_000_000_u64) + scene.agent.id;
    let agent = world.known_agent(id, ALICE);
    world.chain().stake(id, THRESHOLDS[3]);
    scene.service.verify_signature(&agent.signed()).error(404, "AGENT_NOT_FOUND");
    world.chain().mint_with_id(ALICE, id);
    let key = agent.generate(&scene.service);
    scene.service.verify(&key).success(200);
}

fn a_burn_shows_within_two_polls(world: &World) {
    let scene = Scene::new(world);
    scene.shows(
        || world.chain().burn(ALICE, scene.agent.id),
        |answer| answer.status == 404 && answer.json()["errorType"] == json!("AGENT_NOT_FOUND"),
    );
    scene.answer().is_error(404, "AGENT_NOT_FOUND", json!({ "agentId": scene.agent.text() }));
}

fn feedback_shows_within_two_polls(world: &World) {
    let scene = Scene::new(world);
    for (score, total) in [(5, "5"), (-9, "-4")] {
        scene.shows(
            || world.chain().feedback(scene.agent.id, I256::try_from(score).unwrap()),
            |answer| has(answer, "/reputation/totalScore", json!(total)),
        );
    }
}

fn a_validation_shows_within_two_polls(world: &World) {
    let scene = Scene::new(world);
    scene.shows(
        || world.chain().validate(BOB, scene.agent.id, true, "evidence"),
        |answer| has(answer, "/validation/latestEvidence", json!("evidence")),
    );
}

fn joining_and_leaving_an_organization_show_within_two_polls(world: &World) {
    let (scene, chain) = (Scene::new(world), world.chain());
    let guild = chain.organization("Guild");
    scene.shows(
        || chain.join(guild, scene.agent.id),
        |answer| has(answer, "/organizations/0/orgId", json!(guild.to_string())),
    );
    scene.shows(|| chain.leave(guild, scene.agent.id), |answer| has(answer, "/organizations", json!([])));
}

fn a_verified_organization_shows_within_two_polls_with_each_member(world: &World) {
    let (scene, chain) = (Scene::new(world), world.chain());
    let guild = chain.organization("Guild");
    let other = world.agent(4);
    let key = other.generate(&scene.service);
    for agent in [scene.agent.id, other.id] {
        chain.join(guild, agent);
    }
    await_polls(&scene.service, 3.0);
    warm(&scene.service, &scene.key);
    warm(&scene.service, &key);
    scene.shows(
        || chain.set_verified(guild, true),
        |answer| has(answer, "/organizations/0/verified", json!(true)),
    );
    assert!(has(&scene.service.verify(&key), "/organizations/0/verified", json!(true)));
}

fn a_changed_uri_shows_within_two_polls(world: &World) {
    let scene = Scene::new(world);
    scene.shows(
        || world.chain().set_uri(ALICE, scene.agent.id, "ipfs://other"),
        |answer| has(answer, "/metadataURI", json!("ipfs://other")),
    );
}

fn a_thousand_verifications_of_cached_agents_cost_no_call(world: &World) {
    // A chain of its own: what other cases do on a shared one drops profiles.
    let own = world.another();
    let scene = Scene::of(&own, settings(own.settings()));
    let before = scene.service.samples();
    let mut connection = scene.service.connect();
    let body = json!({ "apiKey": scene.key });
    for _ in 0..1_000 {
        connection.post("/verify", &body).unwrap().success(200);
    }
    let after = scene.service.samples();
    let moved = |name: &str, pieces: &[&str]| after.sum(name, pieces) - before.sum(name, pieces);
    assert_eq!(moved("tiergate_profile_cache_total", &["result=\"hit\""]), 1_000.0);
    assert_eq!(moved("tiergate_rpc_calls_total", &["method=\"eth_call\""]), 0.0);
    // The chain stands still: what may be left of the looks for logs that come late.
    let logs = moved("tiergate_rpc_calls_total", &["method=\"eth_getLogs\""]);
    assert!(logs <= 3.0, "{logs} calls for logs");
    let heads = moved("tiergate_rpc_calls_total", &["method=\"eth_getBlockByNumber\""]);
    let polls = moved("tiergate_follower_polls_total", &[]);
    // One poll may have asked and not ended when it was counted.
    assert!(heads <= polls + 1.0, "{heads} calls for {polls} polls");
}

fn a_follower_that_hears_nothing_vouches_for_nothing(world: &World) {
    let relay = Relay::new(world.chain().node);
    let node = format!("http://{}", relay.address);
    let scene = Scene::of(world, settings(world.settings()).set("chain.rpc_urls", vec![node]));
    relay.behave(Behaviour::Close);
    until("the cached profile is not used any more", SOON, || (scene.answer().status == 503).then_some(()));
    let state =
        |name: &str| scene.service.samples().get(&format!("tiergate_follower_mode{{state=\"{name}\"}}"));
    until("it is said", SOON, || (state("lost") == 1.0).then_some(()));
    let said = "lost touch with the chain";
    until("the log says it", SOON, || scene.service.log().contains(said).then_some(()));
    relay.behave(Behaviour::Honest);
    until("the chain is back", SOON, || (scene.answer().status == 200).then_some(()));
    until("it is said", SOON, || (state("following") == 1.0).then_some(()));
    warm(&scene.service, &scene.key);
}

fn a_follower_whose_node_hangs_is_lost_until_it_answers(world: &World) {
    let relay = Relay::new(world.chain().node);
    let node = format!("http://{}", relay.address);
    let settings = settings(world.settings())
        .set("chain.rpc_urls", vec![node])
        .set("chain.request_timeout", "300ms")
        .set("chain.max_staleness", "1s");
    let service = Service::start(settings);
    let mode = |name: &str| service.samples().get(&format!("tiergate_follower_mode{{state=\"{name}\"}}"));
    until("it follows", SOON, || (mode("following") == 1.0).then_some(()));
    relay.behave(Behaviour::Hang);
    until("it is lost", SOON, || (mode("lost") == 1.0 && mode("following") == 0.0).then_some(()));
    relay.behave(Behaviour::Honest);
    until("it follows again", SOON, || (mode("following") == 1.0 && mode("lost") == 0.0).then_some(()));
}

fn a_node_without_logs_is_reported_in_three_places_and_profiles_stay_fresh(world: &World) {
    let relay = Relay::new(world.chain().node);
    relay.behave(Behaviour::Refuse("eth_getLogs", -32_601));
    let node = format!("http://{}", relay.address);
    let service = Service::start(settings(world.settings()).set("chain.rpc_urls", vec![node]));
    let body = until("it is reported", SOON, || {
        let body = service.get("/readyz").success(200);
        body.get("degraded").is_some().then_some(body)
    });
    let expected = json!({
        "status": "ready", "checks": { "store": "ok", "chain": "ok" }, "degraded": ["chain_logs"]
    });
    assert_eq!(body, expected);
    assert_eq!(service.samples().get("tiergate_follower_mode{state=\"unlogged\"}"), 1.0);
    until("the log says it once", SOON, || {
        (service.log().matches("no logs can be followed").count() == 1).then_some(())
    });
    let agent = world.agent(3);
    let key = agent.generate(&service);
    assert_eq!(service.verify(&key).success(200)["trustTier"], json!(3));
    world.chain().stake(agent.id, THRESHOLDS[3]);
    until("the stake shows", SOON, || {
        (service.verify(&key).success(200)["trustTier"] == json!(4)).then_some(())
    });
}

fn a_chain_that_comes_late_makes_ready_and_is_followed(world: &World) {
    let mut relay = Relay::new(world.chain().node);
    relay.close();
    let node = format!("http://{}", relay.address);
    let service = Service::start_unready(settings(world.settings()).set("chain.rpc_urls", vec![node]));
    service.get("/livez").success(200);
    assert_eq!(service.get("/readyz").status, 503);
    relay.reopen();
    service.await_ready();
    let key = world.agent(4).generate(&service);
    warm(&service, &key);
}

/// On a node of its own, since it takes back what other cases did.
fn a_reorganization_that_takes_stake_and_ownership_back_is_followed(world: &World) {
    let own = world.another();
    let chain: &Chain = own.chain();
    let scene = Scene::of(&own, settings(own.settings()));
    let owner = |answer: &Answer, of: &str| {
        answer.status == 200
            && answer.json()["owner"].as_str().is_some_and(|shown| shown.eq_ignore_ascii_case(of))
    };
    let (alice, bob) = (ALICE.address.to_string(), BOB.address.to_string());
    let snapshot = chain.rpc("evm_snapshot", json!([]));
    scene.shows(|| chain.transfer(ALICE, BOB, scene.agent.id), |answer| owner(answer, &bob));
    scene.shows(
        || chain.stake(scene.agent.id, U256::from(7)),
        |answer| has(answer, "/stakedAmount", json!((THRESHOLDS[3] + U256::from(7)).to_string())),
    );
    warm(&scene.service, &scene.key);
    scene.shows(
        || {
            assert_eq!(chain.rpc("evm_revert", json!([snapshot])), json!(true));
            // Others stand in their place.
            chain.rpc("anvil_mine", json!(["0x5"]));
        },
        |answer| owner(answer, &alice) && has(answer, "/stakedAmount", json!(THRESHOLDS[3].to_string())),
    );
    warm(&scene.service, &scene.key);
    let snapshot = chain.rpc("evm_snapshot", json!([]));
    scene.shows(|| chain.transfer(ALICE, BOB, scene.agent.id), |answer| owner(answer, &bob));
    warm(&scene.service, &scene.key);
    // No blocks stand in their place: nodes that are behind look the same, until touch is lost.
    assert_eq!(chain.rpc("evm_revert", json!([snapshot])), json!(true));
    until("the rollback is followed", SOON, || owner(&scene.answer(), &alice).then_some(()));
    warm(&scene.service, &scene.key);
}

/// The other chain is ahead of ours in time and in blocks, and has the same registries.
fn a_preferred_node_of_another_chain_is_left_out_from_the_start_and_when_it_moves_there(world: &World) {
    let (ours, other) = (world.another(), Chain::anvil_on(&anvil().unwrap(), 1));
    other.rpc("evm_increaseTime", json!([30]));
    other.rpc("anvil_mine", json!(["0x40"]));
    let relay = Relay::new(ours.chain().node);
    for is_moved_later in [false, true] {
        relay.behave(if is_moved_later { Behaviour::Honest } else { Behaviour::Moved(other.node) });
        let urls = vec![format!("http://{}", relay.address), format!("http://{}", ours.chain().node)];
        let scene = Scene::of(&ours, settings(ours.settings()).set("chain.rpc_urls", urls));
        relay.behave(Behaviour::Moved(other.node));
        let healthy = format!("tiergate_rpc_node_healthy{{endpoint=\"http://{}\"}}", relay.address);
        until("the node of the other chain is left out", SOON, || {
            assert_eq!(scene.service.get("/readyz").status, 200);
            (scene.service.samples().get(&healthy) == 0.0).then_some(())
        });
        let staked = THRESHOLDS[3] + U256::from(7);
        scene.shows(
            || ours.chain().stake(scene.agent.id, U256::from(7)),
            |answer| has(answer, "/stakedAmount", json!(staked.to_string())),
        );
        assert_eq!(scene.service.samples().sum("tiergate_follower_polls_total", &["result=\"behind\""]), 0.0);
        scene.service.get("/readyz").success(200);
    }
}
