//! The clock of tests whose nodes answer over loopback.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::os::Os;
use crate::ports::clock::Clock;

/// Time that passes by itself, and faster when a test says so.
pub(in crate::chain) struct TestClock {
    os: Os,
    began_micros: u64,
    ahead_micros: AtomicU64,
}

impl TestClock {
    pub(in crate::chain) fn new() -> Self {
        let os = Os::new();
        Self { began_micros: os.monotonic_micros(), os, ahead_micros: AtomicU64::new(0) }
    }

    pub(in crate::chain) fn advance(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap();
        self.ahead_micros.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn unix_millis(&self) -> u64 {
        1_700_000_000_000 + self.monotonic_micros() / 1_000
    }

    fn monotonic_micros(&self) -> u64 {
        1 + self.os.monotonic_micros() - self.began_micros + self.ahead_micros.load(Ordering::SeqCst)
    }
}
