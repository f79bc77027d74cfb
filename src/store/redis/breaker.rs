//! When a server is tried again that can't be used: a circuit breaker as a value, with time as an argument.
//!
//! Closed: requests go through. Open: nobody asks, and a request costs nothing. Half open: a connection is being tried,
//! and requests still cost nothing. No client's request is ever the one that finds out.

/// The first pause before a connection is tried, in microseconds; each failure doubles it.
const PAUSE_MICROS: u64 = 50_000;

/// The longest pause.
const PAUSE_MICROS_MAX: u64 = 1_000_000;

pub(super) const CLOSED: &str = "closed";
pub(super) const OPEN: &str = "open";
pub(super) const HALF_OPEN: &str = "half_open";

/// The breaker of one server.
#[derive(Debug)]
pub(super) struct Breaker {
    /// Its name in metrics.
    pub(super) state: &'static str,
    failures: u32,
    next_try_micros: u64,
}

impl Breaker {
    /// Open, and to be tried at once: the server has not been asked yet.
    pub(super) const fn new() -> Self {
        Self { state: OPEN, failures: 0, next_try_micros: 0 }
    }

    /// The server can't be used. It is tried again after a pause.
    pub(super) fn open(&mut self, now_micros: u64) {
        self.state = OPEN;
        let doublings = self.failures.min(16);
        let pause = PAUSE_MICROS.saturating_mul(1 << doublings).min(PAUSE_MICROS_MAX);
        self.failures = self.failures.saturating_add(1);
        self.next_try_micros = now_micros.saturating_add(pause);
    }

    /// For how many microseconds to wait before a connection is tried.
    pub(super) const fn pause_micros(&self, now_micros: u64) -> u64 {
        self.next_try_micros.saturating_sub(now_micros)
    }

    /// A connection is being tried.
    pub(super) const fn trying(&mut self) {
        self.state = HALF_OPEN;
    }

    /// The server is used.
    pub(super) const fn close(&mut self) {
        self.state = CLOSED;
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::{Breaker, CLOSED, HALF_OPEN, OPEN, PAUSE_MICROS, PAUSE_MICROS_MAX};

    #[test]
    fn a_server_that_was_not_asked_yet_is_tried_at_once() {
        let breaker = Breaker::new();
        assert_eq!((breaker.state, breaker.pause_micros(0)), (OPEN, 0));
    }

    #[test]
    fn each_failure_doubles_the_pause_up_to_the_longest_and_a_success_begins_anew() {
        let mut breaker = Breaker::new();
        let mut now = 0;
        let mut pauses = Vec::new();
        for _ in 0..100 {
            breaker.open(now);
            assert_eq!(breaker.state, OPEN);
            pauses.push(breaker.pause_micros(now));
            now += breaker.pause_micros(now);
            assert_eq!(breaker.pause_micros(now), 0);
            breaker.trying();
            assert_eq!(breaker.state, HALF_OPEN);
        }
        assert_eq!(pauses[..3], [PAUSE_MICROS, 2 * PAUSE_MICROS, 4 * PAUSE_MICROS]);
        assert_eq!(pauses.last(), Some(&PAUSE_MICROS_MAX));
        breaker.close();
        assert_eq!(breaker.state, CLOSED);
        breaker.open(now);
        assert_eq!(breaker.pause_micros(now), PAUSE_MICROS);
    }
}
