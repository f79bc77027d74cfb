//! Shapes that the contract's cases for VALIDATION_ERROR do not have.

use serde_json::json;

use super::{VerifyBody, parse_with_endpoint};
use crate::domain::api_key::ApiKeyFormat;
use crate::domain::freshness::UnixSeconds;
use crate::domain::signature::SignatureFormat;

#[test]
fn a_body_that_is_no_text_is_refused_wherever_the_bytes_stand() {
    let key = format!("svc_live_v1_{}", "ab".repeat(32));
    for bytes in [&b"\xff"[..], b"\0"] {
        let body = [format!("{{\"apiKey\":\"{key}\",\"x\":\"").as_bytes(), bytes, b"\"}"].concat();
        let refused = VerifyBody::parse(&body, &ApiKeyFormat::new("svc_live_v1_")).unwrap_err();
        assert_eq!(refused.field, "body", "{bytes:?}");
    }
}

#[test]
fn a_timestamp_is_a_whole_number_of_seconds_however_it_is_written_and_however_large() {
    let signature = format!("0x{}", "ab".repeat(65));
    for (written, seconds) in [
        (json!(0), 0),
        (json!(1_700_000_000), 1_700_000_000),
        (json!(1.7e9), 1_700_000_000),
        (json!(1e300), u64::MAX),
    ] {
        let body = json!({ "agentId": "7", "signature": signature, "nonce": "1", "timestamp": written });
        let (signed, _) = parse_with_endpoint(body.to_string().as_bytes(), SignatureFormat::Keys).unwrap();
        assert_eq!(signed.signed_at, UnixSeconds(seconds), "{written}");
    }
}
