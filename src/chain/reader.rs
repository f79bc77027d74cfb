//! The chain port: cached profiles, coalesced reads, owners at the latest block.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use alloy::primitives::{Address, B256, U256};
use async_trait::async_trait;
use futures_util::future::Either;
use parking_lot::Mutex;

use crate::chain::answer::{Floor, SharedFloor, owner_signature_call};
use crate::chain::batch::Batches;
use crate::chain::block::Block;
pub use crate::chain::cache::Lifetimes;
use crate::chain::cache::ProfileCache;
use crate::chain::cache::status::micros;
use crate::chain::coalesce::Coalesced;
use crate::chain::contract_check::ContractCheck;
use crate::chain::fault::ReadError;
use crate::chain::follower::Follower;
use crate::chain::follower::status::{FollowerStatus, Mode};
use crate::chain::pool::{Pool, READ_TIME_MAX};
use crate::chain::registries::Registries;
use crate::chain::registries::standard::{read_asked_owner, read_owner};
use crate::chain::source::{At, Source};
use crate::domain::agent_id::AgentId;
use crate::domain::profile::TrustProfile;
use crate::ports::chain::{AskedOwner, Asker, Chain, ChainFault, Reading};
use crate::ports::clock::Clock;
use crate::telemetry::metrics::Metrics;

type Read<T> = Result<Option<T>, ChainFault>;

/// A profile, with the number of the block that it was read at.
type ReadAt = Result<(u64, Option<Arc<TrustProfile>>), ChainFault>;

/// How the registries are read.
#[derive(Debug, Clone, Copy)]
pub struct ReaderSettings {
    /// Where they are.
    pub registries: Registries,
    /// The address of Multicall3.
    pub multicall: Address,
    /// The most gas that one `eth_call` may burn.
    pub gas_cap: u64,
    /// How old a block may be by its own time, if that is judged.
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
    batches: Batches<(AgentId, Block), ReadAt>,
    profiles: Coalesced<AgentId, Read<Arc<TrustProfile>>>,
    latest_profiles: Coalesced<AgentId, Read<Arc<TrustProfile>>>,
    /// Strangers apart: nobody who is vouched for waits for a read that waits among strangers.
    owners: Coalesced<(AgentId, Asker), Read<Address>>,
    clock: Arc<dyn Clock>,
    hits: prometheus::IntCounter,
    misses: prometheus::IntCounter,
}

/// The state at the latest block.
pub(crate) struct Sight {
    /// The chain's id.
    pub(crate) chain: u64,
    /// The block's number.
    pub(crate) block: u64,
    /// Its time, in seconds since 1970.
    pub(crate) timestamp: u64,
    /// Each registry's key and address, and whether there is code.
    pub(crate) contracts: Vec<(&'static str, Address, bool)>,
}

impl ChainReader {
    /// Reads these registries through these nodes. Until a [`Follower`] of it follows the chain, every profile serves for
    /// one poll interval.
    #[must_use]
    pub fn new(pool: Arc<Pool>, settings: ReaderSettings, clock: Arc<dyn Clock>, metrics: &Metrics) -> Self {
        let ReaderSettings { registries, multicall, gas_cap, max_head_age, lifetimes } = settings;
        let void_after = lifetimes.max_staleness.max(max_head_age.unwrap_or_default());
        let floor = Floor::new(micros(void_after), max_head_age.map(|age| age.as_secs()));
        let floor = Arc::new(SharedFloor::new(floor, Arc::clone(&clock)));
        let source = Source { pool, floor, multicall, lacks_multicall: AtomicBool::new(false), gas_cap };
        let source = Arc::new(source);
        let (are_found, reported) = (AtomicBool::new(false), Mutex::default());
        let contracts = ContractCheck { source: Arc::clone(&source), registries, are_found, reported };
        Self {
            settings,
            contracts: Arc::new(contracts),
            source,
            cache: Arc::new(ProfileCache::new(lifetimes)),
            status: Arc::new(FollowerStatus::new(lifetimes.max_staleness, metrics)),
            batches: Batches::new(),
            profiles: Coalesced::new(),
            latest_profiles: Coalesced::new(),
            owners: Coalesced::new(),
            clock,
            hits: metrics.profile_cache.with_label_values(&["hit"]),
            misses: metrics.profile_cache.with_label_values(&["miss"]),
        }
    }

