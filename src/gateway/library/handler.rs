//! The gateway behind the listener: HTTP/1 one request at a time, HTTP/2 a connection at a time.

use std::sync::Arc;

use async_trait::async_trait;
use pingora::apps::{HttpServerApp, HttpServerOptions, ReusedHttpStream, ServerApp};
use pingora::protocols::Stream;
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::H2Options;
use pingora::proxy::{HttpProxy, http_proxy};
use pingora::server::ShutdownWatch;
use pingora::server::configuration::ServerConf;

use crate::gateway::{Gateway, context::Context, library::LibraryProxy, stall_timeout::StallTimeout};
use crate::http1::RequestHead;
use crate::serve::{Slot, connection::Connection, fair_scheduler::FairShare};

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
        self.share
            .run(async { StallTimeout::enforce(self.proxy.process_new_http(session, shutdown)).await })
            .await
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
    pub(in crate::gateway) async fn forward(
        &self,
        connection: Box<Connection>,
        head: RequestHead,
        ctx: Context,
    ) -> Option<Box<Connection>> {
        let (mut http, rest) = connection.lend(&head);
        // The library hands it to `on_connection_reuse`.
        http.set_connection_user_context(Some(Box::new(ctx)));
        let served = StallTimeout::enforce(self.proxy.process_new_http(http, &rest.stop.shutdown)).await;
        let (stream, _settings) = served?.consume();
        rest.take_back(stream)
    }

    /// Serves a connection of HTTP/2 to its end.
    pub(in crate::gateway) async fn serve_http2(
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
pub(in crate::gateway) fn h2_options() -> H2Options {
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
