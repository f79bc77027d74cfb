//! Counters of the API, looked up once.

use http::StatusCode;
use prometheus::{IntCounter, IntGauge};

use crate::api::routes::{ENDPOINTS, Endpoint};
use crate::serve::whole::Answered;
use crate::telemetry::http::RouteSeries;
use crate::telemetry::metrics::Metrics;

/// This listener's name in metrics.
pub(super) const LISTENER: &str = "api";

/// Counts for the API.
pub(super) struct Observer {
    metrics: Metrics,
    series: Vec<Series>,
    /// Of requests without an endpoint.
    without_endpoint: RouteSeries,
}

/// The series of one endpoint.
struct Series {
    endpoint: Endpoint,
    ok: IntCounter,
    requests: RouteSeries,
    key: Option<KeyOperation>,
}

/// Requests about keys by their outcome.
struct KeyOperation([(&'static str, IntCounter); 3]);

/// A request that is being answered, until this is dropped.
pub(super) struct UnderWay<'a>(&'a IntGauge);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Observer {
    pub(super) fn new(metrics: &Metrics) -> Self {
        let no_tenant = "".into();
        let all = ENDPOINTS.into_iter().chain([Endpoint::Console]);
        let series = all.map(|endpoint| Series {
            endpoint,
            ok: metrics.requests.with_label_values(&[LISTENER, endpoint.path(), "200"]),
            requests: RouteSeries::new(metrics, &no_tenant, endpoint.path()),
            key: endpoint.key_operation().map(|operation| KeyOperation::new(metrics, operation)),
        });
        let without_endpoint = RouteSeries::new(metrics, &no_tenant, "");
        Self { series: series.collect(), without_endpoint, metrics: metrics.clone() }
    }

    /// A request is about to be answered.
    pub(super) fn begin(&self) -> UnderWay<'_> {
        self.metrics.api_in_flight.inc();
        UnderWay(&self.metrics.api_in_flight)
    }

    /// A request was answered; no endpoint: there was nothing at its path, or not with its method.
    pub(super) fn answered(&self, endpoint: Option<Endpoint>, answered: &Answered<'_>) {
        let (status, seconds) = (answered.status, answered.micros as f64 / 1e6);
        let series = self.series.iter().find(|series| Some(series.endpoint) == endpoint);
        if let Some(key) = series.and_then(|series| series.key.as_ref()) {
            key.count(status);
        }
        let requests = series.map_or(&self.without_endpoint, |series| &series.requests);
        requests.observe(answered.method.as_bytes(), status.as_u16(), seconds);
        match series {
            Some(series) if status == StatusCode::OK => series.ok.inc(),
            Some(_) | None => {
                let path = endpoint.map_or("none", Endpoint::path);
                self.metrics.requests.with_label_values(&[LISTENER, path, status.as_str()]).inc();
            }
        }
    }
}

impl KeyOperation {
    fn new(metrics: &Metrics, operation: &str) -> Self {
        let count = |outcome| metrics.key_operations.with_label_values(&[operation, outcome]);
        Self(["done", "refused", "failed"].map(|outcome| (outcome, count(outcome))))
    }

    fn count(&self, status: StatusCode) {
        let outcome = outcome_of(status);
        self.0.iter().filter(|(name, _)| *name == outcome).for_each(|(_, counter)| counter.inc());
    }
}

/// The outcome of a request about a key.
pub(super) fn outcome_of(status: StatusCode) -> &'static str {
    match status.as_u16() {
        ..400 => "done",
        400..500 => "refused",
        500.. => "failed",
    }
}
