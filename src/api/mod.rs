//! Door 1: the verification API (contract, "Endpoints").
//!
//! Must not know chain or store: it takes credentials out of bodies, asks the pipeline, and writes what it says.

mod handlers;
mod observe;
#[cfg(test)]
mod openapi_tests;
mod routes;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use ipnet::IpNet;
use pingora::apps::http_app::ServeHttp;
use pingora::protocols::http::ServerSession;
use tokio::time::timeout;

use crate::api::observe::{DOOR, Observer};
use crate::api::routes::Endpoint;
use crate::domain::client::ClientNet;
use crate::pipeline::readiness::Readiness;
use crate::pipeline::{Access, Pipeline};
use crate::ports::clock::Clock;
use crate::serve::whole::{REQUEST_TIME_MAX, read_body};
use crate::telemetry::metrics::Metrics;
use crate::verdicts::Verdicts;
use crate::wire::answers::Answer;
use crate::wire::bodies::BODY_BYTES_MAX;
use crate::wire::client_ip::client_of;
use crate::wire::errors::ErrorCause;

/// The API door.
pub(crate) struct Api {
    pipeline: Arc<Pipeline>,
    readiness: Arc<Readiness>,
    access: Access,
    trusted_proxies: Vec<IpNet>,
    clock: Arc<dyn Clock>,
    observer: Observer,
    verdicts: Verdicts,
}

/// A request as handlers see it.
pub(crate) struct ApiRequest {
    client: ClientNet,
    query: Option<String>,
    body: Bytes,
}

impl Api {
    /// The door to this pipeline, for whom `access` says.
    pub(crate) fn new(
        pipeline: Arc<Pipeline>,
        readiness: Arc<Readiness>,
        access: Access,
        trusted_proxies: Vec<IpNet>,
        clock: Arc<dyn Clock>,
        metrics: &Metrics,
    ) -> Self {
        let observer = Observer::new(metrics);
        let verdicts = Verdicts::new(DOOR, metrics, &clock);
        Self { pipeline, readiness, access, trusted_proxies, clock, observer, verdicts }
    }

    /// Route, read, ask, answer.
    async fn answer(
        &self,
        endpoint: Result<Endpoint, ErrorCause>,
        http: &mut ServerSession,
    ) -> Result<Answer, ErrorCause> {
        let endpoint = endpoint?;
        let request = self.read(endpoint, http).await?;
        self.handle(endpoint, &request).await
    }

    async fn read(&self, endpoint: Endpoint, http: &mut ServerSession) -> Result<ApiRequest, ErrorCause> {
        let peer = http.client_addr().and_then(|address| address.as_inet()).ok_or(ErrorCause::Internal)?.ip();
        let client = client_of(peer, &http.req_header().headers, &self.trusted_proxies);
        let query = http.req_header().uri.query().map(str::to_owned);
        let body = if endpoint.takes_body() { read_body(http, BODY_BYTES_MAX).await? } else { Bytes::new() };
        Ok(ApiRequest { client, query, body })
    }
}

#[async_trait]
impl ServeHttp for Api {
    async fn response(&self, http: &mut ServerSession) -> Answer {
        let begun = self.clock.monotonic_micros();
        let head = http.req_header();
        let endpoint = Endpoint::find(&head.method, head.uri.path());
        let place = endpoint.as_ref().ok().copied();
        // Given up here rather than by the shell, so that it is counted like every other request.
        let outcome = timeout(REQUEST_TIME_MAX, self.answer(endpoint, http)).await.unwrap_or_else(|_| {
            tracing::error!("a request took longer than {} s and was given up", REQUEST_TIME_MAX.as_secs());
            Err(ErrorCause::Internal)
        });
        let answer = match outcome {
            Ok(answer) => answer,
            Err(cause) => {
                let (error_type, answer) = cause.answer(self.clock.unix_millis());
                self.verdicts.refused(&cause, error_type);
                answer
            }
        };
        let micros = self.clock.monotonic_micros().saturating_sub(begun);
        self.observer.answered(place, answer.status(), micros);
        answer
    }
}
