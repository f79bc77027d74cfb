//! The sample upstream: an API behind the gateway that says what it was sent.

use std::collections::BTreeMap;

use async_trait::async_trait;
use http::{HeaderMap, Response, StatusCode};
use pingora::apps::http_app::ServeHttp;
use pingora::protocols::http::ServerSession;
use serde_json::json;

use crate::serve::whole::read_body;
use crate::wire::answers;

/// The longest body that it reads, in bytes.
const BODY_BYTES_MAX: usize = 1024 * 1024;

/// An API that answers every request with what it has seen of it.
pub(crate) struct SampleUpstream;

#[async_trait]
impl ServeHttp for SampleUpstream {
    async fn response(&self, http: &mut ServerSession) -> Response<Vec<u8>> {
        let body_bytes = match read_body(http, BODY_BYTES_MAX).await {
            Ok(body) => body.len(),
            Err(cause) => return cause.answer(0).1,
        };
        let head = http.req_header();
        let mut seen: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (name, value) in &head.headers {
            seen.entry(name.as_str())
                .or_default()
                .push(String::from_utf8_lossy(value.as_bytes()).into_owned());
        }
        let headers: BTreeMap<&str, String> =
            seen.into_iter().map(|(name, values)| (name, values.join(", "))).collect();
        let body = json!({
            "message": "The sample upstream has seen this request.",
            "method": head.method.as_str(),
            "path": String::from_utf8_lossy(head.raw_path()),
            "headers": headers,
            "bodyBytes": body_bytes,
        });
        answers::json(StatusCode::OK, HeaderMap::new(), &body)
    }
}
