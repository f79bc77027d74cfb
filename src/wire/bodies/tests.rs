//! VALIDATION_ERROR: every field of every body, what it may be, and what is echoed of it.

use serde_json::{Value, json};

use super::{parse_key_wish, parse_profile_read, parse_revocation, parse_signed, parse_verify};
use crate::domain::{ApiKeyFormat, KeyName, KeyTerms, SignatureFormat::Keys, TenantList, UnixSeconds};
use crate::error::Error;

type Parse = fn(&[u8]) -> Result<(), Error>;

const VERIFY: Parse = |body| parse_verify(body, &ApiKeyFormat::new("svc_live_v1_")).map(drop);
/// A year, and a rotation.
const BOUNDS: (u64, bool) = (31_536_000, true);
const DECLARED: Parse = |body| parse_key_wish(body, Keys, BOUNDS).map(drop);
const SIGNED: [Parse; 2] = [DECLARED, |body| parse_signed(body, Keys).map(drop)];
const PROFILE: Parse = |body| parse_profile_read(body, Keys).map(drop);

const HEX: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn key() -> String {
    format!("svc_live_v1_{HEX}")
}

fn signature() -> String {
    format!("0x{}", "ab".repeat(65))
}

/// A body that holds all that any endpoint reads, each field well-formed.
fn whole() -> Value {
    json!({
        "apiKey": key(), "agentId": "7", "origin": "https://a.example", "signature": signature(), "nonce": "1",
        "timestamp": 1_700_000_000, "declaredEndpoint": "https://[2001:db8::1]:8443/x?y#z", "further": [1, { "agentId": "0" }],
    })
}

/// The whole body with another value for a field, or without it.
fn with(field: &str, value: Option<Value>) -> String {
    let mut body = whole();
    let fields = body.as_object_mut().unwrap();
    fields.remove(field);
    fields.extend(value.map(|value| (field.to_owned(), value)));
    body.to_string()
}

