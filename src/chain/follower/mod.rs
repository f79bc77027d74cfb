//! Follows the chain: polls for its head and the registries' logs, and drops from the cache what may have changed.
//!
//! `window` decides what a head means and which logs to read, `pace` when the next poll is due, `status` is what others,
//! the log and the metrics may know. Here is the loop around them, and the only IO.

mod pace;
pub(super) mod status;
pub(super) mod window;

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use alloy::primitives::{Address, U64};
use futures_util::FutureExt;
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::chain::block::{Block, Log, block_call, logs_call};
use crate::chain::cache::status::Shown;
use crate::chain::contracts::Contracts;
use crate::chain::fault::{ReadError, is_refusal};
use crate::chain::follower::pace::Pace;
use crate::chain::follower::status::{FollowerStatus, Mode};
use crate::chain::follower::window::{PIECES_MAX, Piece, Position, Window};
use crate::chain::pool::{Answers, Call, Input};
use crate::chain::reads::Agents;
use crate::domain::chain_settings::Lifetimes;
use crate::ports::chain::ChainFault;

/// Where no logs are to be had they are asked for again after this time.
const LOGS_RETRY: Duration = Duration::from_secs(10);

/// Keeps the cache in step with the chain.
#[derive(Clone)]
pub struct Follower {
    pub(super) agents: Arc<Agents>,
    pub(super) contracts: Arc<Contracts>,
    pub(super) status: Arc<FollowerStatus>,
    pub(super) lifetimes: Lifetimes,
}

