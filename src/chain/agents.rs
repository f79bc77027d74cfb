//! Reads of agents from the registries, and what the cache keeps of them. Who waits for them is `reader`'s business.

use std::sync::Arc;

use alloy::primitives::{Address, B256, Bytes};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join, join_all};
use tokio::sync::Mutex;

use crate::chain::answer::holder_signatures_call;
use crate::chain::block::Date;
use crate::chain::cache::status::Ticket;
use crate::chain::cache::{Known, ProfileCache};
use crate::chain::coalesce;
use crate::chain::fault::{ReadError, is_too_much};
use crate::chain::measures::Measures;
use crate::chain::measures::balance::TRANSFER;
use crate::chain::registries::logs::Kind;
use crate::chain::source::{At, Seen, Source, is_refused};
use crate::domain::agent_id::AgentId;
use crate::domain::holders::Holders;
use crate::domain::measure::Question as Measured;
use crate::domain::profile::TrustProfile;
use crate::domain::registries::Registries;
use crate::ports::chain::{Asked, AskedHolders, ChainFault, Parts};
use crate::ports::clock::Clock;

pub(super) type Read<T> = Result<Option<T>, ChainFault>;

/// An agent that somebody waits for.
pub(super) type Wanted = coalesce::Wanted<(AgentId, Parts), Read<Known>>;

/// How long details may take, in microseconds.
const DETAILS_MICROS: u64 = 4_000_000;

/// A question: who holds the agent; and with a digest and a signature, which of them have code and accept it. The digest zero asks
/// for code alone.
pub(super) type Question = (AgentId, Option<(B256, Bytes)>);

/// A read of agents: what was accounted for before it, and where its answer is from.
pub(super) struct ReadAgents {
    ticket: Ticket,
    pub(super) seen: Seen,
}

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

    /// The contracts whose logs are of a kind, if there are any, and the event that is asked for. A registry of reputation decides
    /// where feedback gives tiers.
    pub(super) fn logs_of(&self, kind: Kind) -> Option<(Vec<Address>, Option<B256>)> {
        let feedback: Vec<Address> =
            self.measures.contracts(|of| matches!(of, Measured::Feedback(_))).collect();
        let decides = |address: &Address| {
            let is_ours = |ours: Option<Address>| ours == Some(*address);
            is_ours(Some(self.registries.identity))
                || is_ours(self.registries.stake_vault)
                || feedback.contains(address)
        };
        let registries = self.registries.contracts().map(|(_, address)| address);
        let called = self.measures.contracts(|of| matches!(of, Measured::Call { .. }));
        let contracts: Vec<Address> = match kind {
            Kind::All => registries.chain(called).collect(),
            Kind::Deciding => registries.filter(decides).chain(called).collect(),
            Kind::Details => registries.filter(|address| !decides(address)).collect(),
            Kind::Tokens => self.measures.contracts(|of| matches!(of, Measured::Balance { .. })).collect(),
        };
        let event = (kind == Kind::Tokens).then_some(TRANSFER);
        Some((contracts, event)).filter(|(contracts, _)| !contracts.is_empty())
    }

    pub(super) fn cached(&self, agent: AgentId, parts: Parts) -> Option<Arc<TrustProfile>> {
        self.cache.get(agent, parts, self.now())
    }

    /// Reads these agents at the latest block, and answers each as its read comes: in one call, and each by itself where that may
    /// help.
    pub(super) fn read(self: Arc<Self>, wanted: Vec<Wanted>) -> BoxFuture<'static, ()> {
        async move {
            let ids: Vec<AgentId> = wanted.iter().map(|one| one.key.0).collect();
            let nobody = Holders::owned_by(Address::ZERO);
            let calls = |agent: &AgentId| {
                self.registries.gate_calls(*agent).len() + self.measures.calls(*agent, nobody).count()
            };
            let most = self.source.agents_max(ids.first().map_or(0, calls));
            if wanted.len() > most.max(1) {
                let mut wanted = wanted;
                let rest = wanted.split_off(wanted.len() / 2);
                join(Arc::clone(&self).read(wanted), self.read(rest)).await;
                return;
            }
            let ticket = self.cache.begin(self.now());
            let until = self.source.pool.deadline();
            match self.graded(&ids, At::Latest(ticket.followed), until).await {
                Ok((seen, profiles)) => {
                    let read = ReadAgents { ticket, seen };
                    let mut whole = Vec::new();
                    for (one, profile) in wanted.into_iter().zip(profiles) {
                        let (agent, parts) = one.key;
                        match profile {
                            Ok(None) => {
                                self.cache.forget(agent);
                                one.answer(Ok(None));
                            }
                            Ok(Some(profile)) if parts == Parts::Gate => {
                                self.keep(one, &read, profile, None);
                            }
                            Ok(Some(profile)) => match self.cache.lacking(agent, self.now()) {
                                Some(fault) => {
                                    let bare = (Arc::new(profile), None);
                                    self.cache.keep(agent, &read.ticket, &bare, read.seen.at);
                                    one.answer(Ok(Some((bare.0, Some(fault)))));
                                }
                                None => whole.push((one, profile)),
                            },
                            Err(fault) => one.answer(Err(fault)),
                        }
                    }
                    self.read_details(whole, &read, until.min(self.now() + DETAILS_MICROS)).await;
                }
                Err(fault) if wanted.len() > 1 && self.may_help_alone(&fault) => {
                    let alone = |one| Arc::clone(&self).read(vec![one]);
                    join_all(wanted.into_iter().map(alone)).await;
                }
                Err(fault) => wanted.into_iter().for_each(|one| one.answer(Err(fault.clone()))),
            }
        }
        .boxed()
    }

    /// True if each of several agents may be read by itself: the fault may lie in one of them, or it took too long while a node was
    /// well. One that is down or limits calls would get only more of them.
    pub(super) fn may_help_alone(&self, fault: &ChainFault) -> bool {
        let is_slow = matches!(fault.cause.downcast_ref(), Some(ReadError::Timeout(_)));
        is_too_much(fault) || (is_slow && self.cache.is_in_touch(self.now()))
    }

    /// Keeps what was read of an agent, and answers who waits for it.
    pub(super) fn keep(
        &self,
        one: Wanted,
        read: &ReadAgents,
        profile: TrustProfile,
        fault: Option<ChainFault>,
    ) {
        let known = (Arc::new(profile), fault.map(Arc::new));
        self.cache.keep(one.key.0, &read.ticket, &known, read.seen.at);
        one.answer(Ok(Some(known)));
    }

    /// The holders at the latest block.
    async fn holders(&self, agent: AgentId) -> Result<(Date, Option<Holders>), ChainFault> {
        let calls = self.registries.holder_calls(agent);
        let decode = |results: Vec<_>| self.registries.read_holders(agent, &mut results.into_iter());
        let (seen, holders) = self.source.read_latest(&calls, decode).await?;
        Ok((seen.at.date, holders))
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
        let latest = (At::Latest(None), self.source.pool.deadline());
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
