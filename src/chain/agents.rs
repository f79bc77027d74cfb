//! Reads of agents from the registries, and what the cache keeps of them. Who waits for them is `reader`'s business.

use std::sync::Arc;

use alloy::primitives::{B256, Bytes};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join};
use tokio::sync::Mutex;

use crate::chain::answer::holder_signatures_call;
use crate::chain::block::Block;
use crate::chain::cache::ProfileCache;
use crate::chain::cache::status::Ticket;
use crate::chain::coalesce::Coalesced;
use crate::chain::fault::ReadError;
use crate::chain::registries::may_lie_in_details;
use crate::chain::source::{At, Source};
use crate::domain::agent_id::AgentId;
use crate::domain::holders::Holders;
use crate::domain::profile::TrustProfile;
use crate::domain::registries::Registries;
use crate::ports::chain::{Asked, AskedHolders, ChainFault, Parts};
use crate::ports::clock::Clock;

pub(super) type Read<T> = Result<Option<T>, ChainFault>;

/// Reads of profiles at followed blocks, several in one call.
pub(super) type Pinned = Coalesced<(AgentId, Block), Read<Arc<TrustProfile>>>;

/// A question of a stranger: who holds the agent; and with a digest and a signature, which of them accept it.
pub(super) type Question = (AgentId, Option<(B256, Bytes)>);

/// The agents of the registries.
pub(super) struct Agents {
    pub(super) registries: Registries,
    pub(super) source: Source,
    pub(super) cache: Arc<ProfileCache>,
    pub(super) clock: Arc<dyn Clock>,
    /// Logs of long ago are asked for one at a time, since their answers may be long, and not before this time.
    pub(super) history_retry_micros: Mutex<u64>,
}

impl Agents {
    pub(super) fn now(&self) -> u64 {
        self.clock.monotonic_micros()
    }

    /// The profile, without details where they can't be read.
    pub(super) async fn profile(&self, agent: AgentId, pinned: &Pinned) -> Read<Arc<TrustProfile>> {
        let whole = self.due_profile(agent, pinned).await;
        self.or_gate(agent, whole, self.cache.begin(agent, self.now())).await
    }

    /// The profile, from the cache if a read since has put it there.
    async fn due_profile(&self, agent: AgentId, pinned: &Pinned) -> Read<Arc<TrustProfile>> {
        let began = self.now();
        if let Some(profile) = self.cache.get(agent, began) {
            return Ok(Some(profile));
        }
        if let Some(fault) = self.cache.fault(agent, began) {
            return Err(fault);
        }
        let ticket = self.cache.begin(agent, began);
        let Some(block) = ticket.pinned else { return self.read_latest(agent).await };
        match pinned.get((agent, block)).await {
            Some(Ok(Some(profile))) => {
                self.cache.keep(agent, &ticket, (&profile, block.number), began);
                Ok(Some(profile))
            }
            Some(Err(fault)) if lies_in_the_agent(&fault) => {
                self.cache.keep_fault(agent, &ticket, &fault, self.now());
                Err(fault)
            }
            // "Not minted" is never older than the question; and nodes may not read the state of a block by its hash.
            Some(Ok(None) | Err(_)) | None => self.read_latest(agent).await,
        }
    }

    /// As much of the profile at the latest block as is asked for, unless it could not be read just before.
    pub(super) async fn latest_profile(
        self: Arc<Self>,
        (agent, parts): (AgentId, Parts),
    ) -> Read<Arc<TrustProfile>> {
        let whole = match (self.cache.fault(agent, self.now()), parts) {
            (Some(fault), Parts::Whole) => return Err(fault),
            (Some(fault), Parts::Gate) => Err(fault),
            (None, _) => self.read_latest(agent).await,
        };
        let gate = self.or_gate(agent, whole.clone(), self.cache.begin_latest()).await;
        if parts == Parts::Gate { gate } else { whole }
    }

    /// The agent without details, where the whole can't be read because of them: one more call. It is known to be the
    /// details once owner and stake were read, so the fault is remembered then.
    async fn or_gate(
        &self,
        agent: AgentId,
        whole: Read<Arc<TrustProfile>>,
        mut ticket: Ticket,
    ) -> Read<Arc<TrustProfile>> {
        let fault = match whole {
            Err(fault) if fault.cause.downcast_ref().is_some_and(may_lie_in_details) => fault,
            other => return other,
        };
        let began = self.now();
        let calls = self.registries.gate_calls(agent);
        let read_at = async |at| {
            let decode = |results: Vec<_>| self.registries.read_gate(agent, &mut results.into_iter());
            self.source.read(at, &calls, decode).await
        };
        let mut read = read_at(ticket.pinned.map_or(At::Latest, At::Block)).await;
        if ticket.pinned.is_some() && read.is_err() {
            // Nodes may not read the state of a block by its hash.
            ticket = self.cache.begin_latest();
            read = read_at(At::Latest).await;
        }
        let Ok((date, Some(profile))) = read else { return Err(fault) };
        let profile = Arc::new(profile);
        let says_the_same =
            |cached: Arc<TrustProfile>| (cached.holders, cached.stake) == (profile.holders, profile.stake);
        if !self.cache.get(agent, self.now()).is_some_and(says_the_same) {
            self.cache.keep(agent, &ticket, (&profile, date.number), began);
        }
        if self.cache.fault(agent, self.now()).is_none() {
            self.cache.keep_fault(agent, &ticket, &fault, self.now());
        }
        Ok(Some(profile))
    }

