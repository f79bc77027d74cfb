//! Requests of MCP: their messages are read before anything is decided, and lists in their answers show what may be called.

use std::{borrow::Cow, sync::Arc};

use http::header::CONTENT_LENGTH;

use crate::domain::{
    Call, Decision, LargeBodies, MCP_METHOD, McpRules, RouteAccess, host::of_authority, routing,
};
use crate::error::Error;
use crate::gateway::discovery::{check_login, is_named};
use crate::gateway::rule::{Incoming, Message};
use crate::gateway::{
    Gateway, admission::announced, context::Context, failure::Failure, policy::requests::asks_for_stream,
    refusals::End, site::Site,
};
use crate::gateway::{held::HeldBytes, in_flight::Caller};
use crate::http1::{Fields, name::Name};
use crate::mcp::{Filter, McpRequest, call::takes_post_alone, wrapped};
use crate::wire::{Answer, client_ip::client_of, credentials::shows_credential};

/// How long a client may keep a list, in milliseconds: its agent's tier may be another then.
const LIST_TIME_MAX_MILLIS: u64 = 60_000;

/// Why a list can't be shown, as the log says it. Its upstream is well.
pub(super) const CODED_LIST: &str = "CodedList";
pub(super) const UNREADABLE_LIST: &str = "UnreadableList";

/// A message that was read, with or without the frames of its body.
pub(super) enum ReadMessage {
    /// The first bytes of those that are ahead.
    Ahead(usize),
    Apart(Vec<u8>),
    TooLong,
}

impl ReadMessage {
    pub(super) fn message<'a>(&'a self, ahead: &'a [u8]) -> Message<'a> {
        match self {
            Self::Ahead(length) => Message::Whole(ahead.get(..*length).unwrap_or_default()),
            Self::Apart(body) => Message::Whole(body),
            Self::TooLong => Message::TooLong,
        }
    }

    pub(super) fn apart(self) -> Option<Vec<u8>> {
        if let Self::Apart(body) = self { Some(body) } else { None }
    }
}

impl Gateway {
    /// The request of MCP that this is, if it is one. Error: also one whose message has to be read first.
    pub(super) fn read_mcp<'a, F: Fields>(
        &self,
        site: &Site,
        request: &Incoming<'a, F>,
        ctx: &mut Context,
    ) -> Result<Option<McpRequest<'a>>, End> {
        let (tenant, fields, path) = (&site.tenant, request.fields, request.path());
        let is_message = request.method == MCP_METHOD;
        // Documents about the way in are anybody's to read.
        let is_document = !is_message && path.starts_with(b"/.well-known/");
        if !site.has_mcp || is_document || !routing::is_mcp(tenant, path) {
            return Ok(None);
        }
        if is_message {
            let decision = site.decide(MCP_METHOD, path);
            let shows = || shows_credential(fields, &self.pipeline.rules().key_format);
            check_login(tenant, decision, (MCP_METHOD, path), shows)?; // 404
        }
        if is_message || asks_for_stream(fields, false) {
            ctx.mcp.get_or_insert_default();
        }
        if is_of_another_site(site, request) {
            return Err(Error::OtherSite.into()); // 403
        }
        let allow = match request.method {
            "GET" | "DELETE" if takes_post_alone(fields) => Some(MCP_METHOD),
            MCP_METHOD | "GET" | "HEAD" | "OPTIONS" | "DELETE" => None,
            // Some servers take them for the same.
            _ => Some("POST, GET, DELETE"),
        };
        if let Some(allow) = allow {
            return Err(Error::MethodNotAllowed { allow: allow.into() }.into()); // 405
        }
        if !is_message {
            return Ok(None);
        }
        let notes = ctx.mcp.get_or_insert_default();
        let McpRules { body_bytes_max, large_bodies } = self.rules.mcp;
        let by_headers = || McpRequest::by_headers(fields).map_err(|problem| (None, problem));
        let read = match (request.message, request.dialect) {
            // They show no message, and of older clients nothing that says the call.
            (_, Some(_)) if !site.has_calls => return Ok(None),
            (_, Some(_)) => by_headers(),
            (Message::Unread, None) => return Err(End::NeedsMessage),
            (Message::Whole(body), None) => McpRequest::read(body, fields),
            (Message::TooLong, None)
                if large_bodies == LargeBodies::Headers && announced(fields).is_some() =>
            {
                by_headers()
            }
            (Message::TooLong, None) => {
                return Err(Error::UploadTooLarge { bytes_max: body_bytes_max as u64 }.into()); // 413
            }
        };
        let id = match &read {
            Ok(request) => request.id,
            Err((id, _)) => *id,
        };
        notes.id = id.map(Into::into);
        let read = read.map_err(|(_, problem)| Error::McpMessage { problem })?; // 400
        notes.list = read.list.filter(|_| site.has_calls).map(|list| (list, path.into()));
        Ok(Some(read))
    }

    /// Memory for a message of a client's, as much as comes of it. Whoever it is: it is not known yet.
    pub(super) fn reserve_message(
        &self,
        peer: std::net::IpAddr,
        fields: &impl Fields,
        ctx: &Context,
    ) -> Result<HeldBytes, Failure> {
        let client = client_of(peer, fields, &self.rules.client_proxies);
        let counters = &ctx.site.as_ref().ok_or(Failure::Internal)?.counters;
        HeldBytes::new(&self.memory, Caller::Client(client), counters, Some(0))
    }
}

