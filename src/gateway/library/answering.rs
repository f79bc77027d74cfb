//! Heads over the HTTP library: the client's headers become the upstream's, refusals and failures are written, upstreams' answers
//! rewritten.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};
use pingora::Error;
use pingora::ErrorType;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::http::ServerSession;
use pingora::proxy::Session;
use tokio::time::timeout;

use crate::gateway::library::faults::{DRAIN_TIME_MAX, invalid_answer};
use crate::gateway::library::requests::{authority_of, is_tls};
use crate::gateway::policy::answers::{is_about_limits, is_of_one_hop};
use crate::gateway::{
    admission::Admitted, context::Context, failure::Failure, library::LibraryProxy, library::faults,
    policy::answers, policy::forwarded::Arrival, policy::requests, policy::requests::Kept,
};
use crate::http1::{Fields, Options, name::Name};
use crate::serve::LINGER_BYTES_MAX;
use crate::wire::{Answer, answers::contract_spelling, grpc};

/// How long the part of an answer that breaks off may take to leave.
const LEAVE_TIME_MAX: Duration = Duration::from_millis(100);

/// The most headers that are written into one request.
const HEADERS_WRITTEN_MAX: usize = 16;

impl LibraryProxy {
    /// Answers a request that failed on its way; gives the status. An answer that had begun breaks off, and a WebSocket ends.
    pub(super) async fn answer_failure(
        &self,
        session: &mut Session,
        ctx: &mut Context,
        failure: Failure,
    ) -> u16 {
        if session.was_upgraded() {
            ctx.breaks_off = true;
            ctx.record.reason = failure.end_of_socket();
            return 0;
        }
        let longest = ctx.site.as_ref().and_then(|site| site.tenant.proxy.body_bytes_max);
        let Some(cause) = failure.cause(longest) else { return 0 };
        let answer = self.answer_to(cause.into(), ctx);
        let status = answer.status().as_u16();
        session.set_keepalive(None);
        ctx.breaks_off = has_begun(session);
        let written = if !ctx.breaks_off {
            write(session, answer).await
        } else if ctx.speaks_grpc
            && let ServerSession::H2(stream) = session.as_mut()
        {
            // Without a status of its own the call would end as one that the caller has cancelled.
            ctx.breaks_off = false;
            stream.write_trailers(grpc::trailers(answer.headers()))
        } else {
            Ok(())
        };
        if written.is_err() {
            tracing::debug!("a client did not take its answer");
        }
        status
    }

    /// Strips the headers that only we may write, and writes them.
    ///
    /// The library keeps a second map with the client's spelling of header names; without it each header that we write
    /// costs half. HTTP compares names without regard to case, and HTTP/2 knows small letters only.
    pub(super) fn rewrite(
        &self,
        session: &Session,
        request: &mut RequestHeader,
        ctx: &Context,
    ) -> pingora::Result<()> {
        let (site, _) = faults::forwarded(ctx)?;
        let Some(Admitted { peer, .. }) = ctx.admitted else {
            return Err(faults::error_of(Failure::Internal));
        };
        let downstream = session.req_header();
        let mut parts = request.as_owned_parts();
        let headers = &mut parts.headers;
        let believed = self.rules.believed.of(peer);
        let kept = Kept::of(&downstream.headers, &self.pipeline.rules().key_format, believed);
        // The library strips those of HTTP/1 itself.
        let (is_http2, none) = (downstream.version == Version::HTTP_2, Options::default());
        let ends_here = |id, name: &[u8]| is_http2 && requests::is_of_one_hop(&none, id, name);
        for name in names_that(headers, |id, name| {
            ends_here(id, name) || ctx.replaces(id, name) || !kept.has(id, name)
        }) {
            headers.remove(&name);
        }
        headers.reserve(HEADERS_WRITTEN_MAX);
        let peer_text = peer.to_canonical().to_string();
        let version = match downstream.version {
            Version::HTTP_10 => "1.0",
            Version::HTTP_2 => "2.0",
            _ => "1.1",
        };
        let arrival = Arrival { peer: &peer_text, believed, is_tls: is_tls(session), version };
        let authority = authority_of(downstream).unwrap_or_default().as_bytes();
        self.write_ours(&downstream.headers, authority, ctx, &arrival, headers);
        if site.tenant.proxy.shows_own_host
            && let Some(member) = ctx.member()
        {
            headers.insert(http::header::HOST, member.host.clone());
        }
        match (downstream.version, request.version) {
            // Asked for by gRPC, and hop-by-hop only between other versions (RFC 9113, section 8.2.2).
            (_, Version::HTTP_2) if takes_trailers(&downstream.headers) => {
                headers.insert(http::header::TE, HeaderValue::from_static("trailers"));
            }
            (Version::HTTP_2, Version::HTTP_11) => join_cookies(headers),
            _ => {}
        }
        let rewritten = RequestHeader::from(parts);
        // The target that was decided about goes upstream, byte for byte.
        if rewritten.raw_path() != request.raw_path() {
            return Err(Error::explain(
                ErrorType::InternalError,
                "a request target does not survive rewriting",
            ));
        }
        *request = rewritten;
        Ok(())
    }
}

/// True if the head of the final answer has gone to the client.
pub(super) fn has_begun(session: &Session) -> bool {
    session.response_written().is_some_and(|head| !head.status.is_informational())
}

