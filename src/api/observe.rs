//! Counts and lines of the API beside a request's record: counters of endpoints, looked up once, and lines of the audit log.

use std::net::IpAddr;
use std::time::{Duration, UNIX_EPOCH};

use alloy::primitives::Address;
use async_trait::async_trait;
use prometheus::{IntCounter, IntGauge};
use strum::VariantArray;

use crate::api::{Api, routes::Endpoint};
use crate::domain::{AgentId, Denial, KeyName};
use crate::error::Error;
use crate::pipeline::{Recorder, Signatory};
use crate::ports::Clock;
use crate::record::RequestRecord;
use crate::serve::Request;
use crate::telemetry::{Audit, Metrics, Record, RouteSeries};
use crate::wire::client_ip::address_of;

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

    /// A request was answered with this status; no endpoint: there was nothing at its path, or not with its method. Returns the
    /// series of its route.
    pub(super) fn answered(&self, endpoint: Option<Endpoint>, status: u16) -> &RouteSeries {
        let series = self.series.iter().find(|series| Some(series.endpoint) == endpoint);
        if let Some(key) = series.and_then(|series| series.key.as_ref()) {
            let outcome = outcome_of(status);
            key.iter().filter(|(name, _)| *name == outcome).for_each(|(_, counter)| counter.inc());
        }
        match series {
            Some(series) if status == 200 => series.ok.inc(),
            Some(_) | None => {
                let path = endpoint.map_or("none", Endpoint::path);
                self.metrics.requests.with_label_values(&[LISTENER, path, &status.to_string()]).inc();
            }
        }
        series.map_or(&self.without_endpoint, |series| &series.requests)
    }
}

/// The outcome of a request about a key.
fn outcome_of(status: u16) -> &'static str {
    match status {
        ..400 => "done",
        400..500 => "refused",
        500.. => "failed",
    }
}

/// A request to change a key, for its lines in the audit log.
pub(super) struct Entry<'a> {
    audit: &'a Audit,
    clock: &'a dyn Clock,
    operation: &'static str,
    client: IpAddr,
    request_id: String,
    trace_id: Option<String>,
}

#[async_trait]
impl Recorder for Entry<'_> {
    async fn begin(&self, agent: AgentId, by: Signatory, key: Option<&KeyName>) -> Result<(), String> {
        let line = self.line("begun", (Some(agent), key), Some(by.owner), Some(by.signer));
        self.audit.begin(line).await.map_err(|why| why.to_string())
    }
}

impl Entry<'_> {
    /// True if the operation must be recorded before it is done.
    pub(super) const fn is_required(&self) -> bool {
        self.audit.is_required()
    }

    /// Records the operation, whatever became of it.
    pub(super) fn end(&self, record: &RequestRecord, cause: Option<&Error>, status: u16) {
        let proven = record.by.get();
        let (mut owner, mut signer) = (proven.map(|by| by.owner), proven.map(|by| by.signer));
        if let Some(Error::Denied(denial)) = cause
            && let Denial::SignatureInvalid { owner: other, recovered_signer, .. } = denial
        {
            (owner, signer) = (Some(*other), *recovered_signer);
        }
        let line = self.line(outcome_of(status), (record.agent, record.key.as_ref()), owner, signer);
        self.audit.record(Record { error_type: record.error_type, ..line }, proven.is_some());
    }

    fn line(
        &self,
        outcome: &'static str,
        (agent, key): (Option<AgentId>, Option<&KeyName>),
        owner: Option<Address>,
        signer: Option<Address>,
    ) -> Record<'_> {
        let text = |address: Address| address.to_checksum(None);
        let now = UNIX_EPOCH + Duration::from_millis(self.clock.unix_millis());
        Record {
            timestamp: humantime::format_rfc3339_millis(now).to_string(),
            operation: self.operation,
            outcome,
            error_type: None,
            agent: agent.map(|agent| agent.to_string()),
            key: key.map(ToString::to_string),
            owner: owner.map(text),
            signer: signer.map(text),
            client: self.client,
            request_id: &self.request_id,
            trace_id: self.trace_id.as_deref(),
            suppressed: None,
        }
    }
}

impl Api {
    /// The entry of this request, if it is to change a key and such requests are recorded.
    pub(super) fn entry(
        &self,
        endpoint: Endpoint,
        request: &Request<'_>,
        record: &RequestRecord,
    ) -> Option<Entry<'_>> {
        let audit = self.rules.audit.as_deref()?;
        let operation = endpoint.key_operation().filter(|_| endpoint != Endpoint::KeyStatus)?;
        Some(Entry {
            audit,
            clock: &*self.clock,
            operation,
            client: address_of(request.peer, &request.fields, &self.rules.trusted_proxies),
            request_id: record.id().unwrap_or_default().to_owned(),
            trace_id: record.trace_id(&request.fields),
        })
    }
}
