//! The cached entries by agent, within bounds of memory, and an index of those whom one log concerns together.
//!
//! A profile with long texts and many organizations weighs as much as a thousand others. Such profiles have a small share of
//! their own, and push out none but each other.

use std::{collections::BTreeSet, sync::Arc};

use alloy::primitives::{Address, U256};
use foldhash::quality::RandomState;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, Weighter};

use crate::chain::cache::{CachedEntry, holders_of};
use crate::domain::{AgentId, Holders, LatestValidation, Organization, TrustProfile};

/// How many bytes of profiles are kept.
const CACHED_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// How many agents are known at once.
const ENTRIES_MAX: usize = 180_000;

/// Heavier entries are kept apart. Usual profiles weigh a hundredth. The map is cut into pieces, and the smallest piece, on
/// large machines, holds more than this.
const HEAVY_BYTES: u64 = 32 * 1024;

/// How many bytes of heavy profiles are kept besides.
const HEAVY_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// About how many these are. So few that the map of them is in one piece, into which each fits.
const HEAVY_ENTRIES: usize = 32;

/// The map, the allocator and the counters of an `Arc` take about so many bytes for one agent.
const OVERHEAD_BYTES: usize = 64;

/// The index takes about so many bytes for one agent in one group.
const MEMBERSHIP_BYTES: usize = 100;

/// No entry weighs less, so that the bound in bytes is one in entries too.
const ENTRY_BYTES_MIN: u64 = CACHED_BYTES_MAX.div_ceil(ENTRIES_MAX as u64);

type Share = Cache<AgentId, CachedEntry, ByBytes, RandomState, Groups>;

/// Entries by agent, each in one of the two shares. Changes of one agent must not happen at once.
pub(super) struct Entries {
    light: Share,
    heavy: Share,
    groups: Groups,
}

/// Agents that one log concerns together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Group {
    /// The members of an organization.
    Members(U256),
    /// Agents that an account holds.
    Held(Address),
}

/// Which cached agents are in a group: what is cached of them says so, and no more.
#[derive(Clone)]
struct Groups {
    agents: Arc<Mutex<BTreeSet<(Group, AgentId)>>>,
    /// True if agents are in groups of who holds them.
    by_holder: bool,
}

impl Groups {
    fn change(&self, agent: AgentId, entry: &CachedEntry, is_cached: bool) {
        let details = match entry {
            CachedEntry::Read { profile: (profile, _), .. } => profile.details.as_ref(),
            CachedEntry::Dropped { .. } => None,
        };
        let organizations = details.map_or(&[][..], |details| &details.organizations);
        if organizations.is_empty() && !self.by_holder {
            return;
        }
        let Holders { owner, wallet } = holders_of(entry);
        let held = [Some(owner), wallet].into_iter().flatten().map(Group::Held).filter(|_| self.by_holder);
        let groups = organizations.iter().map(|of| Group::Members(of.org_id)).chain(held);
        let mut agents = self.agents.lock();
        for group in groups {
            if is_cached {
                agents.insert((group, agent));
            } else {
                agents.remove(&(group, agent));
            }
        }
    }
}

impl Lifecycle<AgentId, CachedEntry> for Groups {
    type RequestState = ();

    fn on_evict(&self, _state: &mut (), agent: AgentId, entry: CachedEntry) {
        self.change(agent, &entry, false);
    }
}

impl Entries {
    pub(super) fn new(by_holder: bool) -> Self {
        let groups = Groups { agents: Arc::default(), by_holder };
        let share = |items, bytes| Cache::with(items, bytes, ByBytes, RandomState::default(), groups.clone());
        let (light, heavy) = (share(ENTRIES_MAX, CACHED_BYTES_MAX), share(HEAVY_ENTRIES, HEAVY_BYTES_MAX));
        Self { light, heavy, groups }
    }

    pub(super) fn get(&self, agent: AgentId) -> Option<CachedEntry> {
        self.light.get(&agent).or_else(|| self.heavy.get(&agent))
    }

    /// Does not make the entry worth keeping.
    pub(super) fn peek(&self, agent: AgentId) -> Option<CachedEntry> {
        self.light.peek(&agent).or_else(|| self.heavy.peek(&agent))
    }

