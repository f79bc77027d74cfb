//! The development chain's JSON-RPC listener. Bound to loopback by default: its accounts sign for whoever asks, and pages of
//! any origin may ask, as with other development nodes.

use std::sync::Arc;

use http::header::{ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_ORIGIN};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::dev::chain::DevChain;
use crate::serve::buffered::{BufferedService, Request};
use crate::wire::answers::{self, Answer};
use crate::wire::errors::ErrorCause;

/// The longest request, in bytes: a contract's code in hex, with room to spare.
const RPC_BODY_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Answers JSON-RPC over HTTP POST.
pub(crate) struct DevChainService(pub(crate) Arc<DevChain>);

impl BufferedService for DevChainService {
    type Endpoint = ();
    type Notes = ();

    fn begin(&self, _request: &Request<'_>) {}

    fn find(&self, request: &Request<'_>) -> Result<((), usize), ErrorCause> {
        match request.method {
            "POST" => Ok(((), RPC_BODY_BYTES_MAX)),
            // A page asks whether it may ask.
            "OPTIONS" => Ok(((), 0)),
            _ => Err(ErrorCause::MethodNotAllowed { allow: "POST, OPTIONS".into() }),
        }
    }

    async fn answer(
        &self,
        (): (),
        request: &Request<'_>,
        body: &[u8],
        (): &mut (),
    ) -> Result<Answer, ErrorCause> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("content-type"));
        let body = if request.method == "OPTIONS" { Vec::new() } else { self.0.answer(body) };
        Ok(answers::json_text(StatusCode::OK, headers, body))
    }
}
