//! Agents of ERC-8004's registries: each change shows within two polls, and what strangers write there costs nobody a verdict.
//!
//! The registries are our contracts, or those of the file that `TG_ERC8004_ARTIFACTS` names.

use std::time::Duration;

use alloy::primitives::{Address, B256, U256};
use serde_json::{Value, json};

use crate::balanced::{HALF, await_accounted, with_blocks};
use crate::following::{self, Scene, await_polls, has};
use crate::support::agents::{Agent, THRESHOLDS};
use crate::support::chain::Chain;
use crate::support::client::Answer;
use crate::support::erc8004::Erc8004;
use crate::support::harness::{Case, cases};
use crate::support::relay::{Behaviour, Relay};
use crate::support::service::Service;
use crate::support::settings::Settings;
use crate::support::signing::{ALICE, Account, BOB, DEPLOYER};
use crate::support::time::{SOON, Stopwatch, unix_seconds, until};
use crate::support::world::World;

pub(crate) const CASES: &[Case<World>] = cases![
    an_agent_is_known_once_it_is_registered_and_agent_0_is_one,
    a_transfer_shows_within_two_polls,
    a_wallet_signs_for_its_agent_from_within_two_polls_until_it_is_cleared,
    a_transfer_takes_the_wallet_away_with_the_owner,
    feedback_shows_within_two_polls_when_given_and_when_revoked,
    a_response_to_feedback_changes_no_profile,
    a_validation_shows_within_two_polls_when_requested_answered_and_answered_again,
    half_of_the_requests_behind_shows_each_change_and_nothing_false,
    a_sick_node_shows_each_change_and_nothing_false,
    logs_never_say_who_owns_an_agent,
    a_proxy_that_was_never_upgraded_is_refused,
    an_upgrade_to_another_version_is_refused_within_two_polls,
];

/// These take long to write.
pub(crate) const CROWDS: &[Case<World>] =
    cases![ten_thousand_entries_of_feedback_are_bounded_in_time_and_memory];

/// Registries of one case, on the chain that cases share, with a vault that gives tiers.
pub(crate) struct Registries<'a> {
    pub(crate) chain: &'a Chain,
    pub(crate) on: Erc8004,
    vault: Address,
}

impl<'a> Registries<'a> {
    pub(crate) fn new(world: &'a World) -> Self {
        Self::of(world.chain())
    }

    pub(crate) fn of(chain: &'a Chain) -> Self {
        Self { chain, on: Erc8004::deploy(chain, DEPLOYER.address), vault: chain.deploy("StakeVault") }
    }

    pub(crate) fn settings(&self, world: &World) -> Settings {
        following::settings(world.settings())
            .set("chain.registries", "erc8004")
            .at("chain.contracts.identity", self.on.identity)
            .at("chain.contracts.reputation", self.on.reputation)
            .at("chain.contracts.validation", self.on.validation)
            .at("chain.contracts.stake_vault", self.vault)
            .without("chain.contracts.organization")
    }

    /// Registers an agent.
    pub(crate) fn unstaked(&self, owner: Account) -> Agent {
        self.of_owner(self.on.register(self.chain, owner.address, "ipfs://card"), owner)
    }

    /// Registers an agent of tier 4.
    fn agent(&self, owner: Account) -> Agent {
        let agent = self.unstaked(owner);
        self.chain.stake_on(self.vault, agent.id, THRESHOLDS[3]);
        agent
    }

    pub(crate) fn of_owner(&self, id: U256, owner: Account) -> Agent {
        Agent::on(self.on.identity, id, owner)
    }

    /// A service, and an agent of Alice's whose profile is cached.
    fn scene(&self, world: &World) -> Scene {
        Scene::with(self.settings(world), self.agent(ALICE))
    }
}

fn is_of(answer: &Answer, owner: Account) -> bool {
    has(answer, "/owner", json!(owner.address.to_checksum(None)))
}

fn is_refused(answer: &Answer) -> bool {
    answer.status == 401
}

