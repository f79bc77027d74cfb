//! `POST /keys/generate`, `POST /keys/rotate`, `DELETE /keys` and `GET /keys/status`: what becomes of a key, and what is told of it.
//!
//! The rules themselves are held by `store/contract.rs` and `pipeline/tests/custody.rs`.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::UNIX_EPOCH;

use alloy::primitives::U256;
use serde_json::{Value, json};

use crate::support::agents::{Agent, key_of};
use crate::support::client::{Answer, with};
use crate::support::harness::{Case, cases};
use crate::support::time::{SOON, unix_seconds, until};
use crate::support::{service::Service, stop::Stop, world::World};

pub(crate) const CASES: &[Case<World>] = cases![
    a_key_is_shown_once_and_invalid_at_once_and_for_good_when_replaced_or_revoked,
    verifications_in_flight_never_pass_after_the_revoke_was_answered,
];

/// About what is configured, declared and asked.
pub(crate) const FORMATS: &[Case<World>] = cases![
    the_prefix_may_be_configured_and_counts_then,
    several_keys_are_told_apart_by_name_listed_without_themselves_and_end_alone_or_all,
    status_is_of_any_number_and_a_wrong_query_is_a_validation_error,
];

/// An agent's key in an answer that shows it, beside what is left of the budget.
#[track_caller]
fn shown(answer: &Answer, status: u16, agent: &Agent, left: u32) -> String {
    let body = answer.success(status);
    assert_eq!(body["agentId"], json!(agent.text()));
    assert!(body["message"].as_str().is_some_and(|message| !message.is_empty()));
    assert_eq!(body.as_object().unwrap().len(), 3, "these fields and no others: {body}");
    assert_eq!(answer.allowance(), (10, left));
    assert_eq!(answer.header("cache-control"), Some("no-store"), "a key must not stay in caches");
    key_of(&body)
}

// threat: A revoked key opens again
// threat: "Unknown" is remembered
fn a_key_is_shown_once_and_invalid_at_once_and_for_good_when_replaced_or_revoked(world: &World) {
    let (service, agent) = (world.service(), world.agent(4));
    let has_key = |has_key: bool, left: u32| {
        let answer = service.status(&agent.text());
        assert_eq!(answer.success(200), json!({ "hasKey": has_key, "agentId": agent.text() }));
        assert_eq!(answer.allowance(), (10, left), "asking spends nothing");
    };
    let is_invalid = |key: &str| {
        service.verify(key).is_error(401, "INVALID_API_KEY", json!({ "agentId": null }));
        let named = service.post("/verify", &json!({ "apiKey": key, "agentId": agent.text() }));
        named.is_error(401, "INVALID_API_KEY", json!({ "agentId": agent.text() }));
    };
    let revoked = |body: &Value, left: u32| {
        let answer = service.revoke(body);
        assert_eq!(answer.success(200), json!({ "success": true, "agentId": agent.text() }));
        assert_eq!(answer.allowance(), (10, left));
    };
    has_key(false, 10);
    let first = shown(&service.generate(&agent.signed()), 201, &agent, 9);
    has_key(true, 9);
    let details = json!({ "agentId": agent.text() });
    service.generate(&agent.signed()).is_error(409, "KEY_ALREADY_EXISTS", details);
    assert_eq!(service.verify(&first).success(200)["agentId"], json!(agent.text()));
    let second = shown(&service.rotate(&agent.signed()), 200, &agent, 7);
    is_invalid(&first);
    service.verify(&second).success(200);
    has_key(true, 7);
    let revocation = agent.signed();
    revoked(&revocation, 6);
    is_invalid(&second);
    has_key(false, 6);
    revoked(&agent.signed(), 5);
    service.revoke(&revocation).error(400, "REPLAY_DETECTED");
    // What is sent again may be anybody's, and counts for nothing of the owner's.
    let third = shown(&service.generate(&agent.signed()), 201, &agent, 4);
    service.verify(&third).success(200);
    [first, second].iter().for_each(|old| is_invalid(old));
}

