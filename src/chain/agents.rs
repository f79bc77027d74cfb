//! Reads of agents from the registries, and what the cache keeps of them. Who waits for them is `reader`'s business.

use std::sync::Arc;

use alloy::primitives::{B256, Bytes};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join};
use tokio::sync::Mutex;

use crate::chain::answer::{Date, holder_signatures_call};
use crate::chain::block::Block;
use crate::chain::cache::ProfileCache;
use crate::chain::cache::status::Ticket;
use crate::chain::coalesce::Coalesced;
use crate::chain::fault::lies_in_the_agent;
use crate::chain::measures::Measures;
use crate::chain::pool::Input;
use crate::chain::source::{At, Source, is_refused};
use crate::domain::agent_id::AgentId;
use crate::domain::holders::Holders;
use crate::domain::profile::TrustProfile;
use crate::domain::registries::Registries;
use crate::ports::chain::{Asked, AskedHolders, ChainFault, Parts};
use crate::ports::clock::Clock;

pub(super) type Read<T> = Result<Option<T>, ChainFault>;

/// A profile. Without details that were asked for, why they can't be read.
pub(super) type Known = (Arc<TrustProfile>, Option<ChainFault>);

/// Reads of profiles at followed blocks, several in one call. Apart: what decides waits for no details, which strangers write.
pub(super) struct Pinned {
    pub(super) gate: Coalesced<(AgentId, Block), Read<Known>>,
    pub(super) whole: Coalesced<(AgentId, Block), Read<Known>>,
}

/// A question: who holds the agent; and with a digest and a signature, which of them have code and accept it. The digest zero asks
/// for code alone.
pub(super) type Question = (AgentId, Option<(B256, Bytes)>);

/// The agents of the registries.
pub(super) struct Agents {
    pub(super) registries: Registries,
    pub(super) measures: Measures,
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

    /// The cached profile, if it has as much as is asked for, or as much as was to be had.
    pub(super) fn cached(&self, agent: AgentId, parts: Parts) -> Option<Arc<TrustProfile>> {
        let now = self.now();
        let suffices = |profile: &Arc<TrustProfile>| {
            let comes_whole = self.registries.read_parts(Parts::Gate) == Parts::Whole;
            parts == Parts::Gate
                || comes_whole
                || profile.details.is_some()
                || self.cache.fault(agent, now).is_some()
        };
        self.cache.get(agent, now).filter(suffices)
    }

    /// The profile, without details where they can't be read.
    pub(super) async fn profile(
        &self,
        (agent, parts): (AgentId, Parts),
        pinned: &Pinned,
    ) -> Read<Arc<TrustProfile>> {
        let read = self.due_profile(agent, parts, pinned).await;
        let read = self.or_gate(agent, read, self.cache.begin(agent, self.now())).await?;
        Ok(read.map(|(profile, _)| profile))
    }

    /// The profile, from the cache if a read since has put it there.
    async fn due_profile(&self, agent: AgentId, parts: Parts, pinned: &Pinned) -> Read<Known> {
        if let Some(profile) = self.cached(agent, parts) {
            return Ok(Some((profile, None)));
        }
        let began = self.now();
        if let Some(fault) = self.cache.fault(agent, began) {
            return Err(fault);
        }
        let ticket = self.cache.begin(agent, began);
        let Some(block) = ticket.pinned else { return self.read_latest(agent, parts).await };
        let reads = if parts == Parts::Gate { &pinned.gate } else { &pinned.whole };
        match reads.get((agent, block)).await {
            Some(Ok(Some(known))) => {
                self.keep(agent, &ticket, &known, (block.number, began));
                Ok(Some(known))
            }
            Some(Err(fault)) if lies_in_the_agent(&fault) => {
                self.cache.keep_fault(agent, &ticket, &fault, self.now());
                Err(fault)
            }
            // "Not minted" is never older than the question; and nodes may not read the state of a block by its hash.
            Some(Ok(None) | Err(_)) | None => self.read_latest(agent, parts).await,
        }
    }

