//! The chain port: cached profiles, coalesced reads, owners at the latest block.

use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::{Address, B256};
use async_trait::async_trait;

use crate::chain::answer::{Date, Floor, SharedFloor};
use crate::chain::batch::Batches;
pub use crate::chain::cache::Lifetimes;
use crate::chain::cache::ProfileCache;
use crate::chain::coalesce::Coalesced;
use crate::chain::contract_check::ContractCheck;
use crate::chain::fault::ReadError;
use crate::chain::follower::Follower;
use crate::chain::follower::status::{FollowerStatus, Mode};
use crate::chain::pool::{Lane, Pool};
use crate::chain::registries::Registries;
use crate::chain::registries::standard::read_owner;
use crate::chain::source::{At, READ_TIME_MAX, Source};
use crate::domain::agent_id::AgentId;
use crate::domain::profile::TrustProfile;
use crate::ports::chain::{Asker, Chain, ChainFault};
use crate::ports::clock::Clock;
use crate::telemetry::metrics::Metrics;

type Read<T> = Result<Option<T>, ChainFault>;

/// How the registries are read.
#[derive(Debug, Clone, Copy)]
pub struct ReaderSettings {
    /// Where they are.
    pub registries: Registries,
    /// The address of Multicall3.
    pub multicall: Address,
    /// The most gas that one `eth_call` may burn.
    pub gas_cap: u64,
    /// How old a block may be by its own time, or how far in the future, if that is judged.
    pub max_head_age: Option<Duration>,
    /// For how long profiles serve.
    pub lifetimes: Lifetimes,
}

/// Reads agents from the registries.
pub struct ChainReader {
    settings: ReaderSettings,
    source: Arc<Source>,
    contracts: Arc<ContractCheck>,
    cache: Arc<ProfileCache>,
    status: Arc<FollowerStatus>,
    batches: Batches<(AgentId, B256), Result<(Date, Option<TrustProfile>), ChainFault>>,
    profiles: Coalesced<AgentId, Read<Arc<TrustProfile>>>,
    latest_profiles: Coalesced<AgentId, Read<Arc<TrustProfile>>>,
    /// Strangers apart: nobody who is vouched for waits for a read that waits among strangers.
    owners: Coalesced<(AgentId, Asker), Read<Address>>,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    hits: prometheus::IntCounter,
    misses: prometheus::IntCounter,
}

/// How much later a read is given up from without: a read that ends by itself says more.
const MARGIN: Duration = Duration::from_millis(50);

impl ChainReader {
    /// Reads these registries through these nodes. Until a [`Follower`] of it follows the chain, every profile serves for
    /// one poll interval.
    #[must_use]
    pub fn new(pool: Arc<Pool>, settings: ReaderSettings, clock: Arc<dyn Clock>, metrics: &Metrics) -> Self {
        let ReaderSettings { registries, multicall, gas_cap, max_head_age, lifetimes } = settings;
        let void_after = lifetimes.max_staleness.max(max_head_age.unwrap_or_default());
        let void_after = u64::try_from(void_after.as_micros()).unwrap_or(u64::MAX);
        let floor = Floor::new(void_after, max_head_age.map(|age| age.as_secs()));
        let floor = Arc::new(SharedFloor::new(floor, Arc::clone(&clock)));
        let source = Arc::new(Source::new(pool, floor, (multicall, gas_cap), Arc::clone(&clock)));
        let contracts = ContractCheck::new(Arc::clone(&source), registries, Arc::clone(&clock));
        Self {
            settings,
            contracts: Arc::new(contracts),
            source,
            cache: Arc::new(ProfileCache::new(lifetimes)),
            status: Arc::new(FollowerStatus::new(lifetimes.max_staleness)),
            batches: Batches::new(),
            profiles: Coalesced::new(),
            latest_profiles: Coalesced::new(),
            owners: Coalesced::new(),
            clock,
            metrics: metrics.clone(),
            hits: metrics.profile_cache.with_label_values(&["hit"]),
            misses: metrics.profile_cache.with_label_values(&["miss"]),
        }
    }

