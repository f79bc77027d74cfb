//! Listeners: connections, their limits, and the bytes of request heads.
//!
//! Knows no endpoint and no route. It hands requests whose framing is unambiguous to a handler. The HTTP
//! library's own shell has no limit on connections or whole heads, accepts ambiguous framing, and logs request bytes.

mod buffered;

mod bounded;
pub(crate) mod clients;
pub(crate) mod connection;
pub(crate) mod fair_scheduler;
mod proxy_header;
mod timer;
pub(crate) mod worker;

pub(crate) use buffered::{Buffered, BufferedService, Request};
pub(crate) use connection::LINGER_BYTES_MAX;
pub(crate) use timer::Timer;
pub(crate) use worker::{BACKLOG, Gates};

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::BytesMut;
use pingora::listeners::tls::Acceptor;
use pingora::protocols::Stream;
use pingora::protocols::http::date::get_cached_date;
use pingora::server::ShutdownWatch;
use prometheus::IntCounter;
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::domain::ClientNet;
use crate::error::Error;
use crate::http1::{Lines, Problem, RequestHead, lines::target_problem};
use crate::http2::Frames;
use crate::ports::Clock;
use crate::serve::bounded::{Bounded, Extent};
use crate::serve::clients::{ClientRules, Clients};
use crate::serve::connection::{ClientStream, Connection, NoHead, described, is_http2};
use crate::serve::fair_scheduler::{FairScheduler, FairShare};
use crate::sharded::Counted;
use crate::telemetry::Metrics;
use crate::wire::{Answer, answers::contract_spelling};

/// How long a connection may stay silent before its first request begins.
pub(crate) const SILENT_TIME_MAX: Duration = Duration::from_secs(60);

/// How long an idle connection stays open once the service is to end. The next request may be on its way on it, and a
/// balancer needs a moment to see that nobody listens any more; the answer then says that it was the last.
const LINGER: Duration = Duration::from_secs(3);

/// How long one write of an answer may wait for the client.
pub(crate) const WRITE_TIME_MAX: Duration = Duration::from_secs(60);

/// How long a TLS handshake may take.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);

/// A protocol handler behind a listener.
pub(crate) trait Handler: Send + Sync + 'static {
    /// True if it takes HTTP/2 too.
    const SPEAKS_HTTP2: bool;

    /// Adds to the answer to a request that can't be read.
    fn refused(answer: Answer) -> Answer {
        answer
    }

    /// Serves one request of HTTP/1. Gives the connection back when another may follow.
    fn serve_http1(
        &self,
        connection: Box<Connection>,
        head: RequestHead,
    ) -> impl Future<Output = Option<Box<Connection>>> + Send;

    /// Serves a connection of HTTP/2 to its end. Its streams run in the share of the client's network, and hold its slot as
    /// long as any of them lasts.
    fn serve_http2(
        &self,
        stream: Stream,
        share: FairShare,
        slot: Slot,
        shutdown: &ShutdownWatch,
    ) -> impl Future<Output = ()> + Send;
}

/// The slot of a connection in its listener and its client's network.
pub(crate) struct Slot {
    _of_listener: OwnedSemaphorePermit,
    _of_network: Option<Counted<ClientNet>>,
}

/// A listener.
pub(crate) struct Listener<H> {
    /// Workers may share it.
    handler: Arc<H>,
    clock: Arc<dyn Clock>,
    limits: Limits,
    tls: Option<Acceptor>,
    scheduler: Arc<FairScheduler>,
}

/// The limits and counters that the workers of a listener share.
#[derive(Clone)]
pub(crate) struct Limits {
    listener: Arc<str>,
    malformed: IntCounter,
    tls_failures: IntCounter,
    connections: Arc<Semaphore>,
    /// How long a connection may be idle between two requests.
    idle: Duration,
    turned_away: IntCounter,
    clients: Option<Arc<Clients>>,
    turned_away_by_network: IntCounter,
    turned_away_without_header: IntCounter,
}

