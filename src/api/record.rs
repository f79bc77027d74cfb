//! Per-request notes for logs, and a request's lines: in the access log, and in the audit log.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, UNIX_EPOCH};

use alloy::primitives::Address;
use async_trait::async_trait;

use crate::api::observe::outcome_of;
use crate::api::routes::Endpoint;
use crate::api::{Api, ApiRequest};
use crate::domain::agent_id::AgentId;
use crate::domain::denial::Denial;
use crate::domain::held_key::KeyName;
use crate::domain::quota::Allowance;
use crate::domain::tier::Tier;
use crate::http1::fields::Fields;
use crate::http1::name::Name;
use crate::pipeline::credential::SignedRequest;
use crate::pipeline::custody::{KeyOrder, Recorder};
use crate::pipeline::owner::Signatory;
use crate::pipeline::permit::Permit;
use crate::pipeline::profile::OwnerProfile;
use crate::pipeline::refusal::{Refusal, Unrecorded};
use crate::ports::clock::Clock;
use crate::serve::buffered::{Answered, Request};
use crate::telemetry::access::{self, Line, Shown};
use crate::telemetry::audit::{Audit, Record};
use crate::telemetry::traces::{Outcome, Trace};
use crate::verdicts::about;
use crate::wire::client_ip::address_of;
use crate::wire::errors::ErrorCause;
use crate::wire::request_id::RequestId;
use crate::wire::trace::{remote_span, state_of};

/// Per-request notes for logs.
pub(crate) struct Notes {
    pub(super) request_id: RequestId,
    /// The owner and the signer of a request about a key, once they are known.
    by: OnceLock<Signatory>,
    /// The agent that a signed request names, or that a key is of.
    pub(super) agent: Option<AgentId>,
    /// The name of the key that a request is about.
    pub(super) key: Option<KeyName>,
    tier: Option<Tier>,
    allowance: Option<Allowance>,
    trace: Option<Box<Trace>>,
}

impl Notes {
    pub(super) const fn new(request_id: RequestId, trace: Option<Box<Trace>>) -> Self {
        Self { request_id, by: OnceLock::new(), agent: None, key: None, tier: None, allowance: None, trace }
    }

    /// The id of the request's trace.
    fn trace_id<'a>(&self, request: &'a Request<'_>) -> Option<Cow<'a, str>> {
        access::trace_id(self.trace.as_deref(), remote_span(&request.fields))
    }

    /// A request to change a key, by which its signer is noted.
    pub(super) fn order<'a>(
        &'a mut self,
        request: &'a ApiRequest<'_>,
        signed: SignedRequest,
    ) -> KeyOrder<'a> {
        self.agent = Some(signed.agent);
        let recorder = request.recorder.as_ref().map(|entry| entry as &dyn Recorder);
        KeyOrder { client: request.client, signed, by: &self.by, recorder }
    }

    pub(super) fn shown(&mut self, profile: &OwnerProfile) {
        self.tier = Some(profile.grade.tier);
        self.allowance = Some(profile.allowance);
    }

    pub(super) fn admitted(&mut self, permit: &Permit) {
        self.agent = Some(permit.agent());
        self.tier = Some(permit.tier());
        self.allowance = Some(permit.allowance());
    }
}

/// A request to change a key, for its lines in the audit log.
pub(super) struct Entry<'a> {
    audit: &'a Audit,
    clock: &'a dyn Clock,
    operation: &'static str,
    client: IpAddr,
    request_id: RequestId,
    trace_id: Option<String>,
}

#[async_trait]
impl Recorder for Entry<'_> {
    async fn begin(&self, agent: AgentId, by: Signatory, key: Option<&KeyName>) -> Result<(), Unrecorded> {
        let record = self.record("begun", (Some(agent), key), Some(by.owner), Some(by.signer));
        self.audit.begin(record).await.map_err(|cause| Unrecorded(Arc::new(cause)))
    }
}

