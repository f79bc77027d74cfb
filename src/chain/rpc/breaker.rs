//! When a node is given up, and when it is tried again: a circuit breaker as a value, with time as an argument.
//!
//! Closed: the node is asked. Open: nobody asks it, at no cost. It is closed by a probe of the watch alone, so that no
//! read is ever the one that finds out. A node that has just been closed is on trial: one more failure opens it again,
//! and for longer, until it has answered a read.

use std::sync::Arc;
use std::time::Duration;

use crate::chain::fault::ReadError;

/// So many failures in a row open the breaker.
pub(super) const FAILURES_MAX: u32 = 3;

/// The first pause before a probe, in microseconds; each further opening doubles it.
const PAUSE_MICROS: u64 = 1_000_000;

/// The longest pause that we choose.
const PAUSE_MICROS_MAX: u64 = 2_000_000;

/// The longest pause that a node may ask for.
const ASKED_PAUSE_MAX: Duration = Duration::from_secs(60);

/// What is asked of nodes. Each class may fail while the others go on: an answer of one says nothing about another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Reads of contracts, and the probes.
    Calls,
    /// Blocks.
    Blocks,
    /// Logs. Their failures alone never open a breaker, for reads need no logs.
    Logs,
}

/// The breaker of one node.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    /// Of calls, in a row.
    call_failures: u32,
    /// Of blocks, in a row.
    block_failures: u32,
    /// Since the node last answered a read.
    openings: u32,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    since_micros: u64,
    until_micros: u64,
    /// What opened it.
    cause: Arc<ReadError>,
}

impl Breaker {
    /// What opened it, when it is open.
    pub(super) fn cause(&self) -> Option<&Arc<ReadError>> {
        self.open.as_ref().map(|open| &open.cause)
    }

    /// True when it is open and a probe may find out whether the node has recovered.
    pub(super) fn is_due(&self, now_micros: u64) -> bool {
        self.open.as_ref().is_some_and(|open| now_micros >= open.until_micros)
    }

    /// True when it has been open for so long.
    pub(super) fn is_open_for(&self, micros: u64, now_micros: u64) -> bool {
        self.open.as_ref().is_some_and(|open| now_micros.saturating_sub(open.since_micros) >= micros)
    }

    /// The node answered a read. One that began before the breaker opened says nothing about now.
    pub(super) const fn answered(&mut self, class: Class) {
        if self.open.is_none()
            && let Some(failures) = self.failures(class)
        {
            *failures = 0;
            self.openings = 0;
        }
    }

    /// The node failed. `grain` is any number: replicas that failed together must not come back together.
    pub(super) fn failed(&mut self, class: Class, error: &ReadError, now_micros: u64, grain: u64) {
        let failures = self.failures(class).map_or(0, |failures| {
            *failures = failures.saturating_add(1);
            *failures
        });
        let asked = asked_pause_micros(error);
        match &mut self.open {
            // Calls that were under way when it opened; a node that asks to be left alone for longer is.
            Some(open) => {
                let until = asked.map_or(0, |pause| now_micros.saturating_add(pause));
                open.until_micros = open.until_micros.max(until);
            }
            None if asked.is_some() || failures >= FAILURES_MAX => {
                self.open(error, asked, now_micros, grain);
            }
            None => {}
        }
    }

    /// A probe of an open breaker failed: the next one waits longer.
    pub(super) fn probe_failed(&mut self, error: &ReadError, now_micros: u64, grain: u64) {
        self.open(error, asked_pause_micros(error), now_micros, grain);
    }

    /// A probe succeeded: the node is asked again, on trial.
    pub(super) fn probed(&mut self) {
        if self.open.take().is_some() {
            self.call_failures = FAILURES_MAX - 1;
            self.block_failures = FAILURES_MAX - 1;
        }
    }

    const fn failures(&mut self, class: Class) -> Option<&mut u32> {
        match class {
            Class::Calls => Some(&mut self.call_failures),
            Class::Blocks => Some(&mut self.block_failures),
            Class::Logs => None,
        }
    }

    fn open(&mut self, error: &ReadError, asked: Option<u64>, now_micros: u64, grain: u64) {
        let pause = asked.unwrap_or(0).max(pause_micros(self.openings, grain));
        self.openings = self.openings.saturating_add(1);
        let until_micros = now_micros.saturating_add(pause);
        self.open = Some(Open { since_micros: now_micros, until_micros, cause: Arc::new(error.clone()) });
    }
}

/// The pause after so many, in microseconds: from three quarters to five quarters of what doubling gives.
pub(super) fn pause_micros(openings: u32, grain: u64) -> u64 {
    let whole = PAUSE_MICROS.saturating_mul(1 << openings.min(16)).min(PAUSE_MICROS_MAX);
    let spread = grain.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    whole * 3 / 4 + spread % (whole / 2)
}

