//! Reads of agents from the registries, and what the cache keeps of them. Who waits for them is `reader`'s business.
//!
//! All that decides who passes is read first. Of it a balance is one of the agent's holders, who are not known before they are
//! read. So those of before are asked about, in the same call, and where others hold the agent by then, these are asked about at the
//! same block: all that decides is from one. Feedback is read after that, at that block.
//!
//! Strangers write most of the details. They are read apart, at the same block: a read of theirs that fails, or takes long, costs an
//! agent its details alone.

use std::{iter::once, sync::Arc, time::Duration};

use alloy::primitives::{Address, B256, Bytes, U64, U256};
use alloy::sol_types::SolCall;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either, join, join_all};
use serde_json::json;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::chain::block::{Block, Date, ReadAt, block_call, is_of};
use crate::chain::cache::{CachedProfile, ProfileCache, Ticket};
use crate::chain::dated::{Answer, At, Call3, StateReader, eth_call, holder_signatures_call, is_refused};
use crate::chain::fault::{ReadError, ReadFault};
use crate::chain::measures::{Measures, Sum, TRANSFER, feedback_code, higher, score, sums};
use crate::chain::pool::{Answers, Call, Input};
use crate::chain::registries::calls::{is_consent, isValidSignatureCall};
use crate::chain::registries::erc8004::{DetailsRead, Response, evidence, response_filter};
use crate::chain::{registries::logs::Kind, single_flight};
use crate::domain::{AgentId, Details, Feedback, Holders, Question, Registries, TrustProfile};
use crate::ports::{Asked, AskedHolders, Clock, Parts};

pub(super) type Read<T> = Result<Option<T>, ReadFault>;

/// An agent that somebody waits for.
pub(super) type WantedAgent = single_flight::Wanted<(AgentId, Parts), Read<CachedProfile>>;

/// A question: who holds the agent; and with a digest and a signature, which of them have code and accept it. The digest zero asks for code
/// alone.
pub(super) type HoldersQuestion = (AgentId, Option<(B256, Bytes)>);

/// A question about holders that somebody waits for the answer to.
pub(super) type WantedHolders = single_flight::Wanted<HoldersQuestion, Read<AskedHolders>>;

/// A read: what was accounted for before it, and the block of its answer.
type Begun = (Ticket, ReadAt);

/// How long details may take, in microseconds.
const DETAILS_MICROS: u64 = 4_000_000;

/// Where no node gives logs of long ago they are asked for again after this time, in microseconds.
const HISTORY_RETRY_MICROS: u64 = 600_000_000;

/// A time-out counts against all nodes where so much time was left for the logs, in microseconds.
const HISTORY_TIME_MICROS: u64 = 1_000_000;

/// An agent that there is not, and so without logs.
const NOBODY: AgentId = AgentId::new(U256::MAX);

/// The most gas that a wallet may burn that is asked by a call of its own, its 4 KiB of signature included. See
/// `contracts/HolderSignatures.sol`.
const WALLET_GAS_MAX: u64 = 2_100_000;

/// The agents of the registries.
pub(super) struct Agents {
    pub(super) registries: Registries,
    pub(super) measures: Measures,
    pub(super) state: StateReader,
    pub(super) cache: Arc<ProfileCache>,
    pub(super) clock: Arc<dyn Clock>,
    /// Logs of long ago are asked for one at a time, since their answers may be long, and not before this time.
    pub(super) history_retry_micros: Mutex<u64>,
}

impl Agents {
    pub(super) fn now(&self) -> u64 {
        self.clock.monotonic_micros()
    }

    /// The contracts whose logs are of a kind, if there are any, and the event that is asked for.
    pub(super) fn logs_of(&self, kind: Kind) -> Option<(Vec<Address>, Option<B256>)> {
        let called = self.measures.contracts(|of| matches!(of, Question::Call { .. }));
        let tokens = self.measures.contracts(|of| matches!(of, Question::Balance { .. }));
        let registries = self.registries.contracts().map(|(_, address)| address);
        let (contracts, event): (Vec<Address>, _) = match kind {
            Kind::All => (registries.chain(called).collect(), None),
            Kind::Tokens => (tokens.collect(), Some(TRANSFER)),
        };
        Some((contracts, event)).filter(|(contracts, _)| !contracts.is_empty())
    }

