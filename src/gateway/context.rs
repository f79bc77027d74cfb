//! The state of one request, filled phase by phase. Without `admitted` it does not go upstream.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;

use crate::domain::{CorsRules, Decision};
use crate::gateway::admission::{Admitted, Grant};
use crate::gateway::held::{CheckedBody, HeldBytes};
use crate::gateway::policy::{answers, requests};
use crate::gateway::upstreams::{Attempt, Member, UpstreamSlot, Upstreams};
use crate::gateway::{in_flight::Place, site::Site};
use crate::http1::{Fields, Lines, name::Name};
use crate::mcp::{Filter, List};
use crate::record::{Destination, RequestRecord};
use crate::{pipeline::permit::Permit, serve::Timer, telemetry::NO_TENANT, wire::trace::carries_trace};

/// The state of one request.
pub(crate) struct Context {
    pub(super) record: RequestRecord,
    /// The tenant; `None` until it is routed, or when its host is unknown.
    pub(super) site: Option<Arc<Site>>,
    /// The tenant's rule for it; `None` until it is routed.
    pub(super) decision: Option<Decision>,
    /// The body of a signed request, to be compared with its digest.
    pub(super) checked_body: Option<Box<CheckedBody>>,
    /// The body of a signed request, if it was held, once it is whole and right.
    pub(super) held_body: Option<Bytes>,
    /// A message of MCP that the library keeps too, until the body is looked at.
    pub(super) message: Option<Vec<u8>>,
    /// True if a refusal leads to the documents about the way in.
    pub(super) has_documents: bool,
    /// The origin of its page, if the tenant allows that.
    pub(super) origin: Option<Box<[u8]>>,
    /// `WWW-Authenticate` of its 401, instead of the usual.
    pub(super) challenge: Option<HeaderValue>,
    /// `Accept-Signature` of its 401.
    pub(super) asked_for: Option<HeaderValue>,
    /// Notes about it, if it is one of MCP.
    pub(super) mcp: Option<Box<McpNotes>>,
    /// The filter of the list in its answer, where the library forwards it.
    pub(super) filter: Option<Box<Filter>>,
    /// The end of that list, once its trailers have come.
    pub(super) list_end: Option<Bytes>,
    /// True if its body is still coming.
    pub(super) awaits_body: bool,
    /// True if its client speaks gRPC.
    pub(super) speaks_grpc: bool,
    /// The number of the upstream's connections on one of which it was sent.
    pub(super) generation: u64,
    /// The upstreams that were tried.
    pub(super) attempt: Attempt,
    /// The slot at the upstream.
    pub(super) slot: Option<UpstreamSlot>,
    /// Leave to look for another connection.
    pub(super) retrying: Option<Place>,
    /// True if its answer breaks off behind a head that was written.
    pub(super) breaks_off: bool,
    /// True if its bodies have a time limit of ours: the library sets none.
    pub(super) may_stall: bool,
    /// Runs when the context goes: notes the end of a request that is dropped half-way.
    pub(super) on_drop: Option<OnDrop>,
    /// The proof that the request may go upstream: without one nothing does. It goes when the request is over, so that the
    /// place is free, though the connection may linger.
    pub(super) admitted: Option<Admitted>,
}

type OnDrop = Box<dyn FnOnce(&Context) + Send + Sync>;

impl Drop for Context {
    fn drop(&mut self) {
        if let Some(note) = self.on_drop.take() {
            note(self);
        }
    }
}

impl Context {
    pub(super) fn new() -> Self {
        Self {
            record: RequestRecord { credential: Some("none"), ..RequestRecord::new(Timer::now()) },
            site: None,
            decision: None,
            checked_body: None,
            held_body: None,
            message: None,
            has_documents: true,
            origin: None,
            challenge: None,
            asked_for: None,
            mcp: None,
            filter: None,
            list_end: None,
            awaits_body: false,
            speaks_grpc: false,
            generation: 0,
            attempt: Attempt::default(),
            slot: None,
            retrying: None,
            breaks_off: false,
            may_stall: false,
            on_drop: None,
            admitted: None,
        }
    }

    /// The upstream that it is at.
    pub(super) fn member(&self) -> Option<&Member> {
        self.upstreams()?.current(self.attempt)
    }

    /// The upstreams that an admitted request goes to.
    pub(super) fn upstreams(&self) -> Option<&Arc<Upstreams>> {
        let (site, decision) = self.forwarded()?;
        Some(site.upstreams(decision.route))
    }

    /// True if it has taken longer than its tenant allows.
    pub(super) fn is_overdue(&self) -> bool {
        let total = self.site.as_ref().and_then(|site| site.tenant.proxy.timeouts.total);
        total.is_some_and(|total| self.record.times.begun + total < Timer::now())
    }

