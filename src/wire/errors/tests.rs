//! Every row of the contract's error table: status, code and the fields of its details.

use std::sync::Arc;

use alloy::primitives::{Address, U256};
use serde_json::{Value, json};

use super::ErrorCause;
use crate::domain::agent_id::AgentId;
use crate::domain::denial::Denial;
use crate::domain::nonce::Nonce;
use crate::domain::quota::RetryAfter;
use crate::domain::tier::Tier;
use crate::pipeline::refusal::Refusal;
use crate::ports::chain::ChainFault;
use crate::ports::clock::NoEntropy;
use crate::ports::store::StoreFault;
use crate::wire::bodies::Invalid;

fn agent() -> AgentId {
    AgentId::new(U256::from(7))
}

/// Status, errorType and details of a cause's answer.
fn shown(cause: impl Into<ErrorCause>) -> (u16, String, Value) {
    let (error_type, answer) = cause.into().answer(1_700_000_000_123);
    assert_eq!(answer.headers()["content-type"], "application/json");
    let body: Value = serde_json::from_slice(answer.body()).unwrap();
    assert_eq!(body["timestamp"], json!(1_700_000_000_123_u64));
    assert!(body["error"].as_str().is_some_and(|message| !message.is_empty()));
    assert_eq!(body["errorType"], json!(error_type));
    let details = body.get("details").cloned().unwrap_or(Value::Null);
    (answer.status().as_u16(), body["errorType"].as_str().unwrap().to_owned(), details)
}

fn denied(denial: Denial) -> (u16, String, Value) {
    shown(Refusal::from(denial))
}

fn row(status: u16, error_type: &str, details: Value) -> (u16, String, Value) {
    (status, error_type.to_owned(), details)
}

#[test]
fn validation_error_is_400_with_field_and_received() {
    let invalid = Invalid { field: "agentId", received: json!(7), problem: "is not a string".into() };
    assert_eq!(shown(invalid), row(400, "VALIDATION_ERROR", json!({ "field": "agentId", "received": 7 })));
}

#[test]
fn signature_invalid_is_401_with_agent_owner_and_recovered_signer() {
    let (owner, signer) = (Address::repeat_byte(0xab), Address::repeat_byte(0xcd));
    for recovered_signer in [Some(signer), None] {
        let details = json!({
            "agentId": "7",
            "owner": owner.to_checksum(None),
            "recoveredSigner": recovered_signer.map(|signer| signer.to_checksum(None)),
        });
        let denial = Denial::SignatureInvalid { agent: agent(), owner, recovered_signer };
        assert_eq!(denied(denial), row(401, "SIGNATURE_INVALID", details));
    }
}

#[test]
fn replay_detected_is_400_with_agent_and_nonce() {
    let denial = Denial::ReplayDetected { agent: agent(), nonce: Nonce::new(U256::from(9)) };
    assert_eq!(denied(denial), row(400, "REPLAY_DETECTED", json!({ "agentId": "7", "nonce": "9" })));
}

#[test]
fn agent_not_found_is_404_with_agent() {
    let denial = Denial::AgentNotFound { agent: agent() };
    assert_eq!(denied(denial), row(404, "AGENT_NOT_FOUND", json!({ "agentId": "7" })));
}

#[test]
fn rpc_error_is_503_with_node_and_method_and_nothing_of_the_cause() {
    let fault = ChainFault {
        endpoint: Arc::from("https://node.example"),
        method: "eth_call",
        cause: Arc::new(std::io::Error::other("secret-cause")),
    };
    let details = json!({ "rpcUrl": "https://node.example", "method": "eth_call" });
    assert_eq!(shown(Refusal::from(fault.clone())), row(503, "RPC_ERROR", details));
    let (_, answer) = ErrorCause::from(Refusal::from(fault)).answer(0);
    assert!(!String::from_utf8_lossy(answer.body()).contains("secret-cause"));
}

#[test]
fn internal_error_is_500_without_details() {
    let fault = StoreFault { verb: "admit", cause: Arc::new(std::io::Error::other("disk full")) };
    assert_eq!(shown(Refusal::from(fault)), row(500, "INTERNAL_ERROR", Value::Null));
    assert_eq!(shown(Refusal::from(NoEntropy)), row(500, "INTERNAL_ERROR", Value::Null));
    assert_eq!(shown(ErrorCause::Internal), row(500, "INTERNAL_ERROR", Value::Null));
}

#[test]
fn invalid_api_key_is_401_with_the_agent_that_was_named_or_null() {
    for (named, shown) in [(Some(agent()), json!("7")), (None, Value::Null)] {
        let denial = Denial::InvalidApiKey { agent: named };
        assert_eq!(denied(denial), row(401, "INVALID_API_KEY", json!({ "agentId": shown })));
    }
}

