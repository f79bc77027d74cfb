//! Durations as people write them: a number and a unit, several times if need be ("300s", "24h", "1m 30s").

use std::time::Duration;

use crate::config::written::{quoted, without_unit};

/// Which durations a key allows. Both ends belong to it.
pub(super) struct DurationBounds {
    /// The shortest.
    pub(super) min: Duration,
    /// The longest.
    pub(super) max: Duration,
    /// The same in words, after "a duration".
    pub(super) allowed: &'static str,
}

impl DurationBounds {
    /// Reads a duration, or says what is wrong with it.
    pub(super) fn parse(&self, text: &str) -> Result<Duration, String> {
        if text.trim().parse().is_ok_and(f64::is_finite) {
            return Err(without_unit(&quoted(text)));
        }
        let refused = || {
            let allowed = self.allowed;
            format!(
                "is {}; write a duration {allowed}, such as \"300s\", \"24h\" or \"1m 30s\"",
                quoted(text)
            )
        };
        let duration = humantime::parse_duration(text).map_err(|_| refused())?;
        if (self.min..=self.max).contains(&duration) { Ok(duration) } else { Err(refused()) }
    }
}
