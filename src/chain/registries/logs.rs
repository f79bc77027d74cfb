//! Whom a log of a registry concerns: nobody, those it names, or everybody. Knows no cache.
//!
//! Dropping too much is harmless once, but whoever can cause it at will could keep the cache empty. So an unknown event
//! concerns those whom its topics name, and everybody only where it names nobody or an administrator caused it.

use std::collections::HashSet;

use alloy::primitives::{Address, B256, U256};
use alloy::sol;
use alloy::sol_types::SolEvent;

use crate::chain::block::Log;
use crate::chain::registries::standard::{HARMLESS, NAMING, NAMING_IN_DATA};
use crate::domain::agent_id::AgentId;

sol! {
    /// Proxies and their administration.
    event Upgraded(address indexed implementation);
    event AdminChanged(address previousAdmin, address newAdmin);
    event BeaconUpgraded(address indexed beacon);
    event OwnershipTransferred(address indexed previousOwner, address indexed newOwner);
    event RoleGranted(bytes32 indexed role, address indexed account, address indexed sender);
    event RoleRevoked(bytes32 indexed role, address indexed account, address indexed sender);
}

mod versions {
    alloy::sol! {
        event Initialized(uint64 version);
    }
}

mod old_versions {
    alloy::sol! {
        event Initialized(uint8 version);
    }
}

/// Events after which anything may read differently. Their indexed fields name no agent.
const ADMINISTRATION: [B256; 8] = [
    Upgraded::SIGNATURE_HASH,
    AdminChanged::SIGNATURE_HASH,
    BeaconUpgraded::SIGNATURE_HASH,
    OwnershipTransferred::SIGNATURE_HASH,
    RoleGranted::SIGNATURE_HASH,
    RoleRevoked::SIGNATURE_HASH,
    versions::Initialized::SIGNATURE_HASH,
    old_versions::Initialized::SIGNATURE_HASH,
];

/// In an unknown event a number below 2^128 is taken for an id: addresses and hashes lie above.
const PLAUSIBLE_BITS_MAX: usize = 128;

/// Whom a log concerns.
enum Concern {
    Nobody,
    /// Those that its topics name.
    Named,
    /// The one that its data names.
    One(AgentId),
    Everybody,
}

fn concern(log: &Log) -> Concern {
    let Some((signature, fields)) = log.topics.split_first() else { return Concern::Everybody };
    if HARMLESS.contains(signature) {
        return Concern::Nobody;
    }
    if let Some((_, count)) = NAMING.iter().find(|(known, _)| known == signature) {
        // With fewer topics the agent is in the data, where it is not looked for.
        return if *count == log.topics.len() { Concern::Named } else { Concern::Everybody };
    }
    if *signature == NAMING_IN_DATA {
        return match log.first_word {
            Some(id) if fields.is_empty() => Concern::One(AgentId::from_bytes(id.0)),
            Some(_) | None => Concern::Everybody,
        };
    }
    let names_somebody = fields.iter().any(|field| is_plausible(U256::from_be_bytes(field.0)));
    if ADMINISTRATION.contains(signature) || !names_somebody { Concern::Everybody } else { Concern::Named }
}

fn is_plausible(number: U256) -> bool {
    !number.is_zero() && number.bit_len() <= PLAUSIBLE_BITS_MAX
}

/// The first log that concerned everybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::chain) struct Cause {
    pub(in crate::chain) contract: Address,
    /// The event's signature, if it has one.
    pub(in crate::chain) topic: Option<B256>,
    pub(in crate::chain) block: u64,
}

/// Whose cached profiles may have changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::chain) struct Drops {
    /// These agents.
    pub(in crate::chain) agents: HashSet<AgentId>,
    /// Every agent that belongs to one of these organizations.
    pub(in crate::chain) organizations: HashSet<U256>,
    /// Everybody, and why.
    pub(in crate::chain) everybody: Option<Cause>,
}

