//! What the door tells operators of each request: counters looked up once, faults in the log, nothing of secrets.

use std::sync::Arc;

use http::StatusCode;
use prometheus::{Histogram, IntCounter};

use crate::api::routes::{ENDPOINTS, Endpoint};
use crate::domain::denial::Denial;
use crate::domain::tier::Tier;
use crate::pipeline::permit::Permit;
use crate::pipeline::readiness::Report;
use crate::pipeline::refusal::Refusal;
use crate::ports::clock::Clock;
use crate::telemetry::faults::FaultLog;
use crate::telemetry::metrics::Metrics;
use crate::wire::errors::ErrorCause;

/// This door's name in metrics.
const DOOR: &str = "api";

/// Counts and logs for the API door.
pub(super) struct Observer {
    metrics: Metrics,
    places: Vec<Place>,
    admitted: [IntCounter; 5],
    chain_faults: FaultLog,
    store_faults: FaultLog,
    entropy_faults: FaultLog,
}

/// The series of one endpoint that every success touches.
struct Place {
    endpoint: Endpoint,
    ok: IntCounter,
    duration: Histogram,
}

impl Observer {
    pub(super) fn new(metrics: &Metrics, clock: &Arc<dyn Clock>) -> Self {
        let places = ENDPOINTS.into_iter().map(|endpoint| Place {
            endpoint,
            ok: metrics.requests.with_label_values(&[DOOR, endpoint.path(), "200"]),
            duration: metrics.request_duration.with_label_values(&[DOOR, endpoint.path()]),
        });
        let admitted = ["0", "1", "2", "3", "4"]
            .map(|tier| metrics.limiter_decisions.with_label_values(&[tier, "admitted"]));
        Self {
            places: places.collect(),
            admitted,
            chain_faults: FaultLog::new("chain", Arc::clone(clock)),
            store_faults: FaultLog::new("store", Arc::clone(clock)),
            entropy_faults: FaultLog::new("entropy", Arc::clone(clock)),
            metrics: metrics.clone(),
        }
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

    /// A request was answered with an error.
    pub(super) fn refused(&self, cause: &ErrorCause, error_type: &str) {
        self.metrics.denials.with_label_values(&[DOOR, error_type]).inc();
        if let ErrorCause::Refused(refusal) = cause {
            match refusal {
                Refusal::Chain(fault) => self.chain_faults.note(fault),
                Refusal::Store(fault) => self.store_faults.note(fault),
                Refusal::Entropy(fault) => self.entropy_faults.note(fault),
                Refusal::Denied(_) => tracing::debug!(error_type, "denied"),
            }
        }
    }

    /// The tier gate or the limiter has decided about a verification.
    pub(super) fn decided(&self, outcome: &Result<Permit, Refusal>) {
        let (tier, decision) = match outcome {
            Ok(permit) => {
                if let Some(counter) = self.admitted.get(usize::from(permit.tier().number())) {
                    counter.inc();
                }
                return;
            }
            Err(Refusal::Denied(Denial::RateLimited { tier: Some(tier), .. })) => (*tier, "limited"),
            Err(Refusal::Denied(Denial::TierBlocked { current, .. })) => (*current, "blocked"),
            Err(_) => return,
        };
        self.metrics.limiter_decisions.with_label_values(&[tier_label(tier), decision]).inc();
    }

    /// Passes a readiness report on, and writes down what is wrong.
    pub(super) fn seen(&self, report: Report) -> Report {
        if let Err(fault) = &report.chain {
            self.chain_faults.note(&**fault);
        }
        if let Err(fault) = &report.store {
            self.store_faults.note(&**fault);
        }
        report
    }
}

const fn tier_label(tier: Tier) -> &'static str {
    match tier {
        Tier::Unverified => "0",
        Tier::Bronze => "1",
        Tier::Silver => "2",
        Tier::Gold => "3",
        Tier::Diamond => "4",
    }
}
