//! The shell around every door of ours: connections, their limits, and the bytes of request heads.
//!
//! Knows no endpoint and no route. What it hands to a door is one request whose framing is unambiguous. The HTTP
//! library's own shell has no limit on connections or whole heads, accepts ambiguous framing, and logs request bytes.

pub(crate) mod whole;

mod bounded;
mod head;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::{Method, Version};
use pingora::apps::ServerApp;
use pingora::http::RequestHeader;
use pingora::listeners::tls::Acceptor;
use pingora::protocols::http::ServerSession;
use pingora::protocols::{ALPN, Stream, l4};
use pingora::server::ShutdownWatch;
use prometheus::IntCounter;
use rustls::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::ports::clock::Clock;
use crate::serve::bounded::{Bounded, Extent};
use crate::serve::head::NoHead;
use crate::telemetry::metrics::Metrics;
use crate::wire::answers::Answer;
use crate::wire::chunks::Chunks;
use crate::wire::errors::ErrorCause;
use crate::wire::framing::{Body, Head};

/// How long a connection may stay idle before a request begins.
pub(crate) const IDLE_TIME_MAX: Duration = Duration::from_secs(60);

/// How long an idle connection stays open once the service is to end. The next request may be on its way on it, and a
/// balancer needs a moment to see that nobody listens any more; the answer then says that it was the last.
const LINGER: Duration = Duration::from_secs(3);

/// How long one write of an answer may wait for the client.
pub(crate) const WRITE_TIME_MAX: Duration = Duration::from_secs(60);

/// How long a TLS handshake may take.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);

/// How long what begins an HTTP/2 connection may take to arrive.
const PREFACE_TIME_MAX: Duration = Duration::from_secs(10);

/// How an HTTP/2 connection begins (RFC 9113, section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The beginning by which a preface is told from any method of HTTP/1.
const PREFACE_START: [u8; 3] = *b"PRI";

/// What stands behind the shell.
#[async_trait]
pub(crate) trait Door: Send + Sync + 'static {
    /// Whether it takes HTTP/2 too.
    const SPEAKS_HTTP2: bool;

    /// Serves one request of HTTP/1, whose head is to be read from the session. Gives the stream back when another may
    /// follow.
    async fn serve_http1(&self, http: ServerSession, shutdown: &ShutdownWatch) -> Option<Stream>;

    /// Serves a connection of HTTP/2 to its end.
    async fn serve_http2(&self, stream: Stream, shutdown: &ShutdownWatch);
}

/// A door in its shell.
pub(crate) struct HttpShell<D> {
    door: D,
    clock: Arc<dyn Clock>,
    malformed: IntCounter,
    turned_away: IntCounter,
    tls_failures: IntCounter,
    connections: Semaphore,
    tls: Option<Acceptor>,
}

impl<D> HttpShell<D> {
    /// Puts the shell around a door; `name` is the door's in metrics, `connections_max` how many it holds open: whoever
    /// comes then is turned away at once. Without `tls` it speaks in the clear.
    pub(crate) fn new(
        door: D,
        name: &str,
        connections_max: usize,
        tls: Option<Arc<ServerConfig>>,
        clock: Arc<dyn Clock>,
        metrics: &Metrics,
    ) -> Self {
        let malformed = metrics.malformed.with_label_values(&[name]);
        let turned_away = metrics.connections_turned_away.with_label_values(&[name]);
        let tls_failures = metrics.tls_failures.with_label_values(&[name]);
        let tls = tls.map(Acceptor::from_server_config);
        let connections = Semaphore::new(connections_max);
        Self { door, clock, malformed, turned_away, tls_failures, connections, tls }
    }
}

#[async_trait]
impl<D: Door> ServerApp for HttpShell<D> {
    async fn process_new(self: &Arc<Self>, mut stream: Stream, shutdown: &ShutdownWatch) -> Option<Stream> {
        let Ok(_place) = self.connections.try_acquire() else {
            self.turned_away.inc();
            return None;
        };
        stream = self.secured(stream).await?;
        if D::SPEAKS_HTTP2 {
            let is_http2;
            (stream, is_http2) = begin(stream, shutdown).await?;
            if is_http2 {
                self.door.serve_http2(stream, shutdown).await;
                return None;
            }
        }
        let mut ahead = BytesMut::new();
        loop {
            if ahead.is_empty() {
                // Read and not peeked at: a stream of TLS can't be peeked into, and may be idle as long as any.
                await_request(stream.read_buf(&mut ahead), shutdown).await.filter(|read| *read > 0)?;
            }
            // Nothing where the answer said that it was the last, as each does that begins once the service is to end.
            (stream, ahead) = self.serve_one(stream, ahead, shutdown).await?;
        }
    }
}

impl<D: Door> HttpShell<D> {
    /// The connection as TLS, where TLS is spoken. Done here and not by the listener, so that it counts against the cap
    /// on connections, takes a bounded time, and strangers' failures fill no log.
    async fn secured(&self, stream: Stream) -> Option<Stream> {
        let Some(acceptor) = &self.tls else { return Some(stream) };
        let plain = stream.into_any().downcast::<l4::stream::Stream>().ok()?;
        match timeout(HANDSHAKE_TIME_MAX, acceptor.tls_handshake(*plain)).await {
            Ok(Ok(secured)) => Some(Box::new(secured)),
            Ok(Err(error)) => {
                tracing::debug!(kind = error.etype().as_str(), "a TLS handshake failed");
                self.tls_failures.inc();
                None
            }
            Err(_) => {
                self.tls_failures.inc();
                None
            }
        }
    }

