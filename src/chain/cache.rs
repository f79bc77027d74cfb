//! Profiles that were read a moment ago, bounded in bytes. Only agents that exist are kept: what a stranger names
//! allocates nothing.

use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::domain::agent_id::AgentId;
use crate::domain::profile::TrustProfile;

/// How many bytes of profiles are kept.
const CACHED_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// A usual profile's size, for the first layout of the cache.
const USUAL_BYTES: u64 = 512;

/// Profiles by agent.
pub(super) struct ProfileCache {
    entries: Cache<AgentId, Entry, ByBytes>,
    lifetime_micros: u64,
}

#[derive(Clone)]
struct Entry {
    profile: Arc<TrustProfile>,
    /// When the read began: the profile may miss whatever happened since.
    read_at_micros: u64,
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<AgentId, Entry> for ByBytes {
    fn weight(&self, _agent: &AgentId, entry: &Entry) -> u64 {
        let profile = &entry.profile;
        let evidence = profile.validation.latest.as_ref().map_or(0, |latest| latest.evidence.len());
        let names: usize =
            profile.organizations.iter().map(|organization| organization.name.len() + 64).sum();
        USUAL_BYTES + (profile.metadata_uri.len() + evidence + names) as u64
    }
}

impl ProfileCache {
    /// An empty cache whose entries serve for `lifetime_micros` from the beginning of their read.
    pub(super) fn new(lifetime_micros: u64) -> Self {
        let expected = (CACHED_BYTES_MAX / USUAL_BYTES) as usize;
        Self { entries: Cache::with_weighter(expected, CACHED_BYTES_MAX, ByBytes), lifetime_micros }
    }

    pub(super) fn get(&self, agent: AgentId, now_micros: u64) -> Option<Arc<TrustProfile>> {
        let entry = self.entries.get(&agent)?;
        let age = now_micros.saturating_sub(entry.read_at_micros);
        (age < self.lifetime_micros).then_some(entry.profile)
    }

    pub(super) fn put(&self, agent: AgentId, profile: &Arc<TrustProfile>, read_at_micros: u64) {
        self.entries.insert(agent, Entry { profile: Arc::clone(profile), read_at_micros });
    }

    pub(super) fn forget(&self, agent: AgentId) {
        self.entries.remove(&agent);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}
