//! ERC-8004's registries for a case. How changes there show is in `following.rs`.
//!
//! The registries are our contracts, or those of the file that `TG_ERC8004_ARTIFACTS` names.

use alloy::primitives::{Address, U256};

use crate::following;
use crate::support::agents::{Agent, THRESHOLDS};
use crate::support::signing::{Account, DEPLOYER};
use crate::support::{chain::Chain, erc8004::Erc8004, settings::Settings, world::World};

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
