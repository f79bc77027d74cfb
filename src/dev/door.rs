//! The development chain's JSON-RPC listener. Bound to loopback by default: its accounts sign for whoever asks.

use std::sync::Arc;

use http::{HeaderMap, Response};

use crate::dev::chain::DevChain;
use crate::serve::whole::{Request, WholeService};
use crate::wire::answers::Answer;
use crate::wire::errors::ErrorCause;
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

impl WholeService for DevChainDoor {
    type Endpoint = ();
    type Notes = ();

    fn begin(&self, _request: &Request<'_>) {}

    fn find(&self, request: &Request<'_>) -> Result<((), usize), ErrorCause> {
        if request.method == "POST" {
            Ok(((), RPC_BODY_BYTES_MAX))
        } else {
            Err(ErrorCause::MethodNotAllowed { allow: "POST" })
        }
    }

    async fn answer(
        &self,
        (): (),
        _request: &Request<'_>,
        body: &[u8],
        (): &mut (),
    ) -> Result<Answer, ErrorCause> {
        let body = self.chain.answer(body);
        let mut headers = HeaderMap::new();
        headers.insert(http::header::CONTENT_TYPE, JSON);
        headers.insert(http::header::CONTENT_LENGTH, body.len().into());
        let mut answer = Response::new(body);
        *answer.headers_mut() = headers;
        Ok(answer)
    }
}
