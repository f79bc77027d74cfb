//! Follows the chain: polls for its head and the registries' logs, and drops from the cache what may have changed.
//!
//! `window` decides what a head means and which logs to read, `pace` when the next poll is due. Here is the loop around them, with
//! the only IO, and what others, the log and the metrics may know: each change of mode once, each poll, each drop.

mod pace;
pub(super) mod window;

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::{iter::once, sync::Arc, time::Duration};

use alloy::primitives::{Address, U64};
use futures_util::FutureExt;
use parking_lot::Mutex;
use serde_json::json;
use strum::VariantArray;
use tokio::time::{sleep, timeout};

use crate::chain::block::{Block, Log, block_call, logs_call};
use crate::chain::cache::Shown;
use crate::chain::fault::{ReadError, ReadFault};
use crate::chain::follower::window::{PIECES_MAX, Piece, Position, Window};
use crate::chain::pool::{Answers, Call, Input};
use crate::chain::registries::logs::{Cause, Drops, Kind};
use crate::chain::{contracts::Contracts, follower::pace::PollSchedule, reads::Agents};
use crate::domain::Lifetimes;
use crate::ports::micros;
use crate::telemetry::Metrics;

/// Where no logs are to be had they are asked for again after this time.
const LOGS_RETRY: Duration = Duration::from_secs(10);

/// After a line on everybody's profiles there is none for so long, in microseconds.
const EVERYBODY_LINE_EVERY_MICROS: u64 = 60_000_000;

/// Keeps the cache in step with the chain.
#[derive(Clone)]
pub struct Follower {
    pub(super) agents: Arc<Agents>,
    pub(super) contracts: Arc<Contracts>,
    pub(super) status: Arc<FollowerStatus>,
}

/// The state of one task that follows.
pub(super) struct Following<'a> {
    of: &'a Follower,
    window: Window,
    pace: PollSchedule,
    /// When the last poll that confirmed a head began, or the follower did.
    confirmed_micros: u64,
    /// At the poll that is under way no node gave logs.
    lacks_logs: bool,
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
        let Lifetimes { poll_interval, max_staleness, .. } = self.agents.cache.lifetimes;
        Following {
            of: self,
            window: Window::new(),
            pace: PollSchedule::new(poll_interval, max_staleness),
            confirmed_micros: self.agents.now(),
            lacks_logs: false,
        }
    }
}