    /// The task that keeps this reader's cache in step with the chain. There should be one.
    #[must_use]
    pub fn follower(&self) -> Follower {
        Follower {
            source: Arc::clone(&self.source),
            cache: Arc::clone(&self.cache),
            status: Arc::clone(&self.status),
            contracts: Arc::clone(&self.contracts),
            registries: self.settings.registries,
            lifetimes: self.settings.lifetimes,
            clock: Arc::clone(&self.clock),
        }
    }

    /// How many agents are cached.
    #[must_use]
    pub fn cached_agents(&self) -> usize {
        self.cache.len()
    }

    /// Looks at the latest block.
    pub(crate) async fn look(&self) -> Result<Sight, ChainFault> {
        let registries = self.settings.registries;
        let calls = registries.profile_calls(AgentId::new(U256::ONE));
        let decode = |results: Vec<_>| Ok(registries.found(&results).collect());
        let (date, contracts) = self.source.read(Asker::Vouched, At::Latest, &calls, decode).await?;
        let chain = self.source.pool.chain_id().await?;
        Ok(Sight { chain, block: date.number, timestamp: date.timestamp, contracts })
    }

    fn now(&self) -> u64 {
        self.clock.monotonic_micros()
    }

    /// A profile at the followed block if that may be, and else at the latest.
    async fn read_due(&self, agent: AgentId) -> Read<Arc<TrustProfile>> {
        let began = self.now();
        let ticket = self.cache.begin(agent, began);
        let Some(block) = ticket.pinned else { return self.read_latest(agent).await };
        match self.batches.get((agent, block), |wanted| self.read_pinned(wanted)).await {
            Some(Ok((_, Some(profile)))) => {
                self.cache.keep(agent, &ticket, (&profile, block.number), began);
                Ok(Some(profile))
            }
            Some(Err(fault)) if lies_in_the_agent(&fault) => {
                self.cache.keep_fault(agent, &ticket, &fault, self.now());
                Err(fault)
            }
            // "Not minted" is never older than the question; and nodes may not read the state of a block by its hash.
            Some(Ok((_, None)) | Err(_)) | None => self.read_latest(agent).await,
        }
    }

    /// Profiles at followed blocks: those of one block in one call. Where one of them can't be read each is read by itself.
    async fn read_pinned(&self, wanted: Vec<(AgentId, Block)>) -> Vec<ReadAt> {
        let mut read = Vec::new();
        for group in wanted.chunk_by(|(_, one), (_, other)| one == other) {
            let agents: Vec<AgentId> = group.iter().map(|(agent, _)| *agent).collect();
            let Some((_, block)) = group.first() else { continue };
            match self.read(&agents, At::Block(*block)).await {
                Ok((number, profiles)) => read.extend(profiles.into_iter().map(|one| Ok((number, one)))),
                Err(fault) if agents.len() > 1 && lies_in_the_agent(&fault) => {
                    for agent in agents {
                        read.push(self.read_one(agent, At::Block(*block)).await);
                    }
                }
                Err(fault) => read.resize(read.len() + agents.len(), Err(fault)),
            }
        }
        read
    }

    async fn read_one(&self, agent: AgentId, at: At) -> ReadAt {
        let (number, mut profiles) = self.read(&[agent], at).await?;
        Ok((number, profiles.pop().flatten()))
    }

    /// The profiles of these agents in one call, with the number of the block.
    async fn read(
        &self,
        agents: &[AgentId],
        at: At,
    ) -> Result<(u64, Vec<Option<Arc<TrustProfile>>>), ChainFault> {
        let registries = self.settings.registries;
        let calls: Vec<_> = agents.iter().flat_map(|agent| registries.profile_calls(*agent)).collect();
        let decode = |results: Vec<_>| {
            let mut results = results.into_iter();
            let profiles = agents.iter().map(|agent| registries.read_profile(*agent, &mut results));
            profiles.map(|profile| Ok(profile?.map(Arc::new))).collect()
        };
        let (date, profiles) = self.source.read(Asker::Vouched, at, &calls, decode).await?;
        Ok((date.number, profiles))
    }

