//! The clock, and the only way to wait: for a condition, again and again, up to a bound.
#![expect(
    clippy::disallowed_methods,
    reason = "tests of other processes wait in real time, in this file only"
)]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Bound for what should happen at once, on a machine that is busy with other things.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// Waits until `look` gives something.
///
/// Panics with `what` when that takes longer than `within`.
pub(crate) fn until<T>(what: &str, within: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(begun.elapsed() < within, "not within {within:?}: {what}");
        std::thread::sleep(LOOK_EVERY);
    }
}

/// True when `race` is won in one of three rounds. It runs against a time limit of the service, which a busy machine may
/// lose; whoever waits for what the limit ends loses each round.
pub(crate) fn wins(race: impl FnMut() -> bool) -> bool {
    std::iter::repeat_with(race).take(3).any(|is_won| is_won)
}

pub(crate) fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

pub(crate) fn unix_seconds() -> u64 {
    unix_millis() / 1_000
}

/// How long something takes.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
