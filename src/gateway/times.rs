//! The moments of a forwarded request that tell its time here from its upstream's.

use std::time::Duration;

use tokio::time::Instant;

/// The moments that a request has reached.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Times {
    /// It turned to its upstream: a connection was begun, or its head was sent over one that was there.
    pub(super) left: Option<Instant>,
    /// Its last part was sent, before any of the answer came.
    pub(super) asked: Option<Instant>,
    /// The first byte of the final answer came.
    pub(super) answered: Option<Instant>,
}

impl Times {
    /// A part of the request was sent.
    pub(super) fn sent(&mut self, now: Instant) {
        self.left.get_or_insert(now);
        // The answer may have come by the time that the sending is noted.
        if self.answered.is_none() || self.asked.is_none() {
            self.asked = Some(now);
        }
    }

    /// The time before it turned to its upstream. `None`: it did not.
    pub(super) fn own(&self, begun: Instant) -> Option<Duration> {
        Some(self.left?.saturating_duration_since(begun))
    }

    /// The time to the first byte of the upstream's answer, from the last part of the request that was sent before.
    pub(super) fn upstreams(&self) -> Option<Duration> {
        Some(self.answered?.saturating_duration_since(self.asked?))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Times;
    use crate::serve::timer::Timer;

    const MILLI: Duration = Duration::from_millis(1);

    #[test]
    fn the_time_here_ends_before_connecting_and_the_upstreams_begins_after_the_upload() {
        let begun = Timer::now();
        let at = |millis: u32| begun + MILLI * millis;
        let mut times = Times::default();
        assert_eq!((times.own(begun), times.upstreams()), (None, None));
        // 2 ms here, a connection, the head and the body, which its client takes 40 ms for.
        times.left = Some(at(2));
        times.sent(at(10));
        times.sent(at(50));
        assert_eq!((times.own(begun), times.upstreams()), (Some(MILLI * 2), None), "there is no answer yet");
        times.answered = Some(at(80));
        times.sent(at(900));
        assert_eq!(times.own(begun), Some(MILLI * 2));
        assert_eq!(times.upstreams(), Some(MILLI * 30));
    }
}
