//! Follows the chain: a poll at each interval, and what it drops from the cache.
//!
//! `trail` decides what a head means and what to ask next, `overlap` what to ask again, `events` whom a log concerns,
//! `touch` is what others may know of it, `journal` says it in the log and the metrics. Here is the loop around them, and the only IO.

pub(super) mod events;
mod journal;
mod overlap;
mod span;
pub(super) mod touch;
mod trail;

use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::Address;
use tokio::time::MissedTickBehavior;

use crate::chain::cache::ProfileCache;
use crate::chain::follower::journal::Journal;
use crate::chain::follower::touch::{Mode, Touch};
use crate::chain::follower::trail::{Outcome, Step, Trail, Why};
use crate::chain::rpc::lead::{BlockId, Lead, LogMark, LogsFault};
use crate::chain::rpc::{LogsTrouble, Pool};
use crate::chain::survey::Survey;
use crate::ports::chain::ChainFault;
use crate::ports::clock::Clock;
use crate::telemetry::metrics::Metrics;

/// How long a node that gives no logs is left alone with the question, in microseconds.
const LOGS_RETRY_MICROS: u64 = 60_000_000;

/// Keeps the cache in step with the chain.
pub struct Follower {
    pool: Arc<Pool>,
    cache: Arc<ProfileCache>,
    touch: Arc<Touch>,
    survey: Arc<Survey>,
    registries: Vec<Address>,
    organizations: Option<Address>,
    poll_interval: Duration,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
}

/// What a follower works with.
pub(super) struct Parts {
    pub(super) pool: Arc<Pool>,
    pub(super) cache: Arc<ProfileCache>,
    pub(super) touch: Arc<Touch>,
    pub(super) survey: Arc<Survey>,
    /// Whose logs are followed.
    pub(super) registries: Vec<Address>,
    /// Which of them is the organization registry.
    pub(super) organizations: Option<Address>,
    pub(super) poll_interval: Duration,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Metrics,
}

/// How far the follower has got.
pub(super) struct Pursuit<'a> {
    follower: &'a Follower,
    trail: Trail,
    journal: Journal,
    /// The node that gives no logs, and when it was last asked.
    refusal: Option<(Arc<str>, u64)>,
}

/// What a poll learned.
enum Learned {
    /// How the trail goes on.
    Outcome(Outcome),
    /// The node is there, and gives no logs: why, if it was asked.
    NoLogs(Option<ChainFault>),
}

impl Follower {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { pool, cache, touch, survey, registries, organizations, poll_interval, clock, metrics } =
            parts;
        Self { pool, cache, touch, survey, registries, organizations, poll_interval, clock, metrics }
    }

    /// Follows the chain for as long as it is polled, and looks for the contracts beside it until all are found.
    pub async fn follow(&self) {
        tokio::join!(self.poll_on(), self.survey.watch());
    }

    /// A poll that takes longer than the interval is followed by the next
    /// one an interval later, never by two at once.
    async fn poll_on(&self) {
        let mut pursuit = self.begin();
        let mut ticks = tokio::time::interval(self.poll_interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            pursuit.poll().await;
        }
    }

    /// To be called when following has ended by itself: nothing is served on its word, and everybody is told so.
    pub fn lose(&self) {
        self.cache.lose_touch();
        self.touch.failed();
        self.touch.turn(Mode::Lost);
        Journal::show(&self.metrics, Mode::Lost);
    }

    pub(super) fn begin(&self) -> Pursuit<'_> {
        Pursuit {
            follower: self,
            trail: Trail::new(self.organizations),
            journal: Journal::new(&self.metrics, Arc::clone(&self.touch), self.clock.monotonic_micros()),
            refusal: None,
        }
    }
}

