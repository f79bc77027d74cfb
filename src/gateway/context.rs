//! What is known of one request, phase by phase. Nothing goes upstream before somebody has let it through.

use std::net::IpAddr;
use std::sync::Arc;

use pingora::{Error, ErrorType};

use crate::gateway::request_id::RequestId;
use crate::gateway::site::Site;
use crate::gateway::upstreams::{Attempt, Upstreams};
use crate::pipeline::permit::Permit;
use crate::wire::headers::QuotaHeaders;

/// The state of one request.
pub(crate) struct Context {
    /// When its head had been read, in monotonic microseconds.
    pub(super) begun: u64,
    /// What names it in logs, here and behind.
    pub(super) request_id: Option<RequestId>,
    /// Whose it is; nothing until it is routed, or when its host is nobody's.
    pub(super) site: Option<Arc<Site>>,
    /// Whether its body is still coming.
    pub(super) awaits_body: bool,
    /// How much of its body has come, in bytes.
    pub(super) body_bytes: u64,
    /// Which upstream is tried, and which were.
    pub(super) attempt: Attempt,
    /// The `errorType` that it was answered with, if it was by us.
    pub(super) error_type: Option<&'static str>,
    passage: Option<Passage>,
}

/// Proof that a request may go upstream, with where it goes.
pub(super) struct Passage {
    /// Who was let through.
    pub(super) traveller: Traveller,
    /// Where to.
    pub(super) upstreams: Arc<Upstreams>,
    /// Whether it may become a WebSocket.
    pub(super) upgrades: bool,
    /// The address that the request came from.
    pub(super) peer: IpAddr,
}

/// Who was let through.
pub(super) enum Traveller {
    /// An agent that the pipeline has admitted.
    Agent(Permit),
    /// Whoever it is: the route is public.
    Anyone,
}

impl Context {
    pub(super) const fn new(begun: u64) -> Self {
        Self {
            begun,
            request_id: None,
            site: None,
            awaits_body: false,
            body_bytes: 0,
            attempt: Attempt::new(),
            error_type: None,
            passage: None,
        }
    }

    pub(super) fn let_through(&mut self, passage: Passage) {
        self.passage = Some(passage);
    }

    /// The proof that the request may go upstream. Without one nothing does.
    pub(super) fn passage(&self) -> pingora::Result<&Passage> {
        self.passage.as_ref().ok_or_else(|| {
            Error::explain(ErrorType::InternalError, "a request without passage is not forwarded")
        })
    }

    /// The site of a request that was routed.
    pub(super) fn site(&self) -> pingora::Result<&Arc<Site>> {
        self.site.as_ref().ok_or_else(|| {
            Error::explain(ErrorType::InternalError, "a request without site is not forwarded")
        })
    }

    /// What answers to an agent say of its quota.
    pub(super) fn quota_headers(&self) -> Option<&QuotaHeaders> {
        Some(self.site.as_ref()?.quota_headers(self.permit()?.tier()))
    }

    /// The permit, when an agent was admitted.
    pub(super) fn permit(&self) -> Option<&Permit> {
        match self.passage.as_ref().map(|passage| &passage.traveller) {
            Some(Traveller::Agent(permit)) => Some(permit),
            Some(Traveller::Anyone) | None => None,
        }
    }
}
