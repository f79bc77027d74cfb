//! Counters of the API, looked up once.

use http::StatusCode;
use prometheus::{IntCounter, IntGauge};
use strum::VariantArray;

use crate::api::routes::Endpoint;
use crate::serve::buffered::Answered;
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
    /// Those about keys by their outcome.
    key: Option<[(&'static str, IntCounter); 3]>,
}

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
        let count = |operation, outcome| metrics.key_operations.with_label_values(&[operation, outcome]);
        let key = |name| ["done", "refused", "failed"].map(|outcome| (outcome, count(name, outcome)));
        let series = Endpoint::VARIANTS.iter().map(|&endpoint| Series {
            endpoint,
            ok: metrics.requests.with_label_values(&[LISTENER, endpoint.path(), "200"]),
            requests: RouteSeries::new(metrics, &no_tenant, endpoint.path(), None),
            key: endpoint.key_operation().map(key),
        });
        let without_endpoint = RouteSeries::new(metrics, &no_tenant, "", None);
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
            let outcome = outcome_of(status);
            key.iter().filter(|(name, _)| *name == outcome).for_each(|(_, counter)| counter.inc());
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

/// The outcome of a request about a key.
pub(super) fn outcome_of(status: StatusCode) -> &'static str {
    match status.as_u16() {
        ..400 => "done",
        400..500 => "refused",
        500.. => "failed",
    }
}
