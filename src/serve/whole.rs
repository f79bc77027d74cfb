//! Doors that answer each request with one whole answer: bodies with limits, orderly keep-alive.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Version};
use pingora::Error;
use pingora::ErrorType;
use pingora::apps::http_app::ServeHttp;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::Stream;
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;
use tokio::time::timeout;

use crate::ports::clock::Clock;
use crate::serve::{Door, IDLE_TIME_MAX, may_be_reused};
use crate::wire::answers::Answer;
use crate::wire::errors::ErrorCause;
use crate::wire::headers;

/// How long one read may wait while a body arrives.
const READ_TIME_MAX: Duration = Duration::from_secs(10);

/// How long a body may take to arrive.
const BODY_TIME_MAX: Duration = Duration::from_secs(10);

/// How long one write of an answer may wait for the client.
const WRITE_TIME_MAX: Duration = Duration::from_secs(10);

/// How long a request may take, from its head to the answer. Doors that count their requests keep it themselves.
pub(crate) const REQUEST_TIME_MAX: Duration = Duration::from_secs(30);

/// When a request is given up whose door has not.
const DOOR_TIME_MAX: Duration = Duration::from_secs(REQUEST_TIME_MAX.as_secs() + 2);

/// How long an unread rest of a body is waited for before the connection is given up.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(1);

const _: () = assert!(BODY_TIME_MAX.as_secs() < REQUEST_TIME_MAX.as_secs());

/// A service that answers with whole bodies, as a door of HTTP/1.
pub(crate) struct WholeAnswers<S> {
    service: S,
    clock: Arc<dyn Clock>,
}

impl<S> WholeAnswers<S> {
    /// The door to this service.
    pub(crate) fn new(service: S, clock: Arc<dyn Clock>) -> Self {
        Self { service, clock }
    }
}

#[async_trait]
impl<S: ServeHttp + Send + Sync + 'static> Door for WholeAnswers<S> {
    const SPEAKS_HTTP2: bool = false;

    async fn serve_http1(&self, mut http: ServerSession, shutdown: &ShutdownWatch) -> Option<Stream> {
        http.set_read_timeout(Some(READ_TIME_MAX));
        http.set_write_timeout(Some(WRITE_TIME_MAX));
        http.set_total_drain_timeout(Some(DRAIN_TIME_MAX));
        if !matches!(http.read_request().await, Ok(true)) {
            self.refuse(&mut http, &ErrorCause::Malformed { problem: "its head can't be read" }).await;
            return None;
        }
        let goes_on = !*shutdown.borrow() && may_be_reused(&http) && wants_another(http.req_header());
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
        let (stream, _nothing) = http.finish().await.ok()??.into_parts();
        Some(stream)
    }

    async fn serve_http2(&self, _stream: Stream, _shutdown: &ShutdownWatch) {}
}

impl<S> WholeAnswers<S> {
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
    if body.is_err() {
        http.set_keepalive(None);
    }
    body
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
    head.version == Version::HTTP_11 && !closes
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
pub(crate) fn head_of(parts: &http::response::Parts) -> pingora::Result<ResponseHeader> {
    let mut head = ResponseHeader::build(parts.status, Some(parts.headers.len()))?;
    for (name, value) in &parts.headers {
        match headers::contract_spelling(name) {
            Some(spelling) => head.append_header(spelling, value)?,
            None => head.append_header(name, value)?,
        };
    }
    Ok(head)
}
