//! `envoy.service.auth.v3.Authorization/Check` over HTTP/2 ("gRPC over HTTP2", Requests and Responses).

use std::{net::IpAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::{Buf, BufMut, Bytes};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use pingora::apps::{HttpServerApp, HttpServerOptions, ReusedHttpStream, ServerApp};
use pingora::http::ResponseHeader;
use pingora::protocols::Stream;
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::{H2Options, HttpSession};
use pingora::server::ShutdownWatch;
use prost::Message;
use tokio::time::timeout;

use crate::error::Error;
use crate::gateway::{authz::Authz, authz::original::Original, library::h2_options, rule::Dialect};
use crate::http2;
use crate::serve::{Slot, WRITE_TIME_MAX, fair_scheduler::FairShare};
use crate::wire::{CHECK, CheckRequest, CheckResponse, HeaderList, grpc};

/// The longest message, which holds a head.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// How long a message may take to arrive.
const MESSAGE_TIME_MAX: Duration = Duration::from_secs(10);

/// The length of what stands before a message: a flag for compression, and its length.
const PREFIX_BYTES: usize = 5;

const MALFORMED: Error = Error::Malformed { problem: "the gateway in front sends no readable message" };

/// The service of one connection.
struct Streams {
    authz: Arc<Authz>,
    options: HttpServerOptions,
    share: FairShare,
    /// Held by each stream's task, also when its connection is gone.
    _slot: Slot,
}

/// Serves a connection to its end.
pub(super) async fn serve(
    authz: &Arc<Authz>,
    stream: Stream,
    share: FairShare,
    slot: Slot,
    shutdown: &ShutdownWatch,
) {
    let mut options = HttpServerOptions::default();
    options.h2c = true;
    options.h2_idle_timeout = Some(authz.gateway.rules.idle);
    let streams = Streams { authz: Arc::clone(authz), options, share, _slot: slot };
    Arc::new(streams).process_new(stream, shutdown).await;
}

#[async_trait]
impl HttpServerApp for Streams {
    async fn process_new_http(
        self: &Arc<Self>,
        session: ServerSession,
        _: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        if let ServerSession::H2(mut stream) = session {
            self.share.run(self.authz.serve(&mut stream)).await;
        }
        None
    }

    fn h2_options(&self) -> Option<H2Options> {
        Some(h2_options())
    }

    fn server_options(&self) -> Option<&HttpServerOptions> {
        Some(&self.options)
    }
}

impl Authz {
    async fn serve(&self, stream: &mut HttpSession) -> Option<()> {
        stream.set_write_timeout(Some(WRITE_TIME_MAX));
        let head = stream.req_header();
        let is_check = head.uri.path() == CHECK
            && head.method == Method::POST
            && grpc::is_spoken(&head.headers)
            && http2::problem(&head.headers).is_none();
        let written = if is_check {
            let peer = stream.client_addr().and_then(|address| address.as_inet()).map(|address| address.ip());
            let peer = peer.unwrap_or(IpAddr::from([0; 4]));
            let response = self.check(stream, peer).await;
            // Gateways may be configured to forward a request about which a call fails. A denial they obey.
            let response = response.unwrap_or_else(|cause| {
                let fields = &stream.req_header().headers;
                CheckResponse::denied(self.refuse(cause, b"POST", CHECK, fields, peer))
            });
            write(stream, &response).await
        } else {
            write_not_found(stream)
        };
        if written.is_err() {
            tracing::debug!("a gateway did not take its answer");
        }
        None
    }

    async fn check(&self, stream: &mut HttpSession, peer: IpAddr) -> Result<CheckResponse, Error> {
        if !self.knows(&stream.req_header().headers, peer, None) {
            return Err(Error::Overloaded); // 503: it is no fault of the client's
        }
        let message = timeout(MESSAGE_TIME_MAX, read(stream)).await.map_err(|_| Error::TooSlow)??;
        let request = CheckRequest::decode(message).map_err(|_| MALFORMED)?;
        let asked = request.asked().ok_or(MALFORMED)?;
        if !self.knows(&stream.req_header().headers, peer, Some(asked.tenant)) {
            return Err(Error::Overloaded);
        }
        let original = Original::from_check(&asked, peer)?;
        let fields = original.fields();
        let ctx = match self.judge(Dialect::Grpc, asked.tenant, &original, &fields).await {
            Ok(ctx) => ctx,
            Err(answer) => return Ok(CheckResponse::denied(answer)),
        };
        let (mut identity, mut for_client) = (HeaderList::default(), HeaderList::default());
        ctx.write_identity(&mut identity);
        // The upstream's own answer is not seen.
        ctx.write_forwarded_answer_headers(&HeaderMap::new(), &mut for_client);
        let stripped = self.to_strip(&fields, &ctx);
        Ok(CheckResponse::admitted(identity, stripped, for_client, asked.tenant, ctx.permit()))
    }
}

/// Reads the one message of a call, which is not compressed.
async fn read(stream: &mut HttpSession) -> Result<Bytes, Error> {
    let mut body = Vec::new();
    while let Some(piece) = stream.read_body_bytes().await.map_err(|_| MALFORMED)? {
        if body.len() + piece.len() > PREFIX_BYTES + MESSAGE_BYTES_MAX {
            return Err(Error::UploadTooLarge { bytes_max: MESSAGE_BYTES_MAX as u64 });
        }
        body.extend_from_slice(&piece);
    }
    let mut body = Bytes::from(body);
    let is_whole = body.len() >= PREFIX_BYTES && body.get_u8() == 0 && body.get_u32() as usize == body.len();
    if is_whole { Ok(body) } else { Err(MALFORMED) }
}

async fn write(stream: &mut HttpSession, response: &CheckResponse) -> pingora::Result<()> {
    let mut body = vec![0];
    body.put_u32(u32::try_from(response.encoded_len()).unwrap_or(u32::MAX));
    // A vector has room for every message.
    let _ = response.encode(&mut body);
    let mut head = ResponseHeader::build(StatusCode::OK, Some(1))?;
    head.insert_header(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"))?;
    stream.write_response_header(Box::new(head), false)?;
    stream.write_body(body.into(), false).await?;
    stream
        .write_trailers(HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), 0.into())]))?;
    stream.finish()
}

/// No 200, as gRPC has it for errors too: a gateway that asks in another dialect over HTTP/2 would take that for leave.
fn write_not_found(stream: &mut HttpSession) -> pingora::Result<()> {
    let head = ResponseHeader::build(StatusCode::NOT_FOUND, None)?;
    stream.write_response_header(Box::new(head), true)
}
