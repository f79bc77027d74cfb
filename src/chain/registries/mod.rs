//! The sets of registries that agents can be read from.
//!
//! One file per set says all there is to know of it: which calls, how their results decode, which logs name whom, which
//! reverts mean "not minted". `standard` is the documented ABI. `logs` are the rules that hold for the logs of any set,
//! `token` is the token of a stake vault.

pub(super) mod logs;
pub(super) mod standard;
pub(super) mod token;

use alloy::primitives::Address;

/// Where the registries are. Those that are absent read as zero or empty.
#[derive(Debug, Clone, Copy)]
pub struct Registries {
    /// ERC-721 registry of agents.
    pub identity: Address,
    /// Agents' stakes.
    pub stake_vault: Address,
    /// Feedback, if there is such a registry.
    pub reputation: Option<Address>,
    /// Validations, if there is such a registry.
    pub validation: Option<Address>,
    /// Organizations, if there is such a registry.
    pub organization: Option<Address>,
}

impl Registries {
    /// The registries in the order of their calls, each with its key in the configuration.
    pub(super) fn contracts(&self) -> impl Iterator<Item = (&'static str, Address)> + use<> {
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
