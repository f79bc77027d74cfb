//! The Model Context Protocol over HTTP, as a gateway has to read it: the call that a request makes, lists of what may be called, and
//! errors that clients show.
//!
//! Pure rules over bytes. Must not know tenants, agents or connections.

pub(crate) mod call;
mod listing;
mod message;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

pub(crate) use call::McpRequest;
pub(crate) use listing::{Filter, List, Unreadable};

/// The reason why a message is refused, as a phrase.
pub(crate) type Problem = &'static str;

/// The code of an error about headers that do not fit the message.
const HEADER_MISMATCH: i32 = -32020;

/// A refusal in the words of JSON-RPC.
#[derive(Serialize)]
struct Answer<'a> {
    jsonrpc: &'static str,
    /// As it was written.
    id: Option<&'a RawValue>,
    error: Value,
}

/// The error around a refusal's body, with the id of its request. The status is its code, which JSON-RPC leaves to applications; behind a
/// 400 clients of MCP look for its own code, and take any other for an older server. Users read the advice behind the message.
pub(crate) fn wrapped(status: u16, id: Option<&str>, body: &[u8], advice: Option<&str>) -> Option<Vec<u8>> {
    let data: Value = serde_json::from_slice(body).ok()?;
    let code = if status == 400 { HEADER_MISMATCH } else { status.into() };
    let id = id.and_then(|id| serde_json::from_str::<&RawValue>(id).ok());
    let mut message = data.get("error")?.as_str()?.to_owned();
    if let Some(advice) = advice {
        message = format!("{message}. {advice}");
    }
    let error = json!({ "code": code, "message": message, "data": data });
    serde_json::to_vec(&Answer { jsonrpc: "2.0", id, error }).ok()
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn an_error_has_the_status_the_id_and_the_whole_body() {
        let body =
            br#"{"error":"The rate limit is reached","errorType":"RATE_LIMITED","details":{"retryAfter":3}}"#;
        let text = |status, id| String::from_utf8(wrapped(status, id, body, None).unwrap()).unwrap();
        for (status, code) in [(429, "429"), (401, "401"), (503, "503"), (400, "-32020")] {
            let error = text(status, Some("\"a\\u0000\""));
            assert!(error.contains(&format!("\"code\":{code},")), "{error}");
            assert!(
                error.contains("\"id\":\"a\\u0000\"")
                    && error.contains("\"message\":\"The rate limit is reached\"")
            );
            assert!(error.contains("\"data\":{") && error.contains("\"retryAfter\":3"), "{error}");
        }
        assert!(text(429, Some("1e400")).contains("\"id\":1e400,"));
        for nothing in [None, Some(""), Some("{")] {
            assert!(text(429, nothing).contains("\"id\":null"));
        }
        let advised = wrapped(401, None, br#"{"error":"No key"}"#, Some("Ask for one")).unwrap();
        assert!(String::from_utf8(advised).unwrap().contains(r#""message":"No key. Ask for one""#));
        assert_eq!(wrapped(204, None, b"", None), None);
    }
}