fn asked_pause_micros(error: &ReadError) -> Option<u64> {
    let ReadError::RateLimited(Some(pause)) = error else { return None };
    u64::try_from((*pause).min(ASKED_PAUSE_MAX).as_micros()).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::{any, prop_assert, proptest};

    use super::{Breaker, Class, FAILURES_MAX, PAUSE_MICROS, PAUSE_MICROS_MAX, pause_micros};
    use crate::chain::fault::ReadError;

    const FAULT: ReadError = ReadError::HttpStatus(500);

    fn open() -> Breaker {
        let mut breaker = Breaker::default();
        for _ in 0..FAILURES_MAX {
            breaker.failed(Class::Calls, &FAULT, 0, 0);
        }
        assert!(breaker.cause().is_some());
        breaker
    }

    fn pause(breaker: &Breaker, now: u64) -> u64 {
        (0..200_000_000).step_by(250_000).find(|wait| breaker.is_due(now + wait)).unwrap()
    }

    #[test]
    fn three_failures_in_a_row_open_it_and_an_answer_between_them_does_not() {
        let mut breaker = Breaker::default();
        for _ in 0..10 {
            breaker.failed(Class::Calls, &FAULT, 0, 0);
            breaker.failed(Class::Calls, &FAULT, 0, 0);
            assert!(breaker.cause().is_none());
            breaker.answered(Class::Calls);
        }
        for _ in 0..FAILURES_MAX {
            assert!(breaker.cause().is_none());
            breaker.failed(Class::Calls, &FAULT, 0, 0);
        }
        assert_eq!(breaker.cause().map(|cause| &**cause), Some(&FAULT));
    }

    #[test]
    fn each_class_is_counted_by_itself_and_logs_open_nothing() {
        let mut breaker = Breaker::default();
        for _ in 0..FAILURES_MAX {
            assert!(breaker.cause().is_none());
            breaker.failed(Class::Calls, &FAULT, 0, 0);
            breaker.answered(Class::Blocks);
            breaker.answered(Class::Logs);
        }
        assert!(breaker.cause().is_some(), "answers with blocks do not hide that calls fail");
        let mut breaker = Breaker::default();
        for _ in 0..10 {
            breaker.failed(Class::Logs, &FAULT, 0, 0);
        }
        assert!(breaker.cause().is_none());
        breaker.failed(Class::Logs, &ReadError::RateLimited(Some(Duration::from_secs(9))), 0, 0);
        assert!(breaker.cause().is_some(), "but a node that asks for time gets it");
    }

    #[test]
    fn only_a_probe_closes_it_and_one_failure_on_trial_opens_it_for_longer() {
        let mut breaker = open();
        breaker.answered(Class::Calls);
        assert!(breaker.cause().is_some(), "an answer to a call of before says nothing");
        let mut now = 0;
        let mut pauses = Vec::new();
        for _ in 0..10 {
            pauses.push(pause(&breaker, now));
            now += pause(&breaker, now);
            breaker.probed();
            assert!(breaker.cause().is_none());
            breaker.failed(Class::Calls, &FAULT, now, 0);
            assert!(breaker.cause().is_some());
        }
        assert!(pauses.is_sorted() && pauses[9] == 2 * pauses[0], "{pauses:?}");
        breaker.probed();
        breaker.answered(Class::Calls);
        breaker.failed(Class::Calls, &FAULT, now, 0);
        breaker.failed(Class::Calls, &FAULT, now, 0);
        assert!(breaker.cause().is_none(), "it has proved itself");
    }

    #[test]
    fn a_failed_probe_lengthens_the_pause() {
        let mut breaker = open();
        let first = pause(&breaker, 0);
        breaker.probe_failed(&ReadError::Busy, first, 0);
        assert!(pause(&breaker, first) > first);
        assert_eq!(breaker.cause().map(|cause| &**cause), Some(&ReadError::Busy), "the last cause is told");
    }

    #[test]
    fn failures_of_calls_that_were_under_way_do_not_lengthen_the_pause() {
        let mut breaker = open();
        let before = pause(&breaker, 0);
        for _ in 0..100 {
            breaker.failed(Class::Calls, &FAULT, 500_000, 0);
        }
        assert_eq!(pause(&breaker, 0), before);
    }

    #[test]
    fn a_node_that_asks_for_time_gets_it_at_once_and_at_most_a_minute() {
        for (asked, at_least) in [(7, 7), (60, 60), (86_400, 60)] {
            let mut breaker = Breaker::default();
            breaker.failed(Class::Calls, &ReadError::RateLimited(Some(Duration::from_secs(asked))), 0, 0);
            assert!(!breaker.is_due(at_least * 1_000_000 - 1) && breaker.is_due(at_least * 1_000_000));
        }
        let mut breaker = Breaker::default();
        breaker.failed(Class::Calls, &ReadError::RateLimited(None), 0, 0);
        assert!(breaker.cause().is_none());
        let mut breaker = open();
        breaker.failed(Class::Calls, &ReadError::RateLimited(Some(Duration::from_secs(9))), 0, 0);
        assert!(!breaker.is_due(8_999_999), "also when it is open already");
    }

    proptest! {
        #[test]
        fn a_pause_is_near_its_doubling_and_never_long(openings in 0_u32..100, grain in any::<u64>()) {
            let pause = pause_micros(openings, grain);
            let whole = (PAUSE_MICROS << openings.min(10)).min(PAUSE_MICROS_MAX);
            prop_assert!(pause >= whole * 3 / 4 && pause <= whole * 5 / 4);
        }
    }
}
