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
        let duration = self.well_formed(text)?;
        if (self.min..=self.max).contains(&duration) { Ok(duration) } else { Err(self.refused(text)) }
    }

    /// The same where 0 stands for none.
    pub(super) fn parse_or_none(&self, text: &str) -> Result<Option<Duration>, String> {
        if self.well_formed(text)?.is_zero() {
            return Ok(None);
        }
        self.parse(text).map(Some)
    }

    fn well_formed(&self, text: &str) -> Result<Duration, String> {
        if text.trim().parse().is_ok_and(f64::is_finite) {
            return Err(without_unit(&quoted(text)));
        }
        humantime::parse_duration(text).map_err(|_| self.refused(text))
    }

    fn refused(&self, text: &str) -> String {
        let allowed = self.allowed;
        format!("is {}; write a duration {allowed}, such as \"300s\", \"24h\" or \"1m 30s\"", quoted(text))
    }
}
