//! The chain port: cached profiles, coalesced reads, holders at the latest block.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use alloy::primitives::{Address, B256, Bytes, U64, U256};
use async_trait::async_trait;
use futures_util::future::Either;
use serde_json::json;
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::chain::agents::{Agents, Pinned, Question, Read};
use crate::chain::answer::{Floor, SharedFloor};
use crate::chain::block::{Block, block_call};
use crate::chain::cache::ProfileCache;
use crate::chain::cache::status::micros;
use crate::chain::coalesce::{Bounds, Coalesced};
use crate::chain::contract_check::ContractCheck;
use crate::chain::follower::Follower;
use crate::chain::follower::status::{FollowerStatus, Mode};
use crate::chain::measures::Measures;
use crate::chain::pool::{Answers, Input, PLACES_MAX, Pool, STRANGERS_MAX, WAIT_TIME_MAX};
use crate::chain::registries::results::Found;
use crate::chain::registries::stake_vault::{decimals_calls, read_decimals, read_token, token_calls};
use crate::chain::source::{At, Source};
use crate::domain::agent_id::AgentId;
use crate::domain::chain_settings::ReaderSettings;
use crate::domain::holders::Holders;
use crate::domain::measure::Measure;
use crate::domain::profile::TrustProfile;
use crate::ports::chain::{AskedHolders, Asker, Chain, ChainFault, Parts, Reading};
use crate::ports::clock::Clock;
use crate::telemetry::metrics::Metrics;

/// How many profiles are being read or wait for a call at once. Only of agents that proved who they are.
const PROFILES_MAX: usize = 4_096;

/// Calls for profiles at followed blocks. After a reorganization all active agents are read anew: thousands within the
/// time of those who wait, though a node takes 100 ms and more. Without Multicall3 a call holds no more agents.
pub(super) const PINNED: Bounds = Bounds { calls: 32, calls_unfilled: 4, keys: 32 };

/// Reads agents from the registries.
pub struct ChainReader {
    agents: Arc<Agents>,
    follower: Follower,
    profiles: Coalesced<(AgentId, Parts), Read<Arc<TrustProfile>>>,
    latest_profiles: Coalesced<(AgentId, Parts), Read<Arc<TrustProfile>>>,
    /// Apart: nobody who is vouched for waits for a read that waits among strangers.
    vouched: Coalesced<Question, Read<AskedHolders>>,
    strangers: Coalesced<Question, Read<AskedHolders>>,
    probes: Coalesced<(), Result<(), ChainFault>>,
    hits: prometheus::IntCounter,
    misses: prometheus::IntCounter,
}

const LATEST: (At, Input) = (At::Latest, Input::Ours);

/// The state at the latest block.
pub(crate) struct Sight {
    /// The chain's id.
    pub(crate) chain: u64,
    /// The block's number.
    pub(crate) block: u64,
    /// Its time, in seconds since 1970.
    pub(crate) timestamp: u64,
    /// Each registry's key and address, and the function that it answers.
    pub(crate) contracts: Vec<(&'static str, Address, Result<&'static str, String>)>,
    /// What its nodes don't take as most do.
    pub(crate) oddities: Vec<String>,
}

