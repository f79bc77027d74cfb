//! `[abuse]`: protection against guessing.

use crate::config::reader::Reader;
use crate::domain::quota::Quota;

/// Protection against guessing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbuseSettings {
    /// How many refused credentials one client IP may present before it is limited; nothing when that is off.
    pub failures_per_minute: Option<Quota>,
}

impl AbuseSettings {
    pub(super) fn read(reader: &mut Reader) -> Option<Self> {
        let failures: u32 = reader.integer("abuse.failures_per_minute", 300, &(0..=1_000_000))?;
        Some(Self { failures_per_minute: (failures > 0).then_some(Quota::per_minute(failures)) })
    }
}