    /// The task that keeps this reader's cache in step with the chain. There should be one.
    #[must_use]
    pub fn follower(&self) -> Follower {
        Follower {
            pool: Arc::clone(&self.source.pool),
            floor: Arc::clone(&self.source.floor),
            cache: Arc::clone(&self.cache),
            status: Arc::clone(&self.status),
            contracts: Arc::clone(&self.contracts),
            registries: self.settings.registries.contracts().map(|(_, address)| address).collect(),
            organizations: self.settings.registries.organization,
            poll_interval: self.settings.lifetimes.poll_interval,
            max_staleness: self.settings.lifetimes.max_staleness,
            clock: Arc::clone(&self.clock),
            metrics: self.metrics.clone(),
        }
    }

    /// How many agents are cached.
    #[must_use]
    pub fn cached_agents(&self) -> usize {
        self.cache.len()
    }

    async fn in_time<T>(&self, read: impl Future<Output = Read<T>>) -> Read<T> {
        let read = tokio::time::timeout(READ_TIME_MAX + MARGIN, read).await;
        read.unwrap_or_else(|_| Err(self.out_of_time()))
    }

    fn now(&self) -> u64 {
        self.clock.monotonic_micros()
    }

    fn cached(&self, agent: AgentId) -> Option<Arc<TrustProfile>> {
        self.cache.get(agent, self.now())
    }

    /// The agent's profile, or why it can't be read, if that is known without a read.
    fn known(&self, agent: AgentId) -> Option<Read<Arc<TrustProfile>>> {
        let known = self.cached(agent).map(|profile| Ok(Some(profile)));
        known.or_else(|| self.cache.fault(agent, self.now()).map(Err))
    }

    /// A profile at the followed block if that may be, and else at the latest.
    async fn read_due(&self, agent: AgentId) -> Read<Arc<TrustProfile>> {
        let began = self.now();
        let ticket = self.cache.begin(agent, began);
        let Some(block) = ticket.pinned else { return self.read_latest(agent, |_| true).await };
        let read = self.batches.get((agent, block.hash), |wanted| self.read_pinned(wanted)).await;
        match read {
            Some(Ok((_, Some(profile)))) => {
                let profile = Arc::new(profile);
                self.cache.keep(agent, &ticket, (&profile, block.number), began);
                Ok(Some(profile))
            }
            Some(Err(fault)) if lies_in_the_agent(&fault) => {
                self.cache.keep_fault(agent, &fault, self.now());
                Err(fault)
            }
            // "Not minted" is never older than the question; and nodes may not read the state of a block by its hash.
            Some(Ok((_, None)) | Err(_)) | None => self.read_latest(agent, |_| true).await,
        }
    }

    /// Profiles at followed blocks: those of one block in one call. Where that fails each is read by itself.
    async fn read_pinned(
        &self,
        wanted: Vec<(AgentId, B256)>,
    ) -> Vec<Result<(Date, Option<TrustProfile>), ChainFault>> {
        let registries = self.settings.registries;
        if let [(_, block), _, ..] = wanted.as_slice()
            && wanted.iter().all(|(_, other)| other == block)
        {
            let calls: Vec<_> =
                wanted.iter().flat_map(|(agent, _)| registries.profile_calls(*agent)).collect();
            let calls_each = calls.len() / wanted.len();
            let decode = |results: Vec<_>| {
                let mut results = results.into_iter();
                let agents = wanted.iter().map(|(agent, _)| {
                    registries.read_profile(*agent, results.by_ref().take(calls_each).collect())
                });
                agents.collect::<Result<Vec<_>, ReadError>>()
            };
            let terms = self.source.terms(Lane::Known);
            if let Ok((date, profiles)) = self.source.read(&terms, At::Block(*block), &calls, decode).await {
                return profiles.into_iter().map(|profile| Ok((date, profile))).collect();
            }
        }
        let mut read = Vec::new();
        for (agent, block) in wanted {
            read.push(self.read(agent, At::Block(block)).await);
        }
        read
    }

