//! HTTP/2, upgrades and upstreams over TLS or HTTP/2, by the phases of Pingora's proxy.
//!
//! `request_filter` admits requests of HTTP/2; those of HTTP/1 come admitted. `upstream_peer` asks for the proof of that;
//! `upstream_request_filter` and `response_filter` apply the rules about headers; `fail_to_proxy` asks the error table.

mod answering;
pub(super) mod faults;
mod patient;
mod requests;

use std::os::fd::RawFd;
use std::{any::Any, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, Version};
use pingora::apps::{HttpServerApp, HttpServerOptions, ReusedHttpStream, ServerApp};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::modules::http::HttpModules;
use pingora::protocols::http::v2::server::H2Options;
use pingora::protocols::{ALPN, Digest, Stream, http::ServerSession};
use pingora::proxy::{FailToProxy, HttpProxy, ProxyHttp, ProxyWarnLogContext, Session, http_proxy};
use pingora::server::configuration::ServerConf;
use pingora::upstreams::peer::{HttpPeer, HttpUpstreamRequestPolicy};
use pingora::{Error, ErrorSource, ErrorType, server::ShutdownWatch};

use crate::gateway::library::answering::names_that;
use crate::gateway::library::patient::PatientConnector;
use crate::gateway::library::requests::{
    KEPT_BYTES_MAX, check_values, drop_if_stalled, ended, give_leave, incoming, note_when_dropped, peer_of,
    restart_timeout, rewritten, set_deadline, take_piece, until_empty_end,
};
use crate::gateway::mcp::{CODED_LIST, UNREADABLE_LIST};
use crate::gateway::policy::answers::is_about_limits;
use crate::gateway::rule::Message;
use crate::gateway::{
    BODY_READ_TIME_MAX, Gateway, context::Context, failure::Failure, refusals::End, upstreams::GENERATIONS,
    upstreams::Member,
};
use crate::http1::{Fields, RequestHead, head::check_framing, name::Name};
use crate::serve::{Slot, Timer, WRITE_TIME_MAX, connection::Connection, fair_scheduler::FairShare};
use crate::tls::pem::unsupported_signature;
use crate::{error, record::Ending, wire::grpc};

/// Sets the connections of requests that may be upgraded apart from all others.
const UPGRADES: u64 = 0x7570_6772_6164_6573;

/// The same for requests of gRPC, which is spoken over HTTP/2 alone: the library asks an upstream over HTTP/1 from then on that has
/// broken a stream off.
const GRPC: u64 = 0x6752_5043;

/// The alert with which a server refuses all versions of HTTP that it is offered (RFC 7301, section 3.2), as rustls names it.
const NO_VERSION_IN_COMMON: &str = "NoApplicationProtocol";

/// The most streams of one HTTP/2 connection at a time.
const STREAMS_MAX: u32 = 128;

/// The longest head of an HTTP/2 request, decoded, in bytes.
const HEAD_BYTES_MAX: u32 = 32 * 1024;

/// How many streams a client may open and reset at once before its connection is closed ("rapid reset").
const RESETS_MAX: usize = 64;

/// How much of one stream may be under way to us, in bytes.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;

/// How much of all streams of a connection may be under way to us, in bytes.
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;

/// How much of a stream waits to be sent, in bytes.
const SEND_BUFFER_BYTES: usize = 64 * 1024;

/// The way out by the library.
#[derive(Clone)]
pub(crate) struct LibraryHandler {
    proxy: Arc<HttpProxy<LibraryProxy>>,
}

/// The proxy for the streams of one connection of HTTP/2, which run in fair shares and under a stall timeout.
struct Streams {
    proxy: Arc<HttpProxy<LibraryProxy>>,
    share: FairShare,
    /// True if a trusted proxy shares the connection among its clients.
    is_shared: bool,
    /// Held by each stream's task, also when its connection is gone.
    _slot: Slot,
}

