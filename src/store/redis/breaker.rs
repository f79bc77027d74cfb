//! When a server is given up, and when it is asked again: a circuit breaker as a value, with time as an argument.
//!
//! Closed: requests go through. Open: nobody asks, and a request costs nothing. Half open: one connection is being tried,
//! and requests still cost nothing. No request of a client is ever the one that finds out.

/// So many unanswered requests in a row open the breaker.
const SILENCES_MAX: u32 = 4;

/// The first pause before a connection is tried, in microseconds; each failure doubles it.
const PAUSE_MICROS: u64 = 50_000;

/// The longest pause.
const PAUSE_MICROS_MAX: u64 = 1_000_000;

/// Whether requests go to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Closed,
    Open,
    HalfOpen,
}

impl State {
    /// What metrics call it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// The breaker of one server.
#[derive(Debug)]
pub(super) struct Breaker {
    state: State,
    silences: u32,
    failures: u32,
    next_try_micros: u64,
}

impl Breaker {
    /// Open, and to be tried at once: nothing is known of the server yet.
    pub(super) const fn new() -> Self {
        Self { state: State::Open, silences: 0, failures: 0, next_try_micros: 0 }
    }

    pub(super) const fn state(&self) -> State {
        self.state
    }

    /// A request was answered, whatever the answer.
    pub(super) const fn answered(&mut self) {
        self.silences = 0;
    }

    /// A request was not answered in time. True when that was one too many.
    pub(super) fn silent(&mut self) -> bool {
        self.silences = self.silences.saturating_add(1);
        self.state == State::Closed && self.silences >= SILENCES_MAX
    }

    /// The server is given up, for one of several reasons. It is tried again after a pause.
    pub(super) fn open(&mut self, now_micros: u64) {
        self.state = State::Open;
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
        self.state = State::HalfOpen;
    }

    /// It serves.
    pub(super) const fn close(&mut self) {
        self.state = State::Closed;
        self.silences = 0;
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::{Breaker, PAUSE_MICROS, PAUSE_MICROS_MAX, SILENCES_MAX, State};

    fn closed() -> Breaker {
        let mut breaker = Breaker::new();
        breaker.trying();
        breaker.close();
        breaker
    }

    #[test]
    fn a_server_that_nobody_asked_yet_is_tried_at_once() {
        let breaker = Breaker::new();
        assert_eq!((breaker.state(), breaker.pause_micros(0)), (State::Open, 0));
    }

    #[test]
    fn silences_in_a_row_open_it_and_an_answer_between_them_does_not() {
        let mut breaker = closed();
        for _ in 0..10 {
            for _ in 1..SILENCES_MAX {
                assert!(!breaker.silent());
            }
            breaker.answered();
        }
        for _ in 1..SILENCES_MAX {
            assert!(!breaker.silent());
        }
        assert!(breaker.silent());
    }

    #[test]
    fn each_failure_doubles_the_pause_up_to_the_longest() {
        let mut breaker = closed();
        let mut now = 0;
        let mut pauses = Vec::new();
        for _ in 0..100 {
            breaker.open(now);
            assert_eq!(breaker.state(), State::Open);
            pauses.push(breaker.pause_micros(now));
            now += breaker.pause_micros(now);
            assert_eq!(breaker.pause_micros(now), 0);
            breaker.trying();
            assert_eq!(breaker.state(), State::HalfOpen);
        }
        assert_eq!(pauses[..3], [PAUSE_MICROS, 2 * PAUSE_MICROS, 4 * PAUSE_MICROS]);
        assert_eq!(pauses.last(), Some(&PAUSE_MICROS_MAX));
    }

    #[test]
    fn a_connection_that_serves_begins_anew() {
        let mut breaker = closed();
        for _ in 0..20 {
            breaker.open(0);
        }
        breaker.trying();
        breaker.close();
        assert_eq!(breaker.state(), State::Closed);
        breaker.open(7);
        assert_eq!(breaker.pause_micros(7), PAUSE_MICROS);
    }

    #[test]
    fn silences_of_requests_that_began_before_it_opened_do_not_open_it_again() {
        let mut breaker = closed();
        assert!((0..SILENCES_MAX).any(|_| breaker.silent()));
        breaker.open(0);
        assert!(!breaker.silent());
    }
}