/// Of the agents below this number the first one is looked for.
pub(crate) const FIRST_AGENTS: u64 = 64;

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
            gas_cap,
        };
        let measures = Measures::new(measures);
        let cache = Arc::new(ProfileCache::new(lifetimes, measures.are_of_holders()));
        let history_retry_micros = Mutex::default();
        let agents = Arc::new(Agents { registries, measures, source, cache, clock, history_retry_micros });
        let contracts = Arc::new(ContractCheck::new(&agents));
        let status = Arc::new(FollowerStatus::new(lifetimes.max_staleness, metrics));
        let follower = Follower { agents: Arc::clone(&agents), contracts, status, lifetimes };

        let pinned = |parts| {
            let of = Arc::clone(&agents);
            Coalesced::new(runtime.clone(), PINNED, move |wanted| {
                Box::pin(Arc::clone(&of).pinned(wanted, parts))
            })
        };
        let pinned = Pinned { gate: pinned(Parts::Gate), whole: pinned(Parts::Whole) };
        let profiles = Arc::new((Arc::clone(&agents), pinned));
        let profile = async |of: Arc<(Arc<Agents>, Pinned)>, wanted| of.0.profile(wanted, &of.1).await;
        Self {
            profiles: Coalesced::one_by_one(runtime, PROFILES_MAX, &profiles, profile),
            latest_profiles: Coalesced::one_by_one(runtime, PLACES_MAX, &agents, Agents::latest_profile),
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

    /// Looks at the latest block.
    pub(crate) async fn look(&self) -> Result<Sight, ChainFault> {
        let shown = |(key, address, answer): Found| (key, address, answer.map_err(|error| error.to_string()));
        let read = |found: Vec<Found>| Ok(found.into_iter().map(shown).collect());
        let (date, contracts) = self.follower.contracts.look(read).await?;
        let (source, block) = (&self.agents.source, date.number);
        let call = [block_call(json!(U64::from(block)))];
        let shown = |answers: &mut Answers<'_>| answers.next::<Block>();
        let by_hash = match source.pool.ask(source.pool.deadline(), (&call, Input::Strangers), shown).await {
            Ok(shown) => source.prove(At::Block(shown)).await.err(),
            Err(fault) => Some(fault),
        };
        let by_hash =
            by_hash.map(|fault| format!("no eth_call at {{blockHash}} (EIP-1898): {}", fault.cause));
        let creation = source.try_creation().await.err();
        let creation = creation.map(|fault| format!("no eth_call without `to`: {}", fault.cause));
        let data = source.pool.writes_data().then(|| "calls with `data`, not `input`".to_owned());
        let oddities = [by_hash, creation, data].into_iter().flatten().collect();
        Ok(Sight { chain: source.pool.chain_id, block, timestamp: date.timestamp, contracts, oddities })
    }

    /// The first agent that is minted, of the [`FIRST_AGENTS`].
    pub(crate) async fn first_agent(&self) -> Result<Option<AgentId>, ChainFault> {
        let Agents { registries, source, .. } = &*self.agents;
        let agents: Vec<_> = (0..FIRST_AGENTS).map(|id| AgentId::new(U256::from(id))).collect();
        let calls: Vec<_> = agents.iter().flat_map(|agent| registries.holder_calls(*agent)).collect();
        let decode = |results: Vec<_>| {
            let mut results = results.into_iter();
            let is_minted =
                |agent: &AgentId| matches!(registries.read_holders(*agent, &mut results), Ok(Some(_)));
            Ok(agents.into_iter().find(is_minted))
        };
        source.read(LATEST, &calls, decode).await.map(|(_, first)| first)
    }

    /// The token that the stake vault takes and its decimals, where they say so.
    pub(crate) async fn stake_token(&self) -> Result<Option<(Address, u8)>, ChainFault> {
        let Agents { registries, source, .. } = &*self.agents;
        let Some(vault) = registries.stake_vault else { return Ok(None) };
        let (_, token) = source.read(LATEST, &token_calls(vault), |found| Ok(read_token(&found))).await?;
        let Some(token) = token else { return Ok(None) };
        let calls = decimals_calls(token);
        let (_, decimals) = source.read(LATEST, &calls, |found| Ok(read_decimals(&found))).await?;
        Ok(decimals.map(|decimals| (token, decimals)))
    }

    /// The answer to a question about holders. Whoever waits for another's read has no more time for that.
    async fn ask(&self, asker: Asker, question: Question) -> Read<AskedHolders> {
        let reads = match asker {
            Asker::Vouched => &self.vouched,
            Asker::Stranger => &self.strangers,
        };
        self.ended(timeout(WAIT_TIME_MAX, reads.get(question)).await.ok().flatten())
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
        contracts.check().await?;
    }
    let (is_answered, behind) = status.last_poll(agents.now());
    match behind {
        _ if is_answered => Ok(()),
        Some(behind) => Err(behind),
        None => agents.source.prove(At::Latest).await,
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
        let wanted = (agent, self.agents.registries.read_parts(parts));
        Either::Right(Box::pin(async move { self.ended(self.profiles.get(wanted).await) }))
    }

    async fn latest_profile(&self, agent: AgentId, parts: Parts) -> Read<Arc<TrustProfile>> {
        self.ended(self.latest_profiles.get((agent, parts)).await)
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
        self.agents.registries.has_wallets() && self.agents.source.lacks_creations.load(Ordering::Relaxed)
    }

    fn lacks_logs(&self) -> bool {
        self.follower.status.mode() == Mode::Unlogged
    }
}

#[cfg(test)]
mod tests;