fn an_agent_is_known_once_it_is_registered_and_agent_0_is_one(world: &World) {
    let registries = Registries::new(world);
    let service = Service::start(registries.settings(world));
    let unregistered = registries.of_owner(U256::ZERO, ALICE);
    service.verify_signature(&unregistered.signed()).error(404, "AGENT_NOT_FOUND");
    for id in [0, 1] {
        let agent = registries.agent(ALICE);
        assert_eq!(agent.id, U256::from(id));
        let key = agent.generate(&service);
        let profile = service.verify(&key).success(200);
        let expected = [
            ("/agentId", json!(id.to_string())),
            ("/owner", json!(ALICE.address.to_checksum(None))),
            ("/trustTier", json!(4)),
            ("/metadataURI", json!("ipfs://card")),
            ("/reputation", json!({ "totalScore": "0", "feedbackCount": 0, "averageRating": null })),
            ("/validation/count", json!(0)),
            ("/organizations", json!([])),
        ];
        for (pointer, value) in expected {
            assert_eq!(profile.pointer(pointer), Some(&value), "{pointer} in {profile}");
        }
    }
}

fn a_transfer_shows_within_two_polls(world: &World) {
    let registries = Registries::new(world);
    let scene = registries.scene(world);
    let (seller, buyer) = (&scene.agent, registries.of_owner(scene.agent.id, BOB));
    scene.service.verify_signature(&buyer.signed()).error(401, "SIGNATURE_INVALID");
    scene.shows_of(
        || scene.service.verify_signature(&seller.signed()),
        || registries.on.transfer(registries.chain, ALICE.address, BOB.address, seller.id),
        is_refused,
    );
    assert!(is_of(&scene.service.verify_signature(&buyer.signed()), BOB));
}

fn with_wallets(registries: &Registries<'_>, world: &World) -> Scene {
    let settings =
        registries.settings(world).set("signature.agent_wallet", true).set("signature.contracts", true);
    Scene::with(settings, registries.agent(ALICE))
}

fn a_wallet_signs_for_its_agent_from_within_two_polls_until_it_is_cleared(world: &World) {
    let registries = Registries::new(world);
    let (scene, on, chain) = (with_wallets(&registries, world), registries.on, registries.chain);
    let (id, wallet) = (scene.agent.id, registries.of_owner(scene.agent.id, BOB));
    let asked = || scene.service.verify_signature(&wallet.signed());
    asked().error(401, "SIGNATURE_INVALID");
    // The profile names the owner, whoever signs.
    scene.shows_of(asked, || on.set_wallet(chain, ALICE.address, id, BOB.key), |answer| is_of(answer, ALICE));
    scene.service.verify_signature(&scene.agent.signed()).success(200);
    scene.shows_of(asked, || on.unset_wallet(chain, ALICE.address, id), is_refused);
    scene.shows_of(asked, || on.set_wallet(chain, ALICE.address, id, BOB.key), |answer| is_of(answer, ALICE));
    scene.shows_of(asked, || on.set_wallet(chain, ALICE.address, id, DEPLOYER.key), is_refused);
}

fn a_transfer_takes_the_wallet_away_with_the_owner(world: &World) {
    let registries = Registries::new(world);
    let (scene, on, chain) = (with_wallets(&registries, world), registries.on, registries.chain);
    let (id, wallet) = (scene.agent.id, registries.of_owner(scene.agent.id, BOB));
    let asked = || scene.service.verify_signature(&wallet.signed());
    scene.shows_of(asked, || on.set_wallet(chain, ALICE.address, id, BOB.key), |answer| is_of(answer, ALICE));
    let transfer = || on.transfer(chain, ALICE.address, DEPLOYER.address, id);
    scene.shows_of(asked, transfer, is_refused);
    scene.service.verify_signature(&scene.agent.signed()).error(401, "SIGNATURE_INVALID");
    let owner = registries.of_owner(id, DEPLOYER);
    assert!(is_of(&scene.service.verify_signature(&owner.signed()), DEPLOYER));
}

/// The scores and the count that an answer shows.
fn shows_feedback(total: &str, count: u64) -> impl Fn(&Answer) -> bool {
    move |answer| {
        has(answer, "/reputation/totalScore", json!(total))
            && has(answer, "/reputation/feedbackCount", json!(count))
    }
}

