//! `[shutdown]`: how the process ends after SIGTERM.

use std::time::Duration;

settings! {
    /// How the process ends after SIGTERM. By default a balancer has five seconds to notice, and both together are less than the
    /// 30 seconds after which Kubernetes kills.
    #[derive(Copy)]
    ShutdownSettings(reader) {
        /// How long everything is still served while readiness says no.
        delay: Duration = reader.duration("shutdown.delay", "5s", ["0s", "1h"]),
        /// How long requests and streams under way may then take.
        grace: Duration = reader.duration("shutdown.grace", "20s", ["0s", "24h"]),
    }
}