/// The field that is refused, what was received, and the problem.
#[track_caller]
fn refused(parse: Parse, body: &[u8]) -> (&'static str, Value, String) {
    match parse(body) {
        Err(Error::Invalid { field, received, problem }) => (field, received, problem.into()),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn names(parses: &[Parse], body: &str, field: &str, received: &Value) {
    for parse in parses {
        let refused = refused(*parse, body.as_bytes());
        assert_eq!((refused.0, &refused.1), (field, received), "{body}");
    }
}

/// Values that are refused, and echoed as they are.
#[track_caller]
fn echoes(parses: &[Parse], field: &str, values: &[Value]) {
    values.iter().for_each(|value| names(parses, &with(field, Some(value.clone())), field, value));
}

#[test]
fn agent_ids_and_nonces_are_numeric_strings() {
    let too_large = "115792089237316195423570985008687907853269984665640564039457584007913129639936";
    let texts = [
        "", " ", " 7", "7 ", "7\n", "-1", "+1", "0x7", "7a", "1.5", "1e3", "1_000", "٧", "7\0", "null",
        too_large,
    ];
    let mut values: Vec<Value> = texts.iter().map(|text| json!(text)).collect();
    values.extend([json!(7), json!(0), json!(-7), json!(1.5), json!(true), json!("9".repeat(79))]);
    let [declared, signed] = SIGNED;
    for (parses, field) in [(&[VERIFY, declared, signed, PROFILE][..], "agentId"), (&SIGNED, "nonce")] {
        echoes(parses, field, &values);
        for (value, received) in [
            (json!(["7"]), json!("[\"7\"]")),
            (json!({ "a": 7 }), json!("{\"a\":7}")),
            (json!("0".repeat(200)), json!("0".repeat(100))),
            (json!("é".repeat(101)), json!("é".repeat(100))),
            (json!("🙂".repeat(3_000)), json!("🙂".repeat(100))),
        ] {
            names(parses, &with(field, Some(value)), field, &received);
        }
    }
}

#[test]
fn signatures_are_0x_and_130_hex_characters() {
    let (good, all) = (signature(), [SIGNED[0], SIGNED[1], PROFILE]);
    echoes(&all, "signature", &[json!(7), json!(""), json!("0x"), json!("0xab")]);
    for (value, received) in [
        (json!(good[..130]), "0xabababab…"),
        (json!(format!("{good}0")), "0xabababab…"),
        (json!(good[2..]), "abababab…"),
        (json!(format!("0X{}", &good[2..])), "0Xabababab…"),
        (json!(format!("0x{}", "zz".repeat(65))), "0xzzzzzzzzzzzzzzzzzz…"),
        (json!([good]), "[\"0xabababab…\"]"),
    ] {
        names(&all, &with("signature", Some(value)), "signature", &json!(received));
    }
}

#[test]
fn a_timestamp_is_a_whole_number_of_seconds_however_it_is_written_and_however_large() {
    for (written, seconds) in [
        (json!(0), 0),
        (json!(1_700_000_000), 1_700_000_000),
        (json!(1.7e9), 1_700_000_000),
        (json!(1e300), u64::MAX),
    ] {
        let body = with("timestamp", Some(written));
        let (signed, _) = parse_key_wish(body.as_bytes(), Keys, BOUNDS).unwrap();
        assert_eq!(signed.signed_at, UnixSeconds(seconds), "{body}");
    }
    let all = [SIGNED[0], SIGNED[1], PROFILE];
    echoes(
        &all,
        "timestamp",
        &[json!("1700000000"), json!(""), json!(true), json!(-1), json!(-0.5), json!(1.5)],
    );
    names(&all, &with("timestamp", Some(json!([1]))), "timestamp", &json!("[1]"));
}

#[test]
fn api_keys_have_their_format() {
    let (good, cut) = (key(), "svc_live_v1_01234567…");
    echoes(&[VERIFY], "apiKey", &[json!(7), json!(false), json!(""), json!("svc_live_v1_")]);
    for (value, received) in [
        (json!(good[..75]), cut),
        (json!(format!("{good}0")), cut),
        (json!(format!("{good}\n")), cut),
        (json!(format!(" {good}")), " svc_live_v1_0123456…"),
        (json!(good.to_uppercase()), "SVC_LIVE_V1_01234567…"),
        (json!(format!("svc_live_v1_{}", HEX.to_uppercase())), cut),
        (json!(format!("svc_live_v2_{HEX}")), "svc_live_v2_01234567…"),
        (json!(HEX), "01234567…"),
        (json!(format!("svc_live_v1_{}g", &HEX[..63])), cut),
        (json!([good]), "[\"svc_live_v1_012345…"),
    ] {
        names(&[VERIFY], &with("apiKey", Some(value)), "apiKey", &json!(received));
    }
}

/// Texts that are no URLs are in `domain::endpoint`.
#[test]
fn origins_and_declared_endpoints_are_urls() {
    let values = [
        json!(7),
        json!(false),
        json!(""),
        json!("app.example"),
        json!("https://user@app.example"),
        json!("null"),
    ];
    echoes(&[VERIFY], "origin", &values);
    echoes(&[DECLARED], "declaredEndpoint", &values);
    assert!(
        SIGNED[1](with("declaredEndpoint", Some(json!(7))).as_bytes()).is_ok(),
        "a key that is revoked has none"
    );
}

#[test]
fn further_terms_of_a_key_are_within_their_bounds_and_absent_where_they_are_null() {
    for (field, values) in [
        ("name", &[json!(""), json!(7), json!("a b"), json!("n".repeat(33)), json!("-a")][..]),
        ("expiresIn", &[json!(0), json!(-1), json!(1.5), json!("60"), json!(31_536_001)]),
        ("graceSeconds", &[json!(-1), json!(3_601), json!("0"), json!(true)]),
        ("tenants", &[json!("acme"), json!(7)]),
    ] {
        echoes(&[DECLARED], field, values);
        assert!(DECLARED(with(field, Some(Value::Null)).as_bytes()).is_ok(), "{field}");
        assert!(SIGNED[1](with(field, Some(json!([]))).as_bytes()).is_ok(), "a verification has no {field}");
    }
    for (list, echo) in [(json!([]), "[]"), (json!([7]), "[7]"), (json!(["a,b"]), "[\"a,b\"]")] {
        names(&[DECLARED], &with("tenants", Some(list)), "tenants", &json!(echo));
    }
    names(
        &[|body| parse_revocation(body, Keys).map(drop)],
        &with("name", Some(json!(""))),
        "name",
        &json!(""),
    );
    let mut body = whole();
    for (field, value) in [
        ("name", json!("ci")),
        ("expiresIn", json!(31_536_000)),
        ("tenants", json!(["acme"])),
        ("graceSeconds", json!(3_600)),
    ] {
        body[field] = value;
    }
    let terms =
        |rotates| parse_key_wish(body.to_string().as_bytes(), Keys, (BOUNDS.0, rotates)).unwrap().1.terms;
    let expected = KeyTerms {
        name: KeyName::parse("ci").ok(),
        expires_in_secs: Some(31_536_000),
        tenants: TenantList::parse(["acme"]).ok(),
        grace_secs: 3_600,
    };
    assert_eq!(terms(true), expected);
    assert_eq!(terms(false), KeyTerms { grace_secs: 0, ..expected }, "generate replaces nothing");
}

#[test]
fn a_missing_field_is_named_in_the_contracts_order_unless_it_may_be_absent() {
    for value in [None, Some(Value::Null)] {
        for field in ["agentId", "signature", "nonce", "timestamp"] {
            names(&SIGNED, &with(field, value.clone()), field, &Value::Null);
        }
        for field in ["agentId", "signature", "timestamp"] {
            names(&[PROFILE], &with(field, value.clone()), field, &Value::Null);
        }
        names(&[VERIFY], &with("apiKey", value.clone()), "apiKey", &Value::Null);
        for (parse, field) in
            [(VERIFY, "agentId"), (VERIFY, "origin"), (DECLARED, "declaredEndpoint"), (PROFILE, "nonce")]
        {
            assert!(parse(with(field, value.clone()).as_bytes()).is_ok(), "{field}");
        }
    }
    let mut body = json!({ "apikey": "x", "timestamp": "x", "nonce": 1, "signature": "x", "agentId": 1 });
    names(&[VERIFY], &body.to_string(), "apiKey", &Value::Null);
    for (field, good) in [("agentId", json!("1")), ("signature", json!(signature())), ("nonce", json!("1"))] {
        names(&SIGNED, &body.to_string(), field, &body[field]);
        body[field] = good;
    }
    names(&SIGNED, &body.to_string(), "timestamp", &json!("x"));
}

#[test]
fn a_body_is_one_json_object_of_text_whose_fields_stand_once() {
    let all = [VERIFY, SIGNED[0], SIGNED[1], PROFILE];
    let whole = whole().to_string();
    let twice = |field: &str| format!("{{{field}:\"1\",{}", &whole[1..]);
    // A derived reader would take a list for a struct: these are its fields in their order.
    let list = json!([key(), "7", null, signature(), "1", 1_700_000_000, null]).to_string();
    for body in [
        "",
        " ",
        "null",
        "7",
        "\"text\"",
        "[]",
        "[{}]",
        "{",
        "{}{}",
        "{\"agentId\":}",
        "{'agentId':'1'}",
        "{\"agentId\":\"1\",}",
        "\u{feff}{}",
        &twice("\"agentId\""),
        &twice("\"agent\\u0049d\""),
        &twice("\"apiKey\""),
        &list,
    ] {
        names(&all, body, "body", &Value::Null);
    }
    for bytes in [&b"\xff"[..], b"\0"] {
        let body = [&whole.as_bytes()[..whole.len() - 1], b",\"x\":\"", bytes, b"\"}"].concat();
        all.iter().for_each(|parse| assert_eq!(refused(*parse, &body).0, "body", "{bytes:?}"));
    }
    all.iter().for_each(|parse| assert!(parse(whole.as_bytes()).is_ok()));
}

#[test]
fn no_field_echoes_a_whole_key_or_signature() {
    let all = [
        ("apiKey", VERIFY),
        ("origin", VERIFY),
        ("agentId", VERIFY),
        ("nonce", DECLARED),
        ("timestamp", PROFILE),
    ];
    let more = [
        ("agentId", DECLARED),
        ("signature", DECLARED),
        ("declaredEndpoint", DECLARED),
        ("signature", PROFILE),
    ];
    for secret in [key(), signature()] {
        let core = &secret[secret.len() - 64..];
        for text in [format!("{secret}0"), format!(" {secret}0"), format!("Bearer {secret}0")] {
            for (field, parse) in all.into_iter().chain(more) {
                for value in [json!(text), json!([{ "x": text }])] {
                    let refused = refused(parse, with(field, Some(value)).as_bytes());
                    assert_eq!(refused.0, field);
                    assert!(!format!("{refused:?}").contains(core), "{field}: {refused:?}");
                }
            }
        }
    }
}
