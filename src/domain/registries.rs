//! The registries of agents on the chain.

use alloy::primitives::Address;

/// Where the registries are. Those that are absent read as zero or empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registries {
    /// Who owns which agent, an ERC-721 registry; also the contract that signatures are bound to.
    pub identity: Address,
    /// Which agent has staked how much.
    pub stake_vault: Address,
    /// What others say about agents.
    pub reputation: Option<Address>,
    /// What validators found.
    pub validation: Option<Address>,
    /// Who belongs to which organization.
    pub organization: Option<Address>,
}

impl Registries {
    /// The registries in the order of their calls, each with its key in the configuration.
    pub fn contracts(&self) -> impl Iterator<Item = (&'static str, Address)> + use<> {
        [
            ("chain.contracts.identity", Some(self.identity)),
            ("chain.contracts.stake_vault", Some(self.stake_vault)),
            ("chain.contracts.reputation", self.reputation),
            ("chain.contracts.validation", self.validation),
            ("chain.contracts.organization", self.organization),
        ]
        .into_iter()
        .filter_map(|(key, address)| address.map(|address| (key, address)))
    }
}
