//! The chain port: cached profiles, coalesced reads, owners at the latest block.

use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::Address;
use async_trait::async_trait;

pub use crate::chain::cache::Lifetimes;
use crate::chain::cache::{Plan, ProfileCache, Source, Ticket};
use crate::chain::coalesce::Coalesced;
use crate::chain::contracts::Contracts;
use crate::chain::fault::ReadError;
use crate::chain::follower::touch::{Mode, Touch};
use crate::chain::follower::{Follower, Parts};
use crate::chain::rpc::{At, Deadline, Lane, Pool, Terms, lies_in_what_is_read};
pub use crate::chain::snapshot::Registries;
use crate::chain::survey::Survey;
use crate::domain::agent_id::AgentId;
use crate::domain::profile::TrustProfile;
use crate::ports::chain::{Asker, Chain, ChainFault};
use crate::ports::clock::Clock;
use crate::telemetry::metrics::Metrics;

type Read<T> = Result<Option<T>, ChainFault>;

/// Reads agents from the registries.
pub struct ChainReader {
    rpc: Arc<Pool>,
    registries: Registries,
    contracts: Contracts,
    survey: Arc<Survey>,
    lifetimes: Lifetimes,
    cache: Arc<ProfileCache>,
    touch: Arc<Touch>,
    profiles: Coalesced<AgentId, Read<Arc<TrustProfile>>>,
    latest_profiles: Coalesced<AgentId, Read<Arc<TrustProfile>>>,
    /// Apart for strangers: nobody who is vouched for waits for a read that waits among strangers.
    owners: Coalesced<(AgentId, Asker), Read<Address>>,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    hits: prometheus::IntCounter,
    misses: prometheus::IntCounter,
}

/// How long one read may take, however many nodes are tried and whoever else it waits for. The pipeline holds the reads
/// of one request together to the same.
const READ_TIME_MAX: Duration = Duration::from_secs(6);

/// How much later a read is given up from without: a read that ends by itself says more.
const TELLING_TIME: Duration = Duration::from_millis(50);

impl ChainReader {
    /// Reads these registries through these nodes. Until a [`Follower`] of it follows the chain, every profile serves for
    /// one poll interval.
    #[must_use]
    pub fn new(
        rpc: Arc<Pool>,
        registries: Registries,
        lifetimes: Lifetimes,
        clock: Arc<dyn Clock>,
        metrics: &Metrics,
    ) -> Self {
        let survey = Arc::new(Survey::new(Arc::clone(&rpc), Arc::clone(&clock), &registries));
        Self {
            rpc,
            registries,
            contracts: Contracts::new(registries, Arc::clone(&survey)),
            survey,
            lifetimes,
            cache: Arc::new(ProfileCache::new(lifetimes)),
            touch: Arc::new(Touch::new(lifetimes.max_staleness)),
            profiles: Coalesced::new(),
            latest_profiles: Coalesced::new(),
            owners: Coalesced::new(),
            clock,
            metrics: metrics.clone(),
            hits: metrics.profile_cache.with_label_values(&["hit"]),
            misses: metrics.profile_cache.with_label_values(&["miss"]),
        }
    }

    /// What keeps this reader's cache in step with the chain. There should be one.
    #[must_use]
    pub fn follower(&self) -> Follower {
        Follower::new(Parts {
            pool: Arc::clone(&self.rpc),
            cache: Arc::clone(&self.cache),
            touch: Arc::clone(&self.touch),
            survey: Arc::clone(&self.survey),
            registries: self.registries.followed().collect(),
            organizations: self.registries.organization,
            poll_interval: self.lifetimes.poll_interval,
            clock: Arc::clone(&self.clock),
            metrics: self.metrics.clone(),
        })
    }

    /// How many agents are cached.
    #[must_use]
    pub fn cached_agents(&self) -> usize {
        self.cache.len()
    }

    async fn in_time<T>(&self, read: impl Future<Output = Read<T>>) -> Read<T> {
        let read = tokio::time::timeout(READ_TIME_MAX + TELLING_TIME, read).await;
        read.unwrap_or_else(|_| Err(self.rpc.out_of_time(READ_TIME_MAX)))
    }

    fn now(&self) -> u64 {
        self.clock.monotonic_micros()
    }

    fn cached(&self, agent: AgentId) -> Option<Arc<TrustProfile>> {
        self.cache.get(agent, self.now())
    }

    /// What is said of an agent without a read, if anything is: its profile, or that it can't be read.
    fn known(&self, agent: AgentId) -> Option<Read<Arc<TrustProfile>>> {
        let known = self.cached(agent).map(|profile| Ok(Some(profile)));
        known.or_else(|| self.cache.fault(agent, self.now()).map(Err))
    }

    /// How a read in this lane is made.
    fn terms(&self, lane: Lane) -> Terms {
        Terms { at: At::Latest, lane, deadline: Deadline::after(self.now(), READ_TIME_MAX) }
    }