    /// The tenant of an admitted request, and the tenant's rule for it.
    pub(super) fn forwarded(&self) -> Option<(&Arc<Site>, Decision)> {
        self.admitted.as_ref()?;
        self.site.as_ref().zip(self.decision)
    }

    /// Writes the headers that tell the upstream who calls, if an agent does or a bot that has proven its domain.
    pub(super) fn write_identity(&self, lines: &mut impl Lines) {
        match self.grant() {
            Some(Grant::Agent(permit, assertion)) => {
                requests::write_identity(permit, assertion.as_deref(), lines)
            }
            Some(Grant::Visitor(_, _, Some(domain))) => lines.set("X-Agent-Domain", domain.as_bytes()),
            Some(Grant::Visitor(_, _, None) | Grant::Anyone) | None => {}
        }
    }

    fn grant(&self) -> Option<&Grant> {
        self.admitted.as_ref().map(|admitted| &admitted.grant)
    }

    /// The domain that a bot has proven.
    pub(super) fn domain(&self) -> Option<&str> {
        let Grant::Visitor(_, _, domain) = self.grant()? else { return None };
        domain.as_deref()
    }

    /// Writes the headers of an answer that are ours: the limit of an admitted caller, the request's id, and what lets a page read it.
    pub(super) fn write_answer_headers(&self, lines: &mut impl Lines) {
        match (self.grant(), &self.site) {
            (Some(Grant::Agent(permit, _)), Some(site)) => {
                site.quota_headers(permit.tier()).write(permit.allowance().remaining, lines);
            }
            (Some(Grant::Visitor(limit, allowance, _)), _) => {
                limit.headers.write(allowance.remaining, lines);
            }
            (Some(Grant::Agent(..) | Grant::Anyone) | None, _) => {}
        }
        if let Some(id) = &self.record.request_id {
            lines.set("X-Request-Id", id.as_str().as_bytes());
        }
        if let Some(rules) = self.cors() {
            answers::write_cors(rules, self.origin.as_deref(), lines);
        }
    }

    /// Writes those of an upstream's answer, and what keeps it from others if it is an agent's or a bot's.
    pub(super) fn write_forwarded_answer_headers(&self, fields: &impl Fields, lines: &mut impl Lines) {
        self.write_answer_headers(lines);
        // In a map its `Vary` replaces the one about pages, and names their header too.
        let has_messages = || self.site.as_ref().is_some_and(|site| site.tenant.credentials.has_messages());
        let proofs = match (self.permit(), self.domain()) {
            (Some(_), _) if has_messages() => answers::PROOFS_AND_MESSAGES,
            (Some(_), _) => answers::PROOFS,
            (None, Some(_)) => answers::PROOFS_OF_BOTS,
            (None, None) => return,
        };
        answers::write_sharing(fields, proofs, lines);
    }

    /// True if a header of the client's request stays here: it carries a trace, and ours takes its place, or asks for a coding of a
    /// list that has to be read.
    pub(super) fn replaces(&self, id: Name, name: &[u8]) -> bool {
        (self.record.trace.is_some() && carries_trace(id, name))
            || (self.mcp.as_ref().is_some_and(|notes| notes.list.is_some())
                && name.eq_ignore_ascii_case(b"accept-encoding"))
    }

    /// The rules for pages of other origins, where the tenant has any.
    pub(super) fn cors(&self) -> Option<&CorsRules> {
        self.site.as_ref()?.tenant.cors.as_ref()
    }

    /// The permit, when an agent was admitted.
    pub(super) fn permit(&self) -> Option<&Permit> {
        if let Grant::Agent(permit, _) = self.grant()? { Some(permit) } else { None }
    }
}

/// The tenant, and the route by its name; none: the tenant's own rule.
pub(super) fn destination_of(site: Option<&Site>, decision: Option<Decision>) -> Destination<'_> {
    let route = site.zip(decision.and_then(|decision| decision.route));
    Destination {
        tenant: Some(site.map_or(NO_TENANT, |site| &*site.tenant.id)),
        route: route.map(|(site, route)| &*site.routes.of(Some(route)).route),
        ..Destination::default()
    }
}

/// Notes about a request of MCP.
#[derive(Default)]
pub(super) struct McpNotes {
    /// The id of its message, as it is written.
    pub(super) id: Option<Box<str>>,
    /// The list that it asks for, and its path.
    pub(super) list: Option<(List, Box<[u8]>)>,
    /// Memory for its message until that is under way.
    pub(super) held: Option<HeldBytes>,
}
