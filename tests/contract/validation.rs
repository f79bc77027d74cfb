//! VALIDATION_ERROR: every field of every endpoint, and what is echoed of it.

use serde_json::{Value, json};

use crate::support::agents::Agent;
use crate::support::client::with;
use crate::support::harness::{Case, cases};
use crate::support::service::SIGNED_ENDPOINTS;
use crate::support::signing::ALICE;
use crate::support::world::World;

pub(crate) const CASES: &[Case<World>] = cases![
    agent_ids_and_nonces_are_numeric_strings,
    signatures_are_0x_and_130_hex_characters,
    timestamps_are_numbers_that_are_not_negative,
    api_keys_have_their_format,
    the_agent_named_with_a_key_is_a_numeric_string,
    origins_and_declared_endpoints_are_absolute_http_urls,
    a_missing_field_is_named_with_null_received,
    the_first_wrong_field_in_the_contracts_order_is_named,
    a_body_that_is_no_json_object_is_named_body,
    fields_that_stand_twice_are_refused,
    deep_nesting_is_ignored_or_refused_and_never_a_failure,
    received_is_cut_to_100_characters,
    received_never_holds_a_whole_key_or_signature,
    the_shape_is_checked_before_anything_else,
];

const TOO_LARGE: &str = "115792089237316195423570985008687907853269984665640564039457584007913129639936";

/// Values that are no numeric strings, each with its echo.
fn no_numbers() -> Vec<(Value, Value)> {
    let same = [
        Value::Null,
        json!(7),
        json!(0),
        json!(-7),
        json!(1.5),
        json!(true),
        json!(""),
        json!(" "),
        json!(" 7"),
        json!("7 "),
        json!("7\n"),
        json!("-1"),
        json!("+1"),
        json!("0x7"),
        json!("7a"),
        json!("1.5"),
        json!("1e3"),
        json!("1_000"),
        json!("٧"),
        json!("7\u{0}"),
        json!("null"),
        json!(TOO_LARGE),
        json!("9".repeat(79)),
    ];
    let mut values: Vec<(Value, Value)> = same.into_iter().map(|value| (value.clone(), value)).collect();
    values.push((json!(["7"]), json!("[\"7\"]")));
    values.push((json!({ "a": 7 }), json!("{\"a\":7}")));
    values.push((json!("0".repeat(200)), json!("0".repeat(100))));
    values
}

fn someone(world: &World) -> Agent {
    world.known_agent(1.try_into().unwrap(), ALICE)
}

fn agent_ids_and_nonces_are_numeric_strings(world: &World) {
    let body = someone(world).signed();
    let mut connection = world.service().connect();
    for (method, path) in SIGNED_ENDPOINTS {
        for field in ["agentId", "nonce"] {
            for (value, received) in no_numbers() {
                let body = with(&body, field, value).to_string();
                let answer = connection.send(method, path, &[], Some(body.as_bytes())).unwrap();
                answer.is_invalid(field, received);
            }
        }
    }
}

fn signatures_are_0x_and_130_hex_characters(world: &World) {
    let body = someone(world).signed();
    let good = body["signature"].as_str().unwrap();
    let short: String = good.chars().take(20).collect::<String>() + "…";
    let mut connection = world.service().connect();
    for (method, path) in SIGNED_ENDPOINTS {
        for (value, received) in [
            (Value::Null, Value::Null),
            (json!(7), json!(7)),
            (json!(""), json!("")),
            (json!("0x"), json!("0x")),
            (json!("0xab"), json!("0xab")),
            (json!(good[..130]), Value::Null),
            (json!(format!("{good}0")), Value::Null),
            (json!(format!("{good}00")), Value::Null),
            (json!(good[2..]), Value::Null),
            (json!(format!("0X{}", &good[2..])), Value::Null),
            (json!(format!("0x{}", "zz".repeat(65))), json!(format!("0x{}…", "z".repeat(18)))),
            (json!([good]), Value::Null),
        ] {
            let body = with(&body, "signature", value.clone()).to_string();
            let answer = connection.send(method, path, &[], Some(body.as_bytes())).unwrap();
            let details = answer.error(400, "VALIDATION_ERROR");
            assert_eq!(details["field"], json!("signature"), "{value}");
            if received.is_null() && value.is_string() || value.is_array() {
                let shown = details["received"].as_str().unwrap();
                assert!(shown.chars().count() <= short.chars().count(), "{shown}");
            } else {
                assert_eq!(details["received"], received, "{value}");
            }
        }
    }
}

