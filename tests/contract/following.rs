//! A change on the chain shows in the verification within two polls, whichever registries it is on, and an agent in use costs
//! no call.
//!
//! How soon is counted in polls that the service has completed, not in time. Which
//! changes there are is in `changes.rs`.

use alloy::primitives::U256;
use serde_json::{Value, json};

use crate::balanced::{HALF, await_accounted, with_blocks};
use crate::changes::{Change, has, is_error, is_of, on_documented, on_erc8004, shows_feedback};
use crate::erc8004::Registries;
use crate::support::agents::{Agent, THRESHOLDS};
use crate::support::client::{Answer, once_read, with};
use crate::support::harness::{Case, cases};
use crate::support::relay::{Behaviour, Relay};
use crate::support::signing::{ALICE, BOB};
use crate::support::time::{SOON, until};
use crate::support::{chain::Chain, service::Service, settings::Settings, world::World};

pub(crate) const CASES: &[Case<World>] = cases![
    a_follower_that_hears_nothing_vouches_for_nothing,
    a_node_without_logs_is_reported_in_three_places_and_profiles_stay_fresh,
];

/// About what happens on the chain.
pub(crate) const EVENTS: &[Case<World>] = cases![
    each_change_on_the_documented_registries_shows_within_two_polls,
    each_change_on_erc8004s_registries_shows_within_two_polls,
    half_of_the_requests_behind_shows_each_change_and_nothing_false,
    a_sick_node_shows_each_change_and_nothing_false,
];

/// Reorganizations, which the development chain has not.
pub(crate) const ON_A_REAL_NODE: &[Case<World>] =
    cases![a_reorganization_that_takes_stake_and_ownership_back_is_followed];

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
        self.answers("the change", || self.answer(), change, is_shown);
    }

    /// The same of another question.
    #[track_caller]
    fn answers(
        &self,
        name: &str,
        answer: impl Fn() -> Answer,
        change: impl FnOnce(),
        is_shown: impl Fn(&Answer) -> bool,
    ) {
        assert!(!is_shown(&answer()), "{name}: not before");
        change();
        let before = polls(&self.service);
        // One may be under way that began before the change; the second surely began after it.
        let bound = before + 2.0;
        // A read that a busy machine delays is no old answer, and comes some polls later.
        let look = |seen: f64| {
            let answer = answer();
            let is_fair = seen < bound + if answer.status == 503 { 8.0 } else { 0.0 };
            assert!(is_shown(&answer) || is_fair, "{name}: not shown: {}", answer.text());
            is_shown(&answer).then_some(())
        };
        until(name, SOON, || look(polls(&self.service)));
        // And it stays.
        await_polls(&self.service, 2.0);
        until(name, SOON, || look(bound));
    }
}

/// Asks until the agent's profile is cached for longer than an interval: it costs no call over two polls.
fn warm(service: &Service, key: &str) {
    until("the profile is cached", SOON, || {
        once_read(|| service.verify(key)).success(200);
        await_polls(service, 2.0);
        let calls = calls(service);
        once_read(|| service.verify(key)).success(200);
        (self::calls(service) == calls).then_some(())
    });
}

/// Contract calls sent.
fn calls(service: &Service) -> f64 {
    service.samples().get("tiergate_rpc_calls_total{method=\"eth_call\"}")
}

/// Once all of those were made.
fn is_sold(service: &Service, registries: &Registries<'_>, id: U256) {
    let by = |owner| service.verify_signature(&registries.of_owner(id, owner).signed());
    let buyers = by(BOB);
    assert!(is_of(&buyers, BOB) && shows_feedback("-5", 1)(&buyers), "{}", buyers.text());
    assert!(has(&buyers, "/validation/count", json!(2)), "{}", buyers.text());
    by(ALICE).error(401, "SIGNATURE_INVALID");
}

/// Without what is of now, and without the validation where that may lack its evidence.
fn profile_of(answer: &Answer, lenient: bool) -> Value {
    let profile = with(&answer.success(200), "timestamp", None);
    if lenient { with(&profile, "validation", None) } else { profile }
}

