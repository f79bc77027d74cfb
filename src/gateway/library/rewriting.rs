//! Requests over the HTTP library: the client's headers become the upstream's.

use http::{HeaderMap, HeaderValue, Version};
use pingora::http::RequestHeader;
use pingora::proxy::Session;
use pingora::{Error, ErrorType};

use crate::domain::HostHeader;
use crate::gateway::library::requests::{authority_of, is_tls};
use crate::gateway::{
    Gateway, context::Context, library::answering::names_that, library::faults, policy::forwarded::Arrival,
    policy::requests::Kept,
};

/// The most headers that are written into one request.
const HEADERS_WRITTEN_MAX: usize = 16;

impl Gateway {
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
        let admitted = faults::admitted(ctx)?;
        let downstream = session.req_header();
        let mut parts = request.as_owned_parts();
        let headers = &mut parts.headers;
        let peer = admitted.peer;
        let believed = self.rules.believed.of(peer);
        let kept = Kept::of(&downstream.headers, self.pipeline.key_format(), believed);
        for name in names_that(headers, |id, name| ctx.replaces(id, name) || !kept.has(id, name)) {
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
        if admitted.route.site.tenant.proxy.host_header == HostHeader::Upstream
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

fn takes_trailers(headers: &HeaderMap) -> bool {
    let values = headers.get_all(http::header::TE).iter();
    values
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers"))
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