fn timestamps_are_numbers_that_are_not_negative(world: &World) {
    let body = someone(world).signed();
    let mut connection = world.service().connect();
    for (method, path) in SIGNED_ENDPOINTS {
        for value in [
            Value::Null,
            json!("1700000000"),
            json!(""),
            json!(true),
            json!(-1),
            json!(-1_700_000_000),
            json!(-0.5),
            json!(1.5),
        ] {
            let body = with(&body, "timestamp", value.clone()).to_string();
            let answer = connection.send(method, path, &[], Some(body.as_bytes())).unwrap();
            answer.is_invalid("timestamp", value);
        }
        let list = with(&body, "timestamp", json!([1])).to_string();
        let answer = connection.send(method, path, &[], Some(list.as_bytes())).unwrap();
        answer.is_invalid("timestamp", json!("[1]"));
    }
}

fn api_keys_have_their_format(world: &World) {
    let service = world.service();
    let hex = "0123456789abcdef".repeat(4);
    let good = format!("svc_live_v1_{hex}");
    for (value, received) in [
        (Value::Null, Value::Null),
        (json!(7), json!(7)),
        (json!(false), json!(false)),
        (json!(""), json!("")),
        (json!("svc_live_v1_"), json!("svc_live_v1_")),
        (json!(good[..75]), json!("svc_live_v1_01234567…")),
        (json!(format!("{good}0")), json!("svc_live_v1_01234567…")),
        (json!(format!("{good}\n")), json!("svc_live_v1_01234567…")),
        (json!(format!(" {good}")), json!(" svc_live_v1_0123456…")),
        (json!(good.to_uppercase()), json!("SVC_LIVE_V1_01234567…")),
        (json!(format!("svc_live_v1_{}", hex.to_uppercase())), json!("svc_live_v1_01234567…")),
        (json!(format!("svc_live_v2_{hex}")), json!("svc_live_v2_01234567…")),
        (json!(format!("svc_test_v1_{hex}")), json!("svc_test_v1_01234567…")),
        (json!(hex), json!("01234567…")),
        (json!(format!("svc_live_v1_{}g", &hex[..63])), json!("svc_live_v1_01234567…")),
    ] {
        service.post("/verify", &json!({ "apiKey": value })).is_invalid("apiKey", received);
    }
    let listed = service.post("/verify", &json!({ "apiKey": [good] })).error(400, "VALIDATION_ERROR");
    assert!(!listed.to_string().contains(&hex), "{listed}");
}

fn the_agent_named_with_a_key_is_a_numeric_string(world: &World) {
    let (service, agent) = (world.service(), world.agent(3));
    let body = json!({ "apiKey": agent.generate(service) });
    let mut connection = service.connect();
    for (value, received) in no_numbers() {
        // null is the same as absent for a field that may be absent.
        if !value.is_null() {
            let answer = connection.post("/verify", &with(&body, "agentId", value)).unwrap();
            answer.is_invalid("agentId", received);
        }
    }
    assert_eq!(service.post("/verify", &body).allowance(), (166, 165), "none of them cost anything");
}