    pub(super) fn insert(&self, agent: AgentId, entry: CachedEntry) {
        self.remove(agent);
        self.groups.change(agent, &entry, true);
        let share = if weight_of(&entry) > HEAVY_BYTES { &self.heavy } else { &self.light };
        share.insert(agent, entry);
    }

    pub(super) fn remove(&self, agent: AgentId) {
        for share in [&self.light, &self.heavy] {
            if let Some((_, entry)) = share.remove(&agent) {
                self.groups.change(agent, &entry, false);
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.light.len() + self.heavy.len()
    }

    /// The cached agents of these groups, each with the number that stands beside its group.
    pub(super) fn in_groups(&self, groups: impl Iterator<Item = (Group, u64)>) -> Vec<(AgentId, u64)> {
        let agents = self.groups.agents.lock();
        let all = |of: Group| (of, AgentId::new(U256::ZERO))..=(of, AgentId::new(U256::MAX));
        groups.flat_map(|(group, at)| agents.range(all(group)).map(move |(_, agent)| (*agent, at))).collect()
    }
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<AgentId, CachedEntry> for ByBytes {
    fn weight(&self, _agent: &AgentId, entry: &CachedEntry) -> u64 {
        weight_of(entry)
    }
}

/// The weight of an entry in bytes: its own data, and its share of the map.
fn weight_of(entry: &CachedEntry) -> u64 {
    let held = match entry {
        CachedEntry::Read { profile: (profile, _), .. } => profile_bytes(profile),
        CachedEntry::Dropped { .. } => 0,
    };
    let bytes = size_of::<AgentId>() + size_of::<CachedEntry>() + OVERHEAD_BYTES + held;
    (bytes as u64).max(ENTRY_BYTES_MIN)
}

fn profile_bytes(profile: &TrustProfile) -> usize {
    let details = profile.details.as_ref().map_or(0, |details| {
        let latest = details.validation.latest.as_ref();
        let evidence = latest.map_or(0, |latest| size_of::<LatestValidation>() + latest.evidence.capacity());
        let names: usize = details.organizations.iter().map(|of| of.name.capacity()).sum();
        let rows = details.organizations.capacity() * (size_of::<Organization>() + MEMBERSHIP_BYTES);
        details.metadata_uri.capacity() + evidence + names + rows
    });
    size_of::<TrustProfile>() + profile.texts_bytes_max() + details
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use alloy::primitives::{Address, U256};

    use super::{CACHED_BYTES_MAX, ENTRIES_MAX, Entries, Group, HEAVY_BYTES, HEAVY_BYTES_MAX, weight_of};
    use crate::chain::cache::{CachedEntry, Details as Had};
    use crate::domain::{AgentId, Details, Holders, Organization, Texts, TrustProfile};

    /// How many agents others use.
    const IN_USE: u64 = 1_000;

    const DROPPED: CachedEntry =
        CachedEntry::Dropped { holders: Holders::owned_by(Address::ZERO), floor: 1, epoch: 0 };

    fn id(agent: u64) -> AgentId {
        AgentId::new(U256::from(agent))
    }

    fn entry(uri_bytes: usize, organizations: usize) -> CachedEntry {
        entry_of(uri_bytes, organizations, 500)
    }

    fn entry_of(uri_bytes: usize, organizations: usize, name_bytes: usize) -> CachedEntry {
        let organization = Organization { org_id: U256::ONE, name: "n".repeat(name_bytes), verified: true };
        let profile = TrustProfile {
            holders: Holders::owned_by(Address::ZERO),
            stake: Some(U256::ZERO),
            measured: None,
            details: Some(Details {
                metadata_uri: "u".repeat(uri_bytes),
                organizations: vec![organization; organizations],
                ..Details::default()
            }),
            texts: Texts::default(),
        };
        CachedEntry::Read {
            profile: (Arc::new(profile), None),
            details: Had::Read,
            block: 0,
            is_followed: false,
            epoch: 0,
            began_micros: 0,
        }
    }

    fn light() -> CachedEntry {
        entry(50, 0)
    }

    /// As heavy as agents can be.
    fn heavy() -> CachedEntry {
        entry_of(16_384, 40, 16_384)
    }

    /// How often the agent was there, of once.
    fn used(entries: &Entries, agent: u64, read: impl FnOnce() -> CachedEntry) -> usize {
        let hit = entries.get(id(agent)).is_some();
        if !hit {
            entries.insert(id(agent), read());
        }
        usize::from(hit)
    }

    // threat: An agent's data are unreadable or heavy
    #[test]
    fn heavy_agents_push_out_no_agent_that_is_in_use_however_many_and_however_often_they_ask() {
        assert!(weight_of(&heavy()) > 512 * 1_024, "{}", weight_of(&heavy()));
        let heavy = heavy();
        for heavy_agents in [100, 2_000] {
            let entries = Entries::new(false);
            (0..IN_USE).for_each(|agent| assert_eq!(used(&entries, agent, light), 0));
            let mut next = 0;
            for round in 0..2 {
                for _ in 0..1_000 {
                    next = (next + 1) % heavy_agents;
                    used(&entries, IN_USE + next, || heavy.clone());
                }
                let hits: usize = (0..IN_USE).map(|agent| used(&entries, agent, light)).sum();
                assert_eq!(hits, IN_USE as usize, "{heavy_agents} heavy ones, round {round}");
            }
        }
    }

    #[test]
    fn heavy_agents_are_kept_within_their_share_and_the_heaviest_too() {
        let entries = Entries::new(false);
        entries.insert(id(1), heavy());
        assert!(entries.get(id(1)).is_some());
        // The longest that can be decoded at all.
        entries.insert(id(1), entry(16_384, 4_000));
        assert!(entries.get(id(1)).is_some());
        (0..1_000).for_each(|agent| entries.insert(id(agent), heavy()));
        let (light, heavy) = (entries.light.weight(), entries.heavy.weight());
        assert!(light == 0 && (HEAVY_BYTES_MAX / 2..=HEAVY_BYTES_MAX).contains(&heavy), "{light}, {heavy}");
    }

    #[test]
    fn an_agent_is_in_one_share_whatever_becomes_of_it() {
        let entries = Entries::new(false);
        let is_heavy =
            |entries: &Entries| entries.peek(id(1)).is_some_and(|entry| weight_of(&entry) > HEAVY_BYTES);
        for _ in 0..2 {
            entries.insert(id(1), light());
            assert!(entries.len() == 1 && !is_heavy(&entries));
            entries.insert(id(1), heavy());
            assert!(entries.len() == 1 && is_heavy(&entries));
        }
        entries.insert(id(1), DROPPED);
        assert!(entries.len() == 1 && !is_heavy(&entries));
        entries.remove(id(1));
        assert_eq!(entries.len(), 0);
    }

    #[test]
    fn the_index_holds_the_members_that_are_cached_and_no_others() {
        let entries = Entries::new(false);
        let members =
            |entries: &Entries| entries.in_groups([(Group::Members(U256::ONE), 1)].into_iter()).len();
        entries.insert(id(1), entry(50, 1));
        entries.insert(id(2), heavy());
        entries.insert(id(3), light());
        assert_eq!(members(&entries), 2);
        entries.insert(id(1), DROPPED);
        entries.remove(id(2));
        assert_eq!((members(&entries), entries.groups.agents.lock().len()), (0, 0));
        (0..1_000).for_each(|agent| entries.insert(id(agent), heavy()));
        assert_eq!(members(&entries), entries.len(), "who is pushed out is no member any more");
    }

    #[test]
    fn an_agent_with_a_usual_uri_weighs_under_500_bytes_and_what_is_longer_by_its_length() {
        assert!(weight_of(&entry(50, 0)) < 500, "{}", weight_of(&entry(50, 0)));
        assert_eq!(weight_of(&entry(16_384, 0)) - weight_of(&entry(1_384, 0)), 15_000);
        assert!(weight_of(&entry(50, 1_000)) > 150 * 1_000);
    }

    #[test]
    fn what_is_cached_is_bounded_in_agents_too() {
        assert!(CACHED_BYTES_MAX / weight_of(&DROPPED) <= ENTRIES_MAX as u64);
    }
}
