//! `[shutdown]`: how the process ends after SIGTERM.

use std::time::Duration;

use crate::config::reader::Reader;

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
            delay: reader.duration("shutdown.delay", "5s", ["0s", "1h"]),
            grace: reader.duration("shutdown.grace", "20s", ["0s", "24h"]),
        })
    }
}