    /// A profile as it is due: at the followed block if that can be, and else at the latest.
    async fn read_due(&self, agent: AgentId, terms: Terms) -> Read<Arc<TrustProfile>> {
        let (plan, ticket) = self.cache.begin(agent, self.now());
        let read = self.read_as_planned(agent, plan, &ticket, terms).await;
        self.note(&ticket, read)
    }

    async fn read_as_planned(
        &self,
        agent: AgentId,
        plan: Plan,
        ticket: &Ticket,
        terms: Terms,
    ) -> Read<Arc<TrustProfile>> {
        let began = self.now();
        if let Plan::Pinned(block) = plan {
            let pinned = Terms { at: At::Block(block.hash), ..terms };
            match self.contracts.profile(&self.rpc, &pinned, agent).await {
                Ok(Some(profile)) => {
                    let profile = Arc::new(profile);
                    self.cache.keep(ticket, &profile, Source::Followed, (began, self.now()));
                    return Ok(Some(profile));
                }
                // A no is never older than the question.
                Ok(None) => {}
                Err(fault) if is_told_by_a_node(&fault) => {}
                Err(fault) => return Err(fault),
            }
        }
        self.read_latest(agent, ticket, terms, |_| true).await
    }

    /// Notes what a read came to, but for a profile: that is kept, or not, by then.
    fn note(&self, ticket: &Ticket, read: Read<Arc<TrustProfile>>) -> Read<Arc<TrustProfile>> {
        match &read {
            Ok(Some(_)) => {}
            Ok(None) => self.cache.forget(ticket.agent()),
            Err(fault) if lies_in_the_agent(fault) => self.cache.keep_fault(ticket, fault, self.now()),
            Err(_) => {}
        }
        read
    }

    /// A profile at the latest block, kept if `is_news`.
    async fn read_latest(
        &self,
        agent: AgentId,
        ticket: &Ticket,
        terms: Terms,
        is_news: impl FnOnce(&TrustProfile) -> bool,
    ) -> Read<Arc<TrustProfile>> {
        let began = self.now();
        let profile = self.contracts.profile(&self.rpc, &terms, agent).await?.map(Arc::new);
        if let Some(profile) = profile.as_ref().filter(|profile| is_news(profile)) {
            self.cache.keep(ticket, profile, Source::Latest, (began, self.now()));
        }
        Ok(profile)
    }
}

/// True when a node answered that it can't: it lacks the block, or can't read the state of a block by its hash. At the
/// latest block it may.
fn is_told_by_a_node(fault: &ChainFault) -> bool {
    matches!(fault.cause.downcast_ref(), Some(ReadError::Node { .. }))
}

/// True when the agent can't be read by what the chain holds of it. Nobody else shall pay for that with calls.
fn lies_in_the_agent(fault: &ChainFault) -> bool {
    fault.cause.downcast_ref().is_some_and(lies_in_what_is_read)
}

const fn lane_of(asker: Asker) -> Lane {
    match asker {
        Asker::Vouched => Lane::Known,
        Asker::Stranger => Lane::Stranger,
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
        let terms = self.terms(Lane::Known);
        // Whoever waited for another's read finds its result in the cache when the turn comes.
        let read = || async {
            match self.known(agent) {
                Some(known) => known,
                None => self.read_due(agent, terms).await,
            }
        };
        self.in_time(self.profiles.get(agent, read)).await
    }

    async fn latest_profile(&self, agent: AgentId) -> Read<Arc<TrustProfile>> {
        let terms = self.terms(Lane::Known);
        let read = || async {
            if let Some(fault) = self.cache.fault(agent, self.now()) {
                return Err(fault);
            }
            let (_, ticket) = self.cache.begin(agent, self.now());
            // One that says the same and serves for longer stays.
            let is_news = |latest: &TrustProfile| self.cached(agent).is_none_or(|cached| *cached != *latest);
            let read = self.read_latest(agent, &ticket, terms, is_news).await;
            self.note(&ticket, read)
        };
        self.in_time(self.latest_profiles.get(agent, read)).await
    }

    async fn owner(&self, agent: AgentId, asker: Asker) -> Read<Address> {
        let terms = self.terms(lane_of(asker));
        let read = || async move { self.contracts.owner(&self.rpc, &terms, agent).await };
        self.in_time(self.owners.get((agent, asker), read)).await
    }

    fn was_owned_by(&self, agent: AgentId, address: Address) -> bool {
        self.cache.last_owner(agent) == Some(address)
    }

    fn out_of_time(&self) -> ChainFault {
        self.rpc.out_of_time(READ_TIME_MAX)
    }

    /// Costs no call while the follower is answered.
    async fn probe(&self) -> Result<(), ChainFault> {
        self.survey.word().await?;
        if self.touch.is_answered(self.now()) {
            return Ok(());
        }
        self.rpc.block_number(&self.terms(Lane::Known)).await.map(drop)
    }

    fn lacks_logs(&self) -> bool {
        self.touch.mode() == Mode::Unlogged
    }
}

#[cfg(test)]
mod tests;