    async fn read(&self, agent: AgentId, at: At) -> Result<(Date, Option<TrustProfile>), ChainFault> {
        let registries = self.settings.registries;
        let terms = self.source.terms(Lane::Known);
        let decode = |results| registries.read_profile(agent, results);
        self.source.read(&terms, at, &registries.profile_calls(agent), decode).await
    }

    /// A profile at the latest block, kept if `is_news`.
    async fn read_latest(
        &self,
        agent: AgentId,
        is_news: impl FnOnce(&TrustProfile) -> bool,
    ) -> Read<Arc<TrustProfile>> {
        let began = self.now();
        let ticket = self.cache.begin_latest();
        match self.read(agent, At::Latest).await {
            Ok((date, Some(profile))) => {
                let profile = Arc::new(profile);
                if is_news(&profile) {
                    self.cache.keep(agent, &ticket, (&profile, date.number), began);
                }
                Ok(Some(profile))
            }
            Ok((_, None)) => {
                self.cache.forget(agent);
                Ok(None)
            }
            Err(fault) => {
                if lies_in_the_agent(&fault) {
                    self.cache.keep_fault(agent, &fault, self.now());
                }
                Err(fault)
            }
        }
    }
}

/// True when what the chain holds of the agent can't be read. Nobody else shall pay for that with calls.
fn lies_in_the_agent(fault: &ChainFault) -> bool {
    fault.cause.downcast_ref().is_some_and(ReadError::lies_in_the_agent)
}

#[async_trait]
impl Chain for ChainReader {
    async fn profile(&self, agent: AgentId) -> Read<Arc<TrustProfile>> {
        if let Some(profile) = self.cached(agent) {
            self.hits.inc();
            return Ok(Some(profile));
        }
        self.misses.inc();
        // Whoever waited for another's read finds its result in the cache.
        let read = || async {
            match self.known(agent) {
                Some(known) => known,
                None => self.read_due(agent).await,
            }
        };
        self.in_time(self.profiles.get(agent, read)).await
    }

    async fn latest_profile(&self, agent: AgentId) -> Read<Arc<TrustProfile>> {
        let read = || async {
            if let Some(fault) = self.cache.fault(agent, self.now()) {
                return Err(fault);
            }
            // A cached profile that says the same and serves for longer stays.
            let is_news = |latest: &TrustProfile| self.cached(agent).is_none_or(|cached| *cached != *latest);
            self.read_latest(agent, is_news).await
        };
        self.in_time(self.latest_profiles.get(agent, read)).await
    }

    async fn owner(&self, agent: AgentId, asker: Asker) -> Read<Address> {
        let lane = match asker {
            Asker::Vouched => Lane::Known,
            Asker::Stranger => Lane::Stranger,
        };
        let read = || async move {
            let calls = self.settings.registries.owner_calls(agent);
            let decode = |results: Vec<_>| {
                let result = results.into_iter().next();
                read_owner(agent, result.ok_or(ReadError::Unintelligible("it has too few results"))?)
            };
            let read = self.source.read(&self.source.terms(lane), At::Latest, &calls, decode).await;
            read.map(|(_, owner)| owner)
        };
        self.in_time(self.owners.get((agent, asker), read)).await
    }

    fn was_owned_by(&self, agent: AgentId, address: Address) -> bool {
        self.cache.last_owner(agent) == Some(address)
    }

    fn out_of_time(&self) -> ChainFault {
        self.source.pool.out_of_time(READ_TIME_MAX)
    }

    /// Costs no call while the follower is answered.
    async fn probe(&self) -> Result<(), ChainFault> {
        self.contracts.result().await?;
        if self.status.is_answered(self.now()) {
            return Ok(());
        }
        if let Some(behind) = self.status.behind() {
            return Err(behind);
        }
        let terms = self.source.terms(Lane::Known);
        self.source.read(&terms, At::Latest, &[], |_| Ok(())).await.map(drop)
    }

    fn lacks_logs(&self) -> bool {
        self.status.mode() == Mode::Unlogged
    }
}

#[cfg(test)]
mod tests;