impl Pursuit<'_> {
    /// One poll. Whatever it learns is as old as its first question.
    pub(super) async fn poll(&mut self) {
        let asked_at = self.follower.clock.monotonic_micros();
        match self.ask(asked_at).await {
            Ok((Learned::Outcome(outcome), node)) => self.settle(outcome, &node, asked_at),
            Ok((Learned::NoLogs(why), node)) => self.go_without_logs(why.as_ref(), node, asked_at),
            Err(fault) => self.journal.failed(&fault, self.follower.clock.monotonic_micros()),
        }
    }

    async fn ask(&mut self, now_micros: u64) -> Result<(Learned, Arc<str>), ChainFault> {
        let follower = self.follower;
        let lead = follower.pool.lead().await?;
        let node = lead.name();
        let Some(head) = lead.block(BlockId::Latest).await? else {
            return Ok((Learned::Outcome(Outcome::Behind), node));
        };
        if self.is_refused_by(&node, now_micros) {
            return Ok((Learned::NoLogs(None), node));
        }
        let mut step = self.trail.head(head, &node, now_micros);
        loop {
            step = match step {
                // A beginning asks for no logs: whether there are any is found out here.
                Step::Done(Outcome::Restarted { head, why: Why::Start }) => {
                    let begun = self.try_logs(&lead, head.number).await;
                    if !matches!(begun, Ok(None)) {
                        self.trail.forget();
                    }
                    let restarted = Outcome::Restarted { head, why: Why::Start };
                    let none = |why| Learned::NoLogs(Some(why));
                    return Ok((begun?.map_or(Learned::Outcome(restarted), none), node));
                }
                Step::Done(outcome) => return Ok((Learned::Outcome(outcome), node)),
                Step::Block(number) => self.trail.block(lead.block(BlockId::Number(number)).await?),
                Step::Logs { from, to } => match self.read_logs(&lead, (from, to), false).await? {
                    Ok(step) => step,
                    Err(why) => return Ok((Learned::NoLogs(Some(why)), node)),
                },
                Step::LogsOfEach { block } => match self.read_logs(&lead, (block, block), true).await? {
                    Ok(step) => step,
                    Err(why) => return Ok((Learned::NoLogs(Some(why)), node)),
                },
            };
        }
    }

    /// The next step; inside, why there are no logs at all.
    async fn read_logs(
        &mut self,
        lead: &Lead<'_>,
        (from, to): (u64, u64),
        of_each: bool,
    ) -> Result<Result<Step, ChainFault>, ChainFault> {
        let registries = &self.follower.registries;
        let logs = if of_each {
            logs_of_each(lead, from, registries).await
        } else {
            lead.logs(from, to, registries).await
        };
        match logs {
            Ok(logs) => Ok(Ok(self.trail.logs(&logs))),
            Err(told) => match told.trouble {
                LogsTrouble::TooMany => Ok(Ok(self.trail.too_large())),
                LogsTrouble::NotSupported => Ok(Err(told.fault)),
                LogsTrouble::Transient => Err(told.fault),
            },
        }
    }

    /// Why the node gives no logs, if it gives none.
    async fn try_logs(&self, lead: &Lead<'_>, block: u64) -> Result<Option<ChainFault>, ChainFault> {
        match lead.logs(block, block, &self.follower.registries).await {
            Ok(_) => Ok(None),
            Err(told) => match told.trouble {
                LogsTrouble::TooMany => Ok(None),
                LogsTrouble::NotSupported => Ok(Some(told.fault)),
                LogsTrouble::Transient => Err(told.fault),
            },
        }
    }

    fn is_refused_by(&self, node: &Arc<str>, now_micros: u64) -> bool {
        self.refusal.as_ref().is_some_and(|(refusing, asked_at)| {
            refusing == node && now_micros.saturating_sub(*asked_at) < LOGS_RETRY_MICROS
        })
    }

    fn settle(&mut self, outcome: Outcome, node: &str, asked_at: u64) {
        let cache = &self.follower.cache;
        self.refusal = None;
        match &outcome {
            Outcome::Followed { head, drops } => {
                cache.advance(*head, drops, asked_at);
                self.follower.pool.followed(head.number);
            }
            Outcome::Restarted { head, .. } => {
                cache.restart(*head, asked_at);
                self.follower.pool.followed(head.number);
            }
            Outcome::Unread { .. } | Outcome::Behind => {}
        }
        self.journal.learned(&outcome, node, asked_at);
    }

    fn go_without_logs(&mut self, why: Option<&ChainFault>, node: Arc<str>, asked_at: u64) {
        if why.is_some() {
            self.refusal = Some((node, asked_at));
            self.trail.forget();
            self.follower.cache.lose_touch();
        }
        self.journal.without_logs(why, asked_at);
    }
}

/// The logs of one block, of one contract after the other.
async fn logs_of_each(
    lead: &Lead<'_>,
    block: u64,
    registries: &[Address],
) -> Result<Vec<LogMark>, LogsFault> {
    let mut logs = Vec::new();
    for registry in registries {
        logs.extend(lead.logs(block, block, std::slice::from_ref(registry)).await?);
    }
    Ok(logs)
}

#[cfg(feature = "dev-chain")]
#[cfg(test)]
mod tests;
