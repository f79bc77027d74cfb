//! The shapes that the contract's VALIDATION_ERROR row lists, field by field.

use serde_json::{Value, json};

use super::{Invalid, SignedBody, VerifyBody, parse_status_query};
use crate::domain::api_key::ApiKeyFormat;
use crate::domain::freshness::UnixSeconds;

const KEY: &str = "svc_live_v1_00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

fn verify(body: &str) -> Result<VerifyBody, Invalid> {
    VerifyBody::parse(body.as_bytes(), &ApiKeyFormat::new("svc_live_v1_"))
}

fn signed_json() -> Value {
    json!({ "agentId": "7", "signature": format!("0x{}", "ab".repeat(65)), "nonce": "1", "timestamp": 1_700_000_000 })
}

/// A signed body with one field replaced, or taken away.
fn signed_with(field: &str, value: Option<Value>) -> Result<SignedBody, Invalid> {
    let mut body = signed_json();
    let fields = body.as_object_mut().unwrap();
    match value {
        Some(value) => fields.insert(field.to_owned(), value),
        None => fields.remove(field),
    };
    SignedBody::parse_with_endpoint(body.to_string().as_bytes())
}

fn field_and_received(invalid: Invalid) -> (&'static str, Value) {
    (invalid.field, invalid.received)
}

#[test]
fn a_whole_body_that_is_no_json_object_is_named_body_and_not_echoed() {
    for body in [
        "",
        "null",
        "[]",
        "\"x\"",
        "{",
        "{}x",
        "{\"apiKey\":}",
        "[\"a\",\"b\",\"c\"]",
        "\u{feff}{}",
        "{'a':1}",
    ] {
        assert_eq!(field_and_received(verify(body).unwrap_err()), ("body", Value::Null), "{body:?}");
    }
    assert_eq!(
        verify("{\"agentId\":\"\u{0}\"}").unwrap_err().field,
        "body",
        "control characters are not JSON"
    );
}

#[test]
fn a_body_that_is_no_text_is_refused_wherever_the_bytes_stand() {
    let format = ApiKeyFormat::new("svc_live_v1_");
    let body = [format!("{{\"apiKey\":\"{KEY}\",\"x\":\"").as_bytes(), b"\xff\"}"].concat();
    assert_eq!(VerifyBody::parse(&body, &format).unwrap_err().field, "body");
}

#[test]
fn a_field_that_stands_twice_is_refused_however_it_is_spelled() {
    for body in [
        format!("{{\"apiKey\":\"{KEY}\",\"agentId\":\"1\",\"agentId\":\"2\"}}"),
        format!("{{\"apiKey\":\"{KEY}\",\"agentId\":\"1\",\"agent\\u0049d\":\"2\"}}"),
    ] {
        assert_eq!(verify(&body).unwrap_err().field, "body", "{body}");
    }
}

#[test]
fn deep_nesting_and_unknown_fields_do_no_harm() {
    let deep = format!("{{\"apiKey\":\"{KEY}\",\"x\":{}{}}}", "[".repeat(5_000), "]".repeat(5_000));
    let _ = verify(&deep);
    assert!(verify(&format!("{{\"apiKey\":\"{KEY}\",\"other\":[1,{{}}]}}")).is_ok());
}

#[test]
fn every_required_field_is_missed_by_name_with_null_received() {
    assert_eq!(field_and_received(verify("{}").unwrap_err()), ("apiKey", Value::Null));
    for field in ["agentId", "signature", "nonce", "timestamp"] {
        assert_eq!(field_and_received(signed_with(field, None).unwrap_err()), (field, Value::Null));
        assert_eq!(
            field_and_received(signed_with(field, Some(Value::Null)).unwrap_err()),
            (field, Value::Null)
        );
    }
}

#[test]
fn ids_and_nonces_as_numbers_are_refused_and_come_back_as_received() {
    for field in ["agentId", "nonce"] {
        for value in [json!(7), json!(true), json!(""), json!("-1"), json!("0x1"), json!("1.5"), json!(" 7")]
        {
            assert_eq!(
                field_and_received(signed_with(field, Some(value.clone())).unwrap_err()),
                (field, value)
            );
        }
        let too_large = "9".repeat(78);
        assert_eq!(signed_with(field, Some(json!(too_large))).unwrap_err().field, field);
    }
}

