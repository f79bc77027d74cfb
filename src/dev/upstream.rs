//! The sample upstream: an API behind the gateway that says what it was sent.

use std::collections::BTreeMap;

use http::{HeaderMap, StatusCode};
use serde_json::json;

use crate::http1::fields::Fields;
use crate::serve::buffered::{BufferedService, Request};
use crate::wire::answers::{self, Answer};
use crate::wire::errors::ErrorCause;

/// The longest body that it reads, in bytes.
const BODY_BYTES_MAX: usize = 1024 * 1024;

/// An API that answers every request with what it has seen of it.
pub(crate) struct SampleUpstream;

impl BufferedService for SampleUpstream {
    type Endpoint = ();
    type Notes = ();

    fn begin(&self, _request: &Request<'_>) {}

    fn find(&self, _request: &Request<'_>) -> Result<((), usize), ErrorCause> {
        Ok(((), BODY_BYTES_MAX))
    }

    async fn answer(
        &self,
        (): (),
        request: &Request<'_>,
        body: &[u8],
        (): &mut (),
    ) -> Result<Answer, ErrorCause> {
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