#[async_trait]
impl HttpServerApp for Streams {
    async fn process_new_http(
        self: &Arc<Self>,
        session: ServerSession,
        shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        // A stream that is dropped is reset, toward its client and its upstream.
        self.share.run(async { drop_if_stalled(self.proxy.process_new_http(session, shutdown)).await }).await
    }

    fn h2_options(&self) -> Option<H2Options> {
        let mut options = h2_options();
        if self.is_shared {
            // One client must not end what is of the others by requests that are reset.
            options.max_local_error_reset_streams(None);
        }
        Some(options)
    }

    fn server_options(&self) -> Option<&HttpServerOptions> {
        self.proxy.server_options()
    }
}

impl LibraryHandler {
    /// The way out of this gateway.
    pub(crate) fn new(gateway: Arc<Gateway>, conf: &Arc<ServerConf>) -> Self {
        let idle = gateway.rules.idle;
        let mut proxy = http_proxy(conf, LibraryProxy(gateway));
        let mut options = HttpServerOptions::default();
        options.h2c = true;
        // Refused by the gateway, with the error body.
        options.allow_connect_method_proxying = true;
        options.h2_idle_timeout = Some(idle);
        proxy.server_options = Some(options);
        Self { proxy: Arc::new(proxy) }
    }

    /// Forwards one request of HTTP/1 that was admitted.
    pub(super) async fn forward(
        &self,
        connection: Box<Connection>,
        head: RequestHead,
        ctx: Context,
    ) -> Option<Box<Connection>> {
        let (mut http, rest) = connection.lend(&head);
        // The library hands it to `on_connection_reuse`.
        http.set_connection_user_context(Some(Box::new(ctx)));
        let served = drop_if_stalled(self.proxy.process_new_http(http, &rest.stop.shutdown)).await;
        let (stream, _settings) = served?.consume();
        rest.take_back(stream)
    }

    /// Serves a connection of HTTP/2 to its end.
    pub(super) async fn serve_http2(
        &self,
        stream: Stream,
        share: FairShare,
        slot: Slot,
        is_shared: bool,
        shutdown: &ShutdownWatch,
    ) {
        let streams = Streams { proxy: Arc::clone(&self.proxy), share, is_shared, _slot: slot };
        Arc::new(streams).process_new(stream, shutdown).await;
    }
}

/// The limits of a connection of HTTP/2.
pub(super) fn h2_options() -> H2Options {
    let mut options = H2Options::default();
    options
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_local_error_reset_streams(Some(RESETS_MAX))
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buffer_size(SEND_BUFFER_BYTES);
    options
}

/// The gateway behind the library's phases.
pub(super) struct LibraryProxy(pub(super) Arc<Gateway>);

impl std::ops::Deref for LibraryProxy {
    type Target = Gateway;

    fn deref(&self) -> &Gateway {
        &self.0
    }
}

impl LibraryProxy {
    /// Admits a request of HTTP/2, once it is known to be well-formed.
    async fn admit_http2(
        &self,
        session: &mut Session,
        ctx: &mut Context,
    ) -> pingora::Result<Result<(), End>> {
        if let Err(cause) = check_values(session.req_header()) {
            return Ok(Err(cause.into()));
        }
        until_empty_end(session.as_mut()).await?;
        let admitted = self.admit_with(session, Message::Unread, ctx).await;
        if !matches!(admitted, Err(End::NeedsMessage)) {
            return Ok(admitted);
        }
        let read = self.read_message(session, ctx).await?;
        let admitted = self.admit_with(session, read.message(&[]), ctx).await;
        ctx.message = read.apart();
        Ok(admitted)
    }

    async fn admit_with(
        &self,
        session: &mut Session,
        message: Message<'_>,
        ctx: &mut Context,
    ) -> Result<(), End> {
        self.admit(&incoming(session, message).ok_or(error::Error::Internal)?, ctx).await
    }

