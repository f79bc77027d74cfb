//! Door 3: `GET /metrics` for Prometheus, on an address of its own. Shows nothing of agents, keys or clients.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Response, StatusCode};
use tokio::time::timeout;

use crate::pipeline::readiness::Readiness;
use crate::serve::whole::{Request, WholeService};
use crate::telemetry::metrics::Metrics;
use crate::wire::answers::Answer;
use crate::wire::errors::ErrorCause;

/// The Prometheus text format.
const METRICS_TYPE: http::HeaderValue =
    http::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// How long a scrape waits to know whether the service is ready; beyond that it says no.
const READINESS_WAIT_MAX: Duration = Duration::from_millis(500);

/// The admin door.
pub(crate) struct Admin {
    metrics: Metrics,
    readiness: Arc<Readiness>,
}

impl Admin {
    /// Shows these metrics.
    pub(crate) fn new(metrics: Metrics, readiness: Arc<Readiness>) -> Self {
        Self { metrics, readiness }
    }

    async fn scrape(&self) -> Result<Answer, ErrorCause> {
        // A scrape that waits for what is broken is dropped, and with it every other series.
        let report = timeout(READINESS_WAIT_MAX, self.readiness.report()).await.ok();
        let store = report.as_ref().is_some_and(|report| report.store.is_ok());
        let chain = report.as_ref().is_some_and(|report| report.chain.is_ok());
        self.metrics.ready.with_label_values(&["store"]).set(store.into());
        self.metrics.ready.with_label_values(&["chain"]).set(chain.into());
        let text = self.metrics.render().map_err(|_| ErrorCause::Internal)?;
        let mut headers = HeaderMap::new();
        headers.insert(http::header::CONTENT_TYPE, METRICS_TYPE);
        headers.insert(http::header::CONTENT_LENGTH, text.len().into());
        let mut answer = Response::new(text.into_bytes());
        *answer.headers_mut() = headers;
        *answer.status_mut() = StatusCode::OK;
        Ok(answer)
    }
}

impl WholeService for Admin {
    type Endpoint = ();

    fn find(&self, request: &Request<'_>) -> Result<((), usize), ErrorCause> {
        match (request.path, request.method) {
            ("/metrics", "GET" | "HEAD") => Ok(((), 0)),
            ("/metrics", _) => Err(ErrorCause::MethodNotAllowed { allow: "GET, HEAD" }),
            _ => Err(ErrorCause::NotFound),
        }
    }

    async fn answer(&self, (): (), _request: &Request<'_>, _body: &[u8]) -> Result<Answer, ErrorCause> {
        self.scrape().await
    }
}