fn origins_and_declared_endpoints_are_absolute_http_urls(world: &World) {
    let (service, agent) = (world.service(), world.agent(3));
    let key = agent.generate(service);
    for value in [
        json!(7),
        json!(false),
        json!(""),
        json!("app.example"),
        json!("/path"),
        json!("//app.example"),
        json!("https:app.example"),
        json!("https://"),
        json!("https:///path"),
        json!("ftp://app.example"),
        json!("javascript:alert(1)"),
        json!("file:///etc/passwd"),
        json!("https://user@app.example"),
        json!("https://user:password@app.example"),
        json!("https://app.example:99999"),
        json!("https://app example"),
        json!("https://app.example\\@evil.example"),
        json!(" https://app.example"),
        json!("https://app.example/\r\nX: 1"),
        json!("null"),
    ] {
        let origin = json!({ "apiKey": key, "origin": value });
        service.post("/verify", &origin).is_invalid("origin", value.clone());
        let declared = with(&agent.signed(), "declaredEndpoint", value.clone());
        for path in ["/keys/generate", "/keys/rotate"] {
            service.post(path, &declared).is_invalid("declaredEndpoint", value.clone());
        }
    }
    for value in [json!("http://localhost"), json!("https://[2001:db8::1]:8443/x?y#z"), Value::Null] {
        let declared = with(&agent.signed(), "declaredEndpoint", value);
        service.rotate(&declared).success(200);
    }
}

fn a_missing_field_is_named_with_null_received(world: &World) {
    let service = world.service();
    let body = someone(world).signed();
    for endpoint in SIGNED_ENDPOINTS {
        for field in ["agentId", "signature", "nonce", "timestamp"] {
            service.signed(endpoint, &with(&body, field, None)).is_invalid(field, Value::Null);
        }
    }
    service.post("/verify", &json!({})).is_invalid("apiKey", Value::Null);
    service.post("/verify", &json!({ "apikey": "x", "agentId": "1" })).is_invalid("apiKey", Value::Null);
}

fn the_first_wrong_field_in_the_contracts_order_is_named(world: &World) {
    let service = world.service();
    let mut body = json!({});
    let wrong = json!({ "timestamp": "x", "nonce": 1, "signature": "x", "agentId": 1 });
    for endpoint in SIGNED_ENDPOINTS {
        service.signed(endpoint, &wrong).is_invalid("agentId", json!(1));
    }
    for (field, good) in [("agentId", json!("1")), ("signature", json!(format!("0x{}", "ab".repeat(65))))] {
        service.verify_signature(&body).is_invalid(field, Value::Null);
        body = with(&body, field, good);
    }
    service.verify_signature(&body).is_invalid("nonce", Value::Null);
    body = with(&body, "nonce", json!("1"));
    service.verify_signature(&body).is_invalid("timestamp", Value::Null);
}

fn every_body_endpoint() -> impl Iterator<Item = (&'static str, &'static str)> {
    [("POST", "/verify")].into_iter().chain(SIGNED_ENDPOINTS)
}

fn a_body_that_is_no_json_object_is_named_body(world: &World) {
    let mut connection = world.service().connect();
    let bodies: [&[u8]; 14] = [
        b"",
        b" ",
        b"null",
        b"7",
        b"\"text\"",
        b"[]",
        b"[{}]",
        b"{",
        b"{}{}",
        b"{\"agentId\":}",
        b"{'agentId':'1'}",
        b"{\"agentId\":\"1\",}",
        b"\xef\xbb\xbf{}",
        b"{\"agentId\":\"\xff\"}",
    ];
    for (method, path) in every_body_endpoint() {
        for body in bodies {
            let answer = connection.send(method, path, &[], Some(body)).unwrap();
            answer.is_invalid("body", Value::Null);
        }
        let none = world.service().request(method, path, &[], None);
        none.is_invalid("body", Value::Null);
    }
}

fn fields_that_stand_twice_are_refused(world: &World) {
    let agent = someone(world);
    let signed = agent.signed().to_string();
    let twice = format!("{{\"agentId\":\"2\",{}", &signed[1..]);
    let escaped = format!("{{\"agent\\u0049d\":\"2\",{}", &signed[1..]);
    for body in [twice, escaped] {
        for (method, path) in SIGNED_ENDPOINTS {
            let answer = world.service().request(method, path, &[], Some(body.as_bytes()));
            answer.is_invalid("body", Value::Null);
        }
    }
    let key = crate::support::agents::unknown_key(3);
    let keys = format!("{{\"apiKey\":\"{key}\",\"apiKey\":\"{key}\"}}");
    world.service().request("POST", "/verify", &[], Some(keys.as_bytes())).is_invalid("body", Value::Null);
}

