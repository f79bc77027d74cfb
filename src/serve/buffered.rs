//! Listeners that answer each request with one whole answer: bodies with limits, orderly keep-alive.

use std::{net::IpAddr, ops::Range, sync::Arc, time::Duration};

use bytes::{Buf, BufMut, BytesMut};
use http::HeaderMap;
use pingora::protocols::Stream;
use pingora::server::ShutdownWatch;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use crate::error::Error;
use crate::http1::{Body, Decoder, Fields, Piece, RequestHead, SpanFields};
use crate::ports::Clock;
use crate::record::{Ended, Ending, RequestRecord};
use crate::serve::connection::{ClientStream, Connection, read_more};
use crate::serve::{Handler, Slot, fair_scheduler::FairShare, timer::Timer};
use crate::wire::Answer;

/// How long a body may take to arrive, from the request's head.
const BODY_TIME_MAX: Duration = Duration::from_secs(10);

/// How long a request may take, from its head to the answer.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(30);

const _: () = assert!(BODY_TIME_MAX.as_secs() < REQUEST_TIME_MAX.as_secs());

/// The interim answer to a client that waits with its body.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A body that breaks its framing, or ends before its end.
const BROKEN: Error = Error::Malformed { problem: "its body can't be read" };

/// A request without its body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    /// The path as it came, without the query.
    pub(crate) path: &'a str,
    pub(crate) query: Option<&'a str>,
    pub(crate) fields: SpanFields<'a>,
    /// The version of HTTP.
    pub(crate) protocol: &'static str,
    /// The address that it came from.
    pub(crate) peer: IpAddr,
}