impl Limits {
    /// For the listener of this name in metrics, which holds `connections_max` connections open: further ones are turned
    /// away at once. Without `rules` the networks of clients don't matter.
    pub(crate) fn new(
        name: &str,
        connections_max: usize,
        idle: Duration,
        rules: Option<ClientRules>,
        metrics: &Metrics,
    ) -> Self {
        let connections = Arc::new(Semaphore::new(connections_max));
        let listener = name.to_owned();
        metrics.at_scrape_from(&connections, move |families, connections| {
            let open = connections_max.saturating_sub(connections.available_permits());
            families.connections.with_label_values(&[&listener]).set(i64::try_from(open).unwrap_or(i64::MAX));
        });
        let turned_away = |reason| metrics.connections_turned_away.with_label_values(&[name, reason]);
        Self {
            listener: name.into(),
            malformed: metrics.malformed.with_label_values(&[name]),
            tls_failures: metrics.tls_failures.with_label_values(&[name]),
            connections,
            idle,
            turned_away: turned_away("listener"),
            clients: rules.map(Clients::new).map(Arc::new),
            turned_away_by_network: turned_away("network"),
            turned_away_without_header: turned_away("proxy_protocol"),
        }
    }

    /// The address of the client, and its place among the connections of its network. `None`: it is turned away.
    async fn client_of(
        &self,
        stream: &mut TcpStream,
        peer: SocketAddr,
    ) -> Option<(SocketAddr, Option<Counted<ClientNet>>)> {
        let Some(clients) = &self.clients else { return Some((peer, None)) };
        let Some(client) = clients.address(stream, peer).await else {
            self.turned_away_without_header.inc();
            self.log_closed(peer, "proxy_protocol");
            return None;
        };
        let free = self.connections.available_permits() + 1;
        let Ok(place) = clients.place(client, free) else {
            self.turned_away_by_network.inc();
            self.log_closed(client, "network");
            return None;
        };
        Some((client, place))
    }

    /// Writes the line of a connection that was closed without an answer.
    fn log_closed(&self, client: SocketAddr, reason: &'static str) {
        self.log_refused(client, Some(reason), (0, None, 0));
    }

    /// Writes the line of a client that is refused here, if the access log is on: with status, `errorType` and length of its
    /// answer.
    fn log_refused(
        &self,
        client: SocketAddr,
        reason: Option<&'static str>,
        (status, error_type, sent): (u16, Option<&'static str>, u64),
    ) {
        tracing::info!(
            target: "access",
            listener = &*self.listener,
            client = tracing::field::display(client.ip().to_canonical()),
            decision = "refused",
            status,
            error_type,
            reason,
            received = 0,
            sent,
        );
    }
}

impl<H> Listener<H> {
    /// A listener whose tasks share their thread with those of its other listeners. Without `tls` it speaks in
    /// the clear.
    pub(crate) fn new(
        handler: Arc<H>,
        tls: Option<Arc<ServerConfig>>,
        clock: Arc<dyn Clock>,
        limits: Limits,
        scheduler: Arc<FairScheduler>,
    ) -> Self {
        let tls = tls.map(Acceptor::from_server_config);
        Self { handler, clock, limits, tls, scheduler }
    }
}

impl<H: Handler> Listener<H> {
    /// Serves a connection to its end.
    async fn serve(&self, mut stream: TcpStream, peer: SocketAddr, shutdown: &ShutdownWatch) {
        let limits = &self.limits;
        let Ok(of_listener) = Arc::clone(&limits.connections).try_acquire_owned() else {
            limits.turned_away.inc();
            limits.log_closed(peer, "listener");
            return;
        };
        let Some((client, of_network)) = limits.client_of(&mut stream, peer).await else { return };
        let slot = Slot { _of_listener: of_listener, _of_network: of_network };
        let share = self.scheduler.share(ClientNet::of(client.ip()));
        share.run(self.serve_requests(stream, (client, slot), &share, shutdown)).await;
    }

