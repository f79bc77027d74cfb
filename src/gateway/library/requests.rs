//! The library's requests, as admission and the log read them, and their bodies: counted and bounded, compared with their digest,
//! and held as a whole where nothing may go before that.
//!
//! Toward upstreams of HTTP/2 the library counts times from a request's head on. So it is given small bodies whole, and a request with
//! a larger one has a stall timeout to the end of its answer.

use std::task::{Poll, ready};
use std::{cell::Cell, future::poll_fn, net::IpAddr, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Version, header::EXPECT};
use pingora::http::RequestHeader;
use pingora::protocols::http::ServerSession;
use pingora::proxy::Session;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use crate::gateway::library::faults::{error_of, forwarded};
use crate::gateway::rule::{Incoming, Message};
use crate::gateway::{
    BODY_READ_TIME_MAX, Gateway, admission::announced, context::Context, failure::Failure,
    library::LibraryProxy, mcp::ReadMessage,
};
use crate::http1::{Fields, Problem, name::Name};
use crate::record::{Ended, Ending};
use crate::serve::{Timer, WRITE_TIME_MAX};
use crate::{error::Error, http2, message_signature::Content};

/// How much of a body the library keeps for another try, in bytes.
pub(super) const KEPT_BYTES_MAX: u64 = 64 * 1024;

/// The longest frame of HTTP/2 that clients may send, in bytes.
const FRAME_BYTES_MAX: u64 = 16 * 1024;

