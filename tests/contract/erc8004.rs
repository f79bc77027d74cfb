//! ERC-8004's registries for a case, and what strangers write there: it costs nobody a verdict. How changes there show is in
//! `following.rs`.
//!
//! The registries are our contracts, or those of the file that `TG_ERC8004_ARTIFACTS` names.

use std::time::Duration;

use alloy::primitives::{Address, U256};
use serde_json::json;

use crate::changes::shows_feedback;
use crate::following::{self, Scene, await_polls};
use crate::support::agents::{Agent, THRESHOLDS};
use crate::support::chain::Chain;
use crate::support::erc8004::Erc8004;
use crate::support::harness::{Case, cases};
use crate::support::settings::Settings;
use crate::support::signing::{ALICE, Account, BOB, DEPLOYER};
use crate::support::time::{SOON, Stopwatch, until};
use crate::support::world::World;

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
    pub(crate) fn agent(&self, owner: Account) -> Agent {
        let agent = self.unstaked(owner);
        self.chain.stake_on(self.vault, agent.id, THRESHOLDS[3]);
        agent
    }

    pub(crate) fn of_owner(&self, id: U256, owner: Account) -> Agent {
        Agent::on(self.on.identity, id, owner)
    }
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
