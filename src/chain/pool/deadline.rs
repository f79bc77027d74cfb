//! When a read must be over, whatever it waits for.

use std::time::Duration;

/// A moment of the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::chain) struct Deadline {
    at_micros: u64,
}

impl Deadline {
    /// So long after `now_micros`.
    #[must_use]
    pub(in crate::chain) fn after(now_micros: u64, limit: Duration) -> Self {
        let limit = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
        Self { at_micros: now_micros.saturating_add(limit) }
    }

    /// How long it is until then; zero when it is over.
    #[must_use]
    pub(in crate::chain) const fn left(self, now_micros: u64) -> Duration {
        Duration::from_micros(self.at_micros.saturating_sub(now_micros))
    }
}
