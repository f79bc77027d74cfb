//! `[shutdown]`: how the process ends after SIGTERM.

use std::time::Duration;

settings! {
    /// How the process ends after SIGTERM. By default a balancer has five seconds to notice, and both together are less than the
    /// 30 seconds after which Kubernetes kills.
    #[derive(Copy)]
    ShutdownSettings(reader) {
        /// After SIGTERM /readyz is 503, and everything is served for so long, up to 1h, before listeners close: as long as a
        /// balancer, or Kubernetes, takes to send nothing more. "0s" where nobody balances.
        delay: Duration = reader.duration("shutdown.delay", "5s", ["0s", "1h"]),
        /// For how long requests and streams under way may then go on, up to 24h. The process ends when nothing is left. Both
        /// together should be less than what the supervisor waits before it kills: 30s in Kubernetes.
        grace: Duration = reader.duration("shutdown.grace", "20s", ["0s", "24h"]),
    }
}
