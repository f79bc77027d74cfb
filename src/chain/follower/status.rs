//! What others may know of the follower: its mode, and whether a node answered it just now.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::ports::chain::ChainFault;

/// The follower's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// The follower's state, shared.
pub(in crate::chain) struct FollowerStatus {
    mode: Mutex<Mode>,
    /// Until when the last poll's answer shows that nodes answer; zero when that poll failed.
    answered_until: AtomicU64,
    /// Why the last poll failed, when it found that the nodes are behind.
    behind: Mutex<Option<ChainFault>>,
    staleness_micros: u64,
}

impl FollowerStatus {
    pub(in crate::chain) fn new(max_staleness: Duration) -> Self {
        let staleness_micros = u64::try_from(max_staleness.as_micros()).unwrap_or(u64::MAX);
        let mode = Mutex::new(Mode::Starting);
        Self { mode, answered_until: AtomicU64::new(0), behind: Mutex::new(None), staleness_micros }
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

    /// Why the last poll failed, when it found that the nodes are behind.
    pub(in crate::chain) fn behind(&self) -> Option<ChainFault> {
        self.behind.lock().clone()
    }

    pub(super) fn answered(&self, asked_micros: u64) {
        *self.behind.lock() = None;
        self.answered_until.store(asked_micros.saturating_add(self.staleness_micros), Ordering::Relaxed);
    }

    pub(super) fn failed(&self, behind: Option<ChainFault>) {
        *self.behind.lock() = behind;
        self.answered_until.store(0, Ordering::Relaxed);
    }

    /// Changes the mode. True when it was another one.
    pub(super) fn enter(&self, mode: Mode) -> bool {
        std::mem::replace(&mut *self.mode.lock(), mode) != mode
    }
}