// threat: A revoked key opens again
fn verifications_in_flight_never_pass_after_the_revoke_was_answered(world: &World) {
    let (service, agent) = (world.service(), world.agent(4));
    let key = agent.generate(service);
    let (revoked, passed, stop) = (AtomicBool::new(false), AtomicUsize::new(0), Stop::default());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut connection = service.connect();
                // The last request is one that begins after the revoke was answered.
                loop {
                    let was_stopped = stop.is_set();
                    let was_revoked = revoked.load(Ordering::SeqCst);
                    let answer = connection.post("/verify", &json!({ "apiKey": key })).unwrap();
                    let expected: &[u16] = if was_revoked { &[401] } else { &[200, 401, 429] };
                    assert!(expected.contains(&answer.status), "{}", answer.text());
                    passed.fetch_add(usize::from(answer.status == 200), Ordering::SeqCst);
                    if was_stopped {
                        return;
                    }
                }
            });
        }
        let _stops = stop.at_end();
        let some_passed = || (passed.load(Ordering::SeqCst) > 4).then_some(());
        until("verifications pass on more than one connection", SOON, some_passed);
        service.revoke(&agent.signed()).success(200);
        revoked.store(true, Ordering::SeqCst);
    });
}

fn the_prefix_may_be_configured_and_counts_then(world: &World) {
    let settings = world.settings().set("keys.prefix", "acme-").set("keys.requests_per_hour", 2);
    let (service, agent) = (Service::start(settings), world.agent(4));
    let answer = service.generate(&agent.signed());
    assert_eq!(answer.allowance(), (2, 1));
    let body = answer.success(201);
    let key = body["apiKey"].as_str().unwrap();
    assert_eq!(key.strip_prefix("acme-").map(str::len), Some(64), "{key}");
    service.verify(key).success(200);
    service.verify(&key.replace("acme-", "svc_live_v1_")).error(400, "VALIDATION_ERROR");
}

// threat: A second form of a nonce or signature
fn status_is_of_any_number_and_a_wrong_query_is_a_validation_error(world: &World) {
    let (service, agent) = (world.service(), world.agent(0));
    agent.generate(service);
    for (id, named, has_key) in [
        (format!("00{}", agent.id), agent.id, true),
        ("0".to_owned(), U256::ZERO, false),
        (U256::MAX.to_string(), U256::MAX, false),
    ] {
        let body = service.status(&id).success(200);
        assert_eq!(body, json!({ "hasKey": has_key, "agentId": named.to_string() }));
    }
    let too_large = "115792089237316195423570985008687907853269984665640564039457584007913129639936";
    for (query, received) in [
        ("", Value::Null),
        ("?", Value::Null),
        ("?agent=7", Value::Null),
        ("?agentid=7", Value::Null),
        ("?agentId", json!("")),
        ("?agentId=", json!("")),
        ("?agentId=abc", json!("abc")),
        ("?agentId=-1", json!("-1")),
        ("?agentId=+1", json!(" 1")),
        ("?agentId=%2B1", json!("+1")),
        ("?agentId=1.5", json!("1.5")),
        ("?agentId=0x1", json!("0x1")),
        ("?agentId=1%00", json!("1\0")),
        ("?agentId=%D9%A7", json!("٧")),
        ("?agentId=1&agentId=1", json!("1")),
        (format!("?agentId={too_large}").as_str(), json!(too_large)),
        (format!("?agentId={}", "1".repeat(500)).as_str(), json!("1".repeat(100))),
        (format!("?agentId=svc_live_v1_{}", "ab".repeat(32)).as_str(), json!("svc_live_v1_abababab…")),
    ] {
        service.get(&format!("/keys/status{query}")).is_invalid("agentId", received);
    }
}

