//! `tiergate check --online --through URL`: a request through another gateway, with identity headers that a client made up.

use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{ClientBuilder, Method, Url};
use serde_json::Value;

use crate::app::online::Finding;
use crate::cli::client::exchange;
use crate::ports::clock::Clock;

/// Spellings of a header that no client may set.
const NAMES: [&str; 3] = ["x-agent-id", "x_agent_id", "x-agent-owner"];

/// Asks a URL of a gateway, and says if what a client made up comes back in the answer. A route whose upstream shows the headers
/// of its request tells that for certain.
pub(super) fn ask(url: &Url, clock: &dyn Clock) -> Finding {
    let made_up = format!("made-up-{}", clock.unix_millis());
    let value = HeaderValue::from_str(&made_up).unwrap_or(HeaderValue::from_static("made-up"));
    let headers: HeaderMap =
        NAMES.iter().map(|name| (http::HeaderName::from_static(name), value.clone())).collect();
    let answer = exchange(ClientBuilder::new().default_headers(headers), Method::GET, url.as_str(), None);
    let state = answer.and_then(|(status, text)| {
        let body: Value = serde_json::from_str(&text).unwrap_or_default();
        if text.contains(&made_up) {
            return Err("an X-Agent-Id that a client made up comes through to the upstream".to_owned());
        }
        match body.get("errorType").and_then(Value::as_str) {
            Some(error_type) => Ok(format!("refuses a request without a credential: {status}, {error_type}")),
            None if status.is_success() => Ok(format!(
                "lets anybody pass, as on a public route: {status}; no made-up X-Agent-Id is in the answer"
            )),
            None => Err(format!("answers {status}, with no errorType of Tiergate's")),
        }
    });
    (format!("gateway {url}"), state)
}
