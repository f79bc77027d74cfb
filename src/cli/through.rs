//! `tiergate check --online --through URL`: a request through another gateway, with identity headers that a client made up.

use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{ClientBuilder, Method, Url};
use serde_json::Value;

use crate::app::online::Finding;
use crate::cli::client::exchange;
use crate::ports::clock::Clock;

/// Spellings of a header that no client may set.
const NAMES: [&str; 10] = [
    "x-agent-id",
    "x_agent_id",
    "x-agent_id",
    "x.agent.id",
    "x-agent-owner",
    "x-agent-tier",
    "x-agent-tier-source",
    "x-agent-staked-amount",
    "x-agent-assertion",
    "x-agent-domain",
];

/// A header that any client may set. An answer that shows it shows the headers of its request.
const CONTROL: &str = "x-tiergate-check";

/// Asks a URL of a gateway, and says if what a client made up comes back in the answer. A route whose upstream shows the headers
/// of its request tells that for certain.
pub(super) fn ask(url: &Url, clock: &dyn Clock) -> Finding {
    let made_up = format!("made-up-{}", clock.unix_millis());
    let value = HeaderValue::from_str(&made_up).unwrap_or(HeaderValue::from_static("made-up"));
    let control = made_up.replace("made-up", "control");
    let mut headers: HeaderMap =
        NAMES.iter().map(|name| (http::HeaderName::from_static(name), value.clone())).collect();
    headers.extend(
        HeaderValue::from_str(&control).ok().map(|value| (http::HeaderName::from_static(CONTROL), value)),
    );
    let answer = exchange(ClientBuilder::new().default_headers(headers), Method::GET, url.as_str(), None);
    let state = answer.map_err(|(cause, _)| cause).and_then(|(status, text)| {
        let body: Value = serde_json::from_str(&text).unwrap_or_default();
        if text.contains(&made_up) {
            return Err("an X-Agent-Id that a client made up comes through to the upstream".to_owned());
        }
        match body.get("errorType").and_then(Value::as_str) {
            Some(error_type) => Err(format!("refuses a request without a credential, {status} {error_type}: take a public route")),
            None if status.is_success() && text.contains(&control) => {
                Ok(format!("strips a made-up X-Agent-Id, and passes other headers: {status}"))
            }
            None if status.is_success() => {
                Err(format!("answers {status} without the headers of the request: take a public route whose upstream shows them"))
            }
            None => Err(format!("answers {status}, with no errorType of Tiergate's")),
        }
    });
    (format!("gateway {url}"), state)
}
