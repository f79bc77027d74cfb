//! What is kept, by agent, within bounds of memory. Knows what an entry weighs, and not what it says.
//!
//! Whoever fills a profile with long texts and many organizations makes one that weighs as much as a thousand others. Such
//! profiles have a small share of their own, and push out nobody but each other.

use quick_cache::sync::Cache;

use crate::chain::cache::Entry;
use crate::chain::cache::weight::{
    ByBytes, CACHED_BYTES_MAX, ENTRIES_MAX, HEAVY_BYTES, HEAVY_BYTES_MAX, HEAVY_ENTRIES, weight_of,
};
use crate::domain::agent_id::AgentId;

/// Entries by agent, each in one of the two shares.
pub(super) struct Entries {
    light: Cache<AgentId, Entry, ByBytes>,
    heavy: Cache<AgentId, Entry, ByBytes>,
}

impl Entries {
    pub(super) fn new() -> Self {
        Self {
            light: Cache::with_weighter(ENTRIES_MAX, CACHED_BYTES_MAX, ByBytes),
            heavy: Cache::with_weighter(HEAVY_ENTRIES, HEAVY_BYTES_MAX, ByBytes),
        }
    }

    pub(super) fn get(&self, agent: AgentId) -> Option<Entry> {
        self.light.get(&agent).or_else(|| self.heavy.get(&agent))
    }

    /// Does not make the entry worth keeping.
    pub(super) fn peek(&self, agent: AgentId) -> Option<Entry> {
        self.light.peek(&agent).or_else(|| self.heavy.peek(&agent))
    }

    /// Of two that insert for the same agent at once the later one stays, or none.
    pub(super) fn insert(&self, agent: AgentId, entry: Entry) {
        // First in, then out: so no agent is ever left in both.
        if weight_of(&entry) > HEAVY_BYTES {
            self.heavy.insert(agent, entry);
            self.light.remove(&agent);
        } else {
            self.light.insert(agent, entry);
            self.heavy.remove(&agent);
        }
    }

    /// Puts a light entry where there is one.
    pub(super) fn replace(&self, agent: AgentId, light: Entry) {
        if let Err((agent, light)) = self.light.replace(agent, light, false)
            && self.heavy.remove(&agent).is_some()
        {
            self.light.insert(agent, light);
        }
    }

    pub(super) fn remove(&self, agent: AgentId) {
        self.light.remove(&agent);
        self.heavy.remove(&agent);
    }

    pub(super) fn len(&self) -> usize {
        self.light.len() + self.heavy.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (AgentId, Entry)> + '_ {
        self.light.iter().chain(self.heavy.iter())
    }
}

#[cfg(test)]
impl Entries {
    pub(super) fn weights(&self) -> [u64; 2] {
        [self.light.weight(), self.heavy.weight()]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use alloy::primitives::{Address, U256};

    use super::Entries;
    use crate::chain::cache::weight::{HEAVY_BYTES, HEAVY_BYTES_MAX, weight_of};
    use crate::chain::cache::{Entry, Reading, Source};
    use crate::domain::agent_id::AgentId;
    use crate::domain::profile::{Organization, Reputation, TrustProfile, Validation};

    /// How many agents others use.
    const IN_USE: u64 = 1_000;

    fn id(agent: u64) -> AgentId {
        AgentId::new(U256::from(agent))
    }

    fn entry(uri_bytes: usize, organizations: usize) -> Entry {
        let organization = Organization { org_id: U256::ONE, name: "n".repeat(500), verified: true };
        let profile = TrustProfile {
            owner: Address::ZERO,
            stake: U256::ZERO,
            reputation: Reputation::default(),
            validation: Validation::default(),
            metadata_uri: "u".repeat(uri_bytes),
            organizations: vec![organization; organizations],
        };
        let reading = Reading { from: Source::Latest, generation: 0, began_micros: 0, ended_micros: 0 };
        Entry::Read(Arc::new(profile), reading)
    }

    fn light() -> Entry {
        entry(50, 0)
    }

    /// As heavy as agents can be.
    fn heavy() -> Entry {
        entry(16_384, 1_000)
    }

    /// How often the agent was there, of once.
    fn used(entries: &Entries, agent: u64, read: impl FnOnce() -> Entry) -> usize {
        let hit = entries.get(id(agent)).is_some();
        if !hit {
            entries.insert(id(agent), read());
        }
        usize::from(hit)
    }

    #[test]
    fn heavy_agents_push_out_no_agent_that_is_in_use_however_many_and_however_often_they_ask() {
        assert!(weight_of(&heavy()) > 512 * 1_024, "{}", weight_of(&heavy()));
        let heavy = heavy();
        for heavy_agents in [100, 2_000] {
            let entries = Entries::new();
            (0..IN_USE).for_each(|agent| assert_eq!(used(&entries, agent, light), 0));
            let mut next = 0;
            for round in 0..5 {
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
        let entries = Entries::new();
        entries.insert(id(1), heavy());
        assert!(entries.get(id(1)).is_some());
        // The longest that can be decoded at all.
        entries.insert(id(1), entry(16_384, 4_000));
        assert!(entries.get(id(1)).is_some());
        (0..1_000).for_each(|agent| entries.insert(id(agent), heavy()));
        let [light, heavy] = entries.weights();
        assert!(light == 0 && (HEAVY_BYTES_MAX / 2..=HEAVY_BYTES_MAX).contains(&heavy), "{light}, {heavy}");
    }

    #[test]
    fn an_agent_is_in_one_share_whatever_becomes_of_it() {
        let dropped = || Entry::Dropped { owner: Address::ZERO, latest_micros: 0 };
        let entries = Entries::new();
        let is_heavy =
            |entries: &Entries| entries.peek(id(1)).is_some_and(|entry| weight_of(&entry) > HEAVY_BYTES);
        entries.replace(id(1), dropped());
        assert_eq!(entries.len(), 0, "nothing is put where nothing was");
        for _ in 0..2 {
            entries.insert(id(1), light());
            assert!(entries.len() == 1 && !is_heavy(&entries));
            entries.insert(id(1), heavy());
            assert!(entries.len() == 1 && is_heavy(&entries));
        }
        entries.replace(id(1), dropped());
        assert!(entries.len() == 1 && !is_heavy(&entries));
        entries.insert(id(1), heavy());
        assert_eq!(entries.iter().count(), 1);
        entries.remove(id(1));
        assert_eq!(entries.len(), 0);
    }
}