    /// Reads these agents at the latest block, and answers each as its read comes: in one call, and each by itself where that may
    /// help.
    pub(super) fn read(self: Arc<Self>, mut wanted: Vec<WantedAgent>) -> BoxFuture<'static, ()> {
        async move {
            let ids: Vec<AgentId> = wanted.iter().map(|one| one.key.0).collect();
            if wanted.len() > self.group_max() {
                let rest = wanted.split_off(wanted.len() / 2);
                join(Arc::clone(&self).read(wanted), self.read(rest)).await;
                return;
            }
            let ticket = self.cache.begin(self.now());
            let until = self.state.pool.deadline();
            match self.graded(&ids, ticket.followed, until).await {
                Ok((at, profiles)) => {
                    let read = (ticket, at);
                    let mut whole = Vec::new();
                    for (one, profile) in wanted.into_iter().zip(profiles) {
                        match profile {
                            Ok(Some(profile)) if one.key.1 == Parts::Whole => {
                                match self.cache.lacking(one.key.0, self.now()) {
                                    Some(fault) => self.keep(one, read, profile, (None, Some(fault))),
                                    None => whole.push((one, profile)),
                                }
                            }
                            Ok(Some(profile)) => self.keep(one, read, profile, (None, None)),
                            Ok(None) => {
                                self.cache.forget(one.key.0);
                                one.answer(Ok(None));
                            }
                            Err(fault) => one.answer(Err(fault)),
                        }
                    }
                    self.read_details(whole, read, until.min(self.now() + DETAILS_MICROS)).await;
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
    fn may_help_alone(&self, fault: &ReadFault) -> bool {
        let is_slow = matches!(*fault.error, ReadError::Timeout(_));
        fault.error.is_too_much() || (is_slow && self.state.pool.is_answered())
    }

    /// Keeps what was read of an agent, and answers who waits for it. A fault of a read before is not kept once more.
    fn keep(
        &self,
        one: WantedAgent,
        (ticket, at): Begun,
        profile: TrustProfile,
        (fault, before): (Option<ReadFault>, Option<Arc<ReadFault>>),
    ) {
        let (profile, fault) = (Arc::new(profile), fault.map(Arc::new));
        self.cache.keep(one.key.0, &ticket, &(Arc::clone(&profile), fault.clone()), at);
        one.answer(Ok(Some((profile, before.or(fault)))));
    }

    /// How many agents go with one call.
    pub(super) fn group_max(&self) -> usize {
        let any = (AgentId::new(U256::ZERO), Holders::owned_by(Address::ZERO));
        self.state.agents_max(self.gate_calls(any.0, any.1).count())
    }

    fn gate_calls(&self, agent: AgentId, holders: Holders) -> impl Iterator<Item = Call3> {
        self.registries.gate_calls(agent).into_iter().chain(self.measures.calls(agent, holders))
    }

    /// Reads all that decides but feedback. Of balances it asks for those of these holders.
    async fn gates(
        &self,
        agents: &[AgentId],
        asked: &[Holders],
        (at, until): (At, u64),
    ) -> Result<(Answer, Vec<Read<TrustProfile>>), ReadFault> {
        let input = if agents.len() > 1 { Input::Group } else { Input::Ours };
        let calls = agents.iter().zip(asked).flat_map(|(agent, of)| self.gate_calls(*agent, *of));
        let answer = self.state.read((at, input), until, &calls.collect::<Vec<_>>()).await?;
        let profiles = answer.each(agents.iter().zip(asked), |(agent, asked), results| {
            self.measures.grade(self.registries.read_gate(*agent, results)?, *asked, results)
        });
        Ok((answer, profiles))
    }

    /// Reads what decides of these agents at the latest block, each with what went wrong with it alone.
    pub(super) async fn graded(
        &self,
        agents: &[AgentId],
        followed: Option<Block>,
        until: u64,
    ) -> Result<(ReadAt, Vec<Read<TrustProfile>>), ReadFault> {
        let nobody = Holders::owned_by(Address::ZERO);
        let known = agents.iter().map(|agent| self.cache.last_holders(*agent).unwrap_or(nobody));
        let known: Vec<Holders> = known.collect();
        let (answer, mut profiles) = self.gates(agents, &known, (At::Latest(followed), until)).await?;
        let found = known.iter().zip(&profiles).map(|(known, read)| match read {
            Ok(Some(profile)) => profile.holders,
            Ok(None) | Err(_) => *known,
        });
        let found: Vec<Holders> = found.collect();
        if found != known && self.measures.are_of_holders() {
            (_, profiles) = self.gates(agents, &found, (At::Dated(answer.at.date), until)).await?;
        }
        for (measure, of, place) in self.measures.feedback() {
            let minted = agents.iter().zip(&profiles);
            let minted = minted.filter(|(_, profile)| matches!(profile, Ok(Some(_))));
            let minted: Vec<AgentId> = minted.map(|(agent, _)| *agent).collect();
            let sums = self.sums((measure.contract, of), &minted, (At::Dated(answer.at.date), until)).await?;
            let read = profiles.iter_mut().filter(|read| matches!(read, Ok(Some(_))));
            for (read, sum) in read.zip(sums) {
                match (sum, read) {
                    (Ok(sum), Ok(Some(profile))) => {
                        let tier = measure.tier_of(score(&sum, of.average_over));
                        profile.measured = higher(profile.measured, (tier, place));
                    }
                    (Ok(_), _) => {}
                    (Err(fault), read) => *read = Err(fault),
                }
            }
        }
        Ok((answer.at, profiles))
    }

    /// The sums of feedback of all these agents, each with what went wrong with it alone: in as many calls as their gas takes.
    async fn sums(
        &self,
        (reputation, of): (Address, &Feedback),
        agents: &[AgentId],
        (at, until): (At, u64),
    ) -> Result<Vec<Result<Sum, ReadFault>>, ReadFault> {
        let (mut all, mut most) = (Vec::new(), agents.len());
        while let Some(rest @ [_, ..]) = agents.get(all.len()..) {
            let some = rest.get(..most).unwrap_or(rest);
            match self.state.create((at, until), &feedback_code(reputation, of, some), 0).await {
                Ok(answer) => match sums(&answer.results) {
                    Ok(sums) => all.extend(sums.into_iter().map(Ok)),
                    // It had all the gas.
                    Err(error @ ReadError::Reverted(_)) => all.push(Err(answer.fault(error))),
                    Err(error) => return Err(answer.fault(error)),
                },
                Err(fault) if some.len() > 1 && fault.error.is_too_much() => most = some.len() / 2,
                // Those that were read need not be late too.
                Err(fault) if !all.is_empty() && self.now() >= until => {
                    all.resize(agents.len(), Err(fault));
                }
                Err(fault) => return Err(fault),
            }
        }
        Ok(all)
    }

    /// Reads the details of these agents at the block of an answer, and answers each as its read comes: in one call, and each by
    /// itself where that may help.
    fn read_details(
        &self,
        wanted: Vec<(WantedAgent, TrustProfile)>,
        read: Begun,
        until: u64,
    ) -> BoxFuture<'_, ()> {
        async move {
            let agents: Vec<AgentId> = wanted.iter().map(|(one, _)| one.key.0).collect();
            let is_alone = agents.len() == 1;
            // The rest of the time is for each alone.
            let now = self.now();
            let share = if is_alone { until } else { now + until.saturating_sub(now) * 3 / 4 };
            let details = match self.details(&agents, read.1.date, share).await {
                Ok(all) => all,
                Err(fault) => vec![Err(fault); agents.len()],
            };
            let single_reads = wanted.into_iter().zip(details).map(async |((one, mut profile), details)| {
                let may_help_alone = match &details {
                    // It had too small a share of the gas.
                    Ok(details) => details.ran_out,
                    Err(fault) => self.may_help_alone(fault),
                };
                if may_help_alone && !is_alone {
                    return self.read_details(vec![(one, profile)], read, until).await;
                }
                let details = match details {
                    Ok(details) => self.with_evidence(one.key.0, details, read.1.date, until).await,
                    Err(fault) => Err(fault),
                };
                let (ticket, mut at) = read;
                let fault = match details {
                    Ok((details, is_final)) => {
                        profile.details = Some(details);
                        at.is_followed &= is_final;
                        None
                    }
                    Err(fault) => {
                        Some(ReadFault { error: Arc::new(ReadError::NoDetails(fault.error)), ..fault })
                    }
                };
                self.keep(one, (ticket, at), profile, (fault, None));
            });
            join_all(single_reads).await;
        }
        .boxed()
    }

    /// The details of these agents at a block, each with what went wrong with it alone.
    async fn details(
        &self,
        agents: &[AgentId],
        date: Date,
        until: u64,
    ) -> Result<Vec<Result<DetailsRead, ReadFault>>, ReadFault> {
        if agents.is_empty() {
            return Ok(Vec::new());
        }
        let at = At::Dated(date);
        let answer: Answer = match self.registries.details_calls(agents) {
            Either::Left(calls) => self.state.read((at, Input::Strangers), until, &calls).await?,
            Either::Right(code) => self.state.create((at, until), &code, agents.len()).await?,
        };
        Ok(answer.each(agents.iter(), |_, results| self.registries.read_details(results)))
    }

    /// The details with the evidence of the latest validation, where a node has the log of it. False where another try may bring it:
    /// there was no time, or no connection. Fails where nodes have another block by now, or do not have this one yet.
    async fn with_evidence(
        &self,
        agent: AgentId,
        DetailsRead { mut details, latest, .. }: DetailsRead,
        date: Date,
        until: u64,
    ) -> Result<(Details, bool), ReadFault> {
        let (Some(latest), Some(found)) = (latest, &mut details.validation.latest) else {
            return Ok((details, true));
        };
        let left = Duration::from_micros(until.saturating_sub(self.now()));
        let Ok(mut retry_micros) = timeout(left, self.history_retry_micros.lock()).await else {
            return Ok((details, false));
        };
        let due = self.registries.validation.filter(|_| self.now() >= *retry_micros);
        let Some(validation) = due else { return Ok((details, true)) };
        let number = json!(U64::from(date.number));
        let ask = async |agent| {
            let filter = response_filter(validation, agent, latest, number.clone());
            let calls = [block_call(number.clone()), Call { method: "eth_getLogs", params: json!([filter]) }];
            let read = |answers: &mut Answers<'_>| {
                // A node that is behind may lack the last log.
                is_of(answers, date)?;
                answers.next::<Vec<Response>>()
            };
            self.state.pool.ask(until, (&calls, Input::Strangers), read).await
        };
        let has_time = until.saturating_sub(self.now()) >= HISTORY_TIME_MICROS;
        let (is_for_all, is_final) = match ask(agent).await {
            Ok(logs) => {
                found.evidence = evidence(latest, &logs).unwrap_or_default();
                (false, true)
            }
            Err(fault) if matches!(*fault.error, ReadError::OtherBlock(_)) => return Err(fault),
            // Of one agent there may be too many.
            Err(fault) if fault.error.is_refusal() => {
                (ask(NOBODY).await.is_err_and(|fault| fault.error.is_refusal()), true)
            }
            // A node that is down, slow or limits calls would be asked for each agent again and again.
            Err(fault) => {
                use ReadError::{HttpStatus, RateLimited, Timeout};
                let gives_none = matches!(*fault.error, Timeout(_) | RateLimited(_) | HttpStatus(_));
                (has_time && gives_none, has_time && gives_none)
            }
        };
        if is_for_all {
            *retry_micros = self.now() + HISTORY_RETRY_MICROS;
        }
        Ok((details, is_final))
    }

    /// The holders at the latest block.
    async fn holders(&self, agent: AgentId) -> Result<(Date, Option<Holders>), ReadFault> {
        let calls = self.registries.holder_calls(agent);
        let answer = self.state.read_latest(&calls).await?;
        let holders = self.registries.read_holders(agent, &mut answer.results.iter().cloned());
        Ok((answer.at.date, holders.map_err(|error| answer.fault(error))?))
    }

    /// Answers these questions about holders.
    pub(super) fn answer(self: Arc<Self>, wanted: Vec<WantedHolders>) -> BoxFuture<'static, ()> {
        async move {
            for one in wanted {
                let answer = self.ask_holders(&one.key).await;
                one.answer(answer);
            }
        }
        .boxed()
    }

