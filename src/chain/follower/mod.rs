//! Follows the chain: polls for its head and the registries' logs, and drops from the cache what may have changed.
//!
//! `tracker` decides what a head means and which logs to read, `pace` when the next poll is due, `status` is what others,
//! the log and the metrics may know. Here is the loop around them, and the only IO.

mod pace;
pub(super) mod status;
pub(super) mod tracker;

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use alloy::primitives::U64;
use futures_util::FutureExt;
use serde_json::json;

use crate::chain::agents::Agents;
use crate::chain::answer::Date;
use crate::chain::block::{Block, Log, block_call};
use crate::chain::contract_check::ContractCheck;
use crate::chain::fault::ReadError;
use crate::chain::follower::pace::Pace;
use crate::chain::follower::status::{FollowerStatus, Mode};
use crate::chain::follower::tracker::{BlockTracker, Position, Range};
use crate::chain::pool::{Answers, Call, Input};
use crate::chain::source::At;
use crate::domain::chain_settings::Lifetimes;
use crate::ports::chain::ChainFault;

/// Where no logs are to be had they are asked for again after this time, in microseconds.
const LOGS_RETRY_MICROS: u64 = 60_000_000;

/// With more requests than these in one poll everybody is dropped instead.
const LOG_REQUESTS_MAX: u32 = 32;

/// Keeps the cache in step with the chain.
#[derive(Clone)]
pub struct Follower {
    pub(super) agents: Arc<Agents>,
    pub(super) contracts: Arc<ContractCheck>,
    pub(super) status: Arc<FollowerStatus>,
    pub(super) lifetimes: Lifetimes,
}

/// The state of one task that follows.
pub(super) struct Following<'a> {
    of: &'a Follower,
    tracker: BlockTracker,
    pace: Pace,
    /// When the last poll that confirmed a head began, or the follower did.
    confirmed_micros: u64,
    /// When the last poll began that was answered, and asked for no logs.
    answered_micros: u64,
    /// Until then no logs are asked for: no node gives them.
    unlogged_until_micros: u64,
    /// The poll that is under way was refused the logs of the head alone.
    lacks_logs: bool,
    /// Since the last poll with a head that counts a node had another block at a height that was accounted for.
    saw_another: AtomicBool,
}

impl Follower {
    /// Follows the chain for as long as it is polled, and looks for the contracts beside it until all are found. After a
    /// panic what was read at the followed block serves no more.
    pub async fn follow(&self) {
        let poll = async {
            let mut following = self.begin();
            loop {
                let pause = following.poll().await;
                tokio::time::sleep(pause).await;
            }
        };
        self.lose_after(async { tokio::join!(poll, self.contracts.watch()) }).await;
    }

    pub(super) async fn lose_after<T>(&self, following: impl Future<Output = T>) -> T {
        let ended = AssertUnwindSafe(following).catch_unwind().await;
        self.agents.cache.restart(None);
        self.status.failed(None);
        self.status.enter(Mode::Lost);
        ended.unwrap_or_else(|panic| resume_unwind(panic))
    }

    pub(super) fn begin(&self) -> Following<'_> {
        Following {
            of: self,
            tracker: BlockTracker::new(),
            pace: Pace::new(self.lifetimes.poll_interval, self.lifetimes.max_staleness),
            confirmed_micros: self.agents.now(),
            answered_micros: 0,
            unlogged_until_micros: 0,
            lacks_logs: false,
            saw_another: AtomicBool::new(false),
        }
    }
}