// threat: A replaced key outlives its grace
fn several_keys_are_told_apart_by_name_listed_without_themselves_and_end_alone_or_all(world: &World) {
    let service = Service::start(world.settings().set("keys.per_agent_max", 2).set("keys.expires_max", "1h"));
    let rules = service.get("/.well-known/tiergate").success(200);
    assert_eq!((&rules["keysPerAgentMax"], &rules["keyExpiresMaxSeconds"]), (&json!(2), &json!(3_600)));
    let agent = world.agent(4);
    let signed = |terms: &[(&str, Value)]| {
        terms.iter().fold(agent.signed(), |body, (field, value)| with(&body, field, value.clone()))
    };
    let name = |text: &str| ("name", json!(text));
    let made = service.generate(&signed(&[name("ci"), ("expiresIn", json!(3_600))])).success(201);
    assert_eq!((&made["name"], made.get("tenants")), (&json!("ci"), None));
    let lasts = made["expiresAt"].as_u64().unwrap().abs_diff(unix_seconds());
    assert!((3_500..=3_600).contains(&lasts), "{made}");
    let ci = key_of(&made);
    let app = key_of(&service.generate(&signed(&[name("app")])).success(201));
    for refused in [name("ci"), name("more")] {
        service.generate(&signed(&[refused])).error(409, "KEY_ALREADY_EXISTS");
    }
    service.rotate(&signed(&[name("more")])).is_invalid("name", json!("more"));
    service.rotate(&agent.signed()).is_invalid("name", Value::Null);
    service.revoke(&signed(&[name("more")])).is_invalid("name", json!("more"));
    service.rotate(&signed(&[name("ci"), ("expiresIn", json!(3_601))])).error(400, "VALIDATION_ERROR");
    let tenants = ("tenants", json!(["acme"]));
    let rotated =
        service.rotate(&signed(&[name("app"), ("graceSeconds", json!(3_600)), tenants])).success(200);
    assert_eq!((&rotated["name"], &rotated["tenants"]), (&json!("app"), &json!(["acme"])));
    assert_eq!(rotated.get("expiresAt"), None);
    assert!(rotated["message"].as_str().unwrap().contains("in 3600 s"), "{rotated}");
    for key in [&ci, &app] {
        service.verify(key).success(200);
    }
    service.verify(&key_of(&rotated)).error(401, "INVALID_API_KEY");
    let profile = service.post("/profile", &agent.draft().profile_body()).success(200);
    let key = |name: &str, tenants: Value, replaced: bool| json!({ "name": name, "tenants": tenants, "replaced": replaced });
    let mut listed = profile["keys"].clone();
    for key in listed.as_array_mut().unwrap() {
        let mut day = |field| key.as_object_mut().unwrap().remove(field).unwrap();
        let (made_on, last_used_on) = (day("madeOn"), day("lastUsedOn"));
        let midnight = humantime::parse_rfc3339(&format!("{}T00:00:00Z", made_on.as_str().unwrap())).unwrap();
        let midnight = midnight.duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert!((0..2 * 86_400).contains(&(unix_seconds() - midnight)), "{made_on}");
        // All were brought, the restricted one in vain.
        assert!(last_used_on.as_str().unwrap() >= made_on.as_str().unwrap(), "{last_used_on}");
    }
    let ends: Vec<bool> = listed
        .as_array_mut()
        .unwrap()
        .iter_mut()
        .map(|key| key.as_object_mut().unwrap().remove("expiresAt").unwrap().is_u64())
        .collect();
    let expected =
        [key("ci", Value::Null, false), key("app", Value::Null, true), key("app", json!(["acme"]), false)];
    assert_eq!((listed, ends), (json!(expected), vec![true, true, false]));
    service.revoke(&signed(&[name("app")])).success(200);
    service.verify(&app).error(401, "INVALID_API_KEY");
    service.verify(&ci).success(200);
    service.revoke(&agent.signed()).success(200);
    service.verify(&ci).error(401, "INVALID_API_KEY");
    let profile = service.post("/profile", &agent.draft().profile_body()).success(200);
    assert_eq!((&profile["keys"], &profile["hasKey"]), (&json!([]), &json!(false)));
}