impl Following<'_> {
    /// Polls; returns how long to wait after it. What it learns is as old as its first question.
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
        let interval = self.of.agents.cache.lifetimes.poll_interval;
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
        let until_micros = asked_micros.saturating_add(micros(self.of.agents.cache.lifetimes.max_staleness));
        self.of.status.followed(result, head, until_micros);
        self.pace.saw(head, asked_micros / 1_000);
        self.pace.pause(self.of.agents.now() / 1_000)
    }

    fn failed(&mut self, fault: &ReadFault) -> Duration {
        let interval = self.of.agents.cache.lifetimes.poll_interval;
        self.of.status.failed((fault.is_behind() && !self.lacks_logs).then(|| fault.clone()));
        let silent_micros = self.of.agents.now().saturating_sub(self.confirmed_micros);
        if silent_micros < micros(self.of.agents.cache.lifetimes.max_staleness) {
            return interval;
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
    async fn try_poll(&mut self, asked_micros: u64) -> Result<(Block, &'static str), ReadFault> {
        let head = match self.head().await {
            // Nodes that take no batches give no logs, and answer single calls all the same.
            Err(fault) if fault.error.is_refusal() => {
                self.lacks_logs =
                    self.of.agents.state.prove(self.of.agents.state.pool.deadline()).await.is_ok();
                return Err(fault);
            }
            answered => answered?,
        };
        let mut position = self.window.position(&head);
        if position == Position::Ahead {
            position = match self.read_on(&head).await? {
                Ok((logs, lost, compared)) if self.window.account(head, &logs, &lost) => {
                    let mut drops = self.of.agents.registries.drops(&logs);
                    self.of.agents.measures.add_drops(&logs, &mut drops);
                    lost.iter().for_each(|piece| drops.add_cause(Cause { log: None, block: piece.to }));
                    let dropped = self.of.agents.cache.advance(head, &drops, &compared);
                    self.of.status.dropped(dropped, &drops, asked_micros);
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
        self.window.begin(head);
        self.of.agents.cache.restart(Some(head));
        self.of.status.restarted(position, head.number);
        Ok((head, "restarted"))
    }

    /// The head of a node that is on the right chain, and not behind.
    async fn head(&self) -> Result<Block, ReadFault> {
        let (state, newest) = (&self.of.agents.state, self.of.agents.state.floor.newest());
        let read = |answers: &mut Answers<'_>| {
            let (reported, chain) = (answers.next::<U64>()?.to(), state.pool.chain_id);
            if reported != chain {
                return Err(ReadError::WrongChain { reported, chain });
            }
            let head: Block = answers.next()?;
            state.floor.accepts(newest, head.date())?;
            match self.window.last() {
                Some(last) if self.window.position(&head) == Position::Behind => {
                    Err(ReadError::Behind { number: head.number, newest: last.number })
                }
                Some(_) | None => Ok(head),
            }
        };
        let calls = [Call { method: "eth_chainId", params: json!([]) }, block_call(json!("latest"))];
        state.pool.ask(state.pool.deadline(), (&calls, Input::Follower), read).await
    }

    /// The logs up to this head, with the pieces that can't be had. Where following can't go on: what the head is instead, and
    /// `Ahead` of more than one poll reads.
    async fn read_on(&mut self, head: &Block) -> Result<Result<Found, Position>, ReadFault> {
        let has_tokens = self.of.agents.logs_of(Kind::Tokens).is_some();
        let Some(mut pieces) = self.window.pieces(head, has_tokens) else { return Ok(Err(Position::Ahead)) };
        let mut last = self.window.last().copied().filter(|last| last.hash != head.parent);
        let deadline = self.of.agents.state.pool.deadline();
        let shown = self.of.agents.cache.shown(head.number);
        for some in shown.chunks(2) {
            if !self.is_of_chain(some, head, deadline).await? {
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
                return Ok(Ok((logs, lost, shown)));
            };
            match self.read(piece, head, last.as_ref(), deadline).await {
                Ok(Some(more)) => {
                    logs.extend(more);
                    (last, widest) = (None, piece.blocks().max(widest));
                }
                Ok(None) => return Ok(Err(Position::Reorganized)),
                Err(fault) if fault.error.is_refusal() => {
                    is_refused |= piece.blocks() > 1;
                    if let Some(halves) = piece.halves() {
                        halves.into_iter().rev().for_each(|half| pieces.push_front(half));
                        continue;
                    }
                    if widest == 0 && lost.is_empty() {
                        self.try_logs(head).await?;
                    }
                    lost.push(piece);
                }
                Err(fault) => {
                    // The next poll asks for less. One block says nothing of ranges.
                    let is_slow = matches!(*fault.error, ReadError::Timeout(_));
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
    async fn is_of_chain(&self, shown: &[Shown], head: &Block, deadline: u64) -> Result<bool, ReadFault> {
        let calls = shown.iter().map(|(date, _)| block_call(json!(U64::from(date.number))));
        let read = |answers: &mut Answers<'_>| {
            let mut is_of_chain = true;
            for (date, before) in shown {
                let block: Option<Block> = answers.next()?;
                is_of_chain &= block.is_some_and(|block| (block.date(), block.parent) == (*date, *before));
            }
            Ok(is_of_chain)
        };
        self.ask_at(head, calls, deadline, read).await
    }

    /// The logs of a piece, from a back end that shows in the same request that it has this block too, if one is named. `None`: it
    /// has another one in that one's place. These are three calls at most: providers take no more of who does not pay.
    async fn read(
        &self,
        Piece { kind, from, to }: Piece,
        head: &Block,
        last: Option<&Block>,
        deadline: u64,
    ) -> Result<Option<Vec<Log>>, ReadFault> {
        let last_call = last.map(|block| block_call(json!(U64::from(block.number))));
        let logs = self.of.agents.logs_of(kind).map(|of| logs_call(&of, [from, to]));
        let read = |answers: &mut Answers<'_>| {
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
        self.ask_at(head, last_call.into_iter().chain(logs), deadline, read).await
    }

    /// Fails where no node of this head gives any logs: it is asked for those of an account that has none, in the block before.
    async fn try_logs(&mut self, head: &Block) -> Result<(), ReadFault> {
        let logs = logs_call(&(vec![Address::ZERO], None), [head.number.saturating_sub(1); 2]);
        let deadline = self.of.agents.state.pool.deadline();
        let read = |answers: &mut Answers<'_>| answers.next::<Vec<Log>>().map(drop);
        let given = self.ask_at(head, once(logs), deadline, read).await;
        // Another node may be behind, or on another chain: that says of logs nothing new.
        let lacked = self.of.status.mode() == Mode::Unlogged;
        self.lacks_logs = given.as_ref().is_err_and(|fault| lacked || fault.error.is_refusal());
        given
    }

    /// Asks a back end that shows in the same request that it has the head.
    async fn ask_at<T>(
        &self,
        head: &Block,
        calls: impl Iterator<Item = Call>,
        deadline: u64,
        read: impl Fn(&mut Answers<'_>) -> Result<T, ReadError>,
    ) -> Result<T, ReadFault> {
        let calls: Vec<Call> = once(block_call(json!(U64::from(head.number)))).chain(calls).collect();
        let read = |answers: &mut Answers<'_>| {
            let block: Option<Block> = answers.next()?;
            if block.is_none_or(|block| block.hash != head.hash) {
                return Err(ReadError::Behind { number: head.number, newest: head.number });
            }
            read(answers)
        };
        self.of.agents.state.pool.ask(deadline, (&calls, Input::Follower), read).await
    }
}

/// Logs, the pieces that could not be had, and the blocks of kept reads that are of the same chain.
type Found = (Vec<Log>, Vec<Piece>, Vec<Shown>);

/// How the follower stands. Its name, in lower case, is the metric's label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub(in crate::chain) enum Mode {
    /// Before anything was followed.
    Starting,
    /// The chain is followed: profiles serve until a log drops them.
    Following,
    /// No node gives logs: profiles serve for one poll interval.
    Unlogged,
    /// No poll was answered for too long: profiles serve for one poll interval.
    Lost,
}

/// The follower's state, shared.
pub(in crate::chain) struct FollowerStatus {
    state: Mutex<State>,
    metrics: Metrics,
}

struct State {
    mode: Mode,
    /// Until when the last poll's answer shows that nodes answer; zero when that poll failed.
    answered_until_micros: u64,
    /// Why the last poll failed, when it found that the nodes are behind.
    behind: Option<ReadFault>,
    /// Before this no further line on everybody's profiles is written.
    quiet_until_micros: u64,
}

impl FollowerStatus {
    pub(in crate::chain) fn new(metrics: &Metrics) -> Self {
        let mode = Mode::Starting;
        let state = State { mode, answered_until_micros: 0, behind: None, quiet_until_micros: 0 };
        let status = Self { state: Mutex::new(state), metrics: metrics.clone() };
        status.enter(mode);
        status
    }

    pub(in crate::chain) fn mode(&self) -> Mode {
        self.state.lock().mode
    }

    /// True when the last poll was answered, and not long ago; and why it failed, when it found that the nodes are behind.
    pub(in crate::chain) fn last_poll(&self, now_micros: u64) -> (bool, Option<ReadFault>) {
        let state = self.state.lock();
        (now_micros < state.answered_until_micros, state.behind.clone())
    }

    /// A poll was answered with this head. That counts until then.
    fn followed(&self, result: &str, head: &Block, until_micros: u64) {
        self.count_poll(result);
        self.metrics.follower_block.set(i64::try_from(head.number).unwrap_or(i64::MAX));
        self.metrics.follower_block_time.set(i64::try_from(head.timestamp).unwrap_or(i64::MAX));
        if self.enter(Mode::Following) {
            tracing::info!(block = head.number, "follows the chain");
        }
        let mut state = self.state.lock();
        state.behind = None;
        state.answered_until_micros = until_micros;
    }

    /// A poll failed: `behind`, if the nodes are behind.
    fn failed(&self, behind: Option<ReadFault>) {
        self.count_poll(if behind.is_some() { "behind" } else { "failed" });
        let mut state = self.state.lock();
        state.behind = behind;
        state.answered_until_micros = 0;
    }

    /// The follower begins anew, with nothing cached.
    fn restarted(&self, why: Position, block: u64) {
        let (kind, text) = match why {
            Position::Reorganized => ("reorganization", "the chain was reorganized"),
            // It has taken more requests than a poll may make.
            Position::Ahead => ("gap", "more has happened than can be followed"),
            Position::First | Position::Same | Position::Behind => return,
        };
        self.count_drops(kind, 1);
        tracing::warn!(block, "{text}: every cached profile is read anew");
    }

    /// No poll confirmed anything for too long, or no node gives logs.
    fn stopped(&self, mode: Mode, silent_micros: u64, fault: &ReadFault) {
        let (kind, text) = match mode {
            Mode::Unlogged => ("unlogged", "no logs can be followed"),
            Mode::Starting | Mode::Following | Mode::Lost => ("lost", "lost touch with the chain"),
        };
        if self.enter(mode) {
            self.count_drops(kind, 1);
            let silent_millis = silent_micros / 1_000;
            tracing::warn!(silent_millis, "{text}, so profiles serve for chain.poll_interval only: {fault}");
        }
    }

    /// So many agents were dropped by name, as members, by who holds them; and all, if these logs are the first to say so.
    fn dropped(&self, (counts, everybody): ([u64; 3], bool), drops: &Drops, now_micros: u64) {
        for (kind, count) in ["agent", "organization", "holder"].into_iter().zip(counts) {
            self.count_drops(kind, count);
        }
        let Some(Cause { log, block }) = drops.everybody.filter(|_| everybody) else { return };
        self.count_drops(if log.is_some() { "unknown_log" } else { "lost_logs" }, 1);
        let mut state = self.state.lock();
        if now_micros < state.quiet_until_micros {
            return;
        }
        state.quiet_until_micros = now_micros.saturating_add(EVERYBODY_LINE_EVERY_MICROS);
        match log {
            Some((contract, topic)) => tracing::warn!(
                %contract, ?topic, block, "a log may concern anybody: every cached profile is read anew"
            ),
            None => {
                tracing::warn!(block, "the logs of a block can't be had: every cached profile is read anew");
            }
        }
    }

    /// Enters a mode and shows it in the metrics. True when it was another one.
    fn enter(&self, mode: Mode) -> bool {
        for each in Mode::VARIANTS {
            let gauge = self.metrics.follower_mode.with_label_values(&[<&str>::from(each)]);
            gauge.set(i64::from(*each == mode));
        }
        std::mem::replace(&mut self.state.lock().mode, mode) != mode
    }

    fn count_poll(&self, result: &str) {
        self.metrics.follower_polls.with_label_values(&[result]).inc();
    }

    fn count_drops(&self, kind: &str, count: u64) {
        self.metrics.profile_drops.with_label_values(&[kind]).inc_by(count);
    }
}

#[cfg(feature = "dev-chain")]
#[cfg(test)]
mod tests;