impl Following<'_> {
    /// One poll; how long to wait after it. What it learns is as old as its first question.
    pub(super) async fn poll(&mut self) -> Duration {
        let asked = self.of.agents.now();
        self.lacks_logs = false;
        match self.try_poll(asked).await {
            Ok(Some((head, result))) => self.confirmed(result, &head, asked),
            Ok(None) => {
                self.answered_micros = asked;
                self.of.status.enter(Mode::Unlogged);
                self.of.status.answered("unlogged", asked);
                self.of.lifetimes.poll_interval
            }
            Err(fault) => {
                self.failed(&fault);
                self.of.lifetimes.poll_interval
            }
        }
    }

    fn confirmed(&mut self, result: &str, head: &Block, asked_micros: u64) -> Duration {
        self.confirmed_micros = asked_micros;
        self.of.agents.source.floor.met(date(head));
        self.of.agents.cache.confirm(asked_micros);
        self.of.status.answered(result, asked_micros);
        self.of.status.follows(head.number, head.timestamp);
        self.pace.saw(head, self.of.agents.clock.unix_millis());
        self.pace.pause(self.of.agents.clock.unix_millis())
    }

    fn failed(&mut self, fault: &ChainFault) {
        let now = self.of.agents.now();
        self.of.status.failed(fault.is_behind.then(|| fault.clone()));
        let answered_micros = if self.lacks_logs { 0 } else { self.answered_micros };
        let silent_micros = now.saturating_sub(self.confirmed_micros.max(answered_micros));
        if silent_micros < self.of.status.staleness_micros {
            return;
        }
        if std::mem::take(self.saw_another.get_mut()) && fault.is_behind {
            self.of.agents.source.floor.void();
        }
        // Whatever was accounted for by then: the next head is a beginning.
        if self.tracker.last().is_some() || self.lacks_logs {
            self.tracker.forget();
            self.of.agents.cache.restart(None);
        }
        let mode = if self.lacks_logs { Mode::Unlogged } else { Mode::Lost };
        if self.lacks_logs {
            self.unlogged_until_micros = now.saturating_add(LOGS_RETRY_MICROS);
        }
        self.of.status.stopped(mode, silent_micros, fault);
    }

    /// The head up to which everything is accounted for, and how; `None`: nodes answer, and logs were not asked for.
    async fn try_poll(&mut self, asked_micros: u64) -> Result<Option<(Block, &'static str)>, ChainFault> {
        if asked_micros < self.unlogged_until_micros {
            self.of.agents.source.prove(At::Latest).await?;
            return Ok(None);
        }
        let deadline = self.of.agents.source.pool.deadline();
        let takes_batches = AtomicBool::new(false);
        let head = match self.head(deadline, &takes_batches).await {
            // Nodes that take no batches give no logs, and answer single calls all the same.
            Err(fault) if is_refusal(&fault) && !takes_batches.into_inner() => {
                self.lacks_logs = self.of.agents.source.prove(At::Latest).await.is_ok();
                return Err(fault);
            }
            answered => answered?,
        };
        *self.saw_another.get_mut() = false;
        let mut position = self.tracker.position(&head);
        for _ in 0..LOG_REQUESTS_MAX {
            let (Position::Ahead, Some(range)) = (position, self.tracker.range(&head)) else { break };
            match self.read(&range, &head, deadline).await {
                Ok(Some((block, logs))) if self.tracker.account(&range, block, &logs) => {
                    let mut drops = self.of.agents.registries.drops(&logs);
                    self.of.agents.measures.add_drops(&logs, &mut drops);
                    let dropped = self.of.agents.cache.advance(block, &drops);
                    self.of.agents.source.floor.met(date(&block));
                    self.of.status.dropped(&dropped, drops.everybody, asked_micros);
                    position = self.tracker.position(&head);
                }
                Ok(_) => position = Position::Reorganized,
                // Fewer blocks may do.
                Err(fault) if range.from < range.to && is_refusal(&fault) => self.tracker.shrink(&range),
                // Strangers can fill a block with logs. Following begins anew behind it.
                Err(fault) if range.to < head.number && is_too_long(&fault) => break,
                Err(fault) => return Err(fault),
            }
        }
        let why = match position {
            Position::Same | Position::Behind => return Ok(Some((head, "followed"))),
            Position::Ahead | Position::First | Position::Reorganized => position,
        };
        self.begin_at(head, why, deadline).await?;
        self.of.status.restarted(why, head.number);
        Ok(Some((head, "restarted")))
    }

    /// The head of a node that is on the right chain, and not behind.
    async fn head(&self, deadline: u64, takes_batches: &AtomicBool) -> Result<Block, ChainFault> {
        let floor = self.of.agents.source.floor.now();
        let read = |answers: &mut Answers<'_>| {
            takes_batches.store(true, Ordering::Relaxed);
            self.right_chain(answers)?;
            let head: Block = answers.next()?;
            let accepted = self.of.agents.source.floor.accepts(&floor, date(&head));
            let behind = match self.tracker.last() {
                Some(last) if self.tracker.position(&head) == Position::Behind => {
                    Err(ReadError::Behind { number: head.number, newest: last.number })
                }
                Some(_) | None => Ok(()),
            };
            accepted.and(behind).inspect_err(|_| {
                let is_another = self.tracker.contradicts(head.number, head.hash);
                let is_news = is_another && !self.tracker.has_abandoned(head.hash);
                self.saw_another.fetch_or(is_news, Ordering::Relaxed);
            })?;
            Ok(head)
        };
        let calls = [chain_call(), block_call(json!("latest"))];
        self.of.agents.source.pool.ask(deadline, (&calls, Input::Ours), read).await
    }

    /// Succeeds when the next answer, which is to [`chain_call`], names the right chain.
    fn right_chain(&self, answers: &mut Answers<'_>) -> Result<(), ReadError> {
        let (reported, chain) = (answers.next::<U64>()?.to(), self.of.agents.source.pool.chain_id);
        if reported == chain { Ok(()) } else { Err(ReadError::WrongChain { reported, chain }) }
    }

    /// Begins anew at this head, when a node gives its logs.
    async fn begin_at(&mut self, head: Block, why: Position, deadline: u64) -> Result<(), ChainFault> {
        let range = Range { from: head.number, to: head.number, last: head };
        let begun = self.read(&range, &head, deadline).await;
        self.lacks_logs = begun.as_ref().is_err_and(is_refusal);
        begun?;
        self.tracker.begin(head, why == Position::Reorganized);
        self.of.agents.cache.restart(Some(head));
        Ok(())
    }

    /// The logs of a range, complete by construction: the same back end shows in one request that it has the last block, and
    /// the followed one unless that is the parent. `None`: it has another one in that one's place. The head's hash proves
    /// which chain a node is on; where the last block is another one, or following begins, the chain's id is asked for too.
    async fn read(
        &self,
        range: &Range,
        head: &Block,
        deadline: u64,
    ) -> Result<Option<(Block, Vec<Log>)>, ChainFault> {
        let Range { from, to, last } = *range;
        let is_to_head = to == head.number;
        let blocks = match from == head.number {
            true => json!({ "blockHash": head.hash }),
            false => json!({ "fromBlock": U64::from(from), "toBlock": U64::from(to) }),
        };
        let mut filters = self.of.agents.registries.log_filters(&blocks);
        filters.extend(self.of.agents.measures.log_filters(&blocks));
        let (is_beginning, is_next) = (last.number == to, is_to_head && head.parent == last.hash);
        let is_of_unknown_chain = is_beginning || !is_to_head;
        let mut calls = Vec::new();
        if is_of_unknown_chain {
            calls.push(chain_call());
        }
        calls.push(block_call(json!(U64::from(to))));
        if !is_beginning && !is_next {
            calls.push(block_call(json!(U64::from(last.number))));
        }
        calls.extend(filters.iter().map(|filter| Call { method: "eth_getLogs", params: json!([filter]) }));
        let read = |answers: &mut Answers<'_>| {
            if is_of_unknown_chain {
                self.right_chain(answers)?;
            }
            let behind = ReadError::Behind { number: last.number, newest: to };
            let mut shown = |number: u64| {
                let block: Option<Block> = answers.next()?;
                block.filter(|block| block.number == number).ok_or_else(|| behind.clone())
            };
            let block = shown(to)?;
            if is_to_head && block.hash != head.hash {
                return Err(behind);
            }
            if !is_beginning && !is_next && shown(last.number)?.hash != last.hash {
                return Ok(None);
            }
            let mut logs: Vec<Log> = Vec::new();
            for _ in &filters {
                logs.extend(answers.next::<Vec<Log>>()?);
            }
            if logs.iter().any(|log| !(from..=to).contains(&log.block_number)) {
                return Err(ReadError::Unintelligible("it has logs of other blocks than asked for"));
            }
            Ok(Some((block, logs)))
        };
        self.of.agents.source.pool.ask(deadline, (&calls, Input::Ours), read).await
    }
}

fn chain_call() -> Call {
    Call { method: "eth_chainId", params: json!([]) }
}

fn date(block: &Block) -> Date {
    Date { timestamp: block.timestamp, number: block.number }
}

/// True when an answer was longer than any may be.
fn is_too_long(fault: &ChainFault) -> bool {
    matches!(fault.cause.downcast_ref(), Some(ReadError::TooLong(_)))
}

/// True when the nodes answered that they can't or won't.
fn is_refusal(fault: &ChainFault) -> bool {
    use ReadError::{HttpStatus, NodeError, TooLong, Unintelligible};
    matches!(
        fault.cause.downcast_ref(),
        Some(NodeError { .. } | TooLong(_) | HttpStatus(_) | Unintelligible(_))
    )
}

#[cfg(feature = "dev-chain")]
#[cfg(test)]
mod tests;
