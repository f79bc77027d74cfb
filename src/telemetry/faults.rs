//! The log of faults: the first of its kind at once, then at most one line a second, each with how many had none since the last.
//!
//! A dead node or disk fails every request alike; a line for each would bury the one that explains it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::{fmt::Display, sync::Arc};

use crate::ports::Clock;

/// Logs faults of one kind without flooding.
pub(crate) struct FaultLog {
    kind: &'static str,
    clock: Arc<dyn Clock>,
    rate: LineRate,
}

/// How many lines of one kind are written. Those that are left out are counted.
pub(super) struct LineRate {
    every_micros: u64,
    /// How long before it is due a line may be written, in microseconds.
    early_micros: u64,
    /// When the next line is due, in monotonic microseconds.
    due: AtomicU64,
    suppressed: AtomicU64,
}

impl LineRate {
    /// So many at once, and as many a second thereafter.
    pub(super) const fn per_second(lines: u64) -> Self {
        let every_micros = 1_000_000 / lines;
        let early_micros = every_micros * (lines - 1);
        Self { every_micros, early_micros, due: AtomicU64::new(0), suppressed: AtomicU64::new(0) }
    }

    /// Returns how many lines were left out before, if one may be written now; else counts it as left out.
    pub(super) fn turn(&self, now: u64) -> Option<u64> {
        let next = |due: u64| (due <= now + self.early_micros).then(|| due.max(now) + self.every_micros);
        if self.due.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_err() {
            self.suppressed.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.suppressed())
    }

    /// Returns how many lines were left out since this was last asked.
    pub(super) fn suppressed(&self) -> u64 {
        self.suppressed.swap(0, Ordering::Relaxed)
    }
}

impl FaultLog {
    /// For faults of this kind, as the log names it.
    pub(crate) const fn new(kind: &'static str, clock: Arc<dyn Clock>) -> Self {
        Self { kind, clock, rate: LineRate::per_second(1) }
    }

    /// Notes a fault; writes a line if none was written within the last second.
    pub(crate) fn note(&self, fault: impl Display) {
        if let Some(suppressed) = self.rate.turn(self.clock.monotonic_micros()) {
            tracing::error!(kind = self.kind, suppressed, "{fault}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tracing::dispatcher::with_default;

    use super::FaultLog;
    use crate::ports::simulated::SimulatedClock;
    use crate::telemetry::fixture::LogCapture;

    fn log() -> (FaultLog, Arc<SimulatedClock>, LogCapture) {
        let clock = Arc::new(SimulatedClock::new(1_700_000_000));
        (FaultLog::new("chain", clock.clone()), clock, LogCapture::default())
    }

    #[test]
    fn a_flood_is_one_line_a_second_that_says_how_many_went_unsaid() {
        let (log, clock, captured) = log();
        with_default(&captured.dispatch(), || {
            for expected in [0, 999, 999] {
                for _ in 0..1_000 {
                    log.note("node down");
                    clock.advance_micros(1_000);
                }
                let lines = captured.take();
                assert_eq!(lines.len(), 1, "{lines:?}");
                let suppressed = format!("suppressed={expected}");
                for part in ["ERROR", "node down", "kind=\"chain\"", &suppressed] {
                    assert!(lines[0].contains(part), "{part} in {}", lines[0]);
                }
            }
        });
    }

    #[test]
    fn the_first_fault_after_a_quiet_time_is_said_at_once() {
        let (log, clock, captured) = log();
        with_default(&captured.dispatch(), || {
            for _ in 0..3 {
                log.note("disk full");
                assert!(captured.take()[0].contains("suppressed=0"));
                clock.advance_secs(60);
            }
            clock.step_wall_secs(-3_600);
            log.note("disk full");
            assert_eq!(captured.take().len(), 1, "the wall clock does not matter");
        });
    }

    #[test]
    fn one_of_many_threads_writes_the_line_and_no_fault_is_lost() {
        let (log, clock, captured) = log();
        let dispatch = captured.dispatch();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let flood = || (0..500).for_each(|_| log.note("down"));
                    with_default(&dispatch, flood);
                });
            }
        });
        assert_eq!(captured.take().len(), 1);
        clock.advance_secs(1);
        with_default(&dispatch, || log.note("down"));
        assert!(captured.take()[0].contains("suppressed=3999"));
    }
}