    /// As much of the profile at the latest block as is asked for, unless it could not be read just before.
    pub(super) async fn latest_profile(
        self: Arc<Self>,
        (agent, parts): (AgentId, Parts),
    ) -> Read<Arc<TrustProfile>> {
        let read = match (self.cache.fault(agent, self.now()), parts) {
            (Some(fault), Parts::Whole) => return Err(fault),
            (Some(fault), Parts::Gate) => Err(fault),
            (None, _) => self.read_latest(agent, self.registries.read_parts(parts)).await,
        };
        match self.or_gate(agent, read, self.cache.begin_latest()).await? {
            Some((_, Some(fault))) if parts == Parts::Whole => Err(fault),
            read => Ok(read.map(|(profile, _)| profile)),
        }
    }

    /// The agent without details, where the whole can't be read because of them: one more call. It is known to be the
    /// details once owner and stake were read, so the fault is remembered then.
    async fn or_gate(&self, agent: AgentId, whole: Read<Known>, mut ticket: Ticket) -> Read<Known> {
        let may_lie_in_details = |fault: &ChainFault| {
            fault.cause.downcast_ref().is_some_and(|it| self.registries.may_lie_in_details(it))
        };
        let fault = match whole {
            Err(fault) if may_lie_in_details(&fault) => fault,
            other => return other,
        };
        let began = self.now();
        let gate = async |at| self.read(&[agent], at, Parts::Gate).await;
        let mut read = gate(ticket.pinned.map_or(At::Latest, At::Block)).await;
        if ticket.pinned.is_some() && read.is_err() {
            // Nodes may not read the state of a block by its hash.
            ticket = self.cache.begin_latest();
            read = gate(At::Latest).await;
        }
        let Ok((block, mut profiles)) = read else { return Err(fault) };
        let Some((profile, _)) = profiles.pop().flatten() else { return Err(fault) };
        let known = (profile, Some(fault));
        self.keep(agent, &ticket, &known, (block, began));
        Ok(Some(known))
    }

    /// Keeps what was read at this block, and why it has no details. A cached profile that says the same stays if it has
    /// details beside, or serves for longer.
    fn keep(&self, agent: AgentId, ticket: &Ticket, (profile, fault): &Known, (block, began): (u64, u64)) {
        let stays = |cached: Arc<TrustProfile>| {
            let is_same = (cached.holders, cached.stake, cached.measured)
                == (profile.holders, profile.stake, profile.measured);
            let has_more = profile.details.is_none() && cached.details.is_some();
            is_same && (has_more || (ticket.pinned.is_none() && cached.details == profile.details))
        };
        if !self.cache.get(agent, self.now()).is_some_and(stays) {
            self.cache.keep(agent, ticket, (profile, block), began);
        }
        if let Some(fault) = fault
            && self.cache.fault(agent, self.now()).is_none()
        {
            self.cache.keep_fault(agent, ticket, fault, self.now());
        }
    }

    /// Profiles at followed blocks: those of one block in one call.
    pub(super) async fn pinned(
        self: Arc<Self>,
        wanted: Vec<(AgentId, Block)>,
        parts: Parts,
    ) -> Vec<Read<Known>> {
        let mut read = Vec::new();
        for group in wanted.chunk_by(|(_, one), (_, other)| one == other) {
            let agents: Vec<AgentId> = group.iter().map(|(agent, _)| *agent).collect();
            if let Some((_, block)) = group.first() {
                read.extend(self.all(&agents, (*block, parts)).await);
            }
        }
        read
    }

    /// The profiles of all these agents in one call; where one of them can't be read, each half of them in a call.
    fn all<'a>(&'a self, agents: &'a [AgentId], at: (Block, Parts)) -> BoxFuture<'a, Vec<Read<Known>>> {
        async move {
            match self.read(agents, At::Block(at.0), at.1).await {
                Ok((_, profiles)) => profiles.into_iter().map(Ok).collect(),
                Err(fault) if agents.len() > 1 && lies_in_the_agent(&fault) => {
                    let (some, others) = agents.split_at(agents.len() / 2);
                    let (some, others) = join(self.all(some, at), self.all(others, at)).await;
                    [some, others].concat()
                }
                Err(fault) => vec![Err(fault); agents.len()],
            }
        }
        .boxed()
    }

