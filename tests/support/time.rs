//! The clock, and the only way to wait: for a condition, again and again, up to a bound.
#![expect(
    clippy::disallowed_methods,
    reason = "tests of other processes wait in real time, in this file only"
)]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often a condition is looked at: at first, and once that has taken a while.
const LOOK_FIRST: Duration = Duration::from_millis(5);
const LOOK_LATER: Duration = Duration::from_millis(40);

/// Bound for what should happen at once, on a machine that is busy with other things.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// Waits until `look` gives something.
///
/// Panics with `what` when that takes longer than `within`.
pub(crate) fn until<T>(what: &str, within: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let (begun, mut pause) = (Instant::now(), LOOK_FIRST);
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(begun.elapsed() < within, "not within {within:?}: {what}");
        std::thread::sleep(pause);
        pause = (pause * 5 / 4).min(LOOK_LATER);
    }
}

/// Fails when `disturbed` takes much longer than the same did in calm. Whoever waits for a time limit of the service, which is
/// five seconds or more, takes longer.
#[track_caller]
pub(crate) fn is_undelayed(calm: Duration, disturbed: Duration) {
    assert!(disturbed < calm * 4 + Duration::from_secs(2), "{disturbed:?}, and {calm:?} in calm");
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

    /// How long `act` takes.
    pub(crate) fn of(act: impl FnOnce()) -> Duration {
        let watch = Self::start();
        act();
        watch.elapsed()
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
