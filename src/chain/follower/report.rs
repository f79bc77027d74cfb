//! Tells the log and the metrics how the follower gets on: each change of mode once, each poll, each drop.

use std::sync::Arc;

use crate::chain::follower::status::{FollowerStatus, Mode};
use crate::chain::follower::tracker::Position;
use crate::chain::registries::logs::{Cause, Drops};
use crate::ports::chain::ChainFault;
use crate::telemetry::metrics::Metrics;

/// After a line on everybody's profiles there is none for so long, in microseconds.
const EVERYBODY_LINE_EVERY_MICROS: u64 = 60_000_000;

pub(super) struct Report {
    metrics: Metrics,
    status: Arc<FollowerStatus>,
    /// Before this no further line on everybody's profiles is written; so many were left out.
    quiet_until_micros: u64,
    left_out: u64,
}

impl Report {
    pub(super) fn new(metrics: &Metrics, status: Arc<FollowerStatus>) -> Self {
        let report = Self { metrics: metrics.clone(), status, quiet_until_micros: 0, left_out: 0 };
        report.show(report.status.mode());
        report
    }

    pub(super) fn polled(&self, result: &str) {
        self.metrics.follower_polls.with_label_values(&[result]).inc();
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
            Position::Gap => ("gap", "more has happened than can be followed"),
            Position::First | Position::Same | Position::Ahead | Position::Behind => return,
        };
        self.dropped_all(kind);
        tracing::warn!(block, "{text}: every cached profile is read anew");
    }

    /// No poll confirmed anything for too long.
    pub(super) fn lost(&self, silent_micros: u64, fault: &ChainFault) {
        if self.enter(Mode::Lost) {
            self.dropped_all("lost");
            tracing::warn!(
                silent_millis = silent_micros / 1_000,
                "lost touch with the chain, so profiles serve for chain.poll_interval only: {fault}"
            );
        }
    }

    /// No node gives logs.
    pub(super) fn unlogged(&self, fault: &ChainFault) {
        if self.enter(Mode::Unlogged) {
            self.dropped_all("unlogged");
            tracing::warn!(
                "no logs can be followed, so profiles serve for chain.poll_interval only: {fault}"
            );
        }
    }

    pub(super) fn dropped(&mut self, drops: &Drops, now_micros: u64) {
        let count = |kind: &str, count: usize| {
            self.metrics.profile_drops.with_label_values(&[kind]).inc_by(count as u64);
        };
        count("agent", drops.agents.len());
        count("organization", drops.organizations.len());
        let Some(Cause { contract, topic, block }) = drops.everybody else { return };
        count("unknown_log", 1);
        if now_micros < self.quiet_until_micros {
            self.left_out += 1;
            return;
        }
        self.quiet_until_micros = now_micros.saturating_add(EVERYBODY_LINE_EVERY_MICROS);
        let unsaid_before = std::mem::take(&mut self.left_out);
        tracing::warn!(
            %contract, topic = ?topic, block, unsaid_before,
            "a log may concern anybody: every cached profile is read anew"
        );
    }

    /// Enters a mode and shows it in the metrics. True when it was another one.
    pub(super) fn enter(&self, mode: Mode) -> bool {
        let is_news = self.status.enter(mode);
        if is_news {
            self.show(mode);
        }
        is_news
    }

    fn show(&self, mode: Mode) {
        for each in Mode::ALL {
            let gauge = self.metrics.follower_mode.with_label_values(&[each.name()]);
            gauge.set(i64::from(each == mode));
        }
    }

    fn dropped_all(&self, kind: &str) {
        self.metrics.profile_drops.with_label_values(&[kind]).inc();
    }
}
