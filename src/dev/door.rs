//! The development chain's JSON-RPC listener. Bound to loopback by default: its accounts sign for whoever asks.

use std::sync::Arc;

use async_trait::async_trait;
use http::{HeaderMap, Method, Response, StatusCode};
use pingora::apps::http_app::ServeHttp;
use pingora::protocols::http::ServerSession;

use crate::dev::chain::DevChain;
use crate::serve::whole::read_body;
use crate::wire::answers::Answer;
use crate::wire::headers::JSON;

/// The longest request, in bytes: a contract's code in hex, with room to spare.
const RPC_BODY_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Answers JSON-RPC over HTTP POST.
pub(crate) struct DevChainDoor {
    chain: Arc<DevChain>,
}

impl DevChainDoor {
    /// The door to this chain.
    pub(crate) const fn new(chain: Arc<DevChain>) -> Self {
        Self { chain }
    }
}

#[async_trait]
impl ServeHttp for DevChainDoor {
    async fn response(&self, http: &mut ServerSession) -> Answer {
        if http.req_header().method != Method::POST {
            return answer(StatusCode::METHOD_NOT_ALLOWED, Vec::new());
        }
        match read_body(http, RPC_BODY_BYTES_MAX).await {
            Ok(body) => answer(StatusCode::OK, self.chain.answer(&body)),
            Err(_) => answer(StatusCode::BAD_REQUEST, Vec::new()),
        }
    }
}

fn answer(status: StatusCode, body: Vec<u8>) -> Answer {
    let mut headers = HeaderMap::new();
    headers.insert(http::header::CONTENT_TYPE, JSON);
    headers.insert(http::header::CONTENT_LENGTH, body.len().into());
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    *answer.headers_mut() = headers;
    answer
}