#[test]
fn key_already_exists_is_409_with_agent() {
    let denial = Denial::KeyAlreadyExists { agent: agent() };
    assert_eq!(denied(denial), row(409, "KEY_ALREADY_EXISTS", json!({ "agentId": "7" })));
}

#[test]
fn rate_limited_is_429_with_agent_tier_limit_and_retry_after_and_the_three_headers() {
    let denial = Denial::RateLimited {
        agent: Some(agent()),
        tier: Some(Tier::Silver),
        limit: 16,
        retry_after: RetryAfter::from_micros(41_000_001),
    };
    let details = json!({ "agentId": "7", "tier": 2, "limit": 16, "retryAfter": 42 });
    assert_eq!(denied(denial.clone()), row(429, "RATE_LIMITED", details));
    let (_, answer) = ErrorCause::from(Refusal::from(denial)).answer(0);
    assert_eq!(answer.headers()["x-ratelimit-limit"], "16");
    assert_eq!(answer.headers()["x-ratelimit-remaining"], "0");
    assert_eq!(answer.headers()["retry-after"], "42");
}

#[test]
fn tier_blocked_is_403_with_agent_both_tiers_and_the_stake_in_smallest_units() {
    let denial = Denial::TierBlocked {
        agent: agent(),
        current: Tier::Unverified,
        required: Tier::Bronze,
        required_stake: U256::from(10).pow(U256::from(21)),
    };
    let details = json!({
        "agentId": "7", "currentTier": 0, "requiredTier": 1, "requiredStake": "1000000000000000000000",
    });
    assert_eq!(denied(denial), row(403, "TIER_BLOCKED", details));
}

#[test]
fn insufficient_deposit_is_400_with_agent_balance_and_amount() {
    let (current_balance, required_amount) = (U256::from(5), U256::from(9));
    let cause = ErrorCause::InsufficientDeposit { agent: agent(), current_balance, required_amount };
    let details = json!({ "agentId": "7", "currentBalance": "5", "requiredAmount": "9" });
    assert_eq!(shown(cause), row(400, "INSUFFICIENT_DEPOSIT", details));
}

#[test]
fn relay_failed_is_500_with_agent_reason_and_transaction() {
    let cause =
        ErrorCause::RelayFailed { agent: agent(), reason: "reverted".to_owned(), tx_hash: "0x1".to_owned() };
    let details = json!({ "agentId": "7", "reason": "reverted", "txHash": "0x1" });
    assert_eq!(shown(cause), row(500, "RELAY_FAILED", details));
}

#[test]
fn our_own_additions_have_the_same_body() {
    assert_eq!(shown(ErrorCause::NotFound), row(404, "NOT_FOUND", Value::Null));
    assert_eq!(shown(ErrorCause::PayloadTooLarge), row(413, "PAYLOAD_TOO_LARGE", Value::Null));
    assert_eq!(shown(ErrorCause::TooSlow), row(408, "REQUEST_TIMEOUT", Value::Null));
    let malformed = ErrorCause::Malformed { problem: "there is no Host header" };
    assert_eq!(
        shown(malformed),
        row(400, "VALIDATION_ERROR", json!({ "field": "request", "received": null }))
    );
    let wrong_method = ErrorCause::MethodNotAllowed { allow: "POST" };
    assert_eq!(wrong_method.answer(0).1.headers()["allow"], "POST");
    assert_eq!(shown(wrong_method), row(405, "METHOD_NOT_ALLOWED", Value::Null));
}

#[test]
fn what_the_gateway_adds_has_the_same_body() {
    let bare = [
        (ErrorCause::UnknownHost, 404, "NOT_FOUND"),
        (ErrorCause::Forbidden, 403, "FORBIDDEN"),
        (ErrorCause::UploadTooLarge { bytes_max: 9 }, 413, "PAYLOAD_TOO_LARGE"),
        (ErrorCause::HeadTooLarge, 431, "REQUEST_HEADER_FIELDS_TOO_LARGE"),
        (ErrorCause::Upstream, 502, "UPSTREAM_ERROR"),
        (ErrorCause::UpstreamTimeout, 504, "UPSTREAM_TIMEOUT"),
    ];
    for (cause, status, error_type) in bare {
        assert_eq!(shown(cause), row(status, error_type, Value::Null));
    }
    let unproven = ErrorCause::Unproven { problem: "Show a key" };
    assert_eq!(shown(unproven), row(401, "INVALID_API_KEY", json!({ "agentId": null })));
    let mismatch = Denial::EndpointMismatch { agent: agent() };
    assert_eq!(denied(mismatch), row(403, "ENDPOINT_MISMATCH", json!({ "agentId": "7" })));
}
