//! The verification API (contract, "Endpoints").
//!
//! Must not know chain or store: it takes credentials out of bodies, asks the pipeline, and writes what it says.

mod console;
mod docs;
mod handlers;
mod observe;
mod record;
pub(crate) mod routes;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use http::header::LINK;
use http::{HeaderMap, HeaderName, HeaderValue};
use ipnet::IpNet;

use crate::api::console::Console;
use crate::api::observe::{LISTENER, Observer};
use crate::api::record::{Entry, Notes};
use crate::api::routes::{Audience, Endpoint};
use crate::assertion::Issuer;
use crate::domain::client::ClientNet;
use crate::domain::console::ConsoleSettings;
use crate::domain::tier::Tier;
use crate::pipeline::readiness::Readiness;
use crate::pipeline::{Access, Pipeline};
use crate::ports::clock::Clock;
use crate::serve::buffered::{Answered, BufferedService, Request};
use crate::telemetry::audit::Audit;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::traces::Tracer;
use crate::verdicts::{Verdicts, about};
use crate::wire::answers::Answer;
use crate::wire::client_ip::client_of;
use crate::wire::discovery::Discovery;
use crate::wire::errors::ErrorCause;
use crate::wire::other_sites::is_of_another_site;
use crate::wire::request_id::RequestIds;
use crate::wire::results::VerificationResults;

/// The API.
pub(crate) struct Api {
    pipeline: Arc<Pipeline>,
    readiness: Arc<Readiness>,
    rules: ApiRules,
    console: Option<Console>,
    clock: Arc<dyn Clock>,
    observer: Observer,
    verdicts: Verdicts,
    results: VerificationResults,
    request_ids: RequestIds,
}

/// How requests are answered, and what is told of them.
pub(crate) struct ApiRules {
    pub(crate) audience: Audience,
    pub(crate) access: Access,
    /// The documents about the service.
    pub(crate) discovery: Arc<Discovery>,
    /// The owner's page, and the gateway's address for those documents.
    pub(crate) console: ConsoleSettings,
    /// The chain of the signatures.
    pub(crate) signing_chain_id: u64,
    /// Gives the issuer of assertions in force, whose public keys are shown.
    pub(crate) issuer: Box<dyn Fn() -> Option<Arc<Issuer>> + Send + Sync>,
    /// Networks of proxies that are believed.
    pub(crate) trusted_proxies: Vec<IpNet>,
    /// Takes key operations; `None`: they are not recorded.
    pub(crate) audit: Option<Arc<Audit>>,
    /// Begins traces; `None`: no request is traced.
    pub(crate) tracer: Option<Arc<Tracer>>,
}

/// A request as handlers see it.
pub(crate) struct ApiRequest<'a> {
    client: ClientNet,
    path: &'a str,
    query: Option<&'a str>,
    body: &'a [u8],
    /// Where an operation must be recorded before it is done.
    recorder: Option<Entry<'a>>,
}

impl Api {
    /// The API over this pipeline.
    pub(crate) fn new(
        pipeline: Arc<Pipeline>,
        readiness: Arc<Readiness>,
        rules: ApiRules,
        clock: Arc<dyn Clock>,
        metrics: &Metrics,
        request_ids: RequestIds,
    ) -> Self {
        let results = VerificationResults::new();
        Self {
            pipeline,
            readiness,
            console: rules.console.enabled.then(|| Console::new(&rules.console, rules.signing_chain_id)),
            rules,
            observer: Observer::new(metrics),
            verdicts: Verdicts::new(LISTENER, metrics, &clock),
            clock,
            results,
            request_ids,
        }
    }
}

impl BufferedService for Api {
    type Endpoint = Endpoint;
    type Notes = Notes;

    fn begin(&self, request: &Request<'_>) -> Notes {
        Notes::new(self.request_ids.of(&request.fields), self.begin_trace(request))
    }

    fn find(&self, request: &Request<'_>) -> Result<(Endpoint, usize), ErrorCause> {
        let is_of_page = self.console.as_ref().is_some_and(|console| console.file(request.path).is_some());
        let endpoint = if is_of_page { Endpoint::Console } else { Endpoint::at(request.path)? };
        if !self.rules.audience.has(endpoint) {
            return Err(ErrorCause::NotFound);
        }
        let endpoint = endpoint.taking(request.method)?;
        let body_bytes_max = endpoint.body_bytes_max();
        if body_bytes_max > 0 && is_of_another_site(&request.fields) {
            return Err(ErrorCause::OtherSite); // 403
        }
        Ok((endpoint, body_bytes_max))
    }

    async fn answer(
        &self,
        endpoint: Endpoint,
        request: &Request<'_>,
        body: &[u8],
        notes: &mut Notes,
    ) -> Result<Answer, ErrorCause> {
        let _under_way = self.observer.begin();
        let client = client_of(request.peer, &request.fields, &self.rules.trusted_proxies);
        let recorder = self.entry(endpoint, request, notes).filter(Entry::is_required);
        let request = ApiRequest { client, path: request.path, query: request.query, body, recorder };
        self.handle(endpoint, &request, notes).await
    }

    fn note(
        &self,
        endpoint: Option<Endpoint>,
        request: &Request<'_>,
        notes: &Notes,
        answered: &Answered<'_>,
        headers: &mut HeaderMap,
    ) {
        if let Ok(id) = HeaderValue::from_str(notes.request_id.as_str()) {
            headers.insert(HeaderName::from_static("x-request-id"), id);
        }
        if let Some((cause, error_type)) = answered.refused {
            if let Some(endpoint) = endpoint.filter(|_| cause.is_unauthenticated()) {
                headers.insert(LINK, endpoint.help());
            }
            self.verdicts.refused(cause, error_type);
            tracing::debug!(
                request_id = notes.request_id.as_str(),
                error_type,
                endpoint = endpoint.map(Endpoint::path),
                agent = about(cause).agent.map(tracing::field::display),
                tier = about(cause).tier.map(Tier::number),
                "refused",
            );
        }
        self.observer.answered(endpoint, answered);
        self.log_access(endpoint, request, notes, answered);
        self.end_trace(endpoint, notes, answered);
        if let Some(entry) = endpoint.and_then(|endpoint| self.entry(endpoint, request, notes)) {
            entry.end(notes, answered);
        }
    }
}