fn feedback_shows_within_two_polls_when_given_and_when_revoked(world: &World) {
    let registries = Registries::new(world);
    let (scene, on, chain) = (registries.scene(world), registries.on, registries.chain);
    let id = scene.agent.id;
    let give = |client: Account, value, tag| on.feedback(chain, client.address, id, value, tag);
    scene.shows(|| give(BOB, (802, 3), "starred"), shows_feedback("0.802", 1));
    scene.shows(|| give(BOB, (-5, 0), ""), shows_feedback("-4.198", 2));
    scene.shows(
        || give(DEPLOYER, (10_i128.pow(38), 18), "starred"),
        shows_feedback("99999999999999999995.802", 3),
    );
    scene.shows(|| on.revoke(chain, DEPLOYER.address, id, 1), shows_feedback("-4.198", 2));
    scene.shows(|| on.revoke(chain, BOB.address, id, 1), shows_feedback("-5", 1));
    scene.shows(|| on.revoke(chain, BOB.address, id, 2), shows_feedback("0", 0));
}

fn a_response_to_feedback_changes_no_profile(world: &World) {
    let registries = Registries::new(world);
    let (scene, on, chain) = (registries.scene(world), registries.on, registries.chain);
    let id = scene.agent.id;
    scene.shows(|| on.feedback(chain, BOB.address, id, (45, 1), ""), shows_feedback("4.5", 1));
    let profile = |answer: Answer| {
        let mut profile = answer.success(200);
        profile.as_object_mut().unwrap().remove("timestamp");
        profile
    };
    let before = profile(scene.answer());
    on.respond(chain, ALICE.address, id, (BOB.address, 1));
    await_polls(&scene.service, 3.0);
    assert_eq!(profile(scene.answer()), before);
}

fn a_validation_shows_within_two_polls_when_requested_answered_and_answered_again(world: &World) {
    let registries = Registries::new(world);
    let (scene, on, chain) = (registries.scene(world), registries.on, registries.chain);
    let id = scene.agent.id;
    let shows = |expected: Value| move |answer: &Answer| has(answer, "/validation", expected.clone());
    let validator = BOB.address.to_checksum(None);
    let latest = |count: u64, passed: bool, evidence: &str| {
        json!({
            "count": count,
            "latestPassed": passed,
            "latestEvidence": evidence,
            "latestValidator": validator,
        })
    };
    let none = scene.answer().success(200)["validation"].clone();
    let (first, second) = (B256::repeat_byte(1), B256::repeat_byte(2));
    let request = |hash| on.request(chain, ALICE.address, BOB.address, id, hash);
    let answer = |hash, response: (u8, &str)| on.answer(chain, BOB.address, hash, response);
    request(first);
    await_polls(&scene.service, 3.0);
    assert!(has(&scene.answer(), "/validation", none), "a request is no validation");
    scene.shows(|| answer(first, (100, "ipfs://first")), shows(latest(1, true, "ipfs://first")));
    await_another_second();
    scene.shows(|| answer(first, (99, "ipfs://again")), shows(latest(1, false, "ipfs://again")));
    request(second);
    await_polls(&scene.service, 3.0);
    assert!(has(&scene.answer(), "/validation", latest(1, false, "ipfs://again")), "still the latest answer");
    await_another_second();
    scene.shows(|| answer(second, (100, "ipfs://second")), shows(latest(2, true, "ipfs://second")));
    await_another_second();
    scene.shows(|| answer(first, (0, "ipfs://third")), shows(latest(2, false, "ipfs://third")));
}

/// The registry dates answers by the second.
fn await_another_second() {
    let now = unix_seconds();
    until("the next second", SOON, || (unix_seconds() > now).then_some(()));
}

