//! What the door tells operators of each request: counters looked up once.

use http::StatusCode;
use prometheus::{Histogram, IntCounter};

use crate::api::routes::{ENDPOINTS, Endpoint};
use crate::telemetry::metrics::Metrics;

/// This door's name in metrics.
pub(super) const DOOR: &str = "api";

/// Counts for the API door.
pub(super) struct Observer {
    metrics: Metrics,
    places: Vec<Place>,
}

/// The series of one endpoint that every success touches.
struct Place {
    endpoint: Endpoint,
    ok: IntCounter,
    duration: Histogram,
}

impl Observer {
    pub(super) fn new(metrics: &Metrics) -> Self {
        let places = ENDPOINTS.into_iter().map(|endpoint| Place {
            endpoint,
            ok: metrics.requests.with_label_values(&[DOOR, endpoint.path(), "200"]),
            duration: metrics.request_duration.with_label_values(&[DOOR, endpoint.path()]),
        });
        Self { places: places.collect(), metrics: metrics.clone() }
    }

    /// A request was answered; no endpoint: there was nothing at its path, or not with its method.
    pub(super) fn answered(&self, endpoint: Option<Endpoint>, status: StatusCode, micros: u64) {
        let place = self.places.iter().find(|place| Some(place.endpoint) == endpoint);
        if let Some(place) = place {
            place.duration.observe(micros as f64 / 1e6);
        }
        match place {
            Some(place) if status == StatusCode::OK => place.ok.inc(),
            Some(_) | None => {
                let path = endpoint.map_or("none", Endpoint::path);
                self.metrics.requests.with_label_values(&[DOOR, path, status.as_str()]).inc();
            }
        }
    }
}
