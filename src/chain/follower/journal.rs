//! Says how the follower gets on: each change of mode once in the log, each poll and each drop in the metrics.

use std::sync::Arc;

use prometheus::IntGauge;

use crate::chain::follower::events::{Culprit, Drops};
use crate::chain::follower::touch::{Mode, Touch};
use crate::chain::follower::trail::{Outcome, Why};
use crate::ports::chain::ChainFault;
use crate::telemetry::metrics::Metrics;

/// How long after a line on everybody's profiles there is none, in microseconds.
const EVERYBODY_LINE_EVERY_MICROS: u64 = 60_000_000;

pub(super) struct Journal {
    metrics: Metrics,
    touch: Arc<Touch>,
    block: IntGauge,
    /// When the last poll that confirmed something was asked, or the follower began.
    confirmed_micros: u64,
    /// Before when no further line on everybody's profiles is written, and how many there would have been.
    quiet_until_micros: u64,
    unsaid: u64,
}

impl Journal {
    pub(super) fn new(metrics: &Metrics, touch: Arc<Touch>, now_micros: u64) -> Self {
        let block = metrics.follower_block.clone();
        let journal = Self {
            metrics: metrics.clone(),
            touch,
            block,
            confirmed_micros: now_micros,
            quiet_until_micros: 0,
            unsaid: 0,
        };
        Self::show(metrics, journal.touch.mode());
        journal
    }

    /// A poll learned how the trail goes on.
    pub(super) fn learned(&mut self, outcome: &Outcome, node: &str, asked_micros: u64) {
        self.touch.answered(asked_micros);
        match outcome {
            Outcome::Followed { head, drops } => {
                self.polled("followed");
                self.dropped(drops, asked_micros);
                self.follows(head.number, node, asked_micros);
            }
            Outcome::Restarted { head, why } => {
                self.polled("restarted");
                self.began_anew(*why, head.number, node);
                self.follows(head.number, node, asked_micros);
            }
            Outcome::Unread { block } => {
                self.polled("unread");
                let why = format!("the logs of block {block} are more than the node gives");
                self.lose_touch_if_silent(asked_micros, &why);
            }
            Outcome::Behind => {
                self.polled("behind");
                self.lose_touch_if_silent(asked_micros, &"the node is behind what was followed before");
            }
        }
    }

    /// A poll found that the node gives no logs.
    pub(super) fn without_logs(&mut self, why: Option<&ChainFault>, asked_micros: u64) {
        self.touch.answered(asked_micros);
        self.confirmed_micros = asked_micros;
        self.polled("unlogged");
        if self.turn(Mode::Unlogged)
            && let Some(why) = why
        {
            self.drop_all("unlogged");
            tracing::warn!("no logs can be followed, so profiles serve for chain.poll_interval only: {why}");
        }
    }

    /// A poll failed.
    pub(super) fn failed(&mut self, fault: &ChainFault, now_micros: u64) {
        self.touch.failed();
        self.polled("failed");
        self.lose_touch_if_silent(now_micros, fault);
    }

    fn follows(&mut self, number: u64, node: &str, asked_micros: u64) {
        self.confirmed_micros = asked_micros;
        self.block.set(i64::try_from(number).unwrap_or(i64::MAX));
        if self.turn(Mode::Following) {
            tracing::info!(block = number, node, "follows the chain");
        }
    }

    fn began_anew(&self, why: Why, block: u64, node: &str) {
        let (kind, text) = match why {
            Why::Start => return,
            Why::Reorganized => ("reorganization", "the chain was reorganized"),
            Why::RolledBack => ("rollback", "the chain was rolled back"),
            Why::Gap => ("gap", "more has happened than can be followed"),
        };
        self.drop_all(kind);
        tracing::warn!(block, node, "{text}: every cached profile is read anew");
    }

    fn lose_touch_if_silent(&mut self, now_micros: u64, why: &dyn std::fmt::Display) {
        let silent_micros = now_micros.saturating_sub(self.confirmed_micros);
        if silent_micros >= self.touch.staleness_micros() && self.turn(Mode::Lost) {
            tracing::warn!(
                silent_millis = silent_micros / 1_000,
                "lost touch with the chain, so profiles serve for chain.poll_interval only: {why}"
            );
        }
    }

    /// True when the mode was another one.
    fn turn(&self, mode: Mode) -> bool {
        let is_news = self.touch.turn(mode) != mode;
        if is_news {
            Self::show(&self.metrics, mode);
        }
        is_news
    }

    /// Shows the mode in the metrics.
    pub(super) fn show(metrics: &Metrics, mode: Mode) {
        for each in Mode::ALL {
            let gauge = metrics.follower_mode.with_label_values(&[each.name()]);
            gauge.set(i64::from(each == mode));
        }
    }

    fn polled(&self, result: &str) {
        self.metrics.follower_polls.with_label_values(&[result]).inc();
    }

    fn dropped(&mut self, drops: &Drops, now_micros: u64) {
        let count = |kind: &str, count: usize| {
            self.metrics.profile_drops.with_label_values(&[kind]).inc_by(count as u64);
        };
        count("agent", drops.agents.len());
        count("organization", drops.organizations.len());
        if let Some(culprit) = drops.everybody {
            count(culprit.kind(), 1);
            self.blame(culprit, now_micros);
        }
    }

    /// Says what dropped everybody: whoever finds that profiles cost calls can find out why.
    fn blame(&mut self, culprit: Culprit, now_micros: u64) {
        if now_micros < self.quiet_until_micros {
            self.unsaid += 1;
            return;
        }
        self.quiet_until_micros = now_micros.saturating_add(EVERYBODY_LINE_EVERY_MICROS);
        let unsaid_before = std::mem::take(&mut self.unsaid);
        match culprit {
            Culprit::Log { contract, topic, block } => tracing::warn!(
                %contract, topic = ?topic, block, unsaid_before,
                "a log may concern anybody: every cached profile is read anew"
            ),
            Culprit::Block(block) => tracing::warn!(
                block,
                unsaid_before,
                "a block's logs are more than the node gives: every cached profile is read anew"
            ),
        }
    }

    fn drop_all(&self, kind: &str) {
        self.metrics.profile_drops.with_label_values(&[kind]).inc();
    }
}
