//! The follower's state, for others, the metrics and the log: each change of mode once, each poll, each drop.

use std::time::Duration;

use parking_lot::Mutex;
use strum::VariantArray;

use crate::chain::cache::Dropped;
use crate::chain::cache::status::micros;
use crate::chain::follower::window::Position;
use crate::chain::registries::logs::{Cause, Drops};
use crate::ports::chain::ChainFault;
use crate::telemetry::metrics::Metrics;

/// After a line on everybody's profiles there is none for so long, in microseconds.
const EVERYBODY_LINE_EVERY_MICROS: u64 = 60_000_000;

/// How the follower stands. Its name, in lower case, is the metric's label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub(in crate::chain) enum Mode {
    /// It has not followed anything yet.
    Starting,
    /// It follows: profiles serve until a log drops them.
    Following,
    /// No node gives logs: profiles serve for one poll interval.
    Unlogged,
    /// No poll was answered for too long: profiles serve for one poll interval.
    Lost,
}

/// The follower's state, shared.
pub(in crate::chain) struct FollowerStatus {
    state: Mutex<State>,
    /// How long silence is no loss yet.
    pub(super) staleness_micros: u64,
    metrics: Metrics,
}

struct State {
    mode: Mode,
    /// Until when the last poll's answer shows that nodes answer; zero when that poll failed.
    answered_until_micros: u64,
    /// Why the last poll failed, when it found that the nodes are behind.
    behind: Option<ChainFault>,
    /// Before this no further line on everybody's profiles is written.
    quiet_until_micros: u64,
}

impl FollowerStatus {
    pub(in crate::chain) fn new(max_staleness: Duration, metrics: &Metrics) -> Self {
        let mode = Mode::Starting;
        let state = State { mode, answered_until_micros: 0, behind: None, quiet_until_micros: 0 };
        let staleness_micros = micros(max_staleness);
        let status = Self { state: Mutex::new(state), staleness_micros, metrics: metrics.clone() };
        status.show(mode);
        status
    }

    pub(in crate::chain) fn mode(&self) -> Mode {
        self.state.lock().mode
    }

    /// True when the last poll was answered, and not long ago; and why it failed, when it found that the nodes are behind.
    pub(in crate::chain) fn last_poll(&self, now_micros: u64) -> (bool, Option<ChainFault>) {
        let state = self.state.lock();
        (now_micros < state.answered_until_micros, state.behind.clone())
    }

    /// A poll that began then was answered.
    pub(super) fn answered(&self, result: &str, asked_micros: u64) {
        self.count_poll(result);
        let mut state = self.state.lock();
        state.behind = None;
        state.answered_until_micros = asked_micros.saturating_add(self.staleness_micros);
    }

    /// A poll failed: `behind`, if the nodes are behind.
    pub(super) fn failed(&self, behind: Option<ChainFault>) {
        self.count_poll(if behind.is_some() { "behind" } else { "failed" });
        let mut state = self.state.lock();
        state.behind = behind;
        state.answered_until_micros = 0;
    }

    pub(super) fn follows(&self, number: u64, timestamp: u64) {
        self.metrics.follower_block.set(i64::try_from(number).unwrap_or(i64::MAX));
        self.metrics.follower_block_time.set(i64::try_from(timestamp).unwrap_or(i64::MAX));
        if self.enter(Mode::Following) {
            tracing::info!(block = number, "follows the chain");
        }
    }

    /// The follower begins anew, with nothing cached.
    pub(super) fn restarted(&self, why: Position, block: u64) {
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
    pub(super) fn stopped(&self, mode: Mode, silent_micros: u64, fault: &ChainFault) {
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

    pub(super) fn dropped(&self, dropped: &Dropped, drops: &Drops, now_micros: u64) {
        self.count_drops("agent", dropped.agents);
        self.count_drops("organization", dropped.members);
        self.count_drops("holder", dropped.held);
        self.count_drops("details", u64::from(dropped.details));
        let Some(Cause { log, block }) = drops.everybody.filter(|_| dropped.everybody) else { return };
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
    pub(super) fn enter(&self, mode: Mode) -> bool {
        let is_news = std::mem::replace(&mut self.state.lock().mode, mode) != mode;
        self.show(mode);
        is_news
    }

    fn show(&self, mode: Mode) {
        for each in Mode::VARIANTS {
            let gauge = self.metrics.follower_mode.with_label_values(&[<&str>::from(each)]);
            gauge.set(i64::from(*each == mode));
        }
    }

    fn count_poll(&self, result: &str) {
        self.metrics.follower_polls.with_label_values(&[result]).inc();
    }

    fn count_drops(&self, kind: &str, count: u64) {
        self.metrics.profile_drops.with_label_values(&[kind]).inc_by(count);
    }
}
