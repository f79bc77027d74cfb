//! The HTTP shell around every `ServeHttp` door of ours: time limits, unambiguous framing, error bodies also for what
//! is not HTTP, orderly keep-alive.
//!
//! Knows no endpoint. Pingora's own shell has no limit on the whole head, accepts ambiguous framing, and logs the
//! request bytes of what it can't read.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Version};
use pingora::apps::ServerApp;
use pingora::apps::http_app::ServeHttp;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::Stream;
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;
use pingora::{Error, ErrorType};
use prometheus::IntCounter;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::ports::clock::Clock;
use crate::telemetry::metrics::Metrics;
use crate::wire::answers::Answer;
use crate::wire::errors::ErrorCause;
use crate::wire::{framing, headers};

/// How many connections one door holds open; whoever comes then is turned away at once.
const CONNECTIONS_MAX: usize = 4_096;

/// How long a connection may stay idle before a request begins.
const IDLE_TIME_MAX: Duration = Duration::from_secs(60);

/// How long a request head may take to arrive, from its first byte.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);

/// The longest request head, in bytes. The server framework itself stops at 1 MiB.
const HEAD_BYTES_MAX: usize = 32 * 1024;

/// How long one read may wait while a head or body arrives.
const READ_TIME_MAX: Duration = Duration::from_secs(10);

/// How long a body may take to arrive.
const BODY_TIME_MAX: Duration = Duration::from_secs(10);

/// How long one write of an answer may wait for the client.
const WRITE_TIME_MAX: Duration = Duration::from_secs(10);

/// How long a request may take, from its head to the answer. Doors that count their requests keep it themselves.
pub(crate) const REQUEST_TIME_MAX: Duration = Duration::from_secs(30);

/// When the shell gives up a request whose door has not.
const DOOR_TIME_MAX: Duration = Duration::from_secs(REQUEST_TIME_MAX.as_secs() + 2);

/// How long an unread rest of a body is waited for before the connection is given up.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(1);

const _: () = assert!(BODY_TIME_MAX.as_secs() < REQUEST_TIME_MAX.as_secs());

/// A door that speaks HTTP/1.
pub(crate) struct HttpShell<S> {
    service: S,
    clock: Arc<dyn Clock>,
    malformed: IntCounter,
    turned_away: IntCounter,
    connections: Semaphore,
}

impl<S> HttpShell<S> {
    /// Puts the shell around a service; `door` is its name in metrics.
    pub(crate) fn new(service: S, door: &str, clock: Arc<dyn Clock>, metrics: &Metrics) -> Self {
        let malformed = metrics.malformed.with_label_values(&[door]);
        let turned_away = metrics.connections_turned_away.with_label_values(&[door]);
        Self { service, clock, malformed, turned_away, connections: Semaphore::new(CONNECTIONS_MAX) }
    }
}

#[async_trait]
impl<S: ServeHttp + Send + Sync + 'static> ServerApp for HttpShell<S> {
    async fn process_new(self: &Arc<Self>, mut stream: Stream, shutdown: &ShutdownWatch) -> Option<Stream> {
        let Ok(_place) = self.connections.try_acquire() else {
            self.turned_away.inc();
            return None;
        };
        let mut stopping = shutdown.clone();
        loop {
            let mut first_byte = [0];
            tokio::select! {
                begun = timeout(IDLE_TIME_MAX, stream.try_peek(&mut first_byte)) => {
                    begun.ok()?.ok()?;
                }
                _ = stopping.wait_for(|stopping| *stopping) => return None,
            }
            stream = self.serve_one(ServerSession::new_http1(stream), shutdown).await?;
        }
    }
}

impl<S: ServeHttp + Send + Sync + 'static> HttpShell<S> {
    /// Answers one request whose first byte is there; gives the stream back when another may follow.
    async fn serve_one(&self, mut http: ServerSession, shutdown: &ShutdownWatch) -> Option<Stream> {
        http.set_read_timeout(Some(READ_TIME_MAX));
        http.set_write_timeout(Some(WRITE_TIME_MAX));
        http.set_total_drain_timeout(Some(DRAIN_TIME_MAX));
        match timeout(HEAD_TIME_MAX, http.read_request()).await {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => return None,
            Ok(Err(error)) => {
                self.refuse_unreadable(&mut http, &error).await;
                return None;
            }
            Err(_) => {
                self.refuse(&mut http, &ErrorCause::TooSlow).await;
                return None;
            }
        }
        if let Err(problem) = check_framing(&http) {
            self.malformed.inc();
            self.refuse(&mut http, &ErrorCause::Malformed { problem }).await;
            return None;
        }
        let goes_on = !*shutdown.borrow() && wants_another(http.req_header());
        http.set_keepalive(goes_on.then_some(IDLE_TIME_MAX.as_secs()));
        let answer = match timeout(DOOR_TIME_MAX, self.service.response(&mut http)).await {
            Ok(answer) => answer,
            Err(_) => {
                let seconds = DOOR_TIME_MAX.as_secs();
                tracing::error!("a request took longer than {seconds} s and was given up");
                http.set_keepalive(None);
                ErrorCause::Internal.answer(self.clock.unix_millis()).1
            }
        };
        write(&mut http, answer).await.ok()?;
        let (stream, _pipelined) = http.finish().await.ok()??.into_parts();
        Some(stream)
    }
}