#[test]
fn timestamps_are_whole_numbers_of_seconds_that_are_not_negative() {
    for value in [json!("1700000000"), json!(-1), json!(1.5), json!(-0.5), json!([]), json!(true)] {
        assert_eq!(signed_with("timestamp", Some(value)).unwrap_err().field, "timestamp");
    }
    for (value, seconds) in
        [(json!(0), 0), (json!(1_700_000_000), 1_700_000_000), (json!(1.7e9), 1_700_000_000)]
    {
        assert_eq!(signed_with("timestamp", Some(value)).unwrap().signed.signed_at, UnixSeconds(seconds));
    }
    assert_eq!(
        signed_with("timestamp", Some(json!(1e300))).unwrap().signed.signed_at,
        UnixSeconds(u64::MAX),
        "far ahead is a matter of the window, not of the shape",
    );
}

#[test]
fn a_wrong_key_or_signature_is_echoed_only_in_part() {
    let upper = KEY.to_uppercase();
    for key in [upper.as_str(), &KEY[1..], &format!("{KEY}0"), "svc_live_v1_", ""] {
        let invalid = verify(&json!({ "apiKey": key }).to_string()).unwrap_err();
        let (field, received) = field_and_received(invalid);
        assert_eq!(field, "apiKey");
        assert!(received.as_str().unwrap().chars().count() <= 21, "{received}");
    }
    let nearly = format!("0x{}", "ab".repeat(64));
    let (field, received) = field_and_received(signed_with("signature", Some(json!(nearly))).unwrap_err());
    assert_eq!(field, "signature");
    assert!(received.as_str().unwrap().chars().count() <= 21, "{received}");
}

#[test]
fn endpoints_and_origins_are_absolute_http_urls_or_absent() {
    for value in
        [json!("app.example"), json!("ftp://a.example"), json!(7), json!(""), json!("https://u:p@a.example")]
    {
        assert_eq!(
            signed_with("declaredEndpoint", Some(value.clone())).unwrap_err().field,
            "declaredEndpoint"
        );
        let body = json!({ "apiKey": KEY, "origin": value }).to_string();
        assert_eq!(verify(&body).unwrap_err().field, "origin");
    }
    assert!(signed_with("declaredEndpoint", Some(Value::Null)).unwrap().declared_endpoint.is_none());
    let declared = signed_with("declaredEndpoint", Some(json!("https://a.example/x"))).unwrap();
    assert_eq!(declared.declared_endpoint.unwrap().url(), "https://a.example/x");
    assert!(verify(&json!({ "apiKey": KEY, "agentId": null, "origin": null }).to_string()).is_ok());
}

#[test]
fn seven_with_zeros_in_front_is_one_agent_and_one_nonce() {
    for text in ["7", "07", "007"] {
        let signed = signed_with("agentId", Some(json!(text))).unwrap().signed;
        assert_eq!(signed.agent.to_string(), "7");
        let signed = signed_with("nonce", Some(json!(text))).unwrap().signed;
        assert_eq!(signed.nonce.to_string(), "7");
        assert_eq!(parse_status_query(Some(&format!("agentId={text}"))).unwrap().to_string(), "7");
    }
}

#[test]
fn the_status_query_takes_one_numeric_agent_id() {
    for (query, received) in [
        (None, Value::Null),
        (Some(""), Value::Null),
        (Some("agentid=7"), Value::Null),
        (Some("agentId="), json!("")),
        (Some("agentId=x"), json!("x")),
        (Some("agentId=7&agentId=7"), json!("7")),
        (Some("agentId=%37&agent%49d=8"), json!("7")),
        (Some("agentId=-7"), json!("-7")),
    ] {
        let invalid = parse_status_query(query).unwrap_err();
        assert_eq!(field_and_received(invalid), ("agentId", received), "{query:?}");
    }
    assert_eq!(parse_status_query(Some("x=1&agentId=%37")).unwrap().to_string(), "7");
}
