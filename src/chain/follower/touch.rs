//! What others may know of the follower: how it gets on, and whether a node answered it just now.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// How the follower gets on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::chain) enum Mode {
    /// It has not followed anything yet.
    Starting,
    /// It follows: profiles serve until a log drops them.
    Following,
    /// The node gives no logs: profiles serve for one poll interval.
    Unlogged,
    /// It has heard nothing for too long: profiles serve for one poll interval.
    Lost,
}

impl Mode {
    /// All of them.
    pub(super) const ALL: [Self; 4] = [Self::Starting, Self::Following, Self::Unlogged, Self::Lost];

    /// Its name in the metrics.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Following => "following",
            Self::Unlogged => "unlogged",
            Self::Lost => "lost",
        }
    }
}

/// The follower's word.
pub(in crate::chain) struct Touch {
    mode: Mutex<Mode>,
    /// Until when the last poll's answer tells that a node answers; zero when that poll failed.
    answered_until: AtomicU64,
    staleness_micros: u64,
}

impl Touch {
    /// Nothing is known yet. An answer tells something for `max_staleness`.
    pub(in crate::chain) fn new(max_staleness: Duration) -> Self {
        let staleness_micros = u64::try_from(max_staleness.as_micros()).unwrap_or(u64::MAX);
        Self { mode: Mutex::new(Mode::Starting), answered_until: AtomicU64::new(0), staleness_micros }
    }

    /// How long silence is no loss yet, in microseconds.
    pub(super) const fn staleness_micros(&self) -> u64 {
        self.staleness_micros
    }

    pub(in crate::chain) fn mode(&self) -> Mode {
        *self.mode.lock()
    }

    /// True when the last poll was answered, and not long ago.
    pub(in crate::chain) fn is_answered(&self, now_micros: u64) -> bool {
        now_micros < self.answered_until.load(Ordering::Relaxed)
    }

    pub(super) fn answered(&self, asked_micros: u64) {
        self.answered_until.store(asked_micros.saturating_add(self.staleness_micros), Ordering::Relaxed);
    }

    pub(super) fn failed(&self) {
        self.answered_until.store(0, Ordering::Relaxed);
    }

    /// Changes the mode; gives the one before.
    pub(super) fn turn(&self, mode: Mode) -> Mode {
        std::mem::replace(&mut *self.mode.lock(), mode)
    }
}