    /// Ends a transfer that takes too long, unless this is its end anyway.
    fn check_overdue(&self, ctx: &Context, is_last: bool) -> pingora::Result<()> {
        if !is_last && ctx.is_overdue() { Err(faults::error_of(Failure::Overdue)) } else { Ok(()) }
    }
}

#[async_trait]
impl ProxyHttp for LibraryProxy {
    type CTX = Context;

    fn new_ctx(&self) -> Context {
        Context::new()
    }

    /// Takes the context of a request of HTTP/1, which was admitted before the library had it.
    fn on_connection_reuse(
        &self,
        _session: &mut Session,
        ctx: &mut Context,
        admitted: Box<dyn Any + Send + Sync>,
    ) {
        if let Ok(admitted) = admitted.downcast::<Context>() {
            *ctx = *admitted;
        }
    }

    /// No compression.
    fn init_downstream_modules(&self, _modules: &mut HttpModules) {}

    async fn early_request_filter(&self, session: &mut Session, ctx: &mut Context) -> pingora::Result<()> {
        if ctx.record.request_id.is_none() {
            let fields = &session.req_header().headers;
            let none = HeaderMap::new();
            let theirs = if rewritten(session.req_header()).is_some() { &none } else { fields };
            ctx.record.request_id = Some(self.request_ids.of(theirs));
        }
        session.set_read_timeout(Some(BODY_READ_TIME_MAX));
        session.set_write_timeout(Some(WRITE_TIME_MAX));
        session.set_total_drain_timeout(Some(faults::DRAIN_TIME_MAX));
        let is_http2 = session.is_http2();
        ctx.speaks_grpc = is_http2 && grpc::is_spoken(&session.req_header().headers);
        let head = session.req_header_mut();
        let upgrades = head.headers.upgrades();
        if !upgrades {
            head.remove_header(&http::header::UPGRADE); // The library would wait for any other protocol too.
        }
        let may_be_reused = head.version == Version::HTTP_11 && !upgrades;
        if !is_http2 && (!may_be_reused || session.is_process_shutting_down()) {
            session.set_keepalive(None);
        }
        Ok(())
    }

    async fn request_filter(&self, session: &mut Session, ctx: &mut Context) -> pingora::Result<bool> {
        if ctx.admitted.is_none()
            && let Err(end) = self.admit_http2(session, ctx).await?
        {
            answering::write(session, self.answer_to(end, ctx)).await?;
            return Ok(true);
        }
        let (site, decision) = faults::forwarded(ctx)?;
        let read = site.tenant.proxy.timeouts.read;
        // A WebSocket may be silent for as long as the tenant allows.
        let is_upgrade = decision.upgrades && session.is_upgrade_req();
        let longest = if is_upgrade { read } else { BODY_READ_TIME_MAX.min(read) };
        session.set_read_timeout(Some(longest));
        self.hold(session, ctx, longest).await?;
        Ok(false)
    }

