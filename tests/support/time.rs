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
#[track_caller]
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

/// How long something that is delayed may be tried for. What disturbs it has to last longer.
const TRIED_FOR: Duration = Duration::from_secs(4);

/// How long something takes at its quickest. A busy machine delays it now and then, a service that waits delays it each time.
pub(crate) fn quickest(times: usize, mut act: impl FnMut()) -> Duration {
    (0..times).map(|_| Stopwatch::of(&mut act)).min().unwrap()
}

/// Fails when something takes much longer, each time, than its quickest in calm. A busy machine delays all for a moment.
#[track_caller]
pub(crate) fn is_undelayed(calm: Duration, mut act: impl FnMut()) {
    let (watch, most) = (Stopwatch::start(), calm * 4 + Duration::from_millis(200));
    let mut times = Vec::new();
    while times.is_empty() || watch.elapsed() < TRIED_FOR {
        let time = Stopwatch::of(&mut act);
        if time < most {
            return;
        }
        times.push(time);
    }
    panic!("{times:?}, and {calm:?} in calm");
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