/// The state of one task that follows.
pub(super) struct Following<'a> {
    of: &'a Follower,
    window: Window,
    pace: Pace,
    /// When the last poll that confirmed a head began, or the follower did.
    confirmed_micros: u64,
    /// At the poll that is under way no node gave logs.
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
                following.rest(pause).await;
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
            window: Window::new(),
            pace: Pace::new(self.lifetimes.poll_interval, self.lifetimes.max_staleness),
            confirmed_micros: self.agents.now(),
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
            Ok((head, result)) => self.confirmed(result, &head, asked),
            Err(fault) => self.failed(&fault),
        }
    }

    /// Waits until the next poll is due: an interval, and the rest of the pause unless an answer shows a newer block meanwhile.
    async fn rest(&self, pause: Duration) {
        let interval = self.of.lifetimes.poll_interval;
        sleep(interval).await;
        let Some(rest) = pause.checked_sub(interval) else { return };
        match self.window.last() {
            Some(last) => _ = timeout(rest, self.of.agents.state.floor.newer(last.date())).await,
            None => sleep(rest).await,
        }
    }

    fn confirmed(&mut self, result: &str, head: &Block, asked_micros: u64) -> Duration {
        self.confirmed_micros = asked_micros;
        self.of.agents.state.floor.met(head.date());
        self.of.agents.cache.confirm(asked_micros);
        self.of.status.answered(result, asked_micros);
        self.of.status.follows(head.number, head.timestamp);
        self.pace.saw(head, self.of.agents.clock.unix_millis());
        self.pace.pause(self.of.agents.clock.unix_millis())
    }

    fn failed(&mut self, fault: &ChainFault) -> Duration {
        let interval = self.of.lifetimes.poll_interval;
        self.of.status.failed((fault.is_behind && !self.lacks_logs).then(|| fault.clone()));
        let silent_micros = self.of.agents.now().saturating_sub(self.confirmed_micros);
        if silent_micros < self.of.status.staleness_micros {
            return interval;
        }
        if std::mem::take(self.saw_another.get_mut()) && fault.is_behind {
            self.of.agents.state.floor.void();
        }
        // Whatever was accounted for by then: the next head is a beginning.
        if self.window.last().is_some() {
            self.window.forget();
            self.of.agents.cache.restart(None);
        }
        let (mode, pause) =
            if self.lacks_logs { (Mode::Unlogged, interval.max(LOGS_RETRY)) } else { (Mode::Lost, interval) };
        self.of.status.stopped(mode, silent_micros, fault);
        pause
    }

    /// The head up to which everything is accounted for, and how.
    async fn try_poll(&mut self, asked_micros: u64) -> Result<(Block, &'static str), ChainFault> {
        let head = match self.head().await {
            // Nodes that take no batches give no logs, and answer single calls all the same.
            Err(fault) if is_refusal(&fault) => {
                self.lacks_logs =
                    self.of.agents.state.prove(self.of.agents.state.pool.deadline()).await.is_ok();
                return Err(fault);
            }
            answered => answered?,
        };
        *self.saw_another.get_mut() = false;
        let mut position = self.window.position(&head);
        if position == Position::Ahead {
            position = match self.read_on(&head).await? {
                Ok((logs, lost)) if self.window.account(head, &logs, &lost) => {
                    let mut drops = self.of.agents.registries.drops(&logs);
                    self.of.agents.measures.add_drops(&logs, &mut drops);
                    lost.iter().for_each(|piece| drops.add_lost(piece.kind, piece.to));
                    let dropped = self.of.agents.cache.advance(head, &drops);
                    self.of.status.dropped(&dropped, &drops, asked_micros);
                    Position::Same
                }
                Ok(_) => Position::Reorganized,
                Err(position) => position,
            };
        }
        if position == Position::Same {
            return Ok((head, "followed"));
        }
        self.try_logs(&head).await?;
        self.window.begin(head, position == Position::Reorganized);
        self.of.agents.cache.restart(Some(head));
        self.of.status.restarted(position, head.number);
        Ok((head, "restarted"))
    }

    /// The head of a node that is on the right chain, and not behind.
    async fn head(&self) -> Result<Block, ChainFault> {
        let (state, newest) = (&self.of.agents.state, self.of.agents.state.floor.newest());
        let read = |answers: &mut Answers<'_>| {
            let (reported, chain) = (answers.next::<U64>()?.to(), state.pool.chain_id);
            if reported != chain {
                return Err(ReadError::WrongChain { reported, chain });
            }
            let head: Block = answers.next()?;
            let accepted = state.floor.accepts(newest, head.date());
            let behind = match self.window.last() {
                Some(last) if self.window.position(&head) == Position::Behind => {
                    Err(ReadError::Behind { number: head.number, newest: last.number })
                }
                Some(_) | None => Ok(()),
            };
            accepted.and(behind).inspect_err(|_| {
                let is_another = self.window.contradicts(head.number, head.hash);
                let is_news = is_another && !self.window.has_abandoned(head.hash);
                self.saw_another.fetch_or(is_news, Ordering::Relaxed);
            })?;
            Ok(head)
        };
        let calls = [Call { method: "eth_chainId", params: json!([]) }, block_call(json!("latest"))];
        state.pool.ask(state.pool.deadline(), (&calls, Input::Follower), read).await
    }

    /// The logs up to this head, with the pieces that can't be had. Where following can't go on: what the head is instead, and
    /// `Ahead` of more than one poll reads.
    async fn read_on(&mut self, head: &Block) -> Result<Result<Found, Position>, ChainFault> {
        let has = |kind| self.of.agents.logs_of(kind).is_some();
        let Some(mut pieces) = self.window.pieces(head, has) else { return Ok(Err(Position::Ahead)) };
        let mut last = self.window.last().copied().filter(|last| last.hash != head.parent);
        let deadline = self.of.agents.state.pool.deadline();
        for shown in self.of.agents.cache.shown(head.number).chunks(2) {
            if !self.is_of_chain(shown, head, deadline).await? {
                return Ok(Err(Position::Reorganized));
            }
        }
        let (mut logs, mut lost, mut widest, mut is_refused) = (Vec::new(), Vec::new(), 0, false);
        for _ in 0..2 * PIECES_MAX {
            let Some(piece) = pieces.pop_front() else {
                let now = self.of.agents.now();
                match is_refused {
                    true if lost.is_empty() => self.window.shrink(widest, now),
                    true => {}
                    false => self.window.grow(now),
                }
                return Ok(Ok((logs, lost)));
            };
            match self.read(piece, head, last.as_ref(), deadline).await {
                Ok(Some(more)) => {
                    logs.extend(more);
                    (last, widest) = (None, piece.blocks().max(widest));
                }
                Ok(None) => return Ok(Err(Position::Reorganized)),
                Err(fault) if is_refusal(&fault) => {
                    is_refused |= piece.blocks() > 1;
                    if let Some(parts) = piece.parts() {
                        parts.into_iter().rev().for_each(|part| pieces.push_front(part));
                        continue;
                    }
                    if widest == 0 && lost.is_empty() {
                        self.try_logs(head).await?;
                    }
                    lost.push(piece);
                }
                Err(fault) => {
                    // The next poll asks for less. One block says nothing of ranges.
                    let is_slow = matches!(fault.cause.downcast_ref(), Some(ReadError::Timeout(_)));
                    if is_slow && piece.blocks() > 1 {
                        self.window.shrink(piece.blocks() / 2, self.of.agents.now());
                    }
                    return Err(fault);
                }
            }
        }
        Ok(Err(Position::Ahead))
    }

    /// True if the chain of this head has these blocks, of which reads were kept.
    async fn is_of_chain(&self, shown: &[Shown], head: &Block, deadline: u64) -> Result<bool, ChainFault> {
        let numbers = [head.number].into_iter().chain(shown.iter().map(|(date, _)| date.number));
        let calls: Vec<Call> = numbers.map(|number| block_call(json!(U64::from(number)))).collect();
        let read = |answers: &mut Answers<'_>| {
            has_block(answers, head)?;
            let mut is_of_chain = true;
            for (date, before) in shown {
                let block: Option<Block> = answers.next()?;
                is_of_chain &= block.is_some_and(|block| (block.date(), block.parent) == (*date, *before));
            }
            Ok(is_of_chain)
        };
        self.of.agents.state.pool.ask(deadline, (&calls, Input::Follower), read).await
    }

    /// The logs of a piece: the back end that gives them shows in the same request that it has the head, and this block if
    /// one is named. `None`: it has another one in that one's place. These are three calls at most: providers take no more of
    /// who does not pay.
    async fn read(
        &self,
        Piece { kind, from, to }: Piece,
        head: &Block,
        last: Option<&Block>,
        deadline: u64,
    ) -> Result<Option<Vec<Log>>, ChainFault> {
        let blocks = [head].into_iter().chain(last).map(|block| block_call(json!(U64::from(block.number))));
        let logs = self.of.agents.logs_of(kind).map(|of| logs_call(&of, [from, to]));
        let calls: Vec<Call> = blocks.chain(logs).collect();
        let read = |answers: &mut Answers<'_>| {
            has_block(answers, head)?;
            if let Some(last) = last
                && answers.next::<Option<Block>>()?.is_none_or(|block| block.hash != last.hash)
            {
                return Ok(None);
            }
            let logs: Vec<Log> = answers.next()?;
            if logs.iter().any(|log| !(from..=to).contains(&log.block_number)) {
                return Err(ReadError::Unintelligible("it has logs of other blocks than asked for"));
            }
            Ok(Some(logs))
        };
        self.of.agents.state.pool.ask(deadline, (&calls, Input::Follower), read).await
    }

    /// Fails where no node of this head gives any logs: it is asked for those of an account that has none, in the block before.
    async fn try_logs(&mut self, head: &Block) -> Result<(), ChainFault> {
        let before = [head.number.saturating_sub(1); 2];
        let calls =
            [block_call(json!(U64::from(head.number))), logs_call(&(vec![Address::ZERO], None), before)];
        let read = |answers: &mut Answers<'_>| {
            has_block(answers, head)?;
            answers.next::<Vec<Log>>().map(drop)
        };
        let pool = &self.of.agents.state.pool;
        let given = pool.ask(pool.deadline(), (&calls, Input::Follower), read).await;
        // Another node may be behind, or on another chain: that says of logs nothing new.
        let lacked = self.of.status.mode() == Mode::Unlogged;
        self.lacks_logs = given.as_ref().is_err_and(|fault| lacked || is_refusal(fault));
        given
    }
}

/// Logs, and the pieces that could not be had.
type Found = (Vec<Log>, Vec<Piece>);

/// Succeeds when the next answer, which is to a call for a block of this number, shows that the back end has it.
fn has_block(answers: &mut Answers<'_>, head: &Block) -> Result<(), ReadError> {
    let behind = ReadError::Behind { number: head.number, newest: head.number };
    let block: Option<Block> = answers.next()?;
    if block.is_some_and(|block| block.hash == head.hash) { Ok(()) } else { Err(behind) }
}

#[cfg(feature = "dev-chain")]
#[cfg(test)]
mod tests;
