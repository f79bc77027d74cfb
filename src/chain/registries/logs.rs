//! Whom a log of a registry concerns: nobody, those it names, or everybody. Knows no cache.
//!
//! Dropping too much is harmless once, but whoever can cause it at will could keep the cache empty. So an unknown event
//! concerns those whom its topics name, and everybody only where it names nobody.

use std::{collections::HashMap, hash::Hash};

use alloy::primitives::{Address, B256, U256};

use crate::chain::block::Log;
use crate::domain::AgentId;

/// In an unknown event a number below 2^64 is taken for an id: addresses and hashes lie above. The events of proxies and
/// of their administration have only these, or nothing, in topics.
const PLAUSIBLE_BITS_MAX: usize = 64;

/// Which logs are asked for together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::chain) enum Kind {
    /// Logs of all contracts but tokens.
    All,
    /// Transfers of tokens that give tiers.
    Tokens,
}

/// Events of a set, and whom they name, each by its signature.
pub(super) struct Events {
    /// Events that change no field of a profile. Anybody may cause them for next to nothing.
    pub(super) harmless: &'static [B256],
    /// Events that name the agent or the organization in topics, with the number of all and the places of these behind the
    /// signature: others may fill the rest.
    pub(super) naming: &'static [(B256, usize, &'static [usize])],
    /// The one that names the agent in its data.
    pub(super) naming_in_data: B256,
    /// True if 0 may be an id.
    pub(super) has_agent_0: bool,
}

/// Finds whom a log concerns, by their numbers. `None`: everybody.
fn concerned(log: &Log, events: &Events) -> Option<Vec<U256>> {
    let (signature, fields) = log.topics.split_first()?;
    let numbers = || fields.iter().map(|field| U256::from_be_bytes(field.0)).collect::<Vec<_>>();
    if events.harmless.contains(signature) {
        return Some(Vec::new());
    }
    if let Some((_, count, places)) = events.naming.iter().find(|(known, ..)| known == signature) {
        // With fewer topics the agent is in the data, where it is not looked for.
        let numbers = places.iter().filter_map(|place| numbers().get(*place).copied());
        return (*count == log.topics.len()).then(|| numbers.collect());
    }
    if *signature == events.naming_in_data {
        return log.first_word.filter(|_| fields.is_empty()).map(|id| vec![U256::from_be_bytes(id.0)]);
    }
    let is_plausible =
        |number: &U256| (events.has_agent_0 || !number.is_zero()) && number.bit_len() <= PLAUSIBLE_BITS_MAX;
    Some(numbers()).filter(|numbers| numbers.iter().any(is_plausible))
}

/// A log that concerned everybody, or a block whose logs can't be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::chain) struct Cause {
    /// The log's contract, and the event's signature if it has one.
    pub(in crate::chain) log: Option<(Address, Option<B256>)>,
    pub(in crate::chain) block: u64,
}

/// Agents whose cached profiles may have changed, and in which block at the latest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::chain) struct Drops {
    pub(in crate::chain) agents: HashMap<AgentId, u64>,
    /// Every agent that belongs to one of these organizations.
    pub(in crate::chain) organizations: HashMap<U256, u64>,
    /// Every agent that one of these accounts holds.
    pub(in crate::chain) holders: HashMap<Address, u64>,
    /// Everybody, and why.
    pub(in crate::chain) everybody: Option<Cause>,
}

/// Notes the latest block.
pub(in crate::chain) fn add<K: Eq + Hash>(of: &mut HashMap<K, u64>, who: K, block: u64) {
    of.entry(who).and_modify(|latest| *latest = block.max(*latest)).or_insert(block);
}

impl Drops {
    /// Finds whom these logs concern. `organizations` is the organization registry: there a topic may name an organization too.
    pub(super) fn of<'a>(
        logs: impl IntoIterator<Item = &'a Log>,
        organizations: Option<Address>,
        events: &Events,
    ) -> Self {
        let mut drops = Self::default();
        for log in logs {
            let block = log.block_number;
            let Some(numbers) = concerned(log, events) else {
                drops.add_everybody(log);
                continue;
            };
            // Whichever of them is the agent's id: the others cost a read at most.
            for number in numbers {
                add(&mut drops.agents, AgentId::new(number), block);
                if organizations == Some(log.address) {
                    add(&mut drops.organizations, number, block);
                }
            }
        }
        drops
    }

    /// The last blocks with logs that concerned groups, and everybody; 0 for none.
    pub(in crate::chain) fn floors(&self) -> [u64; 2] {
        let groups = self.organizations.values().chain(self.holders.values()).max().copied();
        [groups.unwrap_or_default(), self.everybody.map_or(0, |cause| cause.block)]
    }

    /// Adds those whose ids a topic may be. Whoever can cause the log at will drops nobody else.
    pub(in crate::chain) fn add_named(&mut self, log: &Log) {
        for field in log.topics.iter().skip(1) {
            add(&mut self.agents, AgentId::new(U256::from_be_bytes(field.0)), log.block_number);
        }
    }

    pub(in crate::chain) fn add_everybody(&mut self, log: &Log) {
        let log_of = (log.address, log.topics.first().copied());
        self.add_cause(Cause { log: Some(log_of), block: log.block_number });
    }

    /// Adds everybody, unless a later block has.
    pub(in crate::chain) fn add_cause(&mut self, cause: Cause) {
        self.everybody = self.everybody.filter(|other| other.block > cause.block).or(Some(cause));
    }
}

#[cfg(test)]
mod tests {
    use alloy::primitives::{Address, B256, U256, address, keccak256};

