//! The pause between tries of a server of Redis.

use std::time::Duration;

/// How long to wait before a server is tried again after a session with it; each failure doubles it.
pub(super) const PAUSE: Duration = Duration::from_millis(50);

/// The longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The pause after the next failure.
pub(super) fn longer(pause: Duration) -> Duration {
    PAUSE_MAX.min(2 * pause)
}

#[cfg(test)]
mod tests {
    use super::{Duration, PAUSE, longer};

    #[test]
    fn each_failure_doubles_the_pause_up_to_the_longest() {
        let pauses = std::iter::successors(Some(PAUSE), |pause| Some(longer(*pause)));
        assert!(pauses.take(7).eq([50, 100, 200, 400, 800, 1_000, 1_000].map(Duration::from_millis)));
    }
}
