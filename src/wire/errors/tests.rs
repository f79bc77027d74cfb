//! Every row of the contract's error table: status, code and the fields of its details.

use std::sync::Arc;

use alloy::primitives::{Address, U256};
use serde_json::{Value, json};

use crate::domain::{AgentId, Denial, Eip712Domain, MessageRefusal, Nonce, RetryAfter, Tier, UnixSeconds};
use crate::error::Error;
use crate::ports::{ChainFault, NoEntropy, StoreFault};

/// A cause, the status and the code of its answer, and the details; `null` where there are none.
type Row = (Error, u16, &'static str, Value);

fn check(rows: Vec<Row>) {
    for (cause, status, error_type, details) in rows {
        let (named, answer) = cause.answer(1_700_000_000_123);
        assert_eq!((named, answer.status().as_u16()), (error_type, status));
        assert_eq!(cause.is_unauthenticated(), status == 401, "{error_type}");
        assert!(answer.headers().contains_key("retry-after") || !matches!(status, 500 | 503), "{error_type}");
        assert_eq!(answer.headers()["content-type"], "application/json");
        let body: Value = serde_json::from_slice(answer.body()).unwrap();
        assert_eq!(body["timestamp"], json!(1_700_000_000_123_u64));
        assert!(body["error"].as_str().is_some_and(|message| !message.is_empty()), "{body}");
        assert_eq!(
            (&body["errorType"], body.get("details")),
            (&json!(error_type), Some(&details).filter(|it| !it.is_null()))
        );
        assert!(!body.to_string().contains("secret-cause"), "{body}");
    }
}

fn denied(denial: Denial) -> Error {
    denial.into()
}

fn domain() -> Arc<Eip712Domain> {
    let (name, version) = ("Name \"x\"".to_owned(), "7".to_owned());
    let verifying_contract = Address::repeat_byte(0xab);
    Arc::new(Eip712Domain { name, version, chain_id: 31_337, verifying_contract })
}

fn forgotten(accepted_from_secs: u64) -> Denial {
    Denial::NonceForgotten {
        agent: AgentId::new(U256::from(7)),
        nonce: Nonce::new(U256::from(9)),
        accepted_from: UnixSeconds(accepted_from_secs),
        retry_after: RetryAfter::from_micros(4_000_001),
    }
}

#[test]
fn lost_nonces_are_named_with_the_moment_from_which_on_signatures_are_accepted() {
    for (secs, moment) in [
        (1_795_348_805, "2026-11-22T12:00:05Z"),
        (0, "1970-01-01T00:00:00Z"),
        (u64::MAX, "9999-12-31T23:59:59Z"),
    ] {
        let (_, answer) = denied(forgotten(secs)).answer(0);
        assert_eq!(answer.headers()["retry-after"], "5");
        let body: Value = serde_json::from_slice(answer.body()).unwrap();
        let message = format!("Nonces may have been lost: sign again at {moment} or later");
        assert_eq!(body["error"], json!(message));
    }
}

#[test]
fn a_signature_that_is_not_the_owners_is_answered_with_the_domain_that_is_expected() {
    let (agent, owner) = (AgentId::new(U256::from(7)), Address::ZERO);
    let denial =
        Denial::SignatureInvalid { agent, owner, recovered_signer: None, domain: domain(), own_type: None };
    let (_, answer) = denied(denial).answer(0);
    let body: Value = serde_json::from_slice(answer.body()).unwrap();
    let expected = "The signature is not the agent owner's for the EIP-712 domain of name \"Name \\\"x\\\"\", \
                    version \"7\", chain id 31337, verifying contract 0xABaBaBaBABabABabAbAbABAbABabababaBaBABaB";
    assert_eq!(body["error"], json!(expected));
}

#[test]
fn a_refused_timestamp_is_told_from_a_used_nonce() {
    let agent = AgentId::new(U256::from(7));
    let refused = |nonce| denied(Denial::TimestampRefused { agent, nonce });
    let with_nonce = json!({ "agentId": "7", "nonce": "9", "field": "timestamp" });
    let without = json!({ "agentId": "7", "field": "timestamp" });
    check(vec![
        (refused(Some(Nonce::new(U256::from(9)))), 400, "REPLAY_DETECTED", with_nonce),
        (refused(None), 400, "REPLAY_DETECTED", without),
    ]);
}

#[test]
fn each_cause_of_the_contract_has_its_row() {
    let agent = AgentId::new(U256::from(7));
    let (owner, signer) = (Address::repeat_byte(0xab), Address::repeat_byte(0xcd));
    let signed_by = |recovered_signer: Option<Address>| {
        let details = json!({
            "agentId": "7",
            "owner": owner.to_checksum(None),
            "recoveredSigner": recovered_signer.map(|signer| signer.to_checksum(None)),
        });
        (
            denied(Denial::SignatureInvalid {
                agent,
                owner,
                recovered_signer,
                domain: domain(),
                own_type: None,
            }),
            401,
            "SIGNATURE_INVALID",
            details,
        )
    };
    let invalid = Error::Invalid { field: "agentId", received: json!(7), problem: "is not a string".into() };
    let cause = || "secret-cause".into();
    let chain = ChainFault {
        endpoint: "https://node.example".into(),
        method: "eth_call",
        is_behind: false,
        cause: cause(),
    };
    let store = StoreFault { verb: "admit", cause: cause() };
    let limited = Denial::RateLimited {
        agent: Some(agent),
        tier: Some(Tier::Silver),
        limit: 16,
        retry_after: RetryAfter::from_micros(41_000_001),
    };
    let blocked = Denial::TierBlocked {
        agent,
        current: Tier::Unverified,
        required: Tier::Bronze,
        required_stake: Some(U256::from(10).pow(U256::from(21))),
    };
    let blocked_details = json!({
        "agentId": "7", "currentTier": 0, "requiredTier": 1, "requiredStake": "1000000000000000000000",
    });
    check(vec![
        (invalid, 400, "VALIDATION_ERROR", json!({ "field": "agentId", "received": 7 })),
        signed_by(Some(signer)),
        signed_by(None),
        (
            denied(Denial::ReplayDetected { agent, nonce: Nonce::new(U256::from(9)) }),
            400,
            "REPLAY_DETECTED",
            json!({ "agentId": "7", "nonce": "9" }),
        ),
        (denied(forgotten(1_795_348_805)), 400, "REPLAY_DETECTED", json!({ "agentId": "7", "nonce": "9" })),
        (denied(Denial::AgentNotFound { agent }), 404, "AGENT_NOT_FOUND", json!({ "agentId": "7" })),
        (chain.into(), 503, "RPC_ERROR", json!({ "rpcUrl": "https://node.example", "method": "eth_call" })),
        (store.into(), 500, "INTERNAL_ERROR", Value::Null),
        (Error::Entropy(NoEntropy), 500, "INTERNAL_ERROR", Value::Null),
        (Error::Internal, 500, "INTERNAL_ERROR", Value::Null),
        (
            denied(Denial::InvalidApiKey { agent: Some(agent) }),
            401,
            "INVALID_API_KEY",
            json!({ "agentId": "7" }),
        ),
        (denied(Denial::InvalidApiKey { agent: None }), 401, "INVALID_API_KEY", json!({ "agentId": null })),
        (denied(Denial::KeyAlreadyExists { agent }), 409, "KEY_ALREADY_EXISTS", json!({ "agentId": "7" })),
        (
            denied(Denial::NoSuchKey { agent, name: None }),
            400,
            "VALIDATION_ERROR",
            json!({ "field": "name", "received": null }),
        ),
        (
            denied(limited),
            429,
            "RATE_LIMITED",
            json!({ "agentId": "7", "tier": 2, "limit": 16, "retryAfter": 42 }),
        ),
        (denied(blocked), 403, "TIER_BLOCKED", blocked_details),
    ]);
}

#[test]
fn our_own_additions_have_the_same_body() {
    let malformed = Error::Malformed { problem: "there is no Host header" };
    let unproven = Error::Unproven { problem: "Show a key" };
    let agent = AgentId::new(U256::from(7));
    let mismatch = denied(Denial::EndpointMismatch { agent });
    let too_many = Error::TooManyInFlight { agent, tier: Tier::Silver, limit: 16, max: 128 };
    check(vec![
        (Error::NotFound, 404, "NOT_FOUND", Value::Null),
        (Error::TooSlow, 408, "REQUEST_TIMEOUT", Value::Null),
        (malformed, 400, "VALIDATION_ERROR", json!({ "field": "request", "received": null })),
        (
            Error::McpMessage { problem: "it is none" },
            400,
            "VALIDATION_ERROR",
            json!({ "field": "message", "received": null }),
        ),
        (Error::NoLogin, 404, "NOT_FOUND", Value::Null),
        (Error::MethodNotAllowed { allow: "POST".into() }, 405, "METHOD_NOT_ALLOWED", Value::Null),
        (Error::UnknownHost, 404, "NOT_FOUND", Value::Null),
        (Error::Forbidden, 403, "FORBIDDEN", Value::Null),
        (Error::OtherSite, 403, "FORBIDDEN", Value::Null),
        (Error::UploadTooLarge { bytes_max: 9 }, 413, "PAYLOAD_TOO_LARGE", Value::Null),
        (Error::HeadTooLarge, 431, "REQUEST_HEADER_FIELDS_TOO_LARGE", Value::Null),
        (Error::Upstream, 502, "UPSTREAM_ERROR", Value::Null),
        (Error::UpstreamTimeout, 504, "UPSTREAM_TIMEOUT", Value::Null),
        (Error::Loop, 508, "LOOP_DETECTED", Value::Null),
        (Error::Overloaded, 503, "OVERLOADED", Value::Null),
        (too_many, 429, "RATE_LIMITED", json!({ "agentId": "7", "tier": 2, "limit": 16, "retryAfter": 1 })),
        (unproven, 401, "INVALID_API_KEY", json!({ "agentId": null })),
        (mismatch, 403, "ENDPOINT_MISMATCH", json!({ "agentId": "7" })),
    ]);
}

#[test]
fn each_row_carries_its_headers_in_their_order() {
    const LAST: [&str; 3] = ["content-type", "cache-control", "content-length"];
    let agent = Some(AgentId::new(U256::from(7)));
    let retry_after = RetryAfter::from_micros(41_000_001);
    let invalid_signature = Denial::SignatureInvalid {
        agent: AgentId::new(U256::from(7)),
        owner: Address::repeat_byte(0xab),
        recovered_signer: None,
        domain: domain(),
        own_type: None,
    };
    let challenge = ("www-authenticate", "Bearer realm=\"agents\"");
    for (cause, headers, at_gateway) in [
        (Error::Forbidden, vec![], vec![]),
        (Error::MethodNotAllowed { allow: "GET, HEAD".into() }, vec![("allow", "GET, HEAD")], vec![]),
        (denied(forgotten(9)), vec![("retry-after", "5")], vec![]),
        (Error::Overloaded, vec![("retry-after", "1")], vec![]),
        (Error::Internal, vec![("retry-after", "1")], vec![]),
        (
            denied(Denial::RateLimited { agent, tier: Some(Tier::Silver), limit: 16, retry_after }),
            vec![("x-ratelimit-limit", "16"), ("x-ratelimit-remaining", "0"), ("retry-after", "42")],
            vec![("ratelimit-policy", "\"agent\";q=16;w=60"), ("ratelimit", "\"agent\";r=0;t=42")],
        ),
        (denied(invalid_signature), vec![], vec![challenge]),
        (denied(Denial::InvalidApiKey { agent }), vec![], vec![challenge]),
        (Error::Unproven { problem: "Show a key" }, vec![], vec![challenge]),
    ] {
        for (answer, added) in
            [(cause.answer(0).1, vec![]), (cause.gateway_answer(0, Some("Ask")).1, at_gateway)]
        {
            let all = answer.headers().iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap()));
            let usual = LAST.map(|name| (name, answer.headers()[name].to_str().unwrap()));
            let expected = headers.iter().copied().chain(usual).chain(added);
            assert_eq!(all.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        }
    }
}

#[test]
fn clients_of_oauth_find_the_message_in_their_own_field_and_nobody_else_does() {
    for (cause, is_there) in [(Error::NoLogin, true), (Error::NotFound, false)] {
        let body: Value = serde_json::from_slice(cause.gateway_answer(0, Some("Ask")).1.body()).unwrap();
        let field = body.get("error_description");
        assert_eq!(field, is_there.then_some(&body["error"]), "{body}");
        assert_eq!(body["error"].as_str().unwrap().ends_with(". Ask"), is_there, "{body}");
    }
}

#[test]
fn a_compact_signature_is_named() {
    let refused = Error::from(Denial::of_message(None, MessageRefusal::Compact));
    let (error_type, answer) = refused.gateway_answer(0, None);
    let text = String::from_utf8(answer.body().clone()).unwrap();
    assert_eq!((answer.status().as_u16(), error_type), (401, "SIGNATURE_INVALID"));
    assert!(
        text.contains("it is compact (ERC-2098)") && text.contains("\"reason\":\"bad_signature\""),
        "{text}"
    );
}
