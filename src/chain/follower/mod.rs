//! Follows the chain: polls for its head and the registries' logs, and drops from the cache what may have changed.
//!
//! `tracker` decides what a head means and which logs to read, `pace` when the next poll is due, `status` is what others
//! may know, `report` tells the log and the metrics. Here is the loop around them, and the only IO.

mod pace;
mod report;
pub(super) mod status;
pub(super) mod tracker;

use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::{Address, U64};
use serde_json::{Value, json};

use crate::chain::answer::{Date, SharedFloor};
use crate::chain::block::{Block, Log, read_block, read_logs};
use crate::chain::cache::ProfileCache;
use crate::chain::contract_check::ContractCheck;
use crate::chain::fault::ReadError;
use crate::chain::follower::pace::Pace;
use crate::chain::follower::report::Report;
use crate::chain::follower::status::{FollowerStatus, Mode};
use crate::chain::follower::tracker::{BlockTracker, Position, Range};
use crate::chain::pool::{Call, Deadline, Lane, Node, NodeAnswer, Pool, Terms, chain_id_call, read_chain_id};
use crate::ports::chain::ChainFault;
use crate::ports::clock::Clock;
use crate::telemetry::metrics::Metrics;

/// How long one poll may take.
const POLL_TIME_MAX: Duration = Duration::from_secs(6);

/// Where no logs are to be had they are asked for again after this time, in microseconds.
const LOGS_RETRY_MICROS: u64 = 60_000_000;

/// With more requests than these in one poll everybody is dropped instead.
const LOG_REQUESTS_MAX: u32 = 32;

/// Keeps the cache in step with the chain.
pub struct Follower {
    pub(super) pool: Arc<Pool>,
    pub(super) floor: Arc<SharedFloor>,
    pub(super) cache: Arc<ProfileCache>,
    pub(super) status: Arc<FollowerStatus>,
    pub(super) contracts: Arc<ContractCheck>,
    /// The registries, whose logs are followed.
    pub(super) registries: Vec<Address>,
    /// The organization registry, if there is one.
    pub(super) organizations: Option<Address>,
    pub(super) poll_interval: Duration,
    pub(super) max_staleness: Duration,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Metrics,
}

/// The state of one task that follows.
pub(super) struct Following<'a> {
    of: &'a Follower,
    tracker: BlockTracker,
    pace: Pace,
    report: Report,
    /// When the last poll that confirmed a head began, or the follower did.
    confirmed_micros: u64,
    /// Until then no logs are asked for: no node gives them.
    unlogged_until_micros: u64,
    /// The poll that is under way was refused the logs of the head alone.
    lacks_logs: bool,
}

/// A poll's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Polled {
    /// Everything up to the head is accounted for.
    Followed(Block),
    /// The follower began anew at the head.
    Restarted(Block, Position),
    /// Nodes answer; logs were not asked for.
    Unlogged,
}

/// What a request for logs came to.
enum LogsRead {
    Logs(Block, Vec<Log>),
    Reorganized,
    TooMany,
}

impl Follower {
    /// Follows the chain for as long as it is polled, and looks for the contracts beside it until all are found.
    pub async fn follow(&self) {
        tokio::join!(self.poll_on(), self.contracts.watch());
    }

    async fn poll_on(&self) {
        let mut following = self.begin();
        loop {
            let pause = following.poll().await;
            tokio::time::sleep(pause).await;
        }
    }

    /// To be called when following has ended by itself: nothing is served on its word, and everybody is told so.
    pub fn lose(&self) {
        self.cache.lose_touch();
        self.status.failed(None);
        Report::new(&self.metrics, Arc::clone(&self.status)).enter(Mode::Lost);
    }

    pub(super) fn begin(&self) -> Following<'_> {
        Following {
            of: self,
            tracker: BlockTracker::new(self.organizations),
            pace: Pace::new(self.poll_interval, self.max_staleness),
            report: Report::new(&self.metrics, Arc::clone(&self.status)),
            confirmed_micros: self.clock.monotonic_micros(),
            unlogged_until_micros: 0,
            lacks_logs: false,
        }
    }
}

