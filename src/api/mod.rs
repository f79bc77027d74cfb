//! The verification API (contract, "Endpoints").
//!
//! Must not know chain or store: it takes credentials out of bodies, asks the pipeline, and writes what it says.

mod console;
mod handlers;
mod observe;
pub(crate) mod routes;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use http::header::LINK;
use http::{HeaderMap, HeaderName, HeaderValue};
use ipnet::IpNet;

use crate::api::console::Console;
use crate::api::observe::{Entry, LISTENER, Observer};
use crate::api::routes::{Audience, Endpoint};
use crate::assertion::Issuer;
use crate::domain::{ClientNet, ConsoleSettings};
use crate::error::Error;
use crate::http1::SpanFields;
use crate::pipeline::{Access, Pipeline, Readiness};
use crate::ports::Clock;
use crate::record::{Destination, Ended, Recorder, RequestRecord};
use crate::serve::{BufferedService, Request, Timer};
use crate::telemetry::{Audit, Metrics, Tracer};
use crate::wire::{
    Answer, Discovery, RequestIds, VerificationResults, client_ip::client_of, other_sites::is_of_another_site,
};

/// The id of a request, in its answer.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The API.
pub(crate) struct Api {
    pipeline: Arc<Pipeline>,
    readiness: Arc<Readiness>,
    rules: ApiRules,
    console: Option<Console>,
    clock: Arc<dyn Clock>,
    observer: Observer,
    recorder: Recorder,
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
    audit: Option<Entry<'a>>,
    /// Takes what becomes known of the request.
    record: &'a mut RequestRecord,
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
        let (names, proxies) = ((rules.audience.listener(), LISTENER), rules.trusted_proxies.clone());
        let recorder = Recorder::new(names, proxies, rules.tracer.clone(), metrics, &clock);
        Self {
            pipeline,
            readiness,
            console: rules.console.enabled.then(|| Console::new(&rules.console, rules.signing_chain_id)),
            rules,
            observer: Observer::new(metrics),
            recorder,
            clock,
            results,
            request_ids,
        }
    }
}

impl BufferedService for Api {
    type Endpoint = Endpoint;

    fn begin(&self, request: &Request<'_>, record: &mut RequestRecord) {
        record.request_id = Some(self.request_ids.of(&request.fields));
        self.recorder.begin_trace(&request.fields, record, Timer::now());
    }

    fn find(&self, request: &Request<'_>) -> Result<(Endpoint, usize), Error> {
        let is_of_page = self.console.as_ref().is_some_and(|console| console.file(request.path).is_some());
        let endpoint = if is_of_page { Endpoint::Console } else { Endpoint::at(request.path)? };
        if !self.rules.audience.has(endpoint) {
            return Err(Error::NotFound);
        }
        let endpoint = endpoint.taking(request.method)?;
        let body_bytes_max = endpoint.body_bytes_max();
        if body_bytes_max > 0 && is_of_another_site(&request.fields) {
            return Err(Error::OtherSite); // 403
        }
        Ok((endpoint, body_bytes_max))
    }

    async fn answer(
        &self,
        endpoint: Endpoint,
        request: &Request<'_>,
        body: &[u8],
        record: &mut RequestRecord,
    ) -> Result<Answer, Error> {
        let _under_way = self.observer.begin();
        let client = client_of(request.peer, &request.fields, &self.rules.trusted_proxies);
        let audit = self.entry(endpoint, request, record).filter(Entry::is_required);
        let mut request =
            ApiRequest { client, path: request.path, query: request.query, body, audit, record };
        self.handle(endpoint, &mut request).await
    }

    fn note(
        &self,
        endpoint: Option<Endpoint>,
        request: &Request<'_>,
        record: &mut RequestRecord,
        refused: Option<(&Error, &'static str)>,
        ended: &Ended<'_, SpanFields<'_>>,
        headers: &mut HeaderMap,
    ) {
        if let Some(id) = record.id().and_then(|id| HeaderValue::from_str(id).ok()) {
            headers.insert(REQUEST_ID, id);
        }
        let destination = Destination { route: endpoint.map(Endpoint::path), ..Destination::default() };
        record.credential = endpoint.map(Endpoint::credential);
        match refused {
            Some((cause, error_type)) => {
                if let Some(endpoint) = endpoint.filter(|_| cause.is_unauthenticated()) {
                    headers.insert(LINK, endpoint.help());
                }
                record.decision = None; // An admitted request may run out of time.
                self.recorder.refused(cause, error_type, record, &destination);
            }
            None => {
                let is_public = matches!(record.credential, None | Some("none"));
                record.decision = Some(if is_public { "public" } else { "admitted" });
            }
        }
        let requests = self.observer.answered(endpoint, ended.status);
        self.recorder.end(record, ended, &destination, requests);
        if let Some(entry) = endpoint.and_then(|endpoint| self.entry(endpoint, request, record)) {
            entry.end(record, refused.map(|(cause, _)| cause), ended.status);
        }
    }
}
