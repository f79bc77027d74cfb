//! The chain port: cached profiles, reads that many wait for, holders at the latest block.

use std::sync::atomic::{AtomicBool, Ordering};
use std::{future::ready, sync::Arc};

use alloy::primitives::{B256, Bytes};
use async_trait::async_trait;
use futures_util::future::Either;
use parking_lot::Mutex as SyncMutex;
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::chain::cache::{CachedProfile, ProfileCache};
use crate::chain::dated::{Floor, SharedFloor, StateReader};
use crate::chain::follower::{Follower, FollowerStatus, Mode};
use crate::chain::pool::{PLACES_MAX, Pool, STRANGERS_MAX, WAIT_TIME_MAX};
use crate::chain::reads::{Agents, HoldersQuestion, Read};
use crate::chain::single_flight::{Bounds, SingleFlight};
use crate::chain::{contracts::Contracts, fault::ReadFault, measures::Measures};
use crate::domain::{AgentId, Holders, Measure, ReaderSettings, TrustProfile};
use crate::ports::{AskedHolders, Asker, Chain, ChainFault, ChainRead, Clock, Parts, micros};
use crate::telemetry::Metrics;

/// Calls for profiles, of agents that proved who they are. After a reorganization all active agents are read anew: thousands
/// within the time of those who wait, though a node takes 100 ms and more.
pub(super) const PROFILES: Bounds = Bounds { calls: 32, calls_unfilled: 4, keys: 32 };

/// Where calls have a limit so much of a second's: those who wait for what decides are then not so many that details come too late.
const RATE_SHARE: u32 = 3;

/// How long a probe may take, in microseconds: readiness is not waited for longer.
const PROBE_MICROS: u64 = 1_500_000;

/// An answer of the port.
type Answered<T> = Result<Option<T>, ChainFault>;

/// Reads agents from the registries.
pub struct ChainReader {
    pub(super) agents: Arc<Agents>,
    pub(super) follower: Follower,
    /// Apart: who needs no details waits for no call that reads some.
    gates: Arc<SingleFlight<(AgentId, Parts), Read<CachedProfile>>>,
    profiles: Arc<SingleFlight<(AgentId, Parts), Read<CachedProfile>>>,
    /// Apart: nobody who is vouched for waits for a read that waits among strangers.
    vouched: Arc<SingleFlight<HoldersQuestion, Read<AskedHolders>>>,
    strangers: Arc<SingleFlight<HoldersQuestion, Read<AskedHolders>>>,
    runtime: Handle,
    hits: prometheus::IntCounter,
    misses: prometheus::IntCounter,
}

impl ChainReader {
    /// Reads these registries and numbers through these nodes, with all calls on this runtime: it outlives those who ask, and so do
    /// connections to nodes. Until a [`Follower`] of it follows the chain, every profile serves for one poll interval.
    #[must_use]
    pub fn new(
        pool: Arc<Pool>,
        (settings, measures): (ReaderSettings, Vec<Measure>),
        clock: Arc<dyn Clock>,
        metrics: &Metrics,
        runtime: &Handle,
    ) -> Self {
        let ReaderSettings { registries, multicall, gas_cap, max_head_age, lifetimes } = settings;
        let void_after = lifetimes.max_staleness.max(max_head_age.unwrap_or_default());
        let floor = Floor::new(micros(void_after), max_head_age.map(|age| age.as_secs()));
        let floor = Arc::new(SharedFloor::new(floor, Arc::clone(&clock)));
        let state = StateReader {
            pool,
            floor,
            multicall,
            lacks_multicall: AtomicBool::new(false),
            lacks_creations: AtomicBool::new(false),
            gas_cap,
            gas_taken: SyncMutex::default(),
        };
        let measures = Measures(measures);
        let cache = Arc::new(ProfileCache::new(lifetimes, measures.are_of_holders()));
        let history_retry_micros = Mutex::default();
        let agents = Arc::new(Agents { registries, measures, state, cache, clock, history_retry_micros });
        let contracts = Arc::new(Contracts::new(&agents));
        let status = Arc::new(FollowerStatus::new(metrics));
        let follower = Follower { agents: Arc::clone(&agents), contracts, status };

        let most = agents.state.pool.rate.map_or(PROFILES.calls, |rate| (rate / RATE_SHARE) as usize);
        let calls = most.clamp(PROFILES.calls_unfilled, PROFILES.calls);
        let profiles = || {
            let agents = Arc::clone(&agents);
            let read = move |wanted| Arc::clone(&agents).read(wanted);
            SingleFlight::new(runtime.clone(), Bounds { calls, ..PROFILES }, read)
        };
        let holders = |calls| {
            let (agents, bounds) = (Arc::clone(&agents), Bounds { calls, calls_unfilled: calls, keys: 1 });
            SingleFlight::new(runtime.clone(), bounds, move |wanted| Arc::clone(&agents).answer(wanted))
        };
        Self {
            gates: profiles(),
            profiles: profiles(),
            vouched: holders(PLACES_MAX),
            strangers: holders(STRANGERS_MAX),
            runtime: runtime.clone(),
            agents,
            follower,
            hits: metrics.profile_cache.with_label_values(&["hit"]),
            misses: metrics.profile_cache.with_label_values(&["miss"]),
        }
    }

