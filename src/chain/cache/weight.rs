//! What an entry of the cache weighs, in bytes: what it holds, and its share of what holds it.

use quick_cache::Weighter;

use crate::chain::cache::CachedEntry;
use crate::domain::agent_id::AgentId;
use crate::domain::profile::{Organization, TrustProfile};

/// How many bytes of profiles are kept.
pub(super) const CACHED_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// How many agents are known at once.
pub(super) const ENTRIES_MAX: usize = 180_000;

/// What weighs more is kept apart. Usual profiles weigh a hundredth; this is less than the smallest piece that the map is
/// cut into on large machines, which nothing heavier would fit into.
pub(super) const HEAVY_BYTES: u64 = 32 * 1024;

/// How many bytes of heavy profiles are kept besides.
pub(super) const HEAVY_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// About how many these are. So few that the map of them is in one piece, into which each fits.
pub(super) const HEAVY_ENTRIES: usize = 32;

/// What the map, the allocator and the counters of an `Arc` take for one agent, about.
const OVERHEAD_BYTES: usize = 64;

/// What the index of members takes for one membership, about.
const MEMBERSHIP_BYTES: usize = 100;

/// No entry weighs less, so that the bound in bytes is one in entries too.
const ENTRY_BYTES_MIN: u64 = CACHED_BYTES_MAX.div_ceil(ENTRIES_MAX as u64);

#[derive(Clone)]
pub(super) struct ByBytes;

impl Weighter<AgentId, CachedEntry> for ByBytes {
    fn weight(&self, _agent: &AgentId, entry: &CachedEntry) -> u64 {
        weight_of(entry)
    }
}

/// What an entry weighs.
pub(super) fn weight_of(entry: &CachedEntry) -> u64 {
    let held = match entry {
        CachedEntry::Read { profile, .. } => profile_bytes(profile),
        CachedEntry::Dropped { .. } => 0,
    };
    let bytes = size_of::<AgentId>() + size_of::<CachedEntry>() + OVERHEAD_BYTES + held;
    (bytes as u64).max(ENTRY_BYTES_MIN)
}

fn profile_bytes(profile: &TrustProfile) -> usize {
    let evidence = profile.validation.latest.as_ref().map_or(0, |latest| latest.evidence.capacity());
    let names: usize = profile.organizations.iter().map(|of| of.name.capacity()).sum();
    let rows = profile.organizations.capacity() * (size_of::<Organization>() + MEMBERSHIP_BYTES);
    size_of::<TrustProfile>() + profile.metadata_uri.capacity() + evidence + names + rows
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use alloy::primitives::{Address, U256};

    use super::{CACHED_BYTES_MAX, ENTRIES_MAX, weight_of};
    use crate::chain::cache::CachedEntry;
    use crate::domain::profile::{Organization, Reputation, TrustProfile, Validation};

    fn read(uri: usize, organizations: usize) -> CachedEntry {
        let organization = Organization { org_id: U256::ONE, name: "n".repeat(100), verified: true };
        let profile = TrustProfile {
            owner: Address::ZERO,
            stake: U256::ZERO,
            reputation: Reputation::default(),
            validation: Validation::default(),
            metadata_uri: "u".repeat(uri),
            organizations: vec![organization; organizations],
        };
        CachedEntry::Read {
            profile: Arc::new(profile),
            block: 0,
            is_pinned: false,
            epoch: 0,
            began_micros: 0,
        }
    }

    #[test]
    fn an_agent_with_a_usual_uri_weighs_under_400_bytes_and_what_is_longer_by_its_length() {
        assert!(weight_of(&read(50, 0)) < 400, "{}", weight_of(&read(50, 0)));
        assert_eq!(weight_of(&read(16_384, 0)) - weight_of(&read(1_384, 0)), 15_000);
        assert!(weight_of(&read(50, 1_000)) > 150 * 1_000);
    }

    #[test]
    fn what_is_cached_is_bounded_in_agents_too() {
        let dropped = CachedEntry::Dropped { owner: Address::ZERO, floor: 1, epoch: 0 };
        assert!(CACHED_BYTES_MAX / weight_of(&dropped) <= ENTRIES_MAX as u64);
    }
}