    /// Serves the request that begins in `ahead` or with what comes next.
    async fn serve_one(
        &self,
        mut stream: Stream,
        mut ahead: BytesMut,
        shutdown: &ShutdownWatch,
    ) -> Option<(Stream, BytesMut)> {
        let head = match head::read(&mut stream, &mut ahead).await {
            Ok(head) => head,
            Err(why) => {
                self.refuse(stream, &why).await;
                return None;
            }
        };
        let head_bytes = ahead.split_to(head.length);
        if !is_readable(&head, &head_bytes) {
            let why = NoHead::Malformed("the request target holds bytes that no URL has");
            self.refuse(stream, &why).await;
            return None;
        }
        let bounded = Bounded::new(stream, ahead, extent_of(&head));
        let mut http = ServerSession::new_http1(Box::new(bounded));
        http.set_write_timeout(Some(WRITE_TIME_MAX));
        http.set_pipelined_prefix(head_bytes);
        Bounded::unwrap(self.door.serve_http1(http, shutdown).await?)
    }

    /// What can't be read as a request is answered when something came that was meant as one.
    async fn refuse(&self, mut stream: Stream, why: &NoHead) {
        let cause = match why {
            NoHead::Gone => return,
            NoHead::TooSlow => ErrorCause::TooSlow,
            NoHead::TooLong => ErrorCause::HeadTooLarge,
            NoHead::Malformed(problem) => ErrorCause::Malformed { problem },
        };
        self.malformed.inc();
        let text = as_text(&cause.answer(self.clock.unix_millis()).1);
        let write = async {
            stream.write_all(&text).await?;
            AsyncWriteExt::shutdown(&mut stream).await
        };
        if !matches!(timeout(WRITE_TIME_MAX, write).await, Ok(Ok(()))) {
            tracing::debug!("a refused client did not take its answer");
        }
    }
}

/// Whether the client begins to speak HTTP/2; nothing when it is gone before it speaks, or says something else than it
/// has agreed on.
async fn begin(mut stream: Stream, shutdown: &ShutdownWatch) -> Option<(Stream, bool)> {
    if stream.get_ssl_digest().is_some() {
        let is_agreed = matches!(stream.selected_alpn_proto(), Some(ALPN::H2));
        return if is_agreed { Some((with_preface(stream).await?, true)) } else { Some((stream, false)) };
    }
    let mut start = [0; 1];
    await_request(stream.try_peek(&mut start), shutdown).await?;
    // No request of HTTP/1 is shorter than what is peeked at here.
    if !PREFACE_START.starts_with(&start) {
        return Some((stream, false));
    }
    let mut start = PREFACE_START;
    timeout(PREFACE_TIME_MAX, stream.try_peek(&mut start)).await.ok()?.ok()?;
    if start != PREFACE_START {
        return Some((stream, false));
    }
    let mut preface = [0; PREFACE.len()];
    timeout(PREFACE_TIME_MAX, stream.try_peek(&mut preface)).await.ok()?.ok()?;
    Some((stream, preface == *PREFACE))
}

/// Reads what a connection of HTTP/2 begins with off a stream that can't be peeked into, and puts it back: the HTTP
/// library would wait for it for ever.
async fn with_preface(mut stream: Stream) -> Option<Stream> {
    let mut preface = [0; PREFACE.len()];
    timeout(PREFACE_TIME_MAX, stream.read_exact(&mut preface)).await.ok()?.ok()?;
    let ahead = BytesMut::from(&preface[..]);
    (preface == *PREFACE).then(|| Box::new(Bounded::new(stream, ahead, Extent::Rest)) as Stream)
}

/// Waits until the first bytes of a request are there; nothing when none come.
async fn await_request<T>(first: impl Future<Output = io::Result<T>>, shutdown: &ShutdownWatch) -> Option<T> {
    let mut stopping = shutdown.clone();
    let end = async {
        // Whoever could say so is gone: the end as well.
        let _ = stopping.wait_for(|stopping| *stopping).await;
        sleep(LINGER).await;
    };
    tokio::select! {
        begun = timeout(IDLE_TIME_MAX, first) => begun.ok()?.ok(),
        () = end => None,
    }
}

/// When the client asks for another protocol, no request follows on the connection: where that begins is not ours to
/// know.
const fn extent_of(head: &Head) -> Extent {
    match head.body {
        Body::Length(0) if head.upgrades => Extent::Rest,
        Body::Length(bytes) => Extent::Bytes(bytes),
        Body::Chunked => Extent::Chunks(Chunks::new()),
    }
}

/// Whether the library can make a request of a target with odd bytes in it.
fn is_readable(head: &Head, bytes: &[u8]) -> bool {
    let Some((begin, end)) = head.odd_target else { return true };
    let target = bytes.get(begin..end).unwrap_or_default();
    std::str::from_utf8(target).is_ok() && RequestHeader::build(Method::GET, target, Some(0)).is_ok()
}

/// Whether a connection can be used again after this request, as far as its framing tells.
pub(crate) fn may_be_reused(http: &ServerSession) -> bool {
    let head = http.req_header();
    head.version == Version::HTTP_11 && !head.headers.contains_key(http::header::UPGRADE)
}

/// An answer in HTTP/1.1, after which the connection is closed.
fn as_text(answer: &Answer) -> Bytes {
    let status = answer.status();
    let mut text = BytesMut::with_capacity(512 + answer.body().len());
    text.extend_from_slice(b"HTTP/1.1 ");
    text.extend_from_slice(status.as_str().as_bytes());
    text.extend_from_slice(b" ");
    text.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    for (name, value) in answer.headers() {
        text.extend_from_slice(b"\r\n");
        text.extend_from_slice(name.as_str().as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value.as_bytes());
    }
    text.extend_from_slice(b"\r\nconnection: close\r\n\r\n");
    text.extend_from_slice(answer.body());
    text.freeze()
}