fn each_shows_within_two_polls(scene: &Scene, changes: Vec<Change<'_>>) {
    for Change { name, make, asks, shown } in changes {
        let answer = || match &asks {
            Some(agent) => scene.service.verify_signature(&agent.signed()),
            None => scene.answer(),
        };
        if let Some(shown) = shown {
            scene.answers(name, answer, make, shown);
        } else {
            let before = profile_of(&answer(), false);
            make();
            await_polls(&scene.service, 3.0);
            assert_eq!(profile_of(&answer(), false), before, "{name}");
        }
    }
}

// threat: "Unknown" is remembered
// threat: A new owner or a reorganization is not seen
fn each_change_on_the_documented_registries_shows_within_two_polls(world: &World) {
    let (scene, chain) = (Scene::of(world, settings(world.settings())), world.chain());
    each_shows_within_two_polls(&scene, on_documented(chain, scene.agent.id, chain.organization("Guild")));
    let id = U256::from(70_000_000_000_u64) + scene.agent.id;
    let agent = world.known_agent(id, ALICE);
    chain.stake(id, THRESHOLDS[3]);
    scene.service.verify_signature(&agent.signed()).error(404, "AGENT_NOT_FOUND");
    chain.mint_with_id(ALICE, id);
    scene.service.verify(&agent.generate(&scene.service)).success(200);
}

/// The settings of a service that asks agents' wallets too.
fn asking_wallets(registries: &Registries<'_>, world: &World) -> Settings {
    registries.settings(world).set("signature.agent_wallet", true).set("signature.contracts", true)
}

// threat: A new owner or a reorganization is not seen
fn each_change_on_erc8004s_registries_shows_within_two_polls(world: &World) {
    let registries = Registries::new(world);
    let (on, chain) = (registries.on, registries.chain);
    let scene = Scene::with(asking_wallets(&registries, world), registries.agent(ALICE));
    let id = scene.agent.id;
    assert_eq!(id, U256::ZERO, "a number like any other");
    let next = registries.of_owner(U256::ONE, ALICE);
    scene.service.verify_signature(&next.signed()).error(404, "AGENT_NOT_FOUND");
    assert_eq!(registries.agent(ALICE).id, next.id);
    scene.service.verify(&next.generate(&scene.service)).success(200);
    each_shows_within_two_polls(&scene, on_erc8004(&registries, id, false));
    is_sold(&scene.service, &registries, id);
    let is_bounded = |answer: &Answer| has(answer, "/reputation/bounded", json!(true));
    let downgrade = move |registry| move || on.downgrade(chain, registry);
    let versions = vec![
        Change::shows("reputation of another version", downgrade(on.reputation), is_bounded).to(&next),
        Change::shows("identity too", downgrade(on.identity), is_error(503, "RPC_ERROR")).to(&next),
    ];
    each_shows_within_two_polls(&scene, versions);
    until("it is unready", SOON, || {
        (scene.service.get("/readyz").status == 503 && scene.service.log().contains("0.0.1")).then_some(())
    });
}

/// Makes the same changes over a node that does not always say the truth of now, and asks once the service has accounted for
/// each. A 503 is no wrong answer, but only while the node is like that. Evidence may be missing where it may give none.
fn shows_nothing_false(world: &World, behaviour: impl Fn() -> Behaviour, lacks_evidence: bool) {
    let own = world.another();
    let registries = Registries::of(own.chain());
    let (chain, relay) = (registries.chain, Relay::new(own.chain().node));
    with_blocks(chain, || {
        let settings = asking_wallets(&registries, &own)
            .set("chain.rpc_urls", vec![format!("http://{}", relay.address)])
            .set("chain.poll_interval", "250ms")
            .set("chain.max_staleness", "60s");
        let service = Service::start(settings);
        let asked = |agent: &Agent| once_read(|| service.verify_signature(&agent.signed()));
        let alice = registries.agent(ALICE);
        await_accounted(&service, chain);
        relay.behave(behaviour());
        for Change { name, make, asks, shown } in on_erc8004(&registries, alice.id, lacks_evidence) {
            let asks = asks.unwrap_or_else(|| alice.clone());
            let before = profile_of(&asked(&alice), lacks_evidence);
            make();
            await_accounted(&service, chain);
            for _ in 0..4 {
                let answer = asked(&asks);
                let is_right = match &shown {
                    Some(shown) => shown(&answer),
                    None => profile_of(&answer, lacks_evidence) == before,
                };
                assert!(is_right, "{name}: {}", answer.text());
            }
        }
        relay.behave(Behaviour::Honest);
        until("the node is well", SOON, || (asked(&alice).status == 401).then_some(()));
        is_sold(&service, &registries, alice.id);
    });
}

