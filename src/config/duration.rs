//! Durations as people write them: a number and a unit, several times if need be ("300s", "24h", "1m 30s").

use std::time::Duration;

use crate::config::written::{quoted, without_unit};

/// The shortest and the longest duration that a key allows, as people write them.
pub(super) type Bounds = [&'static str; 2];

/// Reads a duration, or says what is wrong with it.
pub(super) fn parse(text: &str, [min, max]: Bounds) -> Result<Duration, String> {
    if is_number(text) {
        return Err(without_unit(&quoted(text)));
    }
    match [text, min, max].map(humantime::parse_duration) {
        [Ok(duration), Ok(least), Ok(most)] if (least..=most).contains(&duration) => Ok(duration),
        _ => Err(format!(
            "is {}; write a duration from {min} to {max}, such as \"300s\", \"24h\" or \"1m 30s\"",
            quoted(text)
        )),
    }
}

/// The same where 0 stands for none.
pub(super) fn parse_or_none(text: &str, bounds: Bounds) -> Result<Option<Duration>, String> {
    let is_none = !is_number(text) && humantime::parse_duration(text).is_ok_and(|found| found.is_zero());
    if is_none {
        return Ok(None);
    }
    parse(text, bounds).map(Some).map_err(|phrase| format!("{phrase}, or \"0s\" for none"))
}

fn is_number(text: &str) -> bool {
    text.trim().parse().is_ok_and(f64::is_finite)
}