impl Following<'_> {
    /// One poll; how long to wait after it. What it learns is as old as its first question.
    pub(super) async fn poll(&mut self) -> Duration {
        let asked = self.of.clock.monotonic_micros();
        self.lacks_logs = false;
        let polled = self.try_poll(asked).await;
        let now = self.of.clock.monotonic_micros();
        match polled {
            Ok(Polled::Followed(head)) => self.confirmed("followed", &head, asked),
            Ok(Polled::Restarted(head, why)) => {
                self.report.restarted(why, head.number);
                self.confirmed("restarted", &head, asked);
            }
            Ok(Polled::Unlogged) => {
                self.report.polled("unlogged");
                self.of.status.answered(asked);
                return self.of.poll_interval;
            }
            Err(fault) => {
                self.failed(&fault, now);
                return self.of.poll_interval;
            }
        }
        self.pace.pause(self.of.clock.unix_millis())
    }

    fn confirmed(&mut self, result: &str, head: &Block, asked_micros: u64) {
        self.confirmed_micros = asked_micros;
        self.of.floor.met(date(head));
        self.of.cache.confirm(asked_micros);
        self.of.status.answered(asked_micros);
        self.pace.saw(head, self.of.clock.unix_millis());
        self.report.polled(result);
        self.report.follows(head.number, head.timestamp);
    }

    fn failed(&mut self, fault: &ChainFault, now_micros: u64) {
        let is_behind = matches!(fault.cause.downcast_ref(), Some(ReadError::Behind { .. }));
        self.report.polled(if is_behind { "behind" } else { "failed" });
        self.of.status.failed(is_behind.then(|| fault.clone()));
        let silent_micros = now_micros.saturating_sub(self.confirmed_micros);
        if silent_micros < self.of.status.staleness_micros() {
            return;
        }
        // Whatever was accounted for by then: the next head is a beginning.
        if self.tracker.last().is_some() || self.lacks_logs {
            self.tracker.forget();
            self.of.cache.lose_touch();
        }
        if self.lacks_logs {
            self.unlogged_until_micros = now_micros.saturating_add(LOGS_RETRY_MICROS);
            self.report.unlogged(fault);
        } else {
            self.report.lost(silent_micros, fault);
        }
    }

    async fn try_poll(&mut self, asked_micros: u64) -> Result<Polled, ChainFault> {
        let deadline = Deadline::after(asked_micros, POLL_TIME_MAX);
        let chain = self.of.pool.chain_id().await?;
        let head = self.head(deadline).await?;
        if asked_micros < self.unlogged_until_micros {
            self.of.floor.met(date(&head));
            return Ok(Polled::Unlogged);
        }
        for _ in 0..LOG_REQUESTS_MAX {
            let position = self.tracker.position(&head);
            let range = match position {
                Position::Ahead => self.tracker.range(&head),
                Position::Same | Position::Behind => return Ok(Polled::Followed(head)),
                Position::First | Position::Reorganized | Position::Gap => None,
            };
            let Some(range) = range else { return self.begin_at(head, position, chain, deadline).await };
            match self.read(&range, &head, deadline).await? {
                LogsRead::TooMany => self.tracker.shrink(&range),
                LogsRead::Reorganized => {
                    return self.begin_at(head, Position::Reorganized, chain, deadline).await;
                }
                LogsRead::Logs(block, logs) => match self.tracker.account(&range, block, &logs) {
                    Some(drops) => {
                        self.of.cache.advance(block, &drops);
                        self.of.floor.met(date(&block));
                        self.report.dropped(&drops, asked_micros);
                    }
                    None => return self.begin_at(head, Position::Reorganized, chain, deadline).await,
                },
            }
        }
        self.begin_at(head, Position::Gap, chain, deadline).await
    }

    /// The head of a node that is not behind.
    async fn head(&self, deadline: Deadline) -> Result<Block, ChainFault> {
        let floor = self.of.floor.begin();
        let read = |node: &Node, answers: Vec<NodeAnswer>| {
            let head = read_block(&result(node, answers.into_iter().next())?)?;
            let head = head.ok_or(ReadError::Unintelligible("it has no latest block"))?;
            match self.tracker.position(&head) {
                Position::Behind => {
                    let newest = self.tracker.last().map_or(0, |last| last.number);
                    Err(ReadError::Behind { number: head.number, newest })
                }
                // What is known is of a chain that is no more.
                Position::Reorganized => floor.accepts_time(date(&head)).map(|()| head),
                Position::First | Position::Same | Position::Ahead | Position::Gap => {
                    floor.accepts(date(&head)).map(|()| head)
                }
            }
        };
        self.ask(&[block_call(json!("latest"))], (deadline, true), read).await
    }

    /// Begins anew at this head, when its node is on the right chain and gives logs.
    async fn begin_at(
        &mut self,
        head: Block,
        why: Position,
        chain: u64,
        deadline: Deadline,
    ) -> Result<Polled, ChainFault> {
        let shown = block_call(json!(U64::from(head.number)));
        let calls = [chain_id_call(), shown, self.logs_call(json!({ "blockHash": head.hash }))];
        let read = |node: &Node, answers: Vec<NodeAnswer>| {
            let mut answers = answers.into_iter();
            let reported = read_chain_id(node, answers.next().ok_or(MISSING)?)?;
            if reported != chain {
                return Err(ReadError::WrongChain { reported, chain });
            }
            shows(&head, node, answers.next())?;
            read_logs(&result(node, answers.next())?, head.number, head.number).map(drop)
        };
        let begun = self.ask(&calls, (deadline, false), read).await;
        self.lacks_logs = begun.as_ref().is_err_and(is_refusal);
        begun?;
        if why == Position::Reorganized {
            self.tracker.reorganize(head);
        } else {
            self.tracker.begin(head);
        }
        self.of.cache.restart(head);
        if why == Position::Reorganized {
            self.of.floor.reset(date(&head));
        } else {
            self.of.floor.met(date(&head));
        }
        Ok(Polled::Restarted(head, why))
    }

    /// The logs of a range, complete by construction: the same back end shows in a batch that it has the last block, and the
    /// followed one.
    async fn read(&self, range: &Range, head: &Block, deadline: Deadline) -> Result<LogsRead, ChainFault> {
        if range.is_single() {
            return self.read_single(range, head, deadline).await;
        }
        let Range { from, to, last } = *range;
        let mut calls = vec![
            block_call(json!(U64::from(to))),
            self.logs_call(json!({ "fromBlock": U64::from(from), "toBlock": U64::from(to) })),
        ];
        // The next block names the followed one as its parent.
        let is_next = to == last.number + 1;
        if !is_next {
            calls.insert(1, block_call(json!(U64::from(last.number))));
        }
        let read = |node: &Node, answers: Vec<NodeAnswer>| {
            let mut answers = answers.into_iter();
            let block = read_block(&result(node, answers.next())?)?;
            let behind = || ReadError::Behind { number: last.number, newest: to };
            let block = block.filter(|block| block.number == to).ok_or_else(behind)?;
            let ours = if is_next {
                block.parent
            } else {
                let ours = read_block(&result(node, answers.next())?)?;
                ours.filter(|ours| ours.number == last.number).ok_or_else(behind)?.hash
            };
            if ours != last.hash {
                return Ok(LogsRead::Reorganized);
            }
            if to == head.number && block.hash != head.hash {
                return Err(behind());
            }
            match answers.next() {
                Some(Ok(logs)) => read_logs(logs.get(), from, to).map(|logs| LogsRead::Logs(block, logs)),
                Some(Err(_)) | None => Ok(LogsRead::TooMany),
            }
        };
        match self.ask(&calls, (deadline, false), read).await {
            Err(fault) if is_refusal(&fault) => Ok(LogsRead::TooMany),
            read => read,
        }
    }

    async fn read_single(
        &self,
        range: &Range,
        head: &Block,
        deadline: Deadline,
    ) -> Result<LogsRead, ChainFault> {
        let Range { to, last, .. } = *range;
        let block = if to == head.number { *head } else { self.block(to, deadline).await? };
        if block.parent != last.hash {
            return Ok(LogsRead::Reorganized);
        }
        let calls = [block_call(json!(U64::from(to))), self.logs_call(json!({ "blockHash": block.hash }))];
        let read = |node: &Node, answers: Vec<NodeAnswer>| {
            let mut answers = answers.into_iter();
            shows(&block, node, answers.next())?;
            read_logs(&result(node, answers.next())?, to, to)
        };
        self.ask(&calls, (deadline, false), read).await.map(|logs| LogsRead::Logs(block, logs))
    }

    async fn block(&self, number: u64, deadline: Deadline) -> Result<Block, ChainFault> {
        let read = |node: &Node, answers: Vec<NodeAnswer>| {
            let block = read_block(&result(node, answers.into_iter().next())?)?;
            let behind = ReadError::Behind { number: number.saturating_sub(1), newest: number };
            block.filter(|block| block.number == number).ok_or(behind)
        };
        self.ask(&[block_call(json!(U64::from(number)))], (deadline, true), read).await
    }

    async fn ask<T>(
        &self,
        calls: &[Call],
        (deadline, is_simple): (Deadline, bool),
        read: impl Fn(&Node, Vec<NodeAnswer>) -> Result<T, ReadError>,
    ) -> Result<T, ChainFault> {
        self.of.pool.ask(&Terms { lane: Lane::Known, deadline, is_simple }, calls, read).await
    }

    fn logs_call(&self, mut filter: Value) -> Call {
        if let Some(filter) = filter.as_object_mut() {
            filter.insert("address".to_owned(), json!(self.of.registries));
        }
        Call { method: "eth_getLogs", params: json!([filter]) }
    }
}

