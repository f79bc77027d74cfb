//! The registries of agents on the chain.

use alloy::primitives::Address;

/// Where the registries are. Those that are absent read as zero or empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registries {
    /// The owners of agents, an ERC-721 registry; also the contract that signatures are bound to.
    pub identity: Address,
    /// Which agent has staked how much.
    pub stake_vault: Address,
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
}

impl Registries {
    /// The registries in the order of their calls, each with its key in the configuration.
    pub fn contracts(&self) -> impl Iterator<Item = (&'static str, Address)> + use<> {
        [
            ("chain.contracts.identity", Some(self.identity)),
            ("chain.contracts.stake_vault", Some(self.stake_vault)),
            ("chain.contracts.reputation", self.reputation),
            ("chain.contracts.validation", self.validation),
            ("chain.contracts.organization", self.organization()),
        ]
        .into_iter()
        .filter_map(|(key, address)| address.map(|address| (key, address)))
    }

    /// The registry of organizations, where the set has one.
    pub const fn organization(&self) -> Option<Address> {
        match self.set {
            RegistrySet::Documented { organization } => organization,
        }
    }
}
