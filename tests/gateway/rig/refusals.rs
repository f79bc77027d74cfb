//! What every refusal of the gateway has in common.

use serde_json::{Value, json};

use crate::rig::{gateway::Gateway, stage::public_path, upstream::Upstream};
use crate::support::{client::Answer, wire::Request};

/// Checks that an answer is the gateway's own refusal with this status, and gives its `errorType`.
#[track_caller]
pub(crate) fn refused(answer: &Answer, status: u16) -> String {
    let error_type = answer.json()["errorType"].as_str().unwrap_or_default().to_owned();
    answer.error(status, &error_type);
    assert!(!error_type.is_empty(), "{}", answer.text());
    error_type
}

/// Checks a 401 for want of a usable credential.
#[track_caller]
pub(crate) fn is_unauthenticated(answer: &Answer) {
    answer.is_error(401, "INVALID_API_KEY", json!({ "agentId": null }));
    let challenge = answer.header("www-authenticate").unwrap_or_else(|| panic!("no challenge: {answer:?}"));
    assert!(challenge.to_ascii_lowercase().starts_with("bearer"), "{challenge}");
}

/// Checks a request that can't be read as one: 400, the contract's body.
#[track_caller]
pub(crate) fn is_malformed(answer: &Answer) {
    answer.is_error(400, "VALIDATION_ERROR", json!({ "field": "request", "received": Value::Null }));
}

/// Checks that no request whose target holds one of these words came to the upstream, and nothing that can't be read as
/// a request. A later request has arrived there before that is looked at. Its host has a public folder.
#[track_caller]
pub(crate) fn never_arrived(gateway: &Gateway, host: &str, upstream: &Upstream, words: &[String]) {
    let later = public_path();
    assert_eq!(gateway.ask(&Request::get(host, &later)).status, 200);
    upstream.only(&later);
    for word in words {
        let seen = upstream.seen_with(word);
        assert!(seen.is_empty(), "the upstream has seen {seen:?}");
    }
    assert_eq!(upstream.broken(), Vec::<String>::new());
}

/// Checks a 502 that tells nothing of the upstream.
#[track_caller]
pub(crate) fn is_upstream_error(answer: &Answer) {
    assert_eq!(answer.error(502, "UPSTREAM_ERROR"), Value::Null);
}

/// Checks a 504 that tells nothing of the upstream.
#[track_caller]
pub(crate) fn is_upstream_timeout(answer: &Answer) {
    assert_eq!(answer.error(504, "UPSTREAM_TIMEOUT"), Value::Null);
}