impl<S> HttpShell<S> {
    /// What can't be read as a request is answered when something came that was meant as one.
    async fn refuse_unreadable(&self, http: &mut ServerSession, error: &Error) {
        if *error.etype() == ErrorType::InvalidHTTPHeader {
            self.malformed.inc();
            self.refuse(http, &ErrorCause::Malformed { problem: "its head can't be read" }).await;
        } else if *error.etype() == ErrorType::ReadTimedout {
            self.refuse(http, &ErrorCause::TooSlow).await;
        }
    }

    async fn refuse(&self, http: &mut ServerSession, cause: &ErrorCause) {
        let (parts, body) = cause.answer(self.clock.unix_millis()).1.into_parts();
        let written = timeout(WRITE_TIME_MAX, http.write_error_response(parts.into(), body.into())).await;
        if !matches!(written, Ok(Ok(()))) {
            tracing::debug!("a refused client did not take its answer");
        }
    }
}

/// Reads a whole body of at most `bytes_max`.
///
/// # Errors
///
/// Too long, too slow, or broken framing; the connection can't be used again then.
pub(crate) async fn read_body(http: &mut ServerSession, bytes_max: usize) -> Result<Bytes, ErrorCause> {
    let body = timeout(BODY_TIME_MAX, read_body_untimed(http, bytes_max)).await;
    let body = body.unwrap_or(Err(ErrorCause::TooSlow));
    if body.is_err() || is_chunked(http) {
        http.set_keepalive(None);
    }
    body
}

/// A body in chunks is followed by nothing on its connection: chunk extensions and trailers are read leniently by the
/// server framework, and another reader may see the body's end elsewhere.
fn is_chunked(http: &ServerSession) -> bool {
    http.get_header(http::header::TRANSFER_ENCODING).is_some()
}

async fn read_body_untimed(http: &mut ServerSession, bytes_max: usize) -> Result<Bytes, ErrorCause> {
    let announced = http.get_header(http::header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    if announced.and_then(|text| text.parse::<u64>().ok()).is_some_and(|bytes| bytes > bytes_max as u64) {
        return Err(ErrorCause::PayloadTooLarge);
    }
    let broken = |error: Box<Error>| {
        if *error.etype() == ErrorType::ReadTimedout {
            ErrorCause::TooSlow
        } else {
            ErrorCause::Malformed { problem: "its body can't be read" }
        }
    };
    // A client of HTTP/1.0 doesn't know interim answers (RFC 9110, section 10.1.1).
    let expects = http.get_header(http::header::EXPECT);
    let knows_interim = http.req_header().version == Version::HTTP_11;
    if knows_interim && expects.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue")) {
        http.write_continue_response().await.map_err(broken)?;
    }
    // A body usually comes in one piece, which then needs no copy.
    let Some(first) = http.read_request_body().await.map_err(broken)? else { return Ok(Bytes::new()) };
    let Some(second) = http.read_request_body().await.map_err(broken)? else {
        return if first.len() > bytes_max { Err(ErrorCause::PayloadTooLarge) } else { Ok(first) };
    };
    let mut body = [first, second].concat();
    while body.len() <= bytes_max {
        match http.read_request_body().await.map_err(broken)? {
            Some(piece) => body.extend_from_slice(&piece),
            None => return Ok(body.into()),
        }
    }
    Err(ErrorCause::PayloadTooLarge)
}

/// Whether the client may send another request on this connection (RFC 9112, section 9.3). One that speaks HTTP/1.0 may
/// wait for the end of the connection to know the end of the answer.
fn wants_another(head: &RequestHeader) -> bool {
    let is_close = |option: &[u8]| option.trim_ascii().eq_ignore_ascii_case(b"close");
    let mut options = head.headers.get_all(http::header::CONNECTION).iter();
    let closes = options.any(|line| line.as_bytes().split(|byte| *byte == b',').any(is_close));
    head.version == Version::HTTP_11 && !closes && !framing::may_be_mended(head.raw_path())
}

fn check_framing(http: &ServerSession) -> Result<(), framing::Problem> {
    let head = http.as_http1().ok_or("it is not HTTP/1")?.get_headers_raw_bytes();
    if head.len() > HEAD_BYTES_MAX {
        return Err("its head is longer than 32 KiB");
    }
    framing::check(&head)
}

async fn write(http: &mut ServerSession, answer: Answer) -> pingora::Result<()> {
    let head_only = http.req_header().method == Method::HEAD;
    let (parts, body) = answer.into_parts();
    http.write_response_header(Box::new(head_of(&parts)?)).await?;
    if !head_only && !body.is_empty() {
        http.write_response_body(body.into(), true).await?;
    }
    Ok(())
}

/// The head with header names as the contract spells them, for clients that compare them letter by letter.
fn head_of(parts: &http::response::Parts) -> pingora::Result<ResponseHeader> {
    let mut head = ResponseHeader::build(parts.status, Some(parts.headers.len()))?;
    for (name, value) in &parts.headers {
        match headers::contract_spelling(name) {
            Some(spelling) => head.append_header(spelling, value)?,
            None => head.append_header(name, value)?,
        };
    }
    Ok(head)
}
