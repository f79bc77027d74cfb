//! The chain port: cached profiles, coalesced reads, owners at the latest block.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use alloy::primitives::{Address, Bytes};
use async_trait::async_trait;

use crate::chain::cache::ProfileCache;
use crate::chain::coalesce::Coalesced;
use crate::chain::fault::ReadError;
use crate::chain::rpc::RpcPool;
pub use crate::chain::snapshot::Registries;
use crate::chain::snapshot::{owner_call, read_owner};
use crate::domain::agent_id::AgentId;
use crate::domain::profile::TrustProfile;
use crate::ports::chain::{Chain, ChainFault};
use crate::ports::clock::Clock;
use crate::telemetry::metrics::Metrics;

type Read<T> = Result<Option<T>, ChainFault>;

/// Reads agents from the registries.
pub struct ChainReader {
    rpc: RpcPool,
    registries: Registries,
    cache: ProfileCache,
    profiles: Coalesced<AgentId, Read<Arc<TrustProfile>>>,
    latest_profiles: Coalesced<AgentId, Read<Arc<TrustProfile>>>,
    owners: Coalesced<AgentId, Read<Address>>,
    contracts_seen: AtomicBool,
    clock: Arc<dyn Clock>,
    hits: prometheus::IntCounter,
    misses: prometheus::IntCounter,
}

/// How long one read may take, however many nodes are tried and whoever else it waits for. A request makes at most
/// three reads, and they must end well before the request itself is given up.
const READ_TIME_MAX: Duration = Duration::from_secs(6);

impl ChainReader {
    /// Reads these registries through these nodes; a profile serves for `profile_lifetime`.
    #[must_use]
    pub fn new(
        rpc: RpcPool,
        registries: Registries,
        profile_lifetime: Duration,
        clock: Arc<dyn Clock>,
        metrics: &Metrics,
    ) -> Self {
        let lifetime_micros = u64::try_from(profile_lifetime.as_micros()).unwrap_or(u64::MAX);
        Self {
            rpc,
            registries,
            cache: ProfileCache::new(lifetime_micros),
            profiles: Coalesced::new(),
            latest_profiles: Coalesced::new(),
            owners: Coalesced::new(),
            contracts_seen: AtomicBool::new(false),
            clock,
            hits: metrics.profile_cache.with_label_values(&["hit"]),
            misses: metrics.profile_cache.with_label_values(&["miss"]),
        }
    }

    async fn in_time<T>(&self, read: impl Future<Output = Read<T>>) -> Read<T> {
        let read = tokio::time::timeout(READ_TIME_MAX, read).await;
        read.unwrap_or_else(|_| Err(self.rpc.out_of_time(READ_TIME_MAX)))
    }

    fn cached(&self, agent: AgentId) -> Option<Arc<TrustProfile>> {
        self.cache.get(agent, self.clock.monotonic_micros())
    }

    async fn read_profile(&self, agent: AgentId) -> Read<Arc<TrustProfile>> {
        let read_at = self.clock.monotonic_micros();
        let call = self.registries.profile_call(agent);
        let answered = self.rpc.call(self.registries.multicall, call).await?;
        let profile = answered.read(|outcome| self.registries.read_profile(outcome))?.map(Arc::new);
        match &profile {
            Some(profile) => self.cache.put(agent, profile, read_at),
            None => self.cache.forget(agent),
        }
        Ok(profile)
    }

    async fn read_owner(&self, agent: AgentId) -> Read<Address> {
        self.rpc.call(self.registries.identity, owner_call(agent)).await?.read(read_owner)
    }

    /// An address without code answers every call with success and nothing: found here, before anybody asks.
    async fn check_contracts(&self) -> Result<(), ChainFault> {
        for (name, address) in self.registries.contracts() {
            let has_code = |code: Bytes| if code.is_empty() { Err(ReadError::NoCode(name)) } else { Ok(()) };
            self.rpc.code(address).await?.read(has_code)?;
        }
        self.contracts_seen.store(true, Ordering::Relaxed);
        Ok(())
    }
}

#[async_trait]
impl Chain for ChainReader {
    async fn profile(&self, agent: AgentId) -> Read<Arc<TrustProfile>> {
        if let Some(profile) = self.cached(agent) {
            self.hits.inc();
            return Ok(Some(profile));
        }
        self.misses.inc();
        // Whoever waited for another's read finds its result in the cache when the turn comes.
        let read = || async {
            match self.cached(agent) {
                Some(profile) => Ok(Some(profile)),
                None => self.read_profile(agent).await,
            }
        };
        self.in_time(self.profiles.get(agent, read)).await
    }

    async fn latest_profile(&self, agent: AgentId) -> Read<Arc<TrustProfile>> {
        self.in_time(self.latest_profiles.get(agent, || self.read_profile(agent))).await
    }

    async fn owner(&self, agent: AgentId) -> Read<Address> {
        self.in_time(self.owners.get(agent, || self.read_owner(agent))).await
    }

    async fn probe(&self) -> Result<(), ChainFault> {
        if !self.contracts_seen.load(Ordering::Relaxed) {
            self.check_contracts().await?;
        }
        self.rpc.block_number().await.map(|_| ())
    }
}

#[cfg(test)]
mod tests;