    use super::{Cause, Drops};
    use crate::chain::{block::Log, registries::documented::EVENTS};
    use crate::domain::AgentId;

    const ORGANIZATIONS: Address = address!("0x0000000000000000000000000000000000000015");
    const OTHER: Address = address!("0x0000000000000000000000000000000000000011");

    fn drops(address: Address, signature: &str, numbers: &[u64]) -> Drops {
        let mut topics = vec![keccak256(signature)];
        topics.extend(numbers.iter().map(|number| B256::from(U256::from(*number))));
        dropped(address, topics)
    }

    fn dropped(address: Address, topics: Vec<B256>) -> Drops {
        let log = Log {
            address,
            block_number: 1,
            block_hash: B256::ZERO,
            topics,
            first_word: Some(B256::with_last_byte(7)),
        };
        Drops::of(&[log], Some(ORGANIZATIONS), &EVENTS)
    }

    fn agents(ids: &[u64]) -> Drops {
        let agents = ids.iter().map(|id| (AgentId::new(U256::from(*id)), 1)).collect();
        Drops { agents, ..Drops::default() }
    }

    fn everybody(contract: Address, topic: Option<B256>) -> Drops {
        Drops { everybody: Some(Cause { log: Some((contract, topic)), block: 1 }), ..Drops::default() }
    }

    // threat: Cheap events empty the cache
    #[test]
    fn an_event_that_names_an_agent_drops_that_one_and_nobody_else() {
        for (signature, topics) in [
            ("Transfer(address,address,uint256)", &[1, 1, 7][..]),
            ("Staked(uint256,address,uint256)", &[7, 1]),
            ("Unstaked(uint256,address,uint256)", &[7, 1]),
            ("FeedbackGiven(uint256,address,int256)", &[7, 1]),
            ("ValidationSubmitted(uint256,address,bool)", &[7, 1]),
        ] {
            assert_eq!(drops(OTHER, signature, topics), agents(&[7]), "{signature}");
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
            let organizations = topics.iter().map(|id| (U256::from(*id), 1)).collect();
            let expected = Drops { organizations, ..agents(topics) };
            assert_eq!(drops(ORGANIZATIONS, signature, topics), expected, "{signature}");
            assert_eq!(drops(OTHER, signature, topics), agents(topics), "{signature} elsewhere");
        }
    }

    // threat: Cheap events empty the cache
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
        let empty = Log { address: OTHER, block_number: 1, block_hash: B256::ZERO, topics, first_word: None };
        let drops = Drops::of(&[empty], None, &EVENTS);
        let event = Some(keccak256("MetadataUpdate(uint256)"));
        assert_eq!(drops, everybody(OTHER, event), "there is nothing in it");
    }

    #[test]
    fn what_may_concern_anybody_drops_everybody_and_says_which_log_it_was() {
        for (signature, topics) in [
            ("MetadataUpdate(uint256)", &[7][..]),
            ("Paused(address)", &[]),
            ("BatchMetadataUpdate(uint256,uint256)", &[]),
            ("AdminChanged(address,address)", &[]),
            ("Initialized(uint8)", &[]),
            ("Initialized(uint64)", &[]),
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
        let high = B256::left_padding_from(&[1; 20]);
        for (signature, fields) in [
            ("Upgraded(address)", &[high][..]),
            ("BeaconUpgraded(address)", &[high]),
            ("OwnershipTransferred(address,address)", &[high, B256::ZERO]),
            ("RoleGranted(bytes32,address,address)", &[B256::ZERO, high, high]),
            ("RoleRevoked(bytes32,address,address)", &[keccak256("ROLE"), high, high]),
        ] {
            let topics = [&[keccak256(signature)], fields].concat();
            assert_eq!(dropped(OTHER, topics), everybody(OTHER, Some(keccak256(signature))), "{signature}");
        }
        assert_eq!(dropped(OTHER, Vec::new()), everybody(OTHER, None), "an anonymous event without topics");
        let anonymous = B256::with_last_byte(7);
        assert_eq!(dropped(OTHER, vec![anonymous]), everybody(OTHER, Some(anonymous)), "an anonymous event");
        // An address or a hash names no agent: events of proxies and of roles have only these, and the zero of the first
        // role.
        for bits in [64_usize, 128, 159, 255] {
            let number: U256 = U256::ONE << bits;
            let topics = vec![keccak256("Unheard(address)"), B256::from(number)];
            assert_eq!(dropped(OTHER, topics.clone()), everybody(OTHER, topics.first().copied()), "{bits}");
        }
    }

    // threat: Cheap events empty the cache
    #[test]
    fn an_unknown_event_drops_whoever_its_topics_name_and_nobody_else() {
        assert_eq!(drops(OTHER, "SomethingElse(uint256)", &[7]), agents(&[7]));
        assert_eq!(drops(OTHER, "SomethingElse(uint256,uint256)", &[7, 0]), agents(&[7, 0]));
        let members = Drops { organizations: [(U256::from(7), 1)].into(), ..agents(&[7]) };
        assert_eq!(drops(ORGANIZATIONS, "OrganizationRenamed(uint256,string)", &[7]), members);
        // What can't be an id by itself may be one beside one that can.
        let [small, large]: [U256; 2] = [U256::from(u64::MAX), U256::MAX];
        let topics = vec![keccak256("Unheard(uint256,uint256)"), small.into(), large.into()];
        let both = [small, large].map(|id| (AgentId::new(id), 1)).into();
        assert_eq!(dropped(OTHER, topics), Drops { agents: both, ..Drops::default() });
    }
}