fn deep_nesting_is_ignored_or_refused_and_never_a_failure(world: &World) {
    let (service, agent) = (world.service(), world.agent(3));
    let key = agent.generate(service);
    for nesting in [
        format!("{}{}", "[".repeat(8_000), "]".repeat(8_000)),
        format!("{}1{}", "{\"a\":".repeat(2_500), "}".repeat(2_500)),
    ] {
        let ignored = format!("{{\"apiKey\":\"{key}\",\"other\":{nesting}}}");
        service.request("POST", "/verify", &[], Some(ignored.as_bytes())).success(200);
        let field = format!("{{\"apiKey\":{nesting}}}");
        let answer = service.request("POST", "/verify", &[], Some(field.as_bytes()));
        answer.error(400, "VALIDATION_ERROR");
        let whole = service.request("POST", "/verify", &[], Some(nesting.as_bytes()));
        whole.error(400, "VALIDATION_ERROR");
        let open = service.request("POST", "/verify", &[], Some("[".repeat(16_000).as_bytes()));
        open.is_invalid("body", Value::Null);
    }
}

fn received_is_cut_to_100_characters(world: &World) {
    let service = world.service();
    let body = someone(world).signed();
    for (sent, received) in [
        ("x".repeat(100), "x".repeat(100)),
        ("x".repeat(101), "x".repeat(100)),
        ("é".repeat(101), "é".repeat(100)),
        ("🙂".repeat(3_000), "🙂".repeat(100)),
    ] {
        for field in ["agentId", "nonce"] {
            service.verify_signature(&with(&body, field, json!(sent))).is_invalid(field, json!(received));
        }
    }
    let list = Value::from(vec!["x"; 200]);
    let cut: String = list.to_string().chars().take(100).collect();
    service.verify_signature(&with(&body, "agentId", list)).is_invalid("agentId", json!(cut));
}

fn received_never_holds_a_whole_key_or_signature(world: &World) {
    let service = world.service();
    let agent = someone(world);
    let body = agent.signed();
    let key = crate::support::agents::unknown_key(4);
    let signature = body["signature"].as_str().unwrap().to_owned();
    for secret in [&key, &signature] {
        let core = &secret[secret.len() - 64..];
        for text in [secret.clone(), format!(" {secret}"), format!("{secret} "), format!("Bearer {secret}")] {
            for field in ["agentId", "nonce", "timestamp", "declaredEndpoint", "signature"] {
                let sent = if field == "signature" { format!("{text}0") } else { text.clone() };
                let answer = service.rotate(&with(&body, field, json!(sent)));
                assert_eq!(answer.error(400, "VALIDATION_ERROR")["field"], json!(field));
                assert!(!answer.text().contains(core), "{field}: {}", answer.text());
            }
            for field in ["apiKey", "agentId", "origin"] {
                let sent = if field == "apiKey" { format!("{text}0") } else { text.clone() };
                let good = json!({ "apiKey": key });
                let answer = service.post("/verify", &with(&good, field, json!(sent)));
                answer.error(400, "VALIDATION_ERROR");
                assert!(!answer.text().contains(core), "{field}: {}", answer.text());
                let nested = service.post("/verify", &with(&good, field, json!([{ "x": text }])));
                nested.error(400, "VALIDATION_ERROR");
                assert!(!nested.text().contains(core), "{field}: {}", nested.text());
            }
        }
    }
}

fn the_shape_is_checked_before_anything_else(world: &World) {
    let service = world.service();
    let missing = world.known_agent(0.try_into().unwrap(), ALICE);
    let old = missing.draft().timestamp(1).body();
    service.generate(&with(&old, "declaredEndpoint", json!("x"))).is_invalid("declaredEndpoint", json!("x"));
    service.revoke(&with(&old, "nonce", json!("x"))).is_invalid("nonce", json!("x"));
    // The window comes before the chain, the chain before the signer.
    service.generate(&old).error(400, "REPLAY_DETECTED");
}