impl Drops {
    /// Adds the agents that a log concerns. `organizations` is the organization registry: there a topic may name an
    /// organization too.
    pub(in crate::chain) fn add(&mut self, log: &Log, organizations: Option<Address>) {
        match concern(log) {
            Concern::Nobody => {}
            Concern::One(agent) => {
                self.agents.insert(agent);
            }
            Concern::Everybody => {
                let topic = log.topics.first().copied();
                let cause = Cause { contract: log.address, topic, block: log.block_number };
                self.everybody.get_or_insert(cause);
            }
            Concern::Named => {
                // Whichever of them is the agent's id: the others cost a read at most.
                let numbers = log.topics.iter().skip(1).map(|topic| U256::from_be_bytes(topic.0));
                self.agents.extend(numbers.clone().map(AgentId::new));
                if organizations == Some(log.address) {
                    self.organizations.extend(numbers);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloy::primitives::{Address, B256, U256, address, keccak256};

    use super::{Cause, Drops};
    use crate::chain::block::Log;
    use crate::domain::agent_id::AgentId;

    const ORGANIZATIONS: Address = address!("0x0000000000000000000000000000000000000015");
    const OTHER: Address = address!("0x0000000000000000000000000000000000000011");

    fn drops(address: Address, signature: &str, numbers: &[u64]) -> Drops {
        let mut topics = vec![keccak256(signature)];
        topics.extend(numbers.iter().map(|number| B256::from(U256::from(*number))));
        dropped(address, topics)
    }

    fn dropped(address: Address, topics: Vec<B256>) -> Drops {
        let mut drops = Drops::default();
        let log = Log {
            address,
            block_number: 1,
            block_hash: B256::ZERO,
            log_index: 0,
            topics,
            first_word: Some(B256::with_last_byte(7)),
        };
        drops.add(&log, Some(ORGANIZATIONS));
        drops
    }

    fn agents(ids: &[u64]) -> Drops {
        let agents = ids.iter().map(|id| AgentId::new(U256::from(*id))).collect();
        Drops { agents, ..Drops::default() }
    }

    fn everybody(contract: Address, topic: Option<B256>) -> Drops {
        Drops { everybody: Some(Cause { contract, topic, block: 1 }), ..Drops::default() }
    }

    #[test]
    fn an_event_that_names_an_agent_drops_whoever_its_topics_name_and_nobody_else() {
        for (signature, topics) in [
            ("Transfer(address,address,uint256)", &[1, 2, 7][..]),
            ("Staked(uint256,address,uint256)", &[7, 1]),
            ("Unstaked(uint256,address,uint256)", &[7, 1]),
            ("FeedbackGiven(uint256,address,int256)", &[7, 1]),
            ("ValidationSubmitted(uint256,address,bool)", &[7, 1]),
        ] {
            assert_eq!(drops(OTHER, signature, topics), agents(topics), "{signature}");
        }
    }

    #[test]
    fn an_event_of_the_organization_registry_drops_the_members_too() {
        for (signature, topics) in [
            ("OrganizationCreated(uint256,string)", &[9][..]),
            ("OrganizationVerified(uint256,bool)", &[9]),
            ("MemberAdded(uint256,uint256)", &[9, 7]),
            ("MemberRemoved(uint256,uint256)", &[9, 7]),
        ] {
            let organizations = topics.iter().map(|id| U256::from(*id)).collect();
            let expected = Drops { organizations, ..agents(topics) };
            assert_eq!(drops(ORGANIZATIONS, signature, topics), expected, "{signature}");
            assert_eq!(drops(OTHER, signature, topics), agents(topics), "{signature} elsewhere");
        }
    }

    #[test]
    fn an_approval_drops_nobody_however_it_is_indexed() {
        for topics in [&[1, 2, 7][..], &[1, 2], &[]] {
            assert_eq!(drops(OTHER, "Approval(address,address,uint256)", topics), Drops::default());
            assert_eq!(drops(OTHER, "ApprovalForAll(address,address,bool)", topics), Drops::default());
        }
    }

    #[test]
    fn changed_metadata_drop_the_agent_that_the_data_name() {
        assert_eq!(drops(OTHER, "MetadataUpdate(uint256)", &[]), agents(&[7]));
        let topics = vec![keccak256("MetadataUpdate(uint256)")];
        let empty = Log {
            address: OTHER,
            block_number: 1,
            block_hash: B256::ZERO,
            log_index: 0,
            topics,
            first_word: None,
        };
        let mut drops = Drops::default();
        drops.add(&empty, None);
        let event = Some(keccak256("MetadataUpdate(uint256)"));
        assert_eq!(drops, everybody(OTHER, event), "there is nothing in it");
    }

    #[test]
    fn what_may_concern_anybody_drops_everybody_and_says_which_log_it_was() {
        for (signature, topics) in [
            ("MetadataUpdate(uint256)", &[7][..]),
            ("Upgraded(address)", &[1]),
            ("Paused(address)", &[]),
            ("BatchMetadataUpdate(uint256,uint256)", &[]),
            ("AdminChanged(address,address)", &[]),
            ("BeaconUpgraded(address)", &[1]),
            ("Initialized(uint8)", &[]),
            ("Initialized(uint64)", &[]),
            ("OwnershipTransferred(address,address)", &[1, 2]),
            ("RoleGranted(bytes32,address,address)", &[1, 2, 3]),
            ("SomethingElse(address)", &[0]),
            // As an ERC-20 token, or an older registry, has it: the number is in the data.
            ("Transfer(address,address,uint256)", &[1, 2]),
            ("Transfer(address,address,uint256)", &[]),
            ("Staked(uint256,address,uint256)", &[]),
            ("MemberAdded(uint256,uint256)", &[9]),
        ] {
            let expected = everybody(OTHER, Some(keccak256(signature)));
            assert_eq!(drops(OTHER, signature, topics), expected, "{signature} {topics:?}");
        }
        assert_eq!(dropped(OTHER, Vec::new()), everybody(OTHER, None), "an anonymous event without topics");
        let anonymous = B256::with_last_byte(7);
        assert_eq!(dropped(OTHER, vec![anonymous]), everybody(OTHER, Some(anonymous)), "an anonymous event");
        // An address or a hash names no agent.
        for bits in [128_usize, 159, 255] {
            let number: U256 = U256::ONE << bits;
            let topics = vec![keccak256("Unheard(address)"), B256::from(number)];
            assert_eq!(dropped(OTHER, topics.clone()), everybody(OTHER, topics.first().copied()), "{bits}");
        }
    }

    #[test]
    fn an_unknown_event_drops_whoever_its_topics_name_and_nobody_else() {
        assert_eq!(drops(OTHER, "SomethingElse(uint256)", &[7]), agents(&[7]));
        assert_eq!(drops(OTHER, "SomethingElse(uint256,uint256)", &[7, 0]), agents(&[7, 0]));
        let members = Drops { organizations: [U256::from(7)].into(), ..agents(&[7]) };
        assert_eq!(drops(ORGANIZATIONS, "OrganizationRenamed(uint256,string)", &[7]), members);
        // What can't be an id by itself may be one beside one that can.
        let [small, large]: [U256; 2] = [U256::from(u128::MAX), U256::MAX];
        let topics = vec![keccak256("Unheard(uint256,uint256)"), small.into(), large.into()];
        let both = [small, large].map(AgentId::new).into();
        assert_eq!(dropped(OTHER, topics), Drops { agents: both, ..Drops::default() });
    }
}
