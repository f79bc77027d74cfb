//! The chain: its registries of agents, how they are read, what differs from chain to chain, and the name by which stores know it.

use std::{fmt, num::NonZeroU32, time::Duration};

use alloy::primitives::{Address, address};

use crate::domain::{agent_id::AgentId, rpc_url::RpcUrl};

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

/// The nodes of one chain. `Debug` shows no key of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSettings {
    /// Where JSON-RPC is answered, in order of preference; at least one.
    pub urls: Vec<RpcUrl>,
    /// How long one try may take; more than 0, at most 5 s.
    pub request_timeout: Duration,
    /// How many calls a second each node gets at most.
    pub calls_per_second: Option<NonZeroU32>,
    /// The HTTP proxy through which nodes are reached.
    pub proxy: Option<RpcUrl>,
    /// The id of the chain that is read, at least 1. Answers of another one do not count.
    pub chain_id: u64,
}

/// How the registries are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReaderSettings {
    /// Where they are.
    pub registries: Registries,
    /// Multicall3, which reads a profile from one block in one call.
    pub multicall: Address,
    /// The most gas that one `eth_call` may burn, 1,000,000 to 1,000,000,000.
    pub gas_cap: u64,
    /// How old a node's latest block may be by its own time before the node is not used, at least 10 s and at most 24 h;
    /// none when that is not judged.
    pub max_head_age: Option<Duration>,
    /// For how long profiles serve.
    pub lifetimes: Lifetimes,
}

/// For how long profiles serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// One that was read at the latest block; at least 50 ms, at most 60 s.
    pub poll_interval: Duration,
    /// How long the follower may be silent before nothing is served on its word; at least twice `poll_interval`, at most
    /// 10 minutes.
    pub max_staleness: Duration,
    /// After which time one that no log ever dropped is read again; at least a minute, at most 24 h.
    pub reread_after: Option<Duration>,
}

/// A chain by its id, as far as it is known: the one place in the code that knows any. Where nothing is, all is as on most chains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainFacts {
    /// ERC-8004's identity and reputation registry, where its authors deployed them: the same two addresses on all main networks,
    /// and two on all networks for tests.
    pub erc8004: Option<[Address; 2]>,
    /// Multicall3.
    pub multicall: Address,
    /// What can't be had of ERC-8004's registries, for people.
    pub remark: Option<&'static str>,
}

/// The facts of this chain.
#[must_use]
pub const fn facts(chain_id: u64) -> ChainFacts {
    let erc8004 = match chain_id {
        1 | 10 | 56 | 100 | 137 | 143 | 196 | 1_088 | 1_868 | 2_345 | 2_741 | 4_326 | 5_000 | 8_453
        | 42_161 | 42_220 | 43_114 | 59_144 | 167_000 | 534_352 => Some([
            address!("0x8004A169FB4a3325136EB29fA0ceB6D2e539a432"),
            address!("0x8004BAa17C55a88189AE136b182e5fdA19dE9b63"),
        ]),
        84_532 | 11_155_111 => Some([
            address!("0x8004A818BFB912233c491871b3d84c89A494BD9e"),
            address!("0x8004B663056A597Dffe9eCcC1965A193B7388713"),
        ]),
        _ => None,
    };
    let multicall = match chain_id {
        50 => address!("0x0B1795ccA8E4eC4df02346a082df54D437F8D9aF"),
        109 => address!("0x864Bf681ADD6052395188A89101A1B37d3B4C961"),
        324 => address!("0xF9cda624FBC7e059355ce98a31693d299FACd963"),
        1_135 => address!("0xA9d71E1dd7ca26F26e656E66d6AA81ed7f745bf0"),
        2_741 => address!("0xAa4De41dba0Ca5dCBb288b7cC6b708F3aaC759E7"),
        5_031 => address!("0x5e44F178E8cF9B2F5409B6f18ce936aB817C5a11"),
        13_371 => address!("0x236bdA4589e44e6850f5aC6a74BfCa398a86c6c0"),
        50_104 => address!("0x5f4867441d2416cA88B1b3fd38f21811680CD2C8"),
        _ => address!("0xcA11bde05977b3631167028862bE2a173976CA11"),
    };
    let remark = match chain_id {
        324 | 2_741 | 50_104 => Some(
            "Nodes of this chain answer no eth_call without `to`: profiles in the API are 503, and no feedback can give tiers.",
        ),
        _ => None,
    };
    ChainFacts { erc8004, multicall, remark }
}

/// How much of a text that a store holds is shown.
const SHOWN_CHARS_MAX: usize = 200;

/// A chain and its identity registry, as the text that stores keep. An agent's number means something on one chain and in one
/// identity registry alone: on another chain its keys would admit a stranger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding(String);

/// The store is for another chain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "is for {known}, and the configuration is for {configured}; write {instead}, or the chain that it is for"
)]
pub struct OtherChain {
    known: String,
    configured: Binding,
    instead: &'static str,
}

impl Binding {
    /// A chain for development is never the same as one that is not: their ids and addresses may be.
    pub fn new(chain_id: u64, identity: Address, is_for_development: bool) -> Self {
        let kind = if is_for_development { "development chain" } else { "chain" };
        Self(format!("{kind} {chain_id} with identity registry {identity}"))
    }

    /// The text. A change of it makes every store another chain's.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Succeeds for the text of the same chain; `instead` is what to write for a store of its own.
    pub fn check(&self, known: &str, instead: &'static str) -> Result<(), OtherChain> {
        if known == self.0 {
            return Ok(());
        }
        let known = known.escape_debug().take(SHOWN_CHARS_MAX).collect();
        Err(OtherChain { known, configured: self.clone(), instead })
    }
}

impl fmt::Display for Binding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use alloy::primitives::{Address, U256, address};

    use super::{Binding, Registries, RegistrySet};
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

    #[test]
    fn chain_registry_and_development_tell_bindings_apart_and_the_text_stays_as_it_is() {
        let (one, two) = (
            address!("5FbDB2315678afecb367f032d93F642f64180aa3"),
            address!("e7f1725E7734CE288F8367e1Bb143E90bb3F0512"),
        );
        let binding = Binding::new(8004, one, false);
        assert_eq!(
            binding.as_str(),
            "chain 8004 with identity registry 0x5FbDB2315678afecb367f032d93F642f64180aa3"
        );
        binding.check(binding.as_str(), "another").unwrap();
        for other in
            [Binding::new(8005, one, false), Binding::new(8004, two, false), Binding::new(8004, one, true)]
        {
            let said = binding.check(other.as_str(), "another prefix").unwrap_err().to_string();
            let expected =
                format!("is for {other}, and the configuration is for {binding}; write another prefix, ");
            assert!(said.starts_with(&expected), "{said}");
        }
        let absurd = binding.check(&"\n".repeat(10_000), "another").unwrap_err().to_string();
        assert!(absurd.len() < 500 && !absurd.contains('\n'), "{absurd}");
    }
}