    /// A profile at the latest block. A cached one that says the same and serves for longer stays.
    async fn read_latest(&self, agent: AgentId) -> Read<Arc<TrustProfile>> {
        let began = self.now();
        let ticket = self.cache.begin_latest();
        let read = self.read_one(agent, At::Latest).await;
        match &read {
            Ok((number, Some(profile))) => {
                if self.cache.get(agent, self.now()).is_none_or(|cached| cached != *profile) {
                    self.cache.keep(agent, &ticket, (profile, *number), began);
                }
            }
            Ok((_, None)) => self.cache.forget(agent),
            Err(fault) if lies_in_the_agent(fault) => {
                self.cache.keep_fault(agent, &ticket, fault, self.now())
            }
            Err(_) => {}
        }
        read.map(|(_, profile)| profile)
    }
}

/// True when what the chain holds of the agent can't be read. Nobody else shall pay for that with calls.
fn lies_in_the_agent(fault: &ChainFault) -> bool {
    fault.cause.downcast_ref().is_some_and(ReadError::lies_in_the_agent)
}

#[async_trait]
impl Chain for ChainReader {
    fn profile(&self, agent: AgentId) -> Reading<'_, Option<Arc<TrustProfile>>> {
        if let Some(profile) = self.cache.get(agent, self.now()) {
            self.hits.inc();
            return Either::Left(ready(Ok(Some(profile))));
        }
        self.misses.inc();
        // Whoever waited for another's read finds its result in the cache.
        let read = move || async move {
            match (self.cache.get(agent, self.now()), self.cache.fault(agent, self.now())) {
                (Some(profile), _) => Ok(Some(profile)),
                (None, Some(fault)) => Err(fault),
                (None, None) => self.read_due(agent).await,
            }
        };
        Either::Right(Box::pin(self.profiles.get(agent, read)))
    }

    async fn latest_profile(&self, agent: AgentId) -> Read<Arc<TrustProfile>> {
        let read = || async {
            match self.cache.fault(agent, self.now()) {
                Some(fault) => Err(fault),
                None => self.read_latest(agent).await,
            }
        };
        self.latest_profiles.get(agent, read).await
    }

    async fn owner(&self, agent: AgentId, asker: Asker) -> Read<Address> {
        let read = || async move {
            let calls = self.settings.registries.owner_calls(agent);
            let decode = |results: Vec<_>| read_owner(agent, &mut results.into_iter());
            let read = self.source.read(asker, At::Latest, &calls, decode).await;
            read.map(|(_, owner)| owner)
        };
        // Whoever waits for another's read has no more time for that.
        let owner = self.owners.get((agent, asker), read);
        tokio::time::timeout(READ_TIME_MAX, owner).await.unwrap_or_else(|_| Err(self.out_of_time()))
    }

    async fn ask_owner(&self, agent: AgentId, digest: B256, signature: &[u8]) -> Read<AskedOwner> {
        let identity = self.settings.registries.identity;
        let code = owner_signature_call(identity, agent.token_id(), digest, signature);
        self.source.create(&code, |results| read_asked_owner(agent, results)).await
    }

    fn was_owned_by(&self, agent: AgentId, address: Address) -> bool {
        self.cache.last_owner(agent) == Some(address)
    }

    fn out_of_time(&self) -> ChainFault {
        self.source.pool.out_of_time()
    }

    /// Costs no call while the follower is answered.
    async fn probe(&self) -> Result<(), ChainFault> {
        self.contracts.look().await?;
        if self.status.is_answered(self.now()) {
            return Ok(());
        }
        if let Some(behind) = self.status.behind() {
            return Err(behind);
        }
        self.source.read(Asker::Vouched, At::Latest, &[], |_| Ok(())).await.map(drop)
    }

    fn lacks_logs(&self) -> bool {
        self.status.mode() == Mode::Unlogged
    }
}

#[cfg(test)]
mod tests;
