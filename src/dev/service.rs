//! The listeners of `tiergate-dev`: the development chain's JSON-RPC, and a sample upstream behind the gateway.
//!
//! Bound to loopback by default: the chain's accounts sign for whoever asks, and pages of any origin may ask, as with other
//! development nodes.

use std::{collections::BTreeMap, sync::Arc};

use http::header::{ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_ORIGIN};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::json;

use crate::dev::chain::DevChain;
use crate::error::Error;
use crate::http1::Fields;
use crate::record::RequestRecord;
use crate::serve::{BufferedService, Request};
use crate::wire::{Answer, answers};

/// The longest request, in bytes: a contract's code in hex, with room to spare.
const RPC_BODY_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Answers JSON-RPC over HTTP POST.
pub(crate) struct DevChainService(pub(crate) Arc<DevChain>);

impl BufferedService for DevChainService {
    type Endpoint = ();

    fn find(&self, request: &Request<'_>) -> Result<((), usize), Error> {
        match request.method {
            "POST" => Ok(((), RPC_BODY_BYTES_MAX)),
            // A page asks whether it may ask.
            "OPTIONS" => Ok(((), 0)),
            _ => Err(Error::MethodNotAllowed { allow: "POST, OPTIONS".into() }),
        }
    }

    async fn answer(
        &self,
        (): (),
        request: &Request<'_>,
        body: &[u8],
        _: &mut RequestRecord,
    ) -> Result<Answer, Error> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("content-type"));
        let body = if request.method == "OPTIONS" { Vec::new() } else { self.0.answer(body) };
        Ok(answers::json_text(StatusCode::OK, headers, body))
    }
}

/// The longest body that it reads, in bytes.
const SAMPLE_BODY_BYTES_MAX: usize = 1024 * 1024;

/// An API that answers every request with what it has seen of it.
pub(crate) struct SampleUpstream;

impl BufferedService for SampleUpstream {
    type Endpoint = ();

    fn find(&self, _request: &Request<'_>) -> Result<((), usize), Error> {
        Ok(((), SAMPLE_BODY_BYTES_MAX))
    }

    async fn answer(
        &self,
        (): (),
        request: &Request<'_>,
        body: &[u8],
        _: &mut RequestRecord,
    ) -> Result<Answer, Error> {
        let mut headers: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for (name, value) in request.fields.all() {
            let name = String::from_utf8_lossy(name).to_lowercase();
            headers.entry(name).or_default().push(String::from_utf8_lossy(value));
        }
        let headers: BTreeMap<_, _> =
            headers.into_iter().map(|(name, values)| (name, values.join(", "))).collect();
        let seen = json!({
            "message": "The sample upstream has seen this request.",
            "method": request.method,
            "path": request.query.map_or(request.path.to_owned(), |query| format!("{}?{query}", request.path)),
            "headers": headers,
            "bodyBytes": body.len(),
        });
        Ok(answers::json(StatusCode::OK, HeaderMap::new(), &seen))
    }
}