    /// Profiles at followed blocks: those of one block in one call.
    pub(super) async fn pinned(
        self: Arc<Self>,
        wanted: Vec<(AgentId, Block)>,
    ) -> Vec<Read<Arc<TrustProfile>>> {
        let mut read = Vec::new();
        for group in wanted.chunk_by(|(_, one), (_, other)| one == other) {
            let agents: Vec<AgentId> = group.iter().map(|(agent, _)| *agent).collect();
            if let Some((_, block)) = group.first() {
                read.extend(self.all(&agents, *block).await);
            }
        }
        read
    }

    /// The profiles of all these agents in one call; where one of them can't be read, each half of them in a call.
    fn all<'a>(&'a self, agents: &'a [AgentId], block: Block) -> BoxFuture<'a, Vec<Read<Arc<TrustProfile>>>> {
        async move {
            match self.read(agents, At::Block(block)).await {
                Ok((_, profiles)) => profiles,
                Err(fault) if agents.len() > 1 && lies_in_the_agent(&fault) => {
                    let (some, others) = agents.split_at(agents.len() / 2);
                    let (some, others) = join(self.all(some, block), self.all(others, block)).await;
                    [some, others].concat()
                }
                Err(fault) => vec![Err(fault); agents.len()],
            }
        }
        .boxed()
    }

    /// The profiles of these agents, with the number of the block: in one call, and details in further ones where the
    /// registries have them read apart.
    async fn read(
        &self,
        agents: &[AgentId],
        at: At,
    ) -> Result<(u64, Vec<Read<Arc<TrustProfile>>>), ChainFault> {
        let registries = self.registries;
        let calls: Vec<_> = agents.iter().flat_map(|agent| registries.profile_calls(*agent)).collect();
        let decode = |results: Vec<_>| {
            let mut results = results.into_iter();
            agents.iter().map(|agent| registries.read_profile(*agent, &mut results)).collect()
        };
        let (date, profiles): (_, Vec<Option<TrustProfile>>) = self.source.read(at, &calls, decode).await?;
        let lacks_details =
            |profile: &Option<TrustProfile>| profile.as_ref().is_some_and(|it| it.details.is_none());
        let lacking = agents.iter().zip(&profiles).filter(|(_, profile)| lacks_details(profile));
        let lacking: Vec<AgentId> = lacking.map(|(agent, _)| *agent).collect();
        let mut details = self.details(&lacking, at, date).await.into_iter();
        let mut with_details = |profile: TrustProfile| match profile.details {
            Some(_) => Ok(Arc::new(profile)),
            None => {
                let details = details.next().unwrap_or_else(|| Err(self.source.pool.out_of_time()))?;
                Ok(Arc::new(TrustProfile { details: Some(details), ..profile }))
            }
        };
        let profiles = profiles.into_iter().map(|profile| profile.map(&mut with_details).transpose());
        Ok((date.number, profiles.collect()))
    }

    /// A profile at the latest block. A cached one that says the same and serves for longer stays.
    async fn read_latest(&self, agent: AgentId) -> Read<Arc<TrustProfile>> {
        let began = self.now();
        let ticket = self.cache.begin_latest();
        let read = self.read(&[agent], At::Latest).await;
        let read =
            read.and_then(|(number, mut profiles)| Ok((number, profiles.pop().transpose()?.flatten())));
        let (number, profile) = match read {
            Ok(read) => read,
            Err(fault) => {
                if lies_in_the_agent(&fault) {
                    self.cache.keep_fault(agent, &ticket, &fault, self.now());
                }
                return Err(fault);
            }
        };
        match &profile {
            Some(profile) => {
                if self.cache.get(agent, self.now()).is_none_or(|cached| cached != *profile) {
                    self.cache.keep(agent, &ticket, (profile, number), began);
                }
            }
            None => self.cache.forget(agent),
        }
        Ok(profile)
    }

    /// The holders at the latest block.
    pub(super) async fn holders(self: Arc<Self>, agent: AgentId) -> Read<Holders> {
        let calls = self.registries.holder_calls(agent);
        let decode = |results: Vec<_>| self.registries.read_holders(agent, &mut results.into_iter());
        let read = self.source.read(At::Latest, &calls, decode).await;
        read.map(|(_, holders)| holders)
    }

    /// The answer to a stranger.
    pub(super) async fn answer(self: Arc<Self>, (agent, signed): Question) -> Read<AskedHolders> {
        let Some((digest, signature)) = signed else {
            let unasked = |address| Asked { address, has_code: false, accepts: false };
            let holders = self.holders(agent).await?;
            return Ok(holders.map(|Holders { owner, wallet }| AskedHolders {
                owner: unasked(owner),
                wallet: wallet.map(unasked),
            }));
        };
        let registry = (self.registries.identity, self.registries.has_wallets());
        let code = holder_signatures_call(registry, agent.token_id(), digest, &signature);
        let latest = (At::Latest, self.source.pool.deadline());
        self.source.create(latest, &code, |results| self.registries.read_asked_holders(agent, results)).await
    }
}

/// True when what the chain holds of the agent can't be read. Nobody else shall pay for that with calls.
fn lies_in_the_agent(fault: &ChainFault) -> bool {
    fault.cause.downcast_ref().is_some_and(ReadError::lies_in_the_agent)
}
