//! The library's requests, as the corridor and the log read them.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Version};
use pingora::http::RequestHeader;
use pingora::proxy::Session;
use tokio::time::timeout;

use crate::gateway::BODY_READ_TIME_MAX;
use crate::gateway::corridor::Incoming;
use crate::gateway::failure::Failure;
use crate::gateway::library::faults::error_of;
use crate::gateway::observe::{Ended, Ending};
use crate::http1::fields::Fields;
use crate::http1::name::Name;
use crate::message_signature::Content;
use crate::wire::errors::ErrorCause;

/// A request of the library's, as the corridor reads it.
pub(super) fn incoming(session: &mut Session) -> Option<Incoming<'_, HeaderMap>> {
    let content = if session.is_body_empty() { Content::Empty } else { Content::Follows };
    let session = &*session;
    let request = session.req_header();
    Some(Incoming {
        dialect: None,
        content,
        method: request.method.as_str(),
        target: request.raw_path(),
        authority: authority_of(request),
        fields: &request.headers,
        peer: peer_of(session)?,
        is_tls: is_tls(session),
    })
}

/// Refuses blanks around the values of HTTP/2, where they are malformed (RFC 9113, section 8.2.1).
pub(super) fn check_values(request: &RequestHeader) -> Result<(), ErrorCause> {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let mut values = request.headers.values().map(HeaderValue::as_bytes);
    if request.version == Version::HTTP_2
        && values.any(|value| is_blank(value.first()) || is_blank(value.last()))
    {
        return Err(ErrorCause::Malformed { problem: "a header's value begins or ends with a blank" });
    }
    Ok(())
}

/// Waits for the end of a request of HTTP/2 that announces no byte. The library takes it for whole, whatever comes.
pub(super) async fn until_empty_end(session: &mut Session) -> pingora::Result<()> {
    let is_zero = |length: &[u8]| length.iter().all(|digit| *digit == b'0');
    while session.is_http2()
        && Fields::values(&session.req_header().headers, Name::ContentLength).any(is_zero)
        // A byte that comes resets the stream.
        && next_piece(session, BODY_READ_TIME_MAX).await?.is_some()
    {}
    Ok(())
}

/// The next piece of a body; `None` at its end.
pub(super) async fn next_piece(session: &mut Session, longest: Duration) -> pingora::Result<Option<Bytes>> {
    let next = timeout(longest, session.as_mut().read_request_body()).await;
    next.unwrap_or_else(|_| Err(error_of(Failure::ClientSlow))).map_err(|error| error.into_down())
}

/// True if the request came over TLS.
pub(super) fn is_tls(session: &Session) -> bool {
    session.digest().is_some_and(|digest| digest.ssl_digest.is_some())
}

/// A request that has ended, with an answer of this status and length.
pub(super) fn ended(
    request: &RequestHeader,
    peer: Option<IpAddr>,
    (status, sent): (u16, u64),
    ending: Ending,
) -> Ended<'_, HeaderMap> {
    let protocol = match request.version {
        Version::HTTP_2 => "HTTP/2",
        Version::HTTP_10 => "HTTP/1.0",
        _ => "HTTP/1.1",
    };
    let (method, target) = (request.method.as_str().as_bytes(), request.raw_path());
    let authority = authority_of(request).unwrap_or_default();
    Ended { method, target, protocol, authority, fields: &request.headers, peer, status, sent, ending }
}

pub(super) fn peer_of(session: &Session) -> Option<IpAddr> {
    session.client_addr().and_then(|address| address.as_inet()).map(|address| address.ip())
}

pub(super) fn authority_of(request: &RequestHeader) -> Option<&str> {
    let named = request.headers.get(http::header::HOST).map(|host| host.to_str().unwrap_or_default());
    named.or_else(|| request.uri.authority().map(http::uri::Authority::as_str))
}
