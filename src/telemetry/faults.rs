//! The log of faults: the first of its kind at once, then one line a second that says how many more there were.
//!
//! A dead node or disk fails every request alike; a line for each would bury the one that explains it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::ports::clock::Clock;

/// The least distance between two lines, in microseconds.
const LINE_EVERY_MICROS: u64 = 1_000_000;

/// Logs faults of one kind without flooding.
pub struct FaultLog {
    kind: &'static str,
    clock: Arc<dyn Clock>,
    /// Monotonic microseconds before which no further line is written.
    quiet_until: AtomicU64,
    unsaid: AtomicU64,
}

impl FaultLog {
    /// For faults of this kind, as the log names it.
    #[must_use]
    pub const fn new(kind: &'static str, clock: Arc<dyn Clock>) -> Self {
        Self { kind, clock, quiet_until: AtomicU64::new(0), unsaid: AtomicU64::new(0) }
    }

    /// Notes a fault; writes a line if none was written within the last second.
    pub fn note(&self, fault: &dyn std::error::Error) {
        let now = self.clock.monotonic_micros();
        let quiet_until = self.quiet_until.load(Ordering::Relaxed);
        let mine = now >= quiet_until
            && self
                .quiet_until
                .compare_exchange(quiet_until, now + LINE_EVERY_MICROS, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if mine {
            let unsaid = self.unsaid.swap(0, Ordering::Relaxed);
            tracing::error!(kind = self.kind, unsaid_before = unsaid, "{fault}");
        } else {
            self.unsaid.fetch_add(1, Ordering::Relaxed);
        }
    }
}