    /// The profiles of these agents, with the number of the block: in one call, and details that are asked for in further
    /// ones where the registries have them read apart.
    async fn read(
        &self,
        agents: &[AgentId],
        at: At,
        parts: Parts,
    ) -> Result<(u64, Vec<Option<Known>>), ChainFault> {
        let (date, profiles) = self.graded(agents, parts, at).await?;
        let lacks_details = |profile: &TrustProfile| parts == Parts::Whole && profile.details.is_none();
        let lacking = agents.iter().zip(&profiles);
        let lacking = lacking.filter(|(_, profile)| profile.as_ref().is_some_and(lacks_details));
        let lacking: Vec<AgentId> = lacking.map(|(agent, _)| *agent).collect();
        let mut details = self.details(&lacking, at, date).await.into_iter();
        let mut known = |mut profile: TrustProfile| {
            let mut fault = None;
            if lacks_details(&profile) {
                match details.next().unwrap_or_else(|| Err(self.source.pool.out_of_time())) {
                    Ok(details) => profile.details = Some(details),
                    Err(without) => fault = Some(without),
                }
            }
            (Arc::new(profile), fault)
        };
        Ok((date.number, profiles.into_iter().map(|profile| profile.map(&mut known)).collect()))
    }

    /// A profile at the latest block.
    async fn read_latest(&self, agent: AgentId, parts: Parts) -> Read<Known> {
        let began = self.now();
        let ticket = self.cache.begin_latest();
        let read = self.read(&[agent], At::Latest, parts).await;
        let (block, mut profiles) = read.inspect_err(|fault| {
            if lies_in_the_agent(fault) {
                self.cache.keep_fault(agent, &ticket, fault, self.now());
            }
        })?;
        let known = profiles.pop().flatten();
        match &known {
            Some(known) => self.keep(agent, &ticket, known, (block, began)),
            None => self.cache.forget(agent),
        }
        Ok(known)
    }

    /// The holders at the latest block.
    async fn holders(&self, agent: AgentId) -> Result<(Date, Option<Holders>), ChainFault> {
        let calls = self.registries.holder_calls(agent);
        let decode = |results: Vec<_>| self.registries.read_holders(agent, &mut results.into_iter());
        self.source.read((At::Latest, Input::Ours), &calls, decode).await
    }

    /// The answer to a question about holders.
    pub(super) async fn answer(self: Arc<Self>, (agent, signed): Question) -> Read<AskedHolders> {
        let Some((digest, signature)) = signed else {
            let unasked = |address| Asked { address, has_code: false, accepts: false };
            let (_, holders) = self.holders(agent).await?;
            return Ok(holders.map(|Holders { owner, wallet }| AskedHolders {
                owner: unasked(owner),
                wallet: wallet.map(unasked),
            }));
        };
        let registry = (self.registries.identity, self.registries.has_wallets());
        let code = holder_signatures_call(registry, agent.token_id(), digest, &signature);
        let latest = (At::Latest, self.source.pool.deadline());
        let decode = |results| self.registries.read_asked_holders(agent, results);
        match self.source.create(latest, &code, decode).await {
            // A stranger's signature may be what an ordinary node fails at.
            Err(fault) if is_refused(&fault) && self.source.try_creation().await.is_err() => {}
            asked => return asked,
        }
        let (date, Some(Holders { owner, wallet })) = self.holders(agent).await? else { return Ok(None) };
        let holders = Holders { owner, wallet: wallet.filter(|wallet| *wallet != owner) };
        self.source.ask_holders(date, holders, (digest, signature)).await.map(Some)
    }
}