/// A request of the library's, as `Gateway::admit` reads it.
pub(super) fn incoming<'a>(
    session: &'a mut Session,
    message: Message<'a>,
) -> Option<Incoming<'a, HeaderMap>> {
    let content = if session.is_body_empty() { Content::Empty } else { Content::Follows };
    let session = &*session;
    let request = session.req_header();
    Some(Incoming {
        dialect: None,
        message,
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

/// Gives a client that waits for it leave to send its body, in place of an upstream.
pub(super) async fn give_leave(session: &mut Session) -> pingora::Result<()> {
    let waits = session.req_header().headers.expects_continue();
    if waits {
        session.req_header_mut().remove_header(&EXPECT);
    }
    // HTTP/1.0 has no interim answers (RFC 9110, section 10.1.1).
    if !waits || session.req_header().version == Version::HTTP_10 {
        return Ok(());
    }
    session.as_mut().write_continue_response().await.map_err(|error| error.into_down())
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

impl LibraryProxy {
    /// Reads a body that is held, unless it was read as a message, before an upstream is asked: none waits in silence for it. The
    /// library asks for it later if it has kept its end. So a body that announces no length is left to come then where its end might not be kept.
    pub(super) async fn hold(
        &self,
        session: &mut Session,
        ctx: &mut Context,
        longest: Duration,
    ) -> pingora::Result<()> {
        let message = ctx.message.take();
        if ctx.checked_body.as_ref().is_none_or(|body| body.held.is_none()) {
            return Ok(());
        }
        if let Some(message) = message {
            let mut whole = Some(message.into());
            take_piece(session, &mut whole, true, ctx)?;
            (ctx.held_body, ctx.checked_body) = (whole, None);
            return Ok(());
        }
        let length = announced(&session.req_header().headers);
        give_leave(session).await?;
        while !session.as_ref().retry_buffer_truncated() {
            // The library knows the end of a stream with its last frame, and would never ask for one that it could not keep.
            if length.is_none()
                && session.is_http2()
                && ctx.record.received > KEPT_BYTES_MAX - FRAME_BYTES_MAX
            {
                ctx.record.received = 0;
                ctx.checked_body.iter_mut().for_each(|body| body.restart());
                break;
            }
            if length.is_none_or(|length| length.saturating_sub(ctx.record.received) <= KEPT_BYTES_MAX) {
                session.as_mut().enable_retry_buffering();
            }
            let mut piece = next_piece(session, longest).await?;
            let is_last = piece.is_none();
            self.check_overdue(ctx, is_last)?;
            take_piece(session, &mut piece, is_last, ctx)?;
            if is_last {
                (ctx.held_body, ctx.checked_body) = (piece, None);
                break;
            }
        }
        Ok(())
    }

    /// Reads a message of MCP before its request is decided about. The library keeps it for the upstream.
    pub(super) async fn read_message(
        &self,
        session: &mut Session,
        ctx: &mut Context,
    ) -> pingora::Result<ReadMessage> {
        let most = self.rules.mcp.body_bytes_max;
        if announced(&session.req_header().headers).is_some_and(|length| length > most as u64) {
            return Ok(ReadMessage::TooLong);
        }
        let peer = peer_of(session).ok_or_else(|| error_of(Failure::Internal))?;
        let held = self.reserve_message(peer, &session.req_header().headers, ctx);
        let mut held = held.map_err(error_of)?;
        give_leave(session).await?;
        session.as_mut().enable_retry_buffering();
        let mut body = Vec::new();
        let read = async {
            while let Some(piece) = next_piece(session, BODY_READ_TIME_MAX).await? {
                body.extend_from_slice(&piece);
                held.grow_to(body.len() as u64).map_err(error_of)?;
                if body.len() > most {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        let in_time = timeout(BODY_READ_TIME_MAX, read).await;
        let is_whole = in_time.unwrap_or_else(|_| Err(error_of(Failure::ClientSlow)))?;
        if let Some(notes) = &mut ctx.mcp {
            notes.held = Some(held);
        }
        Ok(if is_whole { ReadMessage::Apart(body) } else { ReadMessage::TooLong })
    }

    /// Reads a body that is announced and small, so that the library counts its upstream's time from its end on.
    pub(super) async fn take_small_body(&self, session: &mut Session, ctx: &Context) -> pingora::Result<()> {
        let headers = &session.req_header().headers;
        if announced(headers).is_none_or(|length| length > KEPT_BYTES_MAX) || headers.expects_continue() {
            return Ok(());
        }
        session.as_mut().enable_retry_buffering();
        let longest = BODY_READ_TIME_MAX.min(forwarded(ctx)?.0.tenant.proxy.timeouts.read);
        while !session.is_body_done() && next_piece(session, longest).await?.is_some() {
            self.check_overdue(ctx, false)?;
        }
        Ok(())
    }
}

/// Counts a piece of a request's body, and keeps back what may be another than the digest says.
pub(super) fn take_piece(
    session: &Session,
    body: &mut Option<Bytes>,
    is_last: bool,
    ctx: &mut Context,
) -> pingora::Result<()> {
    if let (Some(whole), Some(kept)) = (&ctx.held_body, &mut *body) {
        *kept = whole.clone();
        return Ok(());
    }
    ctx.record.received = ctx.record.received.saturating_add(body.as_ref().map_or(0, Bytes::len) as u64);
    // The limit is not for the bytes of another protocol.
    if session.was_upgraded() {
        return Ok(());
    }
    let longest = forwarded(ctx)?.0.tenant.proxy.body_bytes_max;
    if longest.is_some_and(|longest| ctx.record.received > longest) {
        return Err(error_of(Failure::TooLarge));
    }
    if let Some(checked) = &mut ctx.checked_body {
        let piece = checked.pass(body.take(), is_last).map_err(error_of)?;
        *body = Some(piece).filter(|piece| !is_last || !piece.is_empty());
    }
    Ok(())
}

/// Has the end of a request noted that is dropped before its last phase, because it stalls.
pub(super) fn note_when_dropped(gateway: &Arc<Gateway>, session: &Session, ctx: &mut Context) {
    let (gateway, head, peer) = (Arc::clone(gateway), session.req_header().clone(), peer_of(session));
    // The library ends reads of a client of HTTP/1 before that.
    let is_http1 = !session.is_http2();
    ctx.on_drop = Some(Box::new(move |ctx| {
        let awaits_client = ctx.awaits_body && !is_http1;
        let asked = ctx.record.times.asked.filter(|_| !awaits_client && ctx.record.times.answered.is_none());
        let read = ctx.site.as_ref().map(|site| site.tenant.proxy.timeouts.read);
        let is_silent = asked.zip(read).is_some_and(|(asked, read)| asked + read <= Timer::now());
        if let Some(member) = ctx.member().filter(|_| is_silent) {
            member.state.leave_connections(ctx.generation);
            gateway.note_upstream_failure(ctx, "ReadTimedout");
        }
        let ending = if is_silent { Ending::Failed } else { Ending::ClientLeft };
        gateway.finished(&ended(&head, peer, (0, 0), ending), ctx);
    }));
}

/// Restarts the time limit of a request's bodies: a piece of one has moved.
pub(super) fn restart_timeout(session: &Session, ctx: &Context) {
    let Some(site) = ctx.site.as_ref().filter(|_| ctx.may_stall) else { return };
    let timeouts = &site.tenant.proxy.timeouts;
    // The library bounds reads of a client of HTTP/1, and a held body has been read: writes are left.
    let is_for_writes = ctx.held_body.is_some() || (ctx.awaits_body && !session.is_http2());
    let longest = timeouts.read + if is_for_writes { timeouts.write } else { Duration::ZERO };
    // A client may take so long for a piece of its answer.
    let least = session.response_written().map_or(Duration::ZERO, |_| WRITE_TIME_MAX);
    set_deadline(Some(longest.max(least)));
}

tokio::task_local! {
    /// The deadline of the request that a task serves.
    static DUE: Cell<Option<Instant>>;
}

/// Serves a request, and drops it if no piece of a body moves it before its deadline.
///
/// Toward upstreams of HTTP/2 Pingora 0.9.1, the newest release, counts `read_timeout` from the request's head on. With that limit alone
/// an upload that takes longer is ended, and without one a body that stalls is not: `slow::a_body_of_http_2_that_goes_on_moving_is_not_ended`
/// and `slow::a_body_of_http_2_that_stalls_is_ended_after_read_toward_any_upstream` fail.
pub(super) async fn drop_if_stalled<T>(request: impl Future<Output = Option<T>>) -> Option<T> {
    let (mut request, mut alarm, mut due) = (pin!(request), pin!(None::<Sleep>), None);
    poll_fn(|context| {
        let poll = || (request.as_mut().poll(context), DUE.with(Cell::get));
        let (polled, next) = DUE.sync_scope(Cell::new(due), poll);
        due = next;
        let Some(due) = due.filter(|_| polled.is_pending()) else { return polled };
        loop {
            if let Some(mut alarm) = alarm.as_mut().as_pin_mut()
                && alarm.deadline() <= due
            {
                ready!(alarm.as_mut().poll(context));
                if alarm.deadline() == due {
                    return Poll::Ready(None);
                }
            }
            alarm.set(Some(sleep_until(due)));
        }
    })
    .await
}

/// Gives the request that this task serves so long until its next piece of a body; `None`: any time.
pub(super) fn set_deadline(longest: Option<Duration>) {
    let _ = DUE.try_with(|due| due.set(longest.map(|longest| Timer::now() + longest)));
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
        BODY_READ_TIME_MAX, Ending, RequestHeader, ServerSession, Version, drop_if_stalled, ended,
        set_deadline, timeout, until_empty_end,
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

    const LIMIT: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn a_request_that_moves_is_served_and_one_that_stalls_is_dropped_after_its_limit() {
        let begun = Timer::now();
        let pass = async |time| _ = timeout(time, pending::<()>()).await;
        let request = async |pieces: u32, rest: Duration| {
            for _ in 0..pieces {
                set_deadline(Some(LIMIT));
                pass(LIMIT - Duration::from_millis(2)).await;
            }
            set_deadline(None);
            pass(10 * LIMIT).await;
            set_deadline(Some(LIMIT));
            pass(rest).await;
            Some(())
        };
        assert_eq!(drop_if_stalled(request(10, Duration::ZERO)).await, Some(()));
        assert!(Timer::now() - begun > 19 * LIMIT);
        let begun = Timer::now();
        assert_eq!(drop_if_stalled(request(0, 10 * LIMIT)).await, None);
        assert_eq!(Timer::now() - begun, 11 * LIMIT);
    }
}
