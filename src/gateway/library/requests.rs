//! The library's requests, as admission and the log read them.

use std::{net::IpAddr, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Version};
use pingora::http::RequestHeader;
use pingora::protocols::http::ServerSession;
use pingora::proxy::Session;
use tokio::time::timeout;

use crate::error::Error;
use crate::gateway::rule::{Incoming, Message};
use crate::gateway::{BODY_READ_TIME_MAX, failure::Failure, library::faults::error_of};
use crate::http1::{Fields, Problem, name::Name};
use crate::http2;
use crate::message_signature::Content;
use crate::record::{Ended, Ending};
use crate::serve::Timer;

/// A request of the library's, as `Gateway::admit` reads it.
pub(super) fn incoming(session: &mut Session) -> Option<Incoming<'_, HeaderMap>> {
    let content = if session.is_body_empty() { Content::Empty } else { Content::Follows };
    let session = &*session;
    let request = session.req_header();
    Some(Incoming {
        dialect: None,
        message: Message::Unread,
        tenant: None,
        content,
        method: request.method.as_str(),
        target: request.raw_path(),
        authority: authority_of(request),
        fields: &request.headers,
        peer: peer_of(session)?,
        is_tls: is_tls(session),
    })
}

/// The reason why a request of HTTP/2 holds text that its client has not sent.
pub(super) fn rewritten(request: &RequestHeader) -> Option<Problem> {
    if request.version == Version::HTTP_2 { http2::problem(&request.headers) } else { None }
}

/// Refuses what is malformed in HTTP/2: also blanks around values (RFC 9113, section 8.2.1).
pub(super) fn check_values(request: &RequestHeader) -> Result<(), Error> {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let mut values = request.headers.values().map(HeaderValue::as_bytes);
    let has_blank = values.any(|value| is_blank(value.first()) || is_blank(value.last()));
    let blank = has_blank.then_some("a header's value begins or ends with a blank");
    match rewritten(request).or(blank) {
        Some(problem) => Err(Error::Malformed { problem }),
        None => Ok(()),
    }
}

/// Waits for the end of a request of HTTP/2 that announces no byte. The library takes it for whole, whatever comes.
pub(super) async fn until_empty_end(session: &mut ServerSession) -> pingora::Result<()> {
    let is_zero = |length: &[u8]| length.iter().all(|digit| *digit == b'0');
    if !Fields::values(&session.req_header().headers, Name::ContentLength).any(is_zero) {
        return Ok(());
    }
    // A byte that comes resets the stream. Frames without any buy no time.
    let end = async {
        while session.read_request_body().await?.is_some() {}
        Ok(())
    };
    timeout(BODY_READ_TIME_MAX, end).await.unwrap_or_else(|_| Err(error_of(Failure::ClientSlow)))
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
    let method = request.method.as_str().as_bytes();
    let (mut target, mut authority) = (request.raw_path(), authority_of(request).unwrap_or_default());
    if rewritten(request).is_some() {
        (target, authority) = (b"", "");
    }
    Ended {
        method,
        target,
        protocol,
        authority,
        fields: &request.headers,
        peer,
        status,
        sent,
        ending,
        at: Timer::now(),
    }
}

pub(super) fn peer_of(session: &Session) -> Option<IpAddr> {
    session.client_addr().and_then(|address| address.as_inet()).map(|address| address.ip())
}

pub(super) fn authority_of(request: &RequestHeader) -> Option<&str> {
    let named = request.headers.get(http::header::HOST).map(|host| host.to_str().unwrap_or_default());
    named.or_else(|| request.uri.authority().map(http::uri::Authority::as_str))
}

#[cfg(test)]
mod tests {
    use std::{future::pending, sync::Arc, time::Duration};

    use bytes::Bytes;
    use http::{Method, Request};
    use pingora::protocols::Digest;
    use pingora::protocols::http::v2::server::{H2Accept, HttpSession, handshake};
    use pingora::protocols::l4::stream::Stream;
    use tokio::net::{TcpListener, TcpStream};

    use super::{
        BODY_READ_TIME_MAX, Ending, RequestHeader, ServerSession, Version, ended, timeout, until_empty_end,
    };
    use crate::serve::Timer;

    /// Over HTTP/1 a client may write the header that tells of rewritten text.
    #[test]
    fn the_target_of_a_rewritten_request_alone_is_not_logged() {
        for (version, target) in [(Version::HTTP_11, "/a"), (Version::HTTP_2, "")] {
            let mut request = RequestHeader::build(Method::GET, b"/a", None).unwrap();
            request.set_version(version);
            request.insert_header("tiergate-refused", "a").unwrap();
            assert_eq!(ended(&request, None, (400, 0), Ending::Whole).target, target.as_bytes());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn frames_without_a_byte_buy_no_time() {
        let pass = async |time| _ = timeout(time, pending::<()>()).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let stream = Stream::from(listener.accept().await.unwrap().0);
        tokio::spawn(async move {
            let (client, connection) = h2::client::handshake(client).await.unwrap();
            tokio::spawn(connection);
            let request = Request::builder().method(Method::POST).uri("http://api.example/");
            let request = request.header("content-length", "0").body(()).unwrap();
            let (_answer, mut body) = client.ready().await.unwrap().send_request(request, false).unwrap();
            for _ in 0..100 {
                body.send_data(Bytes::new(), false).unwrap();
                pass(Duration::from_secs(1)).await;
            }
            body.send_data(Bytes::new(), true).unwrap();
            pass(BODY_READ_TIME_MAX).await;
        });
        let mut connection = handshake(Box::new(stream), None).await.unwrap();
        let accepted = HttpSession::from_h2_conn(&mut connection, Arc::new(Digest::default())).await;
        let Ok(Some(H2Accept::Session(session))) = accepted else { panic!("no request") };
        tokio::spawn(async move { while connection.accept().await.is_some() {} });
        let begun = Timer::now();
        assert!(until_empty_end(&mut ServerSession::new_http2(session)).await.is_err());
        let late = Timer::now() - begun - BODY_READ_TIME_MAX;
        assert!(late < Duration::from_millis(10), "{late:?}");
    }
}
