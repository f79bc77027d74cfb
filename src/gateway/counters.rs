//! The counters of a tenant, and the log of its faults.

use std::sync::{Arc, OnceLock};

use prometheus::IntCounter;

use crate::ports::clock::Clock;
use crate::telemetry::faults::FaultLog;
use crate::telemetry::metrics::Metrics;

/// The counters of one tenant, made at its first request: most of many tenants get none.
pub(super) struct SiteCounters {
    metrics: Metrics,
    tenant: Arc<str>,
    series: OnceLock<Series>,
    /// Made when its first request fails.
    faults: OnceLock<Box<FaultLog>>,
}

/// A tenant's requests by outcome.
pub(super) struct Series {
    pub(super) forwarded: IntCounter,
    pub(super) refused: IntCounter,
    pub(super) failed: IntCounter,
    pub(super) abandoned: IntCounter,
}

impl SiteCounters {
    pub(super) fn new(metrics: &Metrics, tenant: &Arc<str>) -> Self {
        Self {
            metrics: metrics.clone(),
            tenant: Arc::clone(tenant),
            series: OnceLock::new(),
            faults: OnceLock::new(),
        }
    }

    /// The log of the tenant's faults. Each tenant has its own, so that a broken one hides no other.
    pub(super) fn faults(&self, clock: &Arc<dyn Clock>) -> &FaultLog {
        self.faults.get_or_init(|| Box::new(FaultLog::new("upstream", Arc::clone(clock))))
    }

    pub(super) fn series(&self) -> &Series {
        self.series.get_or_init(|| {
            let counter =
                |outcome| self.metrics.gateway_requests.with_label_values(&[&*self.tenant, outcome]);
            Series {
                forwarded: counter("forwarded"),
                refused: counter("refused"),
                failed: counter("failed"),
                abandoned: counter("abandoned"),
            }
        })
    }
}
