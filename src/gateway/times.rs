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
    /// The first part of the answer was passed on.
    pub(super) passed_on: Option<Instant>,
}

impl Times {
    /// A part of the request or of its answer was moved.
    pub(super) fn moved(&mut self, now: Instant, of_request: bool, of_answer: bool) {
        if of_request {
            self.left.get_or_insert(now);
            if self.answered.is_none() {
                self.asked = Some(now);
            }
        }
        if of_answer && self.answered.is_some() {
            self.passed_on.get_or_insert(now);
        }
    }

    /// The time before the upstream was asked, and between its answer's first byte and the client. `None` without an answer.
    pub(super) fn own(&self, begun: Instant) -> Option<Duration> {
        let (left, answered) = (self.left?, self.answered?);
        let passed_on = self.passed_on.unwrap_or(answered);
        Some(left.saturating_duration_since(begun) + passed_on.saturating_duration_since(answered))
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
    fn the_time_here_is_all_but_connecting_the_upload_and_the_upstream() {
        let begun = Timer::now();
        let at = |millis: u32| begun + MILLI * millis;
        let mut times = Times::default();
        assert_eq!((times.own(begun), times.upstreams()), (None, None));
        // 2 ms here, a connection, the head and the body, which its client takes 40 ms for.
        times.left = Some(at(2));
        times.moved(at(10), true, false);
        times.moved(at(50), true, false);
        assert_eq!((times.own(begun), times.upstreams()), (None, None), "there is no answer yet");
        times.answered = Some(at(80));
        times.moved(at(83), false, true);
        times.moved(at(900), true, true);
        assert_eq!(times.own(begun), Some(MILLI * (2 + 3)));
        assert_eq!(times.upstreams(), Some(MILLI * 30));
    }
}