/// Changes agents over nodes that don't always say the truth of now, and asks once the service has accounted for it. The
/// evidence of a validation may be missing where a node may give none.
fn shows_nothing_false(world: &World, behaviour: impl Fn() -> Behaviour, may_lack_evidence: bool) {
    let own = world.another();
    let registries = Registries::of(own.chain());
    let (on, chain) = (registries.on, registries.chain);
    let relay = Relay::new(chain.node);
    with_blocks(chain, || {
        let settings = registries
            .settings(&own)
            .set("chain.rpc_urls", vec![format!("http://{}", relay.address)])
            .set("chain.poll_interval", "250ms")
            .set("chain.max_staleness", "60s")
            .set("signature.agent_wallet", true);
        let service = Service::start(settings);
        await_accounted(&service, chain);
        relay.behave(behaviour());
        for round in 0..3 {
            let alice = registries.agent(ALICE);
            let (id, hash) = (alice.id, B256::with_last_byte(round));
            let [bob, wallet] = [BOB, DEPLOYER].map(|account| registries.of_owner(id, account));
            // A node that fails now and then may make a 503, which is no wrong answer.
            let asked = |agent: &Agent| {
                until("it is answered", SOON, || {
                    Some(service.verify_signature(&agent.signed())).filter(|answer| answer.status != 503)
                })
            };
            let shows = |agent: &Agent, is_shown: &dyn Fn(&Answer) -> bool| {
                await_accounted(&service, chain);
                for _ in 0..4 {
                    let answer = asked(agent);
                    assert!(is_shown(&answer), "round {round}: {}", answer.text());
                }
            };
            let is_validated = |count: u64, passed: bool, evidence: &'static str| {
                move |answer: &Answer| {
                    let lacks_evidence =
                        may_lack_evidence && has(answer, "/validation/latestEvidence", json!(""));
                    has(answer, "/validation/count", json!(count))
                        && has(answer, "/validation/latestPassed", json!(passed))
                        && (lacks_evidence || has(answer, "/validation/latestEvidence", json!(evidence)))
                }
            };
            shows(&alice, &|answer| is_of(answer, ALICE));
            shows(&wallet, &is_refused);
            on.set_wallet(chain, ALICE.address, id, DEPLOYER.key);
            shows(&wallet, &|answer| is_of(answer, ALICE));
            on.unset_wallet(chain, ALICE.address, id);
            shows(&wallet, &is_refused);
            on.feedback(chain, DEPLOYER.address, id, (7, 0), "");
            shows(&alice, &shows_feedback("7", 1));
            on.feedback(chain, DEPLOYER.address, id, (15, 1), "starred");
            shows(&alice, &shows_feedback("8.5", 2));
            on.revoke(chain, DEPLOYER.address, id, 1);
            on.respond(chain, ALICE.address, id, (DEPLOYER.address, 2));
            shows(&alice, &shows_feedback("1.5", 1));
            on.request(chain, ALICE.address, DEPLOYER.address, id, hash);
            shows(&alice, &|answer| has(answer, "/validation/count", json!(0)));
            on.answer(chain, DEPLOYER.address, hash, (100, "ipfs://first"));
            shows(&alice, &is_validated(1, true, "ipfs://first"));
            on.answer(chain, DEPLOYER.address, hash, (99, "ipfs://again"));
            shows(&alice, &is_validated(1, false, "ipfs://again"));
            on.transfer(chain, ALICE.address, BOB.address, id);
            shows(&alice, &is_refused);
            let is_bobs = |answer: &Answer| is_of(answer, BOB) && shows_feedback("1.5", 1)(answer);
            shows(&bob, &|answer| is_bobs(answer) && is_validated(1, false, "ipfs://again")(answer));
        }
    });
}

fn half_of_the_requests_behind_shows_each_change_and_nothing_false(world: &World) {
    shows_nothing_false(world, || Behaviour::Balanced(HALF), false);
}

fn a_sick_node_shows_each_change_and_nothing_false(world: &World) {
    shows_nothing_false(world, || Behaviour::Sick, true);
}

/// The receiver's hook transfers the agent while it is being registered. The logs that come last name the contract as owner and
/// as wallet, and the deployer's key signs for that.
fn logs_never_say_who_owns_an_agent(world: &World) {
    let registries = Registries::new(world);
    let (scene, on) = (with_wallets(&registries, world), registries.on);
    let next = registries.of_owner(scene.agent.id + U256::ONE, BOB);
    scene.service.verify_signature(&next.signed()).error(404, "AGENT_NOT_FOUND");
    let id = on.register_and_pass_on(registries.chain, DEPLOYER.address, BOB.address);
    assert_eq!(id, next.id);
    registries.chain.stake_on(registries.vault, id, THRESHOLDS[3]);
    let registrant = registries.of_owner(id, DEPLOYER);
    await_polls(&scene.service, 3.0);
    let key = next.generate(&scene.service);
    for _ in 0..3 {
        assert!(is_of(&scene.service.verify(&key), BOB));
        scene.service.verify_signature(&registrant.signed()).error(401, "SIGNATURE_INVALID");
        await_polls(&scene.service, 2.0);
    }
}