    async fn serve_requests(
        &self,
        stream: TcpStream,
        (peer, slot): (SocketAddr, Slot),
        share: &FairShare,
        shutdown: &ShutdownWatch,
    ) -> Option<()> {
        let mut stream = self.secured(stream, peer).await?;
        let mut ahead = BytesMut::new();
        if H::SPEAKS_HTTP2 && is_http2(&mut stream, &mut ahead, shutdown).await? {
            let stream = Bounded::new(stream.into_library(peer), ahead, Extent::Frames(Frames::new()));
            self.handler.serve_http2(Box::new(stream), share.clone(), slot, shutdown).await;
            return None;
        }
        let mut connection = Connection::new(stream, ahead, peer, shutdown);
        let mut idle = SILENT_TIME_MAX;
        loop {
            match connection.next_request(idle).await {
                Ok(head) => {
                    if let Some(problem) = unreadable(&head, &connection.head) {
                        let is_to_head = connection.head.get(head.method) == Some(b"HEAD".as_slice());
                        Box::pin(self.refuse(connection, &NoHead::Malformed(problem), is_to_head)).await;
                        return None;
                    }
                    // In a box, so that an idle connection does not hold the memory of a request.
                    let request = Box::write(Box::new_uninit(), self.handler.serve_http1(connection, head));
                    connection = Box::into_pin(request).await?;
                    idle = self.limits.idle;
                }
                Err(why) => {
                    Box::pin(self.refuse(connection, &why, false)).await;
                    return None;
                }
            }
        }
    }

    /// The connection as TLS, where TLS is spoken. Done here and not by the listener, so that it counts against the cap
    /// on connections, takes a bounded time, and strangers' failures fill no log.
    async fn secured(&self, stream: TcpStream, peer: SocketAddr) -> Option<ClientStream> {
        let Some(acceptor) = &self.tls else { return Some(ClientStream::Plain(stream)) };
        let handshake = acceptor.tls_handshake(described(stream, peer));
        match timeout(HANDSHAKE_TIME_MAX, Box::pin(handshake)).await {
            Ok(Ok(secured)) => return Some(ClientStream::Library(Box::new(secured))),
            Ok(Err(error)) => tracing::debug!(kind = error.etype().as_str(), "a TLS handshake failed"),
            Err(_) => {}
        }
        self.limits.tls_failures.inc();
        self.limits.log_closed(peer, "tls");
        None
    }

    /// Answers a client that sent something, but no request that can be read.
    async fn refuse(&self, mut connection: Box<Connection>, why: &NoHead, is_to_head: bool) {
        let cause = match why {
            NoHead::Gone => return,
            NoHead::TooSlow => Error::TooSlow,
            NoHead::TooLong => Error::HeadTooLarge,
            NoHead::Malformed(problem) => Error::Malformed { problem },
        };
        self.limits.malformed.inc();
        let (error_type, answer) = cause.answer(self.clock.unix_millis());
        let answer = H::refused(answer);
        let sent = if is_to_head { 0 } else { answer.body().len() as u64 };
        self.limits.log_refused(connection.peer, None, (answer.status().as_u16(), Some(error_type), sent));
        match connection.answer(&answer, is_to_head, true).await {
            Ok(()) => connection.close().await,
            Err(_) => tracing::debug!("a refused client did not take its answer"),
        }
    }
}

/// The reason why the library can make no request of a target with odd bytes in it.
pub(crate) fn unreadable(head: &RequestHead, text: &[u8]) -> Option<Problem> {
    if head.has_odd_target { target_problem(text.get(head.target.clone())?) } else { None }
}

/// An answer in HTTP/1.1. `is_last`: the connection is closed behind it.
fn as_text(answer: &Answer, is_to_head: bool, is_last: bool) -> Vec<u8> {
    let status = answer.status();
    let mut text = Vec::with_capacity(512 + answer.body().len());
    text.extend_from_slice(b"HTTP/1.1 ");
    text.extend_from_slice(status.as_str().as_bytes());
    text.extend_from_slice(b" ");
    text.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    text.extend_from_slice(b"\r\n");
    for (name, value) in answer.headers() {
        let name = contract_spelling(name).unwrap_or(name.as_str());
        for part in [name.as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            text.extend_from_slice(part);
        }
    }
    end_head(&mut text, is_last);
    if !is_to_head {
        text.extend_from_slice(answer.body());
    }
    text
}

/// Ends the head of an answer. `is_last`: the connection is closed behind it.
pub(crate) fn end_head(text: &mut Vec<u8>, is_last: bool) {
    text.set("Date", get_cached_date().as_bytes());
    if is_last {
        text.set("Connection", b"close");
    }
    text.extend_from_slice(b"\r\n");
}