const MISSING: ReadError = ReadError::Unintelligible("it does not answer every call");

fn block_call(block: Value) -> Call {
    Call { method: "eth_getBlockByNumber", params: json!([block, false]) }
}

fn date(block: &Block) -> Date {
    Date { number: block.number, timestamp: block.timestamp }
}

/// Fails when a node that answers does not have this block: it is behind.
fn shows(block: &Block, node: &Node, answer: Option<NodeAnswer>) -> Result<(), ReadError> {
    let Block { number, hash, .. } = *block;
    let shown = read_block(&result(node, answer)?)?.filter(|shown| shown.hash == hash);
    shown.map(drop).ok_or(ReadError::Behind { number: number.saturating_sub(1), newest: number })
}

/// The JSON of an answer that must be no error.
fn result(node: &Node, answer: Option<NodeAnswer>) -> Result<String, ReadError> {
    let answer = answer.ok_or(MISSING)?;
    answer.map(|result| result.get().to_owned()).map_err(|error| node.error(&error))
}

/// True when the nodes answered that they can't or won't: fewer blocks may do.
fn is_refusal(fault: &ChainFault) -> bool {
    matches!(
        fault.cause.downcast_ref(),
        Some(
            ReadError::Node { .. }
                | ReadError::TooLong(_)
                | ReadError::HttpStatus(_)
                | ReadError::Unintelligible(_)
        )
    )
}

#[cfg(feature = "dev-chain")]
#[cfg(test)]
mod tests;