fn a_proxy_that_was_never_upgraded_is_refused(world: &World) {
    let registries = Registries::new(world);
    let unfinished = Erc8004::deploy_unfinished(registries.chain, DEPLOYER.address);
    for key in ["identity", "reputation", "validation"] {
        let path = format!("chain.contracts.{key}");
        let service = Service::start_unready(registries.settings(world).at(&path, unfinished));
        until("the log says which", SOON, || {
            let log = service.log();
            (log.contains(&path) && log.contains("0.0.1")).then_some(())
        });
        assert_eq!(service.get("/readyz").status, 503, "{key}");
        let check = service.command("check", &["--online"]);
        let said = String::from_utf8_lossy(&[check.stdout, check.stderr].concat()).into_owned();
        assert!(!check.status.success() && said.contains("0.0.1"), "{key}: {said}");
        if key == "identity" {
            let agent = Agent::on(unfinished, U256::ZERO, ALICE);
            service.verify_signature(&agent.signed()).error(503, "RPC_ERROR");
        }
    }
}

/// As at the start: without the identity registry nobody passes, and another one makes the service unready.
fn an_upgrade_to_another_version_is_refused_within_two_polls(world: &World) {
    let registries = Registries::new(world);
    let (scene, on, chain) = (registries.scene(world), registries.on, registries.chain);
    on.feedback(chain, BOB.address, scene.agent.id, (7, 0), "");
    await_polls(&scene.service, 2.0);
    assert!(shows_feedback("7", 1)(&scene.answer()));
    scene.shows(|| on.downgrade(chain, on.reputation), shows_feedback("0", 0));
    assert!(has(&scene.answer(), "/reputation/bounded", json!(true)));
    until("it is unready", SOON, || {
        (scene.service.get("/readyz").status == 503 && scene.service.log().contains("0.0.1")).then_some(())
    });
    scene.shows(
        || on.downgrade(chain, on.identity),
        |answer| answer.status == 503 && answer.json()["errorType"] == json!("RPC_ERROR"),
    );
}

fn ten_thousand_entries_of_feedback_are_bounded_in_time_and_memory(world: &World) {
    const MEMORY_BYTES_MAX: usize = 64 << 20;
    const TIME_MAX: Duration = Duration::from_secs(6);
    let own = world.another();
    let registries = Registries::of(own.chain());
    let (on, chain) = (registries.on, registries.chain);
    let scene =
        Scene::with(registries.settings(&own).set("chain.feedback_max", 200), registries.agent(ALICE));
    let id = scene.agent.id;
    on.feedback(chain, BOB.address, id, (1, 0), "starred");
    let before = scene.service.resident_bytes();
    on.feedback_of_many(chain, (DEPLOYER.address, id), (2_500, 4), (3, 0));
    until("the feedback shows as far as it is looked at", SOON, || {
        shows_feedback("598", 200)(&scene.answer()).then_some(())
    });
    for _ in 0..5 {
        // Each read is a new one.
        on.feedback(chain, BOB.address, id, (1, 0), "starred");
        await_polls(&scene.service, 2.0);
        let watch = Stopwatch::start();
        let profile = scene.answer().success(200);
        assert!(watch.elapsed() < TIME_MAX, "{:?}", watch.elapsed());
        assert_eq!(profile["reputation"]["bounded"], json!(true), "{profile}");
        assert!(profile["reputation"]["feedbackCount"].as_u64().unwrap() <= 200, "{profile}");
        assert_eq!(profile["trustTier"], json!(4));
    }
    let after = scene.service.resident_bytes();
    assert!(after < before + MEMORY_BYTES_MAX, "{before} bytes before, {after} after");
}