    async fn upstream_peer(
        &self,
        session: &mut Session,
        ctx: &mut Context,
    ) -> pingora::Result<Box<HttpPeer>> {
        // An earlier upstream's time is over.
        ctx.record.times.asked = None;
        set_deadline(None);
        let address = self.next_address(ctx).await.map_err(faults::error_of)?;
        let member = ctx.member().ok_or_else(|| faults::error_of(Failure::Internal))?;
        let mut peer = Box::new(member.template.clone());
        peer._address = address.into();
        let (site, decision) = faults::forwarded(ctx)?;
        let longest = member.state.connect_time(ctx.attempt, site.tenant.proxy.timeouts.connect);
        peer.options.connection_timeout = Some(longest);
        if decision.upgrades && session.is_upgrade_req() {
            peer.options.http_upstream_request_policy = HttpUpstreamRequestPolicy::standard();
            peer.options.custom_l4 = Some(Arc::new(PatientConnector { longest }));
            // A connection for another kind of request is not taken, and this one is not given to any.
            peer.group_key ^= UPGRADES;
            peer.options.alpn = ALPN::H1;
        } else if session.req_header().version == Version::HTTP_10 && peer.options.alpn == ALPN::H2H1 {
            // The library writes chunks where an answer over HTTP/2 has no length.
            peer.options.alpn = ALPN::H1;
        } else if ctx.speaks_grpc && peer.options.alpn == ALPN::H2H1 {
            peer.group_key ^= GRPC;
            peer.options.alpn = ALPN::H2;
        }
        let may_be_http2 = peer.options.alpn != ALPN::H1;
        if may_be_http2 {
            ctx.generation = member.state.generation();
            peer.group_key ^= ctx.generation % GENERATIONS;
            self.take_small_body(session, ctx).await?;
        }
        ctx.awaits_body = !session.is_body_done();
        let is_long = ctx.held_body.as_ref().is_some_and(|whole| whole.len() as u64 > KEPT_BYTES_MAX);
        ctx.may_stall = may_be_http2 && (ctx.awaits_body || is_long);
        if ctx.may_stall {
            // The library counts from the head on here, and not from the last byte that was sent.
            let total = faults::forwarded(ctx)?.0.tenant.proxy.timeouts.total;
            peer.options.read_timeout = Some(total.unwrap_or(faults::TRANSFER_TIME_MAX));
        }
        ctx.record.times.left.get_or_insert_with(Timer::now);
        Ok(peer)
    }

