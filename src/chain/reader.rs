//! The chain port: cached profiles, coalesced reads, holders at the latest block.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use alloy::primitives::{B256, Bytes};
use async_trait::async_trait;
use futures_util::future::Either;
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::chain::agents::{Agents, Question, Read};
use crate::chain::answer::{Floor, SharedFloor};
use crate::chain::cache::status::micros;
use crate::chain::cache::{Known, ProfileCache};
use crate::chain::coalesce::{Bounds, Coalesced};
use crate::chain::contract_check::ContractCheck;
use crate::chain::follower::Follower;
use crate::chain::follower::status::{FollowerStatus, Mode};
use crate::chain::gas::Gas;
use crate::chain::measures::Measures;
use crate::chain::pool::{PLACES_MAX, Pool, STRANGERS_MAX, WAIT_TIME_MAX};
use crate::chain::source::Source;
use crate::domain::agent_id::AgentId;
use crate::domain::chain_settings::ReaderSettings;
use crate::domain::holders::Holders;
use crate::domain::measure::Measure;
use crate::domain::profile::TrustProfile;
use crate::ports::chain::{AskedHolders, Asker, Chain, ChainFault, Parts, Reading};
use crate::ports::clock::Clock;
use crate::telemetry::metrics::Metrics;

/// Calls for profiles, of agents that proved who they are. After a reorganization all active agents are read anew: thousands
/// within the time of those who wait, though a node takes 100 ms and more.
pub(super) const PROFILES: Bounds = Bounds { calls: 32, calls_unfilled: 4, keys: 32 };

/// Where calls have a limit so much of a second's: those who wait for what decides are then not so many that details come too late.
const RATE_SHARE: u32 = 3;

/// How long a probe may take, in microseconds: readiness is not waited for longer.
const PROBE_MICROS: u64 = 1_500_000;

/// Reads agents from the registries.
pub struct ChainReader {
    pub(super) agents: Arc<Agents>,
    pub(super) follower: Follower,
    /// Apart: who needs no details waits for no call that reads some.
    gates: Coalesced<(AgentId, Parts), Read<Known>>,
    profiles: Coalesced<(AgentId, Parts), Read<Known>>,
    /// Apart: nobody who is vouched for waits for a read that waits among strangers.
    vouched: Coalesced<Question, Read<AskedHolders>>,
    strangers: Coalesced<Question, Read<AskedHolders>>,
    probes: Coalesced<(), Result<(), ChainFault>>,
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
        let source = Source {
            pool,
            floor,
            multicall,
            lacks_multicall: AtomicBool::new(false),
            lacks_creations: AtomicBool::new(false),
            gas: Gas::new(gas_cap),
        };
        let measures = Measures::new(measures);
        let cache = Arc::new(ProfileCache::new(lifetimes, measures.are_of_holders()));
        let history_retry_micros = Mutex::default();
        let agents = Arc::new(Agents { registries, measures, source, cache, clock, history_retry_micros });
        let contracts = Arc::new(ContractCheck::new(&agents));
        let status = Arc::new(FollowerStatus::new(lifetimes.max_staleness, metrics));
        let follower = Follower { agents: Arc::clone(&agents), contracts, status, lifetimes };

        let most = agents.source.pool.rate.map_or(PROFILES.calls, |rate| (rate / RATE_SHARE) as usize);
        let calls = most.clamp(PROFILES.calls_unfilled, PROFILES.calls);
        let reads = || {
            let of = Arc::clone(&agents);
            let read = move |wanted| Arc::clone(&of).read(wanted);
            Coalesced::new(runtime.clone(), Bounds { calls, ..PROFILES }, read)
        };
        Self {
            gates: reads(),
            profiles: reads(),
            vouched: Coalesced::one_by_one(runtime, PLACES_MAX, &agents, Agents::answer),
            strangers: Coalesced::one_by_one(runtime, STRANGERS_MAX, &agents, Agents::answer),
            probes: Coalesced::one_by_one(runtime, 1, &Arc::new(follower.clone()), probe),
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

    /// How many agents are cached.
    #[must_use]
    pub fn cached_agents(&self) -> usize {
        self.agents.cache.len()
    }

    /// The answer to a question about holders. Whoever waits for another's read has no more time for that.
    async fn ask(&self, asker: Asker, question: Question) -> Read<AskedHolders> {
        let reads = match asker {
            Asker::Vouched => &self.vouched,
            Asker::Stranger => &self.strangers,
        };
        self.ended(timeout(WAIT_TIME_MAX, reads.get(question)).await.ok().flatten())
    }

    const fn reads(&self, parts: Parts) -> &Coalesced<(AgentId, Parts), Read<Known>> {
        if matches!(parts, Parts::Gate) { &self.gates } else { &self.profiles }
    }

    /// The result of a read that somebody waited for.
    fn ended<T>(&self, read: Option<Result<T, ChainFault>>) -> Result<T, ChainFault> {
        read.unwrap_or_else(|| Err(self.out_of_time()))
    }
}

/// Costs no call while the follower is answered.
async fn probe(follower: Arc<Follower>, (): ()) -> Result<(), ChainFault> {
    let Follower { agents, contracts, status, .. } = &*follower;
    // Contracts that were found are not looked at again while somebody waits.
    if contracts.found.lock().is_none() {
        contracts.check(agents.now() + PROBE_MICROS).await?;
    }
    let (is_answered, behind) = status.last_poll(agents.now());
    match behind {
        _ if is_answered => Ok(()),
        Some(behind) => Err(behind),
        None => agents.source.prove(agents.now() + PROBE_MICROS).await,
    }
}

#[async_trait]
impl Chain for ChainReader {
    fn profile(&self, agent: AgentId, parts: Parts) -> Reading<'_, Option<Arc<TrustProfile>>> {
        if let Some(profile) = self.agents.cached(agent, parts) {
            self.hits.inc();
            return Either::Left(ready(Ok(Some(profile))));
        }
        self.misses.inc();
        let read = async move { self.ended(self.reads(parts).get((agent, parts)).await) };
        Either::Right(Box::pin(async move { Ok(read.await?.map(|(profile, _)| profile)) }))
    }

    async fn latest_profile(&self, agent: AgentId, parts: Parts) -> Read<Arc<TrustProfile>> {
        match self.ended(self.reads(parts).get((agent, parts)).await)? {
            Some((_, Some(fault))) if parts == Parts::Whole => Err((*fault).clone()),
            read => Ok(read.map(|(profile, _)| profile)),
        }
    }

    async fn holders(&self, agent: AgentId, asker: Asker) -> Read<Holders> {
        Ok(self.ask(asker, (agent, None)).await?.map(|asked| asked.holders()))
    }

    async fn inspect_holders(&self, agent: AgentId, asker: Asker) -> Read<AskedHolders> {
        self.ask(asker, (agent, Some((B256::ZERO, Bytes::new())))).await
    }

    async fn ask_holders(&self, agent: AgentId, digest: B256, signature: &[u8]) -> Read<AskedHolders> {
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
        self.agents.source.pool.out_of_time()
    }

    async fn probe(&self) -> Result<(), ChainFault> {
        self.ended(self.probes.get(()).await)
    }

    fn lacks_details(&self) -> bool {
        let lacks_creations = self.agents.source.lacks_creations.load(Ordering::Relaxed);
        (self.agents.registries.has_wallets() && lacks_creations) || self.follower.contracts.lacks_details()
    }

    fn lacks_logs(&self) -> bool {
        self.follower.status.mode() == Mode::Unlogged
    }
}

#[cfg(test)]
mod tests;
