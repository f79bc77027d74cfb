//! The registries of agents on the chain.

use alloy::primitives::Address;

use crate::domain::agent_id::AgentId;

/// Where the registries are. Those that are absent read as zero or empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registries {
    /// The owners of agents, an ERC-721 registry; also the contract that signatures are bound to.
    pub identity: Address,
    /// Which agent has staked how much, where that gives agents their tiers.
    pub stake_vault: Option<Address>,
    /// Feedback about agents.
    pub reputation: Option<Address>,
    /// Findings of validators.
    pub validation: Option<Address>,
    /// Which contracts these are.
    pub set: RegistrySet,
}

/// A set of registries that belong together, each with functions and events of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegistrySet {
    /// The documented ones.
    Documented {
        /// Members of organizations.
        organization: Option<Address>,
    },
    /// ERC-8004's, version 2. Agents have wallets, and there are no organizations.
    Erc8004 {
        /// How many entries of feedback are looked at, 1 to 10,000.
        feedback_max: u32,
    },
}

impl Registries {
    /// The registries in the order of their calls, each with its key in the configuration.
    pub fn contracts(&self) -> impl Iterator<Item = (&'static str, Address)> + use<> {
        [
            ("chain.contracts.identity", Some(self.identity)),
            ("chain.contracts.stake_vault", self.stake_vault),
            ("chain.contracts.reputation", self.reputation),
            ("chain.contracts.validation", self.validation),
            ("chain.contracts.organization", self.organization()),
        ]
        .into_iter()
        .filter_map(|(key, address)| address.map(|address| (key, address)))
    }

    /// True if agents have wallets of their own, which may sign for them.
    pub const fn has_wallets(&self) -> bool {
        matches!(self.set, RegistrySet::Erc8004 { .. })
    }

    /// The registry of organizations, where the set has one.
    pub const fn organization(&self) -> Option<Address> {
        match self.set {
            RegistrySet::Documented { organization } => organization,
            RegistrySet::Erc8004 { .. } => None,
        }
    }

    /// True where the set has no agent of this id, whatever its registry says.
    pub fn reserves(&self, agent: AgentId) -> bool {
        matches!(self.set, RegistrySet::Documented { .. }) && agent.token_id().is_zero()
    }
}

#[cfg(test)]
mod tests {
    use alloy::primitives::{Address, U256};

    use super::{Registries, RegistrySet};
    use crate::domain::agent_id::AgentId;

    #[test]
    fn agent_0_is_reserved_by_the_documented_registries_alone() {
        for (set, reserves_0) in [
            (RegistrySet::Documented { organization: None }, true),
            (RegistrySet::Erc8004 { feedback_max: 1 }, false),
        ] {
            let (identity, none) = (Address::ZERO, None);
            let registries =
                Registries { identity, stake_vault: none, reputation: none, validation: none, set };
            assert_eq!(registries.reserves(AgentId::new(U256::ZERO)), reserves_0);
            assert!(!registries.reserves(AgentId::new(U256::ONE)));
        }
    }
}
