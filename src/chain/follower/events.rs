//! What a log of a registry says about profiles that are cached: nothing, that those it names have changed, or that
//! anybody's may have. Knows no cache.
//!
//! Dropping too much is harmless once, but whoever can cause it at will could keep the cache empty. So what is not known to
//! be harmless concerns those whom its topics name, and everybody only where they name nobody, or where an administrator
//! did something.

use std::collections::HashSet;

use alloy::primitives::{Address, B256, U256};
use alloy::sol;
use alloy::sol_types::SolEvent;

use crate::chain::rpc::lead::LogMark;
use crate::domain::agent_id::AgentId;

sol! {
    /// Identity registry (ERC-721).
    event Transfer(address indexed from, address indexed to, uint256 indexed tokenId);
    event Approval(address indexed owner, address indexed approved, uint256 indexed tokenId);
    event ApprovalForAll(address indexed owner, address indexed operator, bool approved);

    /// ERC-4906, of the identity registry.
    event MetadataUpdate(uint256 _tokenId);

    /// Stake vault.
    event Staked(uint256 indexed agentId, address indexed staker, uint256 amount);
    event Unstaked(uint256 indexed agentId, address indexed staker, uint256 amount);

    /// Reputation registry.
    event FeedbackGiven(uint256 indexed agentId, address indexed from, int256 score);

    /// Validation registry.
    event ValidationSubmitted(uint256 indexed agentId, address indexed validator, bool passed);

    /// Organization registry.
    event OrganizationCreated(uint256 indexed orgId, string name);
    event OrganizationVerified(uint256 indexed orgId, bool verified);
    event MemberAdded(uint256 indexed orgId, uint256 indexed agentId);
    event MemberRemoved(uint256 indexed orgId, uint256 indexed agentId);
}

/// Events that name in their topics whom they concern, and how many topics they have then, the signature included. The
/// same event with fewer has it in its data, where it is not looked for.
const NAMING: [(B256, usize); 9] = [
    (Transfer::SIGNATURE_HASH, 4),
    (Staked::SIGNATURE_HASH, 3),
    (Unstaked::SIGNATURE_HASH, 3),
    (FeedbackGiven::SIGNATURE_HASH, 3),
    (ValidationSubmitted::SIGNATURE_HASH, 3),
    (OrganizationCreated::SIGNATURE_HASH, 2),
    (OrganizationVerified::SIGNATURE_HASH, 2),
    (MemberAdded::SIGNATURE_HASH, 3),
    (MemberRemoved::SIGNATURE_HASH, 3),
];

/// Events that leave every profile as it is. Anybody may cause them for next to nothing: as a reason to drop everything
/// they would be a lever.
const HARMLESS: [B256; 2] = [Approval::SIGNATURE_HASH, ApprovalForAll::SIGNATURE_HASH];

sol! {
    /// What proxies and their administration write.
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

/// Events after which anything may read differently. Their indexed fields name no agent, whatever number stands there.
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

/// In an event that is not known, a number below 2^128 is taken for somebody's id: addresses and hashes lie above.
const PLAUSIBLE_BITS_MAX: usize = 128;

/// Whom a log concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Concern {
    Nobody,
    /// Those that its topics name.
    Named,
    /// The one that its data names.
    One(AgentId),
    Anybody,
}

fn concern(log: &LogMark) -> Concern {
    let Some((signature, fields)) = log.topics.split_first() else { return Concern::Anybody };
    if HARMLESS.contains(signature) {
        return Concern::Nobody;
    }
    if let Some((_, count)) = NAMING.iter().find(|(known, _)| known == signature) {
        return if *count == log.topics.len() { Concern::Named } else { Concern::Anybody };
    }
    if *signature == MetadataUpdate::SIGNATURE_HASH {
        return match log.first_word {
            Some(id) if fields.is_empty() => Concern::One(AgentId::from_bytes(id.0)),
            Some(_) | None => Concern::Anybody,
        };
    }
    let names_somebody = fields.iter().any(|field| is_plausible(U256::from_be_bytes(field.0)));
    if ADMINISTRATION.contains(signature) || !names_somebody { Concern::Anybody } else { Concern::Named }
}

/// True for what may be the id of an agent, or an organization, in an event that is not known.
fn is_plausible(number: U256) -> bool {
    !number.is_zero() && number.bit_len() <= PLAUSIBLE_BITS_MAX
}

/// Why nobody's cached profile is to be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::chain) enum Culprit {
    /// A log that may concern anybody.
    Log {
        contract: Address,
        /// The event's signature, if it has one.
        topic: Option<B256>,
        block: u64,
    },
    /// The logs of this block could not be read.
    Block(u64),
}

impl Culprit {
    /// Its name in the metrics.
    pub(super) const fn kind(self) -> &'static str {
        match self {
            Self::Log { .. } => "unknown_log",
            Self::Block(_) => "block_too_large",
        }
    }

    fn of(log: &LogMark) -> Self {
        Self::Log { contract: log.address, topic: log.topics.first().copied(), block: log.block_number }
    }
}

/// Whose cached profiles are no longer to be trusted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::chain) struct Drops {
    /// These agents.
    pub(in crate::chain) agents: HashSet<AgentId>,
    /// Every agent that belongs to one of these organizations.
    pub(in crate::chain) organizations: HashSet<U256>,
    /// All of them, and what was the first reason.
    pub(in crate::chain) everybody: Option<Culprit>,
}

impl Drops {
    /// Adds what a log says. `organizations` is where the organization registry stands: there a topic may name an
    /// organization too.
    pub(super) fn add(&mut self, log: &LogMark, organizations: Option<Address>) {
        match concern(log) {
            Concern::Nobody => {}
            Concern::One(agent) => {
                self.agents.insert(agent);
            }
            Concern::Anybody => self.concern_everybody(Culprit::of(log)),
            Concern::Named => {
                // Whichever of them is the agent's id: the others are nobody's, or somebody's who is read again for
                // nothing.
                let numbers = log.topics.iter().skip(1).map(|topic| U256::from_be_bytes(topic.0));
                self.agents.extend(numbers.clone().map(AgentId::new));
                if organizations == Some(log.address) {
                    self.organizations.extend(numbers);
                }
            }
        }
    }

    /// Drops everybody, for this reason if for none before.
    pub(super) fn concern_everybody(&mut self, culprit: Culprit) {
        self.everybody.get_or_insert(culprit);
    }
}

#[cfg(test)]
mod tests {
    use alloy::primitives::{Address, B256, U256, address, keccak256};

    use super::{Culprit, Drops};
    use crate::chain::rpc::lead::LogMark;
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
        let log = LogMark {
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
        Drops { everybody: Some(Culprit::Log { contract, topic, block: 1 }), ..Drops::default() }
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
        let empty = LogMark {
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
