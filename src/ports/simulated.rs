//! A clock that stands still until it is told otherwise, for tests.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::ports::Clock;

/// Time as a test says it is: it passes for both clocks at once, and the wall clock may be stepped besides.
#[derive(Debug)]
pub struct SimulatedClock {
    start_unix_millis: u64,
    passed_micros: AtomicU64,
    stepped_millis: AtomicI64,
}

impl SimulatedClock {
    /// The wall clock shows `unix_secs`, the monotonic one 0.
    pub const fn new(unix_secs: u64) -> Self {
        Self {
            start_unix_millis: unix_secs.saturating_mul(1_000),
            passed_micros: AtomicU64::new(0),
            stepped_millis: AtomicI64::new(0),
        }
    }

    /// Lets time pass.
    pub fn advance_micros(&self, micros: u64) {
        self.passed_micros.fetch_add(micros, Ordering::SeqCst);
    }

    /// Lets time pass.
    pub fn advance_secs(&self, secs: u64) {
        self.advance_micros(secs.saturating_mul(1_000_000));
    }

    /// Sets the wall clock forward or back; no time passes.
    pub fn step_wall_secs(&self, secs: i64) {
        self.stepped_millis.fetch_add(secs.saturating_mul(1_000), Ordering::SeqCst);
    }
}

impl Clock for SimulatedClock {
    fn unix_millis(&self) -> u64 {
        let steady = self.start_unix_millis.saturating_add(self.monotonic_micros() / 1_000);
        steady.saturating_add_signed(self.stepped_millis.load(Ordering::SeqCst))
    }

    fn monotonic_micros(&self) -> u64 {
        self.passed_micros.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::SimulatedClock;
    use crate::ports::Clock;

    #[test]
    fn a_step_moves_the_wall_clock_alone() {
        let clock = SimulatedClock::new(1_000);
        clock.advance_secs(5);
        clock.step_wall_secs(-100);
        assert_eq!((clock.unix_seconds(), clock.monotonic_micros()), (905, 5_000_000));
        clock.step_wall_secs(-10_000);
        assert_eq!(clock.unix_seconds(), 0);
    }
}