/// Lets the client see what was written before the end of its connection or stream overtakes it: the part that has come of
/// an answer that breaks off, and an answer that came before the end of its request.
pub(super) async fn linger(client: &mut ServerSession, breaks_off: bool) {
    if !client.is_http2() {
        if breaks_off {
            // A part is still held back.
            let _ = timeout(DRAIN_TIME_MAX, client.shutdown()).await;
        }
        return;
    }
    if !breaks_off && client.is_body_done() {
        return;
    }
    let longest = if breaks_off { LEAVE_TIME_MAX } else { DRAIN_TIME_MAX };
    let read_on = async {
        let mut bytes = 0;
        while bytes < LINGER_BYTES_MAX
            && let Ok(Some(piece)) = client.read_request_body().await
        {
            bytes += piece.len();
        }
        if breaks_off {
            // Until the client resets the stream.
            let _ = client.read_body_or_idle(true).await;
        }
    };
    // A client that goes on is reset then.
    let _ = timeout(longest, read_on).await;
}

/// Writes an answer of ours. One without a body ends with its head.
pub(super) async fn write(session: &mut Session, answer: Answer) -> pingora::Result<()> {
    let (parts, body) = answer.into_parts();
    let is_bare = body.is_empty() || session.req_header().method == Method::HEAD;
    let head = Box::new(head_of(&parts)?);
    if let ServerSession::H2(stream) = session.as_mut() {
        // The library's own way would end the stream with a frame more.
        stream.write_response_header(head, is_bare)?;
    } else {
        session.write_response_header(head, is_bare).await?;
    }
    if !is_bare {
        session.write_response_body(Some(body.into()), true).await?;
    }
    Ok(())
}

/// Rewrites an upstream's answer for the client.
pub(super) fn rewrite(response: &mut ResponseHeader, ctx: &Context) -> Result<(), Box<Error>> {
    let switches = response.status == StatusCode::SWITCHING_PROTOCOLS;
    let options = Options::of(&response.headers).map_err(invalid_answer)?;
    for name in names_that(&response.headers, |id, name| {
        let is_about_pages = ctx.cors().is_some() && answers::is_about_pages(name);
        is_about_pages || is_about_limits(name) || (!switches && is_of_one_hop(&options, id, name))
    }) {
        response.remove_header(&name);
    }
    if response.status.is_informational() && !switches {
        return Ok(());
    }
    let mut ours = HeaderMap::new();
    ctx.write_forwarded_answer_headers(&response.headers, &mut ours);
    for (name, value) in &ours {
        if matches!(*name, http::header::VARY | http::header::CACHE_CONTROL) {
            response.append_header(name, value)?;
            continue;
        }
        match contract_spelling(name) {
            Some(spelling) => response.insert_header(spelling, value)?,
            None => response.insert_header(name, value)?,
        }
    }
    Ok(())
}

/// The names of which this holds.
pub(super) fn names_that(headers: &HeaderMap, holds: impl Fn(Name, &[u8]) -> bool) -> Vec<HeaderName> {
    let text = |name: &HeaderName| holds(Name::of(name.as_str().as_bytes()), name.as_str().as_bytes());
    headers.keys().filter(|name| text(name)).cloned().collect()
}

/// The head with header names as the contract spells them, for clients that compare them letter by letter.
fn head_of(parts: &http::response::Parts) -> pingora::Result<ResponseHeader> {
    let mut head = ResponseHeader::build(parts.status, Some(parts.headers.len()))?;
    for (name, value) in &parts.headers {
        match contract_spelling(name) {
            Some(spelling) => head.append_header(spelling, value)?,
            None => head.append_header(name, value)?,
        };
    }
    Ok(head)
}

fn takes_trailers(headers: &HeaderMap) -> bool {
    let mut codings = Fields::values(headers, Name::Te).flat_map(|value| value.split(|byte| *byte == b','));
    codings.any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers"))
}

/// HTTP/2 may send one cookie header in pieces, which HTTP/1 servers don't expect (RFC 9113, section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let pieces: Vec<&[u8]> =
        headers.get_all(http::header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if pieces.len() < 2 {
        return;
    }
    // Header values with ASCII between them are one.
    if let Ok(whole) = HeaderValue::try_from(pieces.join(&b"; "[..])) {
        headers.insert(http::header::COOKIE, whole);
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::{join_cookies, takes_trailers};

    #[test]
    fn cookies_in_pieces_become_one_and_a_whole_one_stays() {
        let mut headers = HeaderMap::new();
        join_cookies(&mut headers);
        assert!(headers.is_empty());
        for piece in ["a=1", "b=2", "c=3"] {
            headers.append("cookie", HeaderValue::from_static(piece));
        }
        join_cookies(&mut headers);
        let cookies: Vec<_> = headers.get_all("cookie").iter().collect();
        assert_eq!(cookies, ["a=1; b=2; c=3"]);
    }

    #[test]
    fn trailers_are_asked_for_among_other_codings_too() {
        let mut headers = HeaderMap::new();
        assert!(!takes_trailers(&headers));
        headers.insert("te", HeaderValue::from_static("deflate;q=0.5, Trailers"));
        assert!(takes_trailers(&headers));
    }
}