impl Entry<'_> {
    /// True if the operation must be recorded before it is done.
    pub(super) const fn is_required(&self) -> bool {
        self.audit.is_required()
    }

    /// Records the operation, whatever became of it.
    pub(super) fn end(&self, notes: &Notes, answered: &Answered<'_>) {
        let proven = notes.by.get();
        let (mut owner, mut signer) = (proven.map(|by| by.owner), proven.map(|by| by.signer));
        if let Some((ErrorCause::Refused(Refusal::Denied(denial)), _)) = answered.refused
            && let Denial::SignatureInvalid { owner: other, recovered_signer, .. } = denial
        {
            (owner, signer) = (Some(*other), *recovered_signer);
        }
        let error_type = answered.refused.map(|(_, error_type)| error_type);
        let record =
            self.record(outcome_of(answered.status), (notes.agent, notes.key.as_ref()), owner, signer);
        self.audit.record(Record { error_type, ..record }, proven.is_some());
    }

    fn record(
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
            request_id: self.request_id.as_str(),
            trace_id: self.trace_id.as_deref(),
            suppressed: None,
        }
    }
}

impl Api {
    /// The same for this request, if it is to change a key and such requests are recorded.
    pub(super) fn entry(
        &self,
        endpoint: Endpoint,
        request: &Request<'_>,
        notes: &Notes,
    ) -> Option<Entry<'_>> {
        let audit = self.rules.audit.as_deref()?;
        let operation = endpoint.key_operation().filter(|_| endpoint != Endpoint::KeyStatus)?;
        Some(Entry {
            audit,
            clock: &*self.clock,
            operation,
            client: self.client_address(request),
            request_id: notes.request_id.clone(),
            trace_id: notes.trace_id(request).map(Cow::into_owned),
        })
    }

    /// Begins the trace of a request, if it is recorded.
    pub(super) fn begin_trace(&self, request: &Request<'_>) -> Option<Box<Trace>> {
        // Without a tracer no clock is read and no header looked at.
        let (tracer, fields) = (self.rules.tracer.as_ref()?, &request.fields);
        tracer.begin(remote_span(fields), || state_of(fields), self.clock.monotonic_micros())
    }

    pub(super) fn end_trace(&self, endpoint: Option<Endpoint>, notes: &Notes, answered: &Answered<'_>) {
        let Some(trace) = &notes.trace else { return };
        let outcome = Outcome {
            method: answered.method.as_bytes(),
            route: endpoint.map(Endpoint::path),
            status: answered.status.as_u16(),
            error_type: answered.refused.map(|(_, error_type)| error_type),
            is_broken: false,
        };
        let attributes = [
            ("tiergate.request_id", Some(notes.request_id.as_str().to_owned().into())),
            ("tiergate.agent", notes.agent.map(|agent| agent.to_string().into())),
            ("tiergate.tier", notes.tier.map(|tier| i64::from(tier.number()).into())),
        ];
        trace.end(&outcome, attributes, self.clock.monotonic_micros());
    }

    /// Writes a request's line in the access log, if that is on.
    pub(super) fn log_access(
        &self,
        endpoint: Option<Endpoint>,
        request: &Request<'_>,
        notes: &Notes,
        answered: &Answered<'_>,
    ) {
        if !access::is_on() {
            return;
        }
        let refused = answered.refused.map(|(cause, _)| about(cause)).unwrap_or_default();
        let spent = refused.limit.map(|limit| Allowance { limit, remaining: 0 });
        let credential = endpoint.map(Endpoint::credential);
        let trace_id = notes.trace_id(request);
        let decision = match (answered.refused, credential) {
            (Some(_), _) => "refused",
            (None, None | Some("none")) => "public",
            (None, Some(_)) => "admitted",
        };
        let line = Line {
            listener: self.rules.audience.listener(),
            request_id: Some(notes.request_id.as_str()),
            trace_id: trace_id.as_deref(),
            client: Some(self.client_address(request)),
            host: request.fields.values(Name::Host).next().map(Shown),
            route: endpoint.map(Endpoint::path),
            credential,
            agent: notes.agent.or(refused.agent),
            tier: notes.tier.or(refused.tier),
            allowance: notes.allowance.or(spent),
            decision: Some(decision),
            method: Some(Shown(request.method.as_bytes())),
            protocol: Some(request.protocol),
            path: Some(Shown(request.path.as_bytes())),
            status: answered.status.as_u16(),
            error_type: answered.refused.map(|(_, error_type)| error_type),
            received: answered.received,
            sent: answered.sent,
            micros: Some(answered.micros),
            own_micros: Some(answered.micros),
            ..Line::default()
        };
        line.write();
    }

    fn client_address(&self, request: &Request<'_>) -> IpAddr {
        address_of(request.peer, &request.fields, &self.rules.trusted_proxies)
    }
}