    async fn ask_holders(&self, (agent, signed): &HoldersQuestion) -> Read<AskedHolders> {
        let Some((digest, signature)) = signed else {
            let unasked = |address| Asked { address, has_code: false, accepts: false };
            let (_, holders) = self.holders(*agent).await?;
            return Ok(holders.map(|Holders { owner, wallet }| AskedHolders {
                owner: unasked(owner),
                wallet: wallet.map(unasked),
            }));
        };
        let registry = (self.registries.identity, self.registries.has_wallets());
        let code = holder_signatures_call(registry, agent.token_id(), *digest, signature);
        let latest = (At::Latest(None), self.state.pool.deadline());
        match self.state.create(latest, &code, 0).await {
            // A stranger's signature may be what an ordinary node fails at.
            Err(fault) if is_refused(&fault) && self.state.try_creation().await.is_err() => {}
            Err(fault) => return Err(fault),
            Ok(answer) => {
                let asked = self.registries.read_asked_holders(*agent, &answer.results);
                return asked.map_err(|error| answer.fault(error));
            }
        }
        let (date, Some(Holders { owner, wallet })) = self.holders(*agent).await? else { return Ok(None) };
        let holders = Holders { owner, wallet: wallet.filter(|wallet| *wallet != owner) };
        self.ask_each_holder(date, holders, (*digest, signature.clone())).await.map(Some)
    }

