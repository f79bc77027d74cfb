//! Messages of MCP: a call is the one that a reader with a tree finds, headers of the same call change nothing, and a list comes out the
//! same however its answer is cut.

use http::{HeaderMap, HeaderName, HeaderValue, header::CONTENT_TYPE};
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::domain::Call;
use crate::mcp::{Filter, List, McpRequest};

fn are_short(calls: &[Call<'_>]) -> Vec<bool> {
    calls.iter().map(|call| call.name.as_ref().is_some_and(|name| name.len() < 4)).collect()
}

/// A body; behind 0xff the value of `Mcp-Name`.
pub fn check(input: &[u8]) {
    let mut parts = input.splitn(2, |byte| *byte == 0xff);
    let body = parts.next().unwrap_or_default();
    check_call(body, parts.next());
    for media_type in ["application/json", "text/event-stream"] {
        let whole = filtered(media_type, body, body.len().max(1));
        for size in [1, 3] {
            assert_eq!(filtered(media_type, body, size), whole, "{media_type}");
        }
    }
}

fn check_call(body: &[u8], name: Option<&[u8]>) {
    let mut headers = HeaderMap::new();
    headers.append(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(name) = name.and_then(|name| HeaderValue::from_bytes(name).ok()) {
        headers.append(HeaderName::from_static("mcp-name"), name);
    }
    let Ok(request) = McpRequest::read(body, &headers) else { return };
    serde_json::from_slice::<IgnoredAny>(body).expect("what was read is JSON");
    // Trees have a greatest depth.
    let Ok(tree) = serde_json::from_slice::<Value>(body) else { return };
    let entries = tree.as_array().cloned().unwrap_or_else(|| vec![tree.clone()]);
    let methods = entries.iter().filter_map(|entry| entry.get("method")?.as_str());
    let read: Vec<&str> = request.calls.iter().map(|call| &*call.method).collect();
    assert!(methods.eq(read.iter().copied()));
    let calls = entries.iter().filter(|entry| entry.get("method").is_some());
    for (call, entry) in request.calls.iter().zip(calls) {
        let field = match &*call.method {
            "tools/call" | "prompts/get" => "name",
            "resources/read" => "uri",
            _ => continue,
        };
        assert_eq!(entry["params"][field].as_str(), call.name.as_deref());
        // A header that is there says the same.
        if let Some(named) = headers.get("mcp-name").and_then(|named| named.to_str().ok())
            && !named.starts_with("=?base64?")
        {
            assert!(tree.is_array() || Some(named.trim()) == call.name.as_deref());
        }
    }
}

/// What comes of an answer in pieces of so many bytes.
fn filtered(media_type: &str, answer: &[u8], size: usize) -> Option<Vec<u8>> {
    let mut filter = Filter::new(List::Tools, Box::new(are_short), 9);
    assert!(filter.begin(media_type.as_bytes()));
    let mut out = Vec::new();
    for piece in answer.chunks(size) {
        out.extend(filter.push(piece, false).ok()?);
    }
    out.extend(filter.push(b"", true).ok()?);
    Some(out)
}