    /// The task that keeps this reader's cache in step with the chain. There should be one, on the reader's runtime.
    #[must_use]
    pub fn follower(&self) -> Follower {
        self.follower.clone()
    }

    /// The contracts that this reader reads.
    pub(crate) fn contracts(&self) -> &Contracts {
        &self.follower.contracts
    }

    /// How many agents are cached.
    #[must_use]
    pub fn cached_agents(&self) -> usize {
        self.agents.cache.len()
    }

    /// The answer to a question about holders. Whoever waits for another's read has no more time for that.
    async fn ask(&self, asker: Asker, question: HoldersQuestion) -> Answered<AskedHolders> {
        let reads = match asker {
            Asker::Vouched => &self.vouched,
            Asker::Stranger => &self.strangers,
        };
        self.ended(timeout(WAIT_TIME_MAX, reads.get(question)).await.ok().flatten())
    }

    const fn reads(&self, parts: Parts) -> &Arc<SingleFlight<(AgentId, Parts), Read<CachedProfile>>> {
        if matches!(parts, Parts::Gate) { &self.gates } else { &self.profiles }
    }

    /// The result of a read that somebody waited for.
    fn ended<T>(&self, read: Option<Result<T, ReadFault>>) -> Result<T, ChainFault> {
        Ok(read.unwrap_or_else(|| Err(self.agents.state.pool.out_of_time()))?)
    }
}

/// Costs no call while the follower is answered.
async fn probe(follower: Follower) -> Result<(), ReadFault> {
    let Follower { agents, contracts, status, .. } = &follower;
    // Contracts that were found are not looked at again while somebody waits.
    if contracts.found.lock().is_none() {
        contracts.check(agents.now() + PROBE_MICROS).await?;
    }
    let (is_answered, behind) = status.last_poll(agents.now());
    match behind {
        _ if is_answered => Ok(()),
        Some(behind) => Err(behind),
        None => agents.state.prove(agents.now() + PROBE_MICROS).await,
    }
}

#[async_trait]
impl Chain for ChainReader {
    fn profile(&self, agent: AgentId, parts: Parts) -> ChainRead<'_, Option<Arc<TrustProfile>>> {
        if let Some(profile) = self.agents.cache.get(agent, parts, self.agents.now()) {
            self.hits.inc();
            return Either::Left(ready(Ok(Some(profile))));
        }
        self.misses.inc();
        let read = async move { self.ended(self.reads(parts).get((agent, parts)).await) };
        Either::Right(Box::pin(async move { Ok(read.await?.map(|(profile, _)| profile)) }))
    }

    async fn latest_profile(&self, agent: AgentId, parts: Parts) -> Answered<Arc<TrustProfile>> {
        match self.ended(self.reads(parts).get((agent, parts)).await)? {
            Some((_, Some(fault))) if parts == Parts::Whole => Err((*fault).clone().into()),
            read => Ok(read.map(|(profile, _)| profile)),
        }
    }

    async fn holders(&self, agent: AgentId, asker: Asker) -> Answered<Holders> {
        Ok(self.ask(asker, (agent, None)).await?.map(|asked| asked.holders()))
    }

    async fn inspect_holders(&self, agent: AgentId, asker: Asker) -> Answered<AskedHolders> {
        self.ask(asker, (agent, Some((B256::ZERO, Bytes::new())))).await
    }

    async fn ask_holders(&self, agent: AgentId, digest: B256, signature: &[u8]) -> Answered<AskedHolders> {
        let signed = (digest, Bytes::copy_from_slice(signature));
        self.ask(Asker::Stranger, (agent, Some(signed))).await
    }

    fn last_holders(&self, agent: AgentId) -> Option<Holders> {
        self.agents.cache.last_holders(agent)
    }

    fn reserves(&self, agent: AgentId) -> bool {
        self.agents.registries.reserves(agent)
    }

    fn out_of_time(&self) -> ChainFault {
        self.agents.state.pool.out_of_time().into()
    }

    async fn probe(&self) -> Result<(), ChainFault> {
        self.ended(self.runtime.spawn(probe(self.follower.clone())).await.ok())
    }

    fn lacks_details(&self) -> bool {
        let lacks_creations = self.agents.state.lacks_creations.load(Ordering::Relaxed);
        (self.agents.registries.has_wallets() && lacks_creations) || self.follower.contracts.lacks_details()
    }

    fn lacks_logs(&self) -> bool {
        self.follower.status.mode() == Mode::Unlogged
    }
}

#[cfg(test)]
mod tests;