    /// Which of these holders have code and accept a signature, at the block of the answer that named them, by calls with `to`: for
    /// nodes that run no creation. With the digest zero nobody is asked.
    async fn ask_each_holder(
        &self,
        date: Date,
        holders: Holders,
        (digest, signature): (B256, Bytes),
    ) -> Result<AskedHolders, ReadFault> {
        let number = json!(U64::from(date.number));
        let question = Bytes::from(isValidSignatureCall { hash: digest, signature }.abi_encode());
        let gas = self.state.gas(Input::Strangers).min(WALLET_GAS_MAX);
        let mut calls = vec![block_call(number.clone())];
        for account in once(&holders.owner).chain(&holders.wallet) {
            calls.push(Call { method: "eth_getCode", params: json!([account, number]) });
            let call = eth_call(Some(*account), &question, gas, &number);
            calls.extend((!digest.is_zero()).then_some(call));
        }
        let asked = |answers: &mut Answers<'_>, address: Address| {
            let has_code = !answers.next::<Bytes>()?.is_empty();
            let word = if digest.is_zero() { Ok(Bytes::new()) } else { answers.next() };
            let accepts = match word {
                // Its code was there to be read: the wallet reverted, or burnt its gas, which nodes say by many codes.
                Err(ReadError::NodeError { .. }) => false,
                word => has_code && is_consent(word?.get(..32).unwrap_or_default()),
            };
            Ok(Asked { address, has_code, accepts })
        };
        let read = |answers: &mut Answers<'_>| {
            is_of(answers, date)?;
            let owner = asked(answers, holders.owner)?;
            let wallet = holders.wallet.map(|wallet| asked(answers, wallet)).transpose()?;
            Ok(AskedHolders { owner, wallet })
        };
        self.state.pool.ask(self.state.pool.deadline(), (&calls, Input::Strangers), read).await
    }
}
