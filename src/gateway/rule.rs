//! The rule of a tenant for a request, and everything that it is refused for whatever its credential. `tiergate explain` asks it
//! too. And the dialects in which gateways ask about a request and read answers. Must not wait for anything.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use crate::domain::{ApiKeyFormat, Call, Decision, RouteAccess, host::of_authority, routing};
use crate::error::Error;
use crate::gateway::discovery::{Document, check_login, document_at, is_named};
use crate::gateway::site::Site;
use crate::http1::{Fields, name::Name};
use crate::message_signature::Content;
use crate::wire::credentials::shows_credential;

/// The methods that a refused one is answered with. Others of the kind are forwarded too.
const ALLOWED: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// A request as the gateway reads it, whatever protocol it came by.
pub(crate) struct Incoming<'a, F> {
    pub(super) method: &'a str,
    /// Path and query, as they are forwarded.
    pub(super) target: &'a [u8],
    /// The host that it is for, as it was written; `None` where there is none.
    pub(super) authority: Option<&'a str>,
    pub(super) fields: &'a F,
    /// The address that it came from.
    pub(super) peer: IpAddr,
    /// True if it came over TLS.
    pub(super) is_tls: bool,
    pub(super) content: Content,
    /// How another gateway asks about it that forwards it itself; `None`: it is ours to forward.
    pub(super) dialect: Option<Dialect>,
    /// The id of its tenant, if that gateway names it; `None`: the host names the tenant.
    pub(super) tenant: Option<&'a str>,
    /// The message, at an endpoint of MCP.
    pub(super) message: Message<'a>,
}

/// A request's message, as far as it was read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Message<'a> {
    Unread,
    Whole(&'a [u8]),
    /// A message that is longer than those that are read.
    TooLong,
}

impl<'a, F> Incoming<'a, F> {
    /// A request that nobody has sent: with these fields, from this machine and in the clear. Of a tenant without a host it is one
    /// that another gateway asks about.
    pub(crate) fn supposed(method: &'a str, target: &'a str, host: Option<&'a str>, fields: &'a F) -> Self {
        Self {
            method,
            target: target.as_bytes(),
            authority: host,
            fields,
            peer: IpAddr::V4(Ipv4Addr::LOCALHOST),
            is_tls: false,
            content: Content::Empty,
            dialect: host.is_none().then_some(Dialect::Forward),
            message: Message::Unread,
            tenant: None,
        }
    }

    /// The path, without the query.
    pub(crate) fn path(&self) -> &'a [u8] {
        self.target.split(|byte| *byte == b'?').next().unwrap_or_default()
    }
}

impl Site {
    /// The tenant's rule for a request; the document that the request asks for, or everything that it is refused for whatever its
    /// credential. `calls` are those of a request of MCP. Methods that no tenant gets have no rule.
    pub(crate) fn rule<'a, F: Fields>(
        &self,
        request: &Incoming<'a, F>,
        calls: Option<&[Call<'_>]>,
        key_format: &ApiKeyFormat,
    ) -> Result<(Decision, Result<Option<Document<'a>>, Error>), Error> {
        // A method in small letters is the same method for some servers and another one for our rules.
        let is_capital = !request.method.bytes().any(|byte| byte.is_ascii_lowercase());
        if routing::NEVER_FORWARDED.contains(&request.method) || !is_capital {
            return Err(Error::MethodNotAllowed { allow: ALLOWED.into() });
        }
        let decision = match calls {
            Some(calls) => self.decide_calls(request.path(), calls),
            None => self.decide(request.method, request.path()),
        };
        Ok((decision, self.check(request, decision, key_format)))
    }

    fn check<'a, F: Fields>(
        &self,
        request: &Incoming<'a, F>,
        decision: Decision,
        key_format: &ApiKeyFormat,
    ) -> Result<Option<Document<'a>>, Error> {
        let (tenant, fields, at) = (&self.tenant, request.fields, (request.method, request.path()));
        check_login(tenant, decision, at, || shows_credential(fields, key_format))?; // 404
        let protocols = || {
            let values = [Name::Upgrade, Name::AuthzUpgrade].map(|name| fields.values(name));
            values.into_iter().flatten().filter(|protocol| !protocol.is_empty())
        };
        let passes = |protocol: &[u8]| decision.upgrades && protocol.eq_ignore_ascii_case(b"websocket");
        // Another gateway would pass it on. Ours takes it away.
        if request.dialect.is_some() && !protocols().all(passes) {
            return Err(Error::Forbidden); // 403
        }
        // Browsers ask no leave for a WebSocket, and let the page read it.
        let is_socket =
            if request.dialect.is_some() { protocols().next().is_some() } else { fields.upgrades() };
        if let Some(cors) = tenant.cors.as_ref().filter(|_| decision.upgrades && is_socket)
            && fields.has(Name::Origin)
            && !fields.only(Name::Origin).is_some_and(|origin| cors.allows(origin))
        {
            return Err(Error::OtherSite); // 403
        }
        if request.dialect.is_some() {
            return Ok(None);
        }
        let is_named = |host| of_authority(host).is_some_and(|host| is_named(tenant, &host));
        let document = document_at(tenant, decision.access, request.method, request.path());
        Ok(document.filter(|document| {
            !matches!(document, Document::Metadata(_)) || request.authority.is_some_and(is_named)
        }))
    }

    /// The refusal of a denied request: 405 where earlier routes let somebody pass at its path by other methods, else 403.
    pub(crate) fn denied(&self, decision: Decision, path: &[u8]) -> Error {
        let tenant = &self.tenant;
        let route = decision.route.and_then(|at| tenant.routes.get(at));
        if route.is_some_and(|route| !route.calls.is_empty()) {
            return Error::Forbidden;
        }
        let before = decision.route.and_then(|at| tenant.routes.get(..at)).unwrap_or_default();
        let at_path = before.iter().filter(|route| route.path.matches(path));
        let mut methods: BTreeSet<&str> =
            at_path.flat_map(|route| &route.methods).map(|own| &**own).collect();
        methods.retain(|own| self.decide(own, path).access != RouteAccess::Deny);
        if methods.is_empty() {
            return Error::Forbidden;
        }
        Error::MethodNotAllowed { allow: Vec::from_iter(methods).join(", ").into() }
    }
}

/// A dialect in which another gateway asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `X-Forwarded-*`, and any 2xx lets the request pass: Traefik, Caddy, APISIX, HAProxy.
    Forward,
    /// nginx's `auth_request`: any 2xx lets the request pass, 401 and 403 don't, and all else is 500.
    Nginx,
    /// Envoy's HTTP service, and the Gateway API's.
    Envoy,
    /// `envoy.service.auth.v3`: the verdict stands beside the answer.
    Grpc,
}

impl Dialect {
    /// True if the gateway strips headers by names in its own configuration, and not those that we list.
    pub(crate) const fn strips_by_names(self) -> bool {
        matches!(self, Self::Forward | Self::Nginx)
    }

    /// True if an answer of 2xx, to a request that does not pass, is not taken for leave. Some gateways take any.
    pub(crate) const fn takes_success(self) -> bool {
        matches!(self, Self::Grpc)
    }
}
