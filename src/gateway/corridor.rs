//! The corridor of the gateway: route, extract, admit. What comes out is a passage, without which nothing goes upstream.

use std::net::IpAddr;
use std::sync::Arc;

use http::Method;
use pingora::http::RequestHeader;
use pingora::proxy::Session;

use crate::domain::routing::Decision;
use crate::domain::tenant::RouteAccess;
use crate::gateway::Gateway;
use crate::gateway::context::{Context, Passage, Traveller};
use crate::gateway::rewriting::authority_of;
use crate::gateway::site::Site;
use crate::pipeline::credential::Ask;
use crate::pipeline::permit::Permit;
use crate::wire::client_ip::client_of;
use crate::wire::credentials::{credential_of, origin_of};
use crate::wire::errors::ErrorCause;
use crate::wire::framing::HEADERS_MAX;

/// The methods that a refused one is answered with. Others of the kind are forwarded too.
const ALLOWED: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// Where a request is going.
struct Place {
    site: Arc<Site>,
    decision: Decision,
}

impl Gateway {
    /// Route, extract, admit.
    pub(super) async fn let_through(
        &self,
        session: &Session,
        ctx: &mut Context,
    ) -> Result<Passage, ErrorCause> {
        let peer = peer_of(session).ok_or(ErrorCause::Internal)?;
        if session.req_header().headers.len() > HEADERS_MAX {
            return Err(ErrorCause::HeadTooLarge); // 431, for HTTP/2; HTTP/1 has been counted before
        }
        let place = self.route(session.req_header(), ctx)?; // 404, 405
        let upstreams = Arc::clone(place.site.upstreams(place.decision.route));
        let upgrades = place.decision.upgrades;
        if place.decision.access == RouteAccess::Deny {
            return Err(ErrorCause::Forbidden); // 403
        }
        check_length(session.req_header(), &place.site)?; // 413
        let traveller = if place.decision.access == RouteAccess::Public {
            Traveller::Anyone
        } else {
            Traveller::Agent(self.admit(session.req_header(), peer, &place).await?) // 400, 401, 403, 404, 429, 500, 503
        };
        Ok(Passage { traveller, upstreams, upgrades, peer })
    }

    /// Whose the request is, and what the tenant's rules say of it.
    fn route(&self, request: &RequestHeader, ctx: &mut Context) -> Result<Place, ErrorCause> {
        let authority = authority_of(request).ok_or(ErrorCause::UnknownHost)?;
        let table = self.table.load();
        let site = Arc::clone(table.find(authority).ok_or(ErrorCause::UnknownHost)?);
        ctx.site = Some(Arc::clone(&site));
        // Neither is for what stands behind a gateway: one opens tunnels, the other shows what only upstreams may see. And
        // what is a method in small letters for some servers is another one for our rules.
        let is_capital = !request.method.as_str().bytes().any(|byte| byte.is_ascii_lowercase());
        if [Method::CONNECT, Method::TRACE].contains(&request.method) || !is_capital {
            return Err(ErrorCause::MethodNotAllowed { allow: ALLOWED });
        }
        let decision = site.decide(request.method.as_str(), path_of(request));
        Ok(Place { site, decision })
    }

    /// The very pipeline that the API asks.
    async fn admit(
        &self,
        request: &RequestHeader,
        peer: IpAddr,
        place: &Place,
    ) -> Result<Permit, ErrorCause> {
        let headers = &request.headers;
        let credential = credential_of(headers, self.pipeline.key_format(), place.site.tenant.credentials)?;
        let origin = origin_of(headers)?;
        let client = client_of(peer, headers, &self.trusted_proxies);
        let access = place.site.access(place.decision.min_tier);
        let outcome = self.pipeline.admit(&Ask { credential, client, origin, access }).await;
        self.observer.decided(&outcome);
        Ok(outcome?)
    }
}

/// The path as it is forwarded, without the query.
pub(super) fn path_of(request: &RequestHeader) -> &[u8] {
    request.raw_path().split(|byte| *byte == b'?').next().unwrap_or_default()
}

fn peer_of(session: &Session) -> Option<IpAddr> {
    session.client_addr().and_then(|address| address.as_inet()).map(|address| address.ip())
}

/// Refuses a body that is announced to be longer than the tenant takes.
fn check_length(request: &RequestHeader, site: &Site) -> Result<(), ErrorCause> {
    let Some(bytes_max) = site.tenant.proxy.body_bytes_max else { return Ok(()) };
    let announced = request.headers.get(http::header::CONTENT_LENGTH).and_then(|text| text.to_str().ok());
    match announced.and_then(|text| text.parse::<u64>().ok()) {
        Some(bytes) if bytes > bytes_max => Err(ErrorCause::UploadTooLarge { bytes_max }),
        Some(_) | None => Ok(()),
    }
}