impl Context {
    /// Writes the body of a refusal as an error of JSON-RPC, if the request is one of MCP, with a sentence for the user.
    pub(super) fn speak_mcp(&self, answer: &mut Answer, advice: Option<&str>) {
        let Some(notes) = self.mcp.as_ref().filter(|_| !self.speaks_grpc) else { return };
        if let Some(body) = wrapped(answer.status().as_u16(), notes.id.as_deref(), answer.body(), advice) {
            answer.headers_mut().insert(CONTENT_LENGTH, body.len().into());
            *answer.body_mut() = body;
        }
    }

    /// The filter of an answer with a list. Error: it is coded, so that it can't be read.
    pub(super) fn list_filter(
        &self,
        status: u16,
        fields: &impl Fields,
    ) -> Result<Option<Box<Filter>>, Failure> {
        let Some((list, path)) = self.mcp.as_ref().and_then(|notes| notes.list.as_ref()) else {
            return Ok(None);
        };
        let Some(site) = self.site.as_ref().filter(|_| status == 200) else { return Ok(None) };
        let value = |name: &[u8]| {
            fields.all().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value)
        };
        if value(b"content-encoding").is_some_and(|coding| !coding.eq_ignore_ascii_case(b"identity")) {
            return Err(Failure::Upstream(CODED_LIST));
        }
        // A caller without a credential has no tier.
        let (site, path, tier) = (Arc::clone(site), path.clone(), self.permit().map(|permit| permit.tier()));
        let may_call = move |calls: &[Call<'_>]| {
            let shows = |decision: Decision| match decision.access {
                RouteAccess::Public => true,
                RouteAccess::Agents => tier.is_some_and(|tier| tier >= decision.min_tier),
                RouteAccess::Deny => false,
            };
            routing::decide_each(&site.tenant, &path, calls).map(shows).collect()
        };
        let mut filter = Box::new(Filter::new(*list, Box::new(may_call), LIST_TIME_MAX_MILLIS));
        Ok(filter.begin(value(b"content-type").unwrap_or_default()).then_some(filter))
    }
}

/// True if a page has the request sent that is neither of this host nor of an origin that the tenant allows. A host that nobody names
/// may be anybody's, who had its name lead here.
fn is_of_another_site<F: Fields>(site: &Site, request: &Incoming<'_, F>) -> bool {
    if !request.fields.has(Name::Origin) {
        return false;
    }
    let Some(origin) = request.fields.only(Name::Origin) else { return true };
    let allows = site.tenant.cors.as_ref().is_some_and(|rules| rules.allows(origin));
    let authority = [&b"https://"[..], b"http://"].into_iter().find_map(|scheme| origin.strip_prefix(scheme));
    let is_own = authority.zip(request.authority).is_some_and(|(origin, own)| {
        origin.eq_ignore_ascii_case(own.as_bytes())
            && of_authority(own).is_some_and(|host: Cow<'_, str>| is_named(&site.tenant, &host))
    });
    !allows && !is_own
}
