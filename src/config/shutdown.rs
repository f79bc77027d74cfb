//! `[shutdown]`: how the process ends after SIGTERM.

use std::time::Duration;

use crate::config::duration::DurationBounds;
use crate::config::reader::Reader;

const UP_TO_AN_HOUR: DurationBounds =
    DurationBounds { min: Duration::ZERO, max: Duration::from_secs(3_600), allowed: "of at most 1h" };

const UP_TO_A_DAY: DurationBounds =
    DurationBounds { min: Duration::ZERO, max: Duration::from_secs(86_400), allowed: "of at most 24h" };

/// How the process ends after SIGTERM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShutdownSettings {
    /// How long everything is still served while readiness says no.
    pub delay: Duration,
    /// How long requests and streams under way may then take.
    pub grace: Duration,
}

impl ShutdownSettings {
    /// By default a balancer has five seconds to notice, and both together are less than the 30 seconds after which Kubernetes
    /// kills.
    pub(super) fn read(reader: &mut Reader) -> Option<Self> {
        read_all!(Self {
            delay: reader.duration("shutdown.delay", "5s", &UP_TO_AN_HOUR),
            grace: reader.duration("shutdown.grace", "20s", &UP_TO_A_DAY),
        })
    }
}