/// A service that answers with whole bodies.
pub(crate) trait BufferedService: Send + Sync + 'static {
    /// One of the service's endpoints.
    type Endpoint: Copy + Send;

    /// A request's head was read.
    fn begin(&self, _request: &Request<'_>, _record: &mut RequestRecord) {}

    /// Finds a request's endpoint, and the longest body that it takes, in bytes. 0: a body is not read.
    fn find(&self, request: &Request<'_>) -> Result<(Self::Endpoint, usize), Error>;

    /// Answers a request.
    fn answer(
        &self,
        endpoint: Self::Endpoint,
        request: &Request<'_>,
        body: &[u8],
        record: &mut RequestRecord,
    ) -> impl Future<Output = Result<Answer, Error>> + Send;

    /// Counts and logs a request with the error that it was answered with, and may add to its answer's headers. There is no endpoint
    /// if none was found.
    fn note(
        &self,
        _endpoint: Option<Self::Endpoint>,
        _request: &Request<'_>,
        _record: &mut RequestRecord,
        _refused: Option<(&Error, &'static str)>,
        _ended: &Ended<'_, SpanFields<'_>>,
        _headers: &mut HeaderMap,
    ) {
    }
}

/// A service as a listener of HTTP/1.
pub(crate) struct Buffered<S> {
    pub(crate) service: S,
    pub(crate) clock: Arc<dyn Clock>,
}

/// The body of a request, on its way.
struct Upload<'a> {
    stream: &'a mut ClientStream,
    ahead: &'a mut BytesMut,
    timer: &'a mut Timer,
    /// When the request's head was there.
    begun: Instant,
    /// True if the client may wait for an interim answer before it sends the body.
    expects: bool,
    /// The part that has not been read.
    left: Body,
    /// How much was read, in bytes.
    received: u64,
}

impl<S: BufferedService> Handler for Buffered<S> {
    const SPEAKS_HTTP2: bool = false;

    async fn serve_http1(
        &self,
        mut connection: Box<Connection>,
        mut head: RequestHead,
    ) -> Option<Box<Connection>> {
        let is_to_head = connection.head.get(head.method.clone()) == Some(b"HEAD");
        let answer = self.answer(&mut connection, &mut head).await;
        let goes_on = connection.may_go_on(&head);
        connection.answer(&answer, is_to_head, !goes_on).await.ok()?;
        if goes_on && connection.skip_body(&head).await {
            return Some(connection);
        }
        connection.close().await;
        None
    }

    async fn serve_http2(&self, _stream: Stream, _share: FairShare, _slot: Slot, _shutdown: &ShutdownWatch) {}
}

impl<S: BufferedService> Buffered<S> {
    /// The answer to a request. `head.body` is then the part of the body that was not read.
    async fn answer(&self, connection: &mut Connection, head: &mut RequestHead) -> Answer {
        let begun = Timer::now();
        let Connection { stream, ahead, timer, peer, head: text, spans, .. } = connection;
        let fields = SpanFields { head: text, spans };
        let request = Request::new(head, fields, peer.ip());
        // A client of HTTP/1.0 does not know interim answers (RFC 9110, section 10.1.1).
        let expects = !head.is_http_1_0 && fields.expects_continue();
        let mut upload = Upload { stream, ahead, timer, begun, expects, left: head.body, received: 0 };
        let mut record = RequestRecord::new(begun);
        self.service.begin(&request, &mut record);
        let found = self.service.find(&request);
        let endpoint = found.as_ref().ok().map(|(endpoint, _)| *endpoint);
        let outcome = self.process(found, &request, &mut upload, &mut record).await;
        head.body = upload.left;
        let (mut answer, refused) = match outcome {
            Ok(answer) => (answer, None),
            Err(cause) => {
                let (error_type, answer) = cause.answer(self.clock.unix_millis());
                (answer, Some((cause, error_type)))
            }
        };
        let refused = refused.as_ref().map(|(cause, error_type)| (cause, *error_type));
        let sent = if request.method == "HEAD" { 0 } else { answer.body().len() as u64 };
        record.received = upload.received;
        let ended = Ended {
            method: request.method.as_bytes(),
            target: request.path.as_bytes(),
            protocol: request.protocol,
            authority: "",
            fields: &request.fields,
            peer: Some(request.peer),
            status: answer.status().as_u16(),
            sent,
            ending: Ending::Whole,
            at: Timer::now(),
        };
        self.service.note(endpoint, &request, &mut record, refused, &ended, answer.headers_mut());
        answer
    }

    async fn process(
        &self,
        found: Result<(S::Endpoint, usize), Error>,
        request: &Request<'_>,
        upload: &mut Upload<'_>,
        record: &mut RequestRecord,
    ) -> Result<Answer, Error> {
        let (endpoint, bytes_max) = found?;
        let body = upload.read(bytes_max).await?;
        let answer = self.service.answer(endpoint, request, &body, record);
        upload.timer.until(upload.begun + REQUEST_TIME_MAX, answer).await.unwrap_or_else(|| {
            tracing::error!("a request took longer than {} s and was given up", REQUEST_TIME_MAX.as_secs());
            Err(Error::Internal)
        })
    }
}

impl<'a> Request<'a> {
    pub(crate) fn new(head: &RequestHead, fields: SpanFields<'a>, peer: IpAddr) -> Self {
        // Heads that are no text were refused before.
        let text = |range: &Range<usize>| {
            let bytes = fields.head.get(range.clone()).unwrap_or_default();
            std::str::from_utf8(bytes).unwrap_or_default()
        };
        let target = text(&head.target);
        let (path, query) =
            target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let protocol = if head.is_http_1_0 { "HTTP/1.0" } else { "HTTP/1.1" };
        Self { method: text(&head.method), path, query, fields, protocol, peer }
    }
}

impl Upload<'_> {
    /// Reads a body of at most `bytes_max`; none if that is 0.
    /// Error: too long, too slow, or broken. No request follows then, unless the length was announced.
    async fn read(&mut self, bytes_max: usize) -> Result<Vec<u8>, Error> {
        let mut body = Vec::new();
        if bytes_max == 0 || self.left == Body::Length(0) {
            return Ok(body);
        }
        if matches!(self.left, Body::Length(bytes) if bytes > bytes_max as u64) {
            return Err(Error::UploadTooLarge { bytes_max: bytes_max as u64 });
        }
        let extent = std::mem::replace(&mut self.left, Body::ToClose);
        let (stream, ahead) = (&mut *self.stream, &mut *self.ahead);
        let read = async {
            if self.expects {
                stream.write_all(CONTINUE).await.map_err(|_| BROKEN)?;
                stream.flush().await.map_err(|_| BROKEN)?;
            }
            match extent {
                Body::Length(bytes) => read_length(stream, ahead, bytes as usize, &mut body).await,
                Body::Chunked | Body::ToClose => read_chunks(stream, ahead, bytes_max, &mut body).await,
            }
        };
        let read = self.timer.until(self.begun + BODY_TIME_MAX, read).await;
        self.received = body.len() as u64;
        read.unwrap_or(Err(Error::TooSlow))?;
        self.left = Body::Length(0);
        Ok(body)
    }
}

async fn read_length(
    stream: &mut ClientStream,
    ahead: &mut BytesMut,
    bytes: usize,
    body: &mut Vec<u8>,
) -> Result<(), Error> {
    body.reserve_exact(bytes);
    let here = bytes.min(ahead.len());
    body.extend_from_slice(ahead.get(..here).unwrap_or_default());
    ahead.advance(here);
    while body.len() < bytes {
        let left = bytes - body.len();
        if !matches!(stream.read_buf(&mut (&mut *body).limit(left)).await, Ok(1..)) {
            return Err(BROKEN);
        }
    }
    Ok(())
}

async fn read_chunks(
    stream: &mut ClientStream,
    ahead: &mut BytesMut,
    bytes_max: usize,
    body: &mut Vec<u8>,
) -> Result<(), Error> {
    let mut decoder = Decoder::default();
    loop {
        let mut rest = ahead.as_ref();
        while let Piece::Data(data) = decoder.next(&mut rest).map_err(|_| BROKEN)? {
            if body.len() + data.len() > bytes_max {
                return Err(Error::UploadTooLarge { bytes_max: bytes_max as u64 });
            }
            body.extend_from_slice(data);
        }
        let read = ahead.len() - rest.len();
        ahead.advance(read);
        if decoder.is_over() {
            return Ok(());
        }
        if !matches!(read_more(stream, ahead).await, Ok(1..)) {
            return Err(BROKEN);
        }
    }
}