// threat: A new owner or a reorganization is not seen
fn half_of_the_requests_behind_shows_each_change_and_nothing_false(world: &World) {
    shows_nothing_false(world, || Behaviour::Balanced(HALF), false);
}

fn a_sick_node_shows_each_change_and_nothing_false(world: &World) {
    shows_nothing_false(world, || Behaviour::Sick, true);
}

/// Two ways to hear nothing, of which the other one has to be noticed.
// threat: A new owner or a reorganization is not seen
fn a_follower_that_hears_nothing_vouches_for_nothing(world: &World) {
    let relay = Relay::new(world.chain().node);
    let node = format!("http://{}", relay.address);
    let settings = settings(world.settings())
        .set("chain.rpc_urls", vec![node])
        .set("chain.request_timeout", "1s")
        .set("chain.max_staleness", "3s");
    let scene = Scene::of(world, settings);
    let modes = || {
        let samples = scene.service.samples();
        ["following", "lost"].map(|name| samples.get(&format!("tiergate_follower_mode{{state=\"{name}\"}}")))
    };
    for silence in [Behaviour::Close, Behaviour::Hang] {
        relay.behave(silence);
        until("the cached profile is used no more", SOON, || (scene.answer().status == 503).then_some(()));
        until("it is said", SOON, || (modes() == [0.0, 1.0]).then_some(()));
        let said = "lost touch with the chain";
        scene.service.await_log(&[said]);
        relay.behave(Behaviour::Honest);
        until("the chain is back", SOON, || (scene.answer().status == 200).then_some(()));
        until("it is said", SOON, || (modes() == [1.0, 0.0]).then_some(()));
        warm(&scene.service, &scene.key);
    }
}

fn a_node_without_logs_is_reported_in_three_places_and_profiles_stay_fresh(world: &World) {
    let relay = Relay::new(world.chain().node);
    relay.behave(Behaviour::Refuse("eth_getLogs", -32_601));
    let node = format!("http://{}", relay.address);
    let service = Service::start(settings(world.settings()).set("chain.rpc_urls", vec![node]));
    let body = service.await_readiness("/readyz", 200, |body| body.get("degraded").is_some());
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
        (once_read(|| service.verify(&key)).success(200)["trustTier"] == json!(4)).then_some(())
    });
}

/// On a node of its own, since it takes back what other cases did.
// threat: A new owner or a reorganization is not seen
fn a_reorganization_that_takes_stake_and_ownership_back_is_followed(world: &World) {
    let own = world.another();
    let chain: &Chain = own.chain();
    let scene = Scene::of(&own, settings(own.settings()));
    let snapshot = chain.rpc("evm_snapshot", json!([]));
    scene.shows(|| chain.transfer(ALICE, BOB, scene.agent.id), |answer| is_of(answer, BOB));
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
        |answer| is_of(answer, ALICE) && has(answer, "/stakedAmount", json!(THRESHOLDS[3].to_string())),
    );
    warm(&scene.service, &scene.key);
    let snapshot = chain.rpc("evm_snapshot", json!([]));
    scene.shows(|| chain.transfer(ALICE, BOB, scene.agent.id), |answer| is_of(answer, BOB));
    warm(&scene.service, &scene.key);
    // No blocks stand in their place: nodes that are behind look the same, until touch is lost.
    assert_eq!(chain.rpc("evm_revert", json!([snapshot])), json!(true));
    until("the rollback is followed", SOON, || is_of(&scene.answer(), ALICE).then_some(()));
    warm(&scene.service, &scene.key);
}
