//! What an upstream sees instead of what the client wrote.

use http::{HeaderMap, HeaderValue, Version};
use pingora::http::RequestHeader;
use pingora::proxy::Session;

use crate::domain::tenant::HostHeader;
use crate::gateway::context::{Context, Traveller};
use crate::gateway::forwarded::{self, Arrival};
use crate::gateway::{Gateway, identity};
use crate::wire::client_ip::is_trusted;

impl Gateway {
    /// Takes away what only we may say, and says it.
    pub(super) fn rewrite(
        &self,
        session: &Session,
        request: &mut RequestHeader,
        ctx: &Context,
    ) -> pingora::Result<()> {
        let passage = ctx.passage()?;
        let downstream = session.req_header();
        identity::strip(request, self.pipeline.key_format());
        if let Traveller::Agent(permit) = &passage.traveller {
            self.scribe.write(request, permit)?;
        }
        let arrival = Arrival {
            peer: passage.peer,
            peer_is_trusted: is_trusted(passage.peer, &self.trusted_proxies),
            is_tls: session.digest().is_some_and(|digest| digest.ssl_digest.is_some()),
            host: authority_of(downstream).unwrap_or_default().as_bytes(),
        };
        forwarded::write(request, &arrival)?;
        if let Some(id) = &ctx.request_id {
            request.insert_header("X-Request-Id", id.value())?;
        }
        if ctx.site()?.tenant.proxy.host_header == HostHeader::Upstream
            && let Some(member) = passage.upstreams.current(ctx.attempt)
        {
            request.insert_header("Host", &member.host)?;
        }
        match (downstream.version, request.version) {
            // Asked for by gRPC, and hop-by-hop only between other versions (RFC 9113, section 8.2.2).
            (_, Version::HTTP_2) if takes_trailers(&downstream.headers) => {
                request.insert_header("TE", "trailers")
            }
            (Version::HTTP_2, Version::HTTP_11) => join_cookies(request),
            _ => Ok(()),
        }
    }
}

/// The host that a request is for, as it was written.
pub(super) fn authority_of(request: &RequestHeader) -> Option<&str> {
    let named = request.headers.get(http::header::HOST).map(|host| host.to_str().unwrap_or_default());
    named.or_else(|| request.uri.authority().map(http::uri::Authority::as_str))
}

fn takes_trailers(headers: &HeaderMap) -> bool {
    let values = headers.get_all(http::header::TE).iter();
    values
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers"))
}

/// HTTP/2 may send one cookie header in pieces, which HTTP/1 servers don't expect (RFC 9113, section 8.2.3).
fn join_cookies(request: &mut RequestHeader) -> pingora::Result<()> {
    let pieces: Vec<&[u8]> =
        request.headers.get_all(http::header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if pieces.len() < 2 {
        return Ok(());
    }
    let whole = pieces.join(&b"; "[..]);
    request.insert_header(http::header::COOKIE, whole)
}

#[cfg(test)]
mod tests {
    use pingora::http::RequestHeader;

    use super::{join_cookies, takes_trailers};

    #[test]
    fn cookies_in_pieces_become_one_and_a_whole_one_stays() {
        let mut request = RequestHeader::build("GET", b"/", None).unwrap();
        join_cookies(&mut request).unwrap();
        assert!(!request.headers.contains_key("cookie"));
        for piece in ["a=1", "b=2", "c=3"] {
            request.append_header("cookie", piece).unwrap();
        }
        join_cookies(&mut request).unwrap();
        let cookies: Vec<_> = request.headers.get_all("cookie").iter().collect();
        assert_eq!(cookies, ["a=1; b=2; c=3"]);
    }

    #[test]
    fn trailers_are_asked_for_among_other_codings_too() {
        let mut request = RequestHeader::build("GET", b"/", None).unwrap();
        assert!(!takes_trailers(&request.headers));
        request.insert_header("te", "deflate;q=0.5, Trailers").unwrap();
        assert!(takes_trailers(&request.headers));
    }
}