    /// The library bounds reads of this client, or those of this upstream, or the request has a stall timeout of its own.
    async fn connected_to_upstream(
        &self,
        session: &mut Session,
        reused: bool,
        peer: &HttpPeer,
        _fd: RawFd,
        _digest: Option<&Digest>,
        ctx: &mut Context,
    ) -> pingora::Result<()> {
        ctx.retrying = None;
        if let Some(notes) = &mut ctx.mcp {
            notes.held = None;
        }
        self.note_reached(ctx, peer._address.as_inet().filter(|_| !reused), true);
        if ctx.may_stall {
            note_when_dropped(&self.0, session, ctx);
            restart_timeout(session, ctx);
        }
        Ok(())
    }

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        request: &mut RequestHeader,
        ctx: &mut Context,
    ) -> pingora::Result<()> {
        self.rewrite(session, request, ctx)?;
        // The library hands on no interim answer of an upstream of HTTP/2.
        if request.version == Version::HTTP_2 && request.headers.expects_continue() {
            request.remove_header(&http::header::EXPECT);
            give_leave(session).await?;
        }
        ctx.record.times.asked = Some(Timer::now());
        Ok(())
    }

    async fn request_body_filter(
        &self,
        session: &mut Session,
        body: &mut Option<Bytes>,
        end_of_stream: bool,
        ctx: &mut Context,
    ) -> pingora::Result<()> {
        if end_of_stream && ctx.awaits_body && ctx.record.times.answered.is_none() {
            ctx.record.times.asked = Some(Timer::now());
        }
        ctx.awaits_body &= !end_of_stream;
        restart_timeout(session, ctx);
        // An empty last piece would be written as the last chunk, and the last chunk once more behind it.
        if end_of_stream && body.as_ref().is_some_and(Bytes::is_empty) {
            *body = None;
        }
        // No piece at all is the end, to the library too.
        let is_last = end_of_stream || body.is_none();
        let overdue = self.check_overdue(ctx, is_last);
        // Toward upstreams of HTTP/2 the library goes on behind any other error than a client's.
        overdue.and_then(|()| take_piece(session, body, is_last, ctx)).map_err(|error| error.into_down())
    }

    /// A switch to another protocol that nobody asked for is no answer, nor is one whose end two readers may find in different
    /// places.
    async fn upstream_response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut Context,
    ) -> pingora::Result<()> {
        let is_switch = response.status == StatusCode::SWITCHING_PROTOCOLS;
        if is_switch || !response.status.is_informational() {
            ctx.record.times.answered.get_or_insert_with(Timer::now);
            ctx.held_body = None;
        }
        let may_switch = faults::forwarded(ctx)?.1.upgrades && session.is_upgrade_req();
        if is_switch && !may_switch {
            return Err(faults::invalid_answer("a switch of protocols that was not asked for"));
        }
        // As the relay's reader. Of a length beside chunks the library has left the chunks.
        check_framing(&response.headers, response.version == Version::HTTP_10).map_err(faults::invalid_answer)
    }

    async fn response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut Context,
    ) -> pingora::Result<()> {
        // A client of HTTP/1.0 knows no chunks: its answer ends with the connection (RFC 9112, section 6.1).
        if session.req_header().version == Version::HTTP_10 {
            response.remove_header(&http::header::TRANSFER_ENCODING);
        }
        restart_timeout(session, ctx);
        if ctx.mcp.is_some() {
            let filter = ctx.list_filter(response.status.as_u16(), &response.headers);
            ctx.filter = filter.map_err(|_| faults::invalid_answer(CODED_LIST))?;
        }
        if ctx.filter.is_some() && response.remove_header(&http::header::CONTENT_LENGTH).is_some() {
            let is_http_1_1 = !session.is_http2() && session.req_header().version != Version::HTTP_10;
            if is_http_1_1 {
                response.insert_header(http::header::TRANSFER_ENCODING, "chunked")?;
            }
        }
        answering::rewrite(response, ctx)
    }

    /// No limits of the upstream's own, and nothing that comes too late there for a cache.
    fn upstream_response_trailer_filter(
        &self,
        _session: &mut Session,
        trailers: &mut HeaderMap,
        ctx: &mut Context,
    ) -> pingora::Result<()> {
        for name in names_that(trailers, |id, name| id == Name::CacheControl || is_about_limits(name)) {
            trailers.remove(&name);
        }
        let end = ctx.filter.as_mut().map(|filter| filter.push(b"", true)).transpose();
        ctx.list_end = end.map_err(|_| faults::invalid_answer(UNREADABLE_LIST))?.map(Bytes::from);
        Ok(())
    }

    /// Writes the end of a list in place of its trailers. The library does not say that a body ends before those.
    async fn response_trailer_filter(
        &self,
        _session: &mut Session,
        _trailers: &mut HeaderMap,
        ctx: &mut Context,
    ) -> pingora::Result<Option<Bytes>> {
        Ok(ctx.list_end.take())
    }

    fn response_body_filter(
        &self,
        session: &mut Session,
        body: &mut Option<Bytes>,
        end_of_stream: bool,
        ctx: &mut Context,
    ) -> pingora::Result<Option<Duration>> {
        self.check_overdue(ctx, end_of_stream)?;
        if let Some(filter) = &mut ctx.filter {
            let shown = filter.push(&body.take().unwrap_or_default(), end_of_stream);
            let shown = shown.map_err(|_| faults::invalid_answer(UNREADABLE_LIST))?;
            *body = Some(shown.into());
        }
        restart_timeout(session, ctx);
        Ok(None)
    }

    /// A connection that was never made has carried no request: another address or upstream may be tried.
    fn fail_to_connect(
        &self,
        _session: &mut Session,
        peer: &HttpPeer,
        ctx: &mut Context,
        mut error: Box<Error>,
    ) -> Box<Error> {
        if faults::is_without_descriptors(&error) {
            ctx.site.iter().for_each(|site| site.counters.overloaded("descriptors"));
            return faults::error_of(Failure::Overloaded);
        }
        let forced = |member: &Member| member.template.options.alpn != peer.options.alpn;
        if ctx.member().is_some_and(forced) && error.to_string().contains(NO_VERSION_IN_COMMON) {
            // The upstream is well. It speaks other versions of HTTP than the one that this request needs.
            error.set_retry(false);
            return error;
        }
        self.note_reached(ctx, peer._address.as_inet(), false);
        if ctx.attempt.addresses_left == 0 {
            let why = unsupported_signature(&error.to_string());
            self.note_upstream_failure(ctx, why.unwrap_or(error.etype().as_str()));
        }
        error.set_retry(self.may_try_another(ctx));
        error
    }

    /// A request that may have been processed is not sent again. One that its upstream has not looked at is, with the part
    /// of its body that has come, as long as the library keeps that.
    fn error_while_proxy(
        &self,
        _peer: &HttpPeer,
        session: &mut Session,
        mut error: Box<Error>,
        ctx: &mut Context,
        _client_reused: bool,
    ) -> Box<Error> {
        let is_whole = !answering::has_begun(session) && !session.as_ref().retry_buffer_truncated();
        // An HTTP/2 upstream has refused the stream, or says goodbye (RFC 9113, section 8.7). The library has looked at which it was.
        let is_unprocessed =
            faults::is_upstreams(&error) && *error.etype() == ErrorType::H2Error && error.retry();
        if is_whole && is_unprocessed && self.may_repeat(ctx) {
            ctx.record.received = ctx.held_body.as_ref().map_or(0, |whole| whole.len() as u64);
            if let Some(checked) = &mut ctx.checked_body {
                checked.restart();
            }
            return error;
        }
        if faults::is_silence(&error) && ctx.awaits_body {
            // The upstream had nothing to answer yet: the client has stopped sending.
            error = faults::error_of(Failure::ClientSlow);
        } else if faults::is_upstreams(&error) && !(session.was_upgraded() && faults::is_silence(&error)) {
            self.note_upstream_failure(ctx, error.etype().as_str());
        }
        error.set_retry(false);
        error
    }

    async fn fail_to_proxy(&self, session: &mut Session, error: &Error, ctx: &mut Context) -> FailToProxy {
        ctx.may_stall = false;
        set_deadline(None);
        let status = self.answer_failure(session, ctx, faults::failure_of(error)).await;
        FailToProxy { error_code: status, can_reuse_downstream: false }
    }

    async fn logging(&self, session: &mut Session, error: Option<&Error>, ctx: &mut Context) {
        ctx.on_drop = None;
        let source = error.map(Error::esource);
        // A request that ended without a fault of its upstream breaks a row of failures; a client that left says nothing of an upstream
        // that had not answered.
        let times = &ctx.record.times;
        let has_answered = match source {
            None => times.asked.is_some(),
            Some(ErrorSource::Downstream) => times.answered.is_some(),
            Some(_) => false,
        };
        ctx.member().filter(|_| has_answered).iter().for_each(|member| member.state.succeeded());
        let request = session.req_header();
        if let Some(error) = error.filter(|error| *error.esource() == ErrorSource::Internal) {
            tracing::warn!(kind = error.etype().as_str(), "a request failed inside the gateway");
        }
        let status = session.response_written().map_or(0, |response| response.status.as_u16());
        let ending = match error {
            None => Ending::Whole,
            Some(_) if ctx.record.reason == Some("idle") => Ending::Whole,
            Some(error) => faults::failure_of(error).ending(),
        };
        let answer = (status, session.body_bytes_sent() as u64);
        self.finished(&ended(request, peer_of(session), answer, ending), ctx);
        (ctx.admitted, ctx.slot, ctx.retrying) = (None, None, None);
        answering::linger(session.as_mut(), ctx.breaks_off).await;
    }

    /// Said by our own log, without what clients wrote.
    fn suppress_error_log(&self, _session: &Session, _ctx: &Context, _error: &Error) -> bool {
        true
    }

    fn suppress_proxy_warn_log(
        &self,
        _session: &Session,
        _ctx: &Context,
        _error: &Error,
        _context: ProxyWarnLogContext,
    ) -> bool {
        true
    }

    /// Without the query, which may hold secrets.
    fn request_summary(&self, session: &Session, _ctx: &Context) -> String {
        session.req_header().method.to_string()
    }
}
