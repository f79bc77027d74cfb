//! Both doors judge alike: each credential gets the same status, `errorType`, details and headers from the gateway as
//! from the verification API.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use alloy::primitives::{U256, hex};
use humantime::format_rfc3339_seconds;
use redb::{Database, TableDefinition};
use serde_json::{Value, json};

use crate::rig::case::{Case, cases};
use crate::rig::credentials::{replaced, signed, signed_with};
use crate::rig::site::Site;
use crate::rig::stage::{ACME, Stage, agents_path};
use crate::support::agents::{LIMITS, unknown_key};
use crate::support::client::Answer;
use crate::support::relay::Relay;
use crate::support::service::SIGNED_ENDPOINTS;
use crate::support::signing::{ALICE, BOB, Draft};
use crate::support::time::{SOON, unix_seconds, until};
use crate::support::wire::Request;

pub(crate) const CASES: &[Case] = cases![
    keys_of_every_form_are_judged_alike,
    agents_of_every_tier_are_judged_alike,
    signatures_of_every_form_are_judged_alike,
    signature_fields_of_every_form_are_judged_alike,
    agents_that_do_not_exist_are_judged_alike,
    an_origin_is_judged_alike,
    a_dead_chain_is_told_alike,
    nonces_that_may_be_lost_are_told_alike,
];

/// Cases that the store has a part in.
pub(crate) const STORED: &[Case] =
    cases![keys_of_every_state_are_judged_alike, limits_are_told_alike, timestamps_are_judged_alike,];

/// Everything that both doors have to agree on.
#[derive(Debug, PartialEq)]
struct Verdict {
    status: u16,
    error_type: Value,
    details: Value,
    message: Value,
    headers: Vec<(String, String)>,
}

/// An error's verdict. A time to wait may differ by the second that passes in between.
fn verdict(answer: &Answer) -> Verdict {
    let mut body = answer.json();
    if let Some(seconds) = body["details"].get("retryAfter").and_then(Value::as_u64) {
        assert_eq!(answer.header("retry-after"), Some(seconds.to_string().as_str()));
        assert!((1..=60).contains(&seconds));
        body["details"]["retryAfter"] = json!("some");
        body["error"] = json!("some");
    }
    let named = ["x-ratelimit-limit", "x-ratelimit-remaining", "content-type", "cache-control"];
    let headers = named.iter().filter_map(|name| Some(((*name).to_owned(), answer.header(name)?.to_owned())));
    Verdict {
        status: answer.status,
        error_type: body["errorType"].clone(),
        details: body["details"].clone(),
        message: body["error"].clone(),
        headers: headers.collect(),
    }
}

/// Shows both doors a key. Both must refuse it, and alike.
#[track_caller]
fn refused_key(stage: &Stage, key: &str) -> Verdict {
    let gateway = &stage.site().gateway;
    let api = verdict(&gateway.service.verify(key));
    for (name, value) in [("X-API-Key", key.to_owned()), ("Authorization", format!("Bearer {key}"))] {
        let answer = gateway.ask(&Request::get(ACME, &agents_path()).with(name, &value));
        assert_eq!(verdict(&answer), api, "{name}: {key}");
        let challenged = answer.header("www-authenticate").is_some();
        assert!(challenged || answer.status != 401, "401 comes with a challenge: {answer:?}");
    }
    assert!(api.status >= 400, "{api:?}");
    api
}

/// Shows both doors a signed request. Both must refuse it, and alike.
#[track_caller]
fn refused_signature(stage: &Stage, body: &Value, headers: &[(String, String)]) -> Verdict {
    let gateway = &stage.site().gateway;
    let api = verdict(&gateway.service.verify_signature(body));
    let answer = gateway.ask(&Request::get(ACME, &agents_path()).with_all(headers));
    assert_eq!(verdict(&answer), api, "{headers:?}");
    assert!(api.status >= 400, "{api:?}");
    api
}

#[track_caller]
fn refused_draft(stage: &Stage, draft: &Draft) -> Verdict {
    refused_signature(stage, &draft.body(), &signed(draft))
}

fn keys_of_every_form_are_judged_alike(stage: &Stage) {
    let good = unknown_key(10);
    let (prefix, secret) = good.split_at("svc_live_v1_".len());
    for malformed in [
        prefix.to_owned(),
        format!("{prefix}{}", &secret[1..]),
        format!("{prefix}{secret}0"),
        format!("{prefix}{}", secret.to_uppercase()),
        format!("{prefix}{}g", &secret[1..]),
        format!("{prefix}{secret}{secret}"),
        format!("{prefix}{}", "x".repeat(500)),
        format!("{prefix}{}-{}", &secret[..32], &secret[33..]),
    ] {
        let verdict = refused_key(stage, &malformed);
        assert_eq!((verdict.status, &verdict.error_type), (400, &json!("VALIDATION_ERROR")), "{malformed}");
        assert_eq!(verdict.details["field"], json!("apiKey"));
    }
}

fn keys_of_every_state_are_judged_alike(stage: &Stage) {
    let service = &stage.site().gateway.service;
    let (revoked, revoked_key) = stage.agent(4);
    service.revoke(&revoked.signed()).success(200);
    let (rotated, rotated_key) = stage.agent(4);
    service.rotate(&rotated.signed()).success(200);
    let (burned, burned_key) = stage.agent(4);
    stage.world().chain().burn(ALICE, burned.id);
    for key in [unknown_key(11), revoked_key, rotated_key] {
        let verdict = refused_key(stage, &key);
        assert_eq!((verdict.status, verdict.error_type), (401, json!("INVALID_API_KEY")));
    }
    let verdict = refused_key(stage, &burned_key);
    assert_eq!((verdict.status, verdict.error_type), (404, json!("AGENT_NOT_FOUND")));
}

fn agents_of_every_tier_are_judged_alike(stage: &Stage) {
    let (unstaked, key) = stage.agent(0);
    let blocked = refused_key(stage, &key);
    assert_eq!((blocked.status, &blocked.error_type), (403, &json!("TIER_BLOCKED")));
    assert_eq!(refused_draft(stage, &unstaked.draft()), blocked);
    for tier in 1..=4 {
        let (agent, key) = stage.agent(tier);
        let gateway = &stage.site().gateway;
        let answer = gateway.ask(&Request::get(ACME, &agents_path()).key(&key));
        let api = gateway.service.verify(&key);
        assert_eq!((answer.status, api.status), (200, 200));
        let limit = LIMITS[tier - 1];
        assert_eq!((answer.allowance(), api.allowance()), ((limit, limit - 1), (limit, limit - 1)));
        let seen = stage.site().upstream.seen();
        let seen = seen.iter().find(|seen| seen.all("x-agent-id") == [agent.text()]).unwrap();
        let profile = api.json();
        assert_eq!(seen.header("x-agent-owner"), profile["owner"].as_str());
        assert_eq!(seen.header("x-agent-tier"), Some(profile["trustTier"].to_string().as_str()));
        assert_eq!(seen.header("x-agent-staked-amount"), profile["stakedAmount"].as_str());
    }
}

fn limits_are_told_alike(stage: &Stage) {
    let (agent, key) = stage.agent(1);
    let gateway = &stage.site().gateway;
    gateway.service.verify(&key).success(200);
    assert_eq!(gateway.ask(&Request::get(ACME, &agents_path()).key(&key)).status, 200);
    let limited = refused_key(stage, &key);
    assert_eq!((limited.status, &limited.error_type), (429, &json!("RATE_LIMITED")));
    assert_eq!(limited.details["agentId"], json!(agent.text()));
    assert_eq!(limited.headers[0], ("x-ratelimit-limit".to_owned(), "1".to_owned()));
    assert_eq!(refused_draft(stage, &agent.draft()), limited);
}

fn signatures_of_every_form_are_judged_alike(stage: &Stage) {
    let (agent, _) = stage.agent(3);
    let draft = agent.draft();
    let good = draft.signature();
    let changed = |change: &dyn Fn(&mut [u8; 65])| {
        let mut signature = good;
        change(&mut signature);
        signature
    };
    let order: U256 = "0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141".parse().unwrap();
    let high_s = order - U256::from_be_slice(&good[32..64]);
    for signature in [
        draft.clone().by(BOB).signature(),
        changed(&|signature| {
            signature[32..64].copy_from_slice(&high_s.to_be_bytes::<32>());
            signature[64] = 55 - signature[64];
        }),
        changed(&|signature| signature[64] = 29),
        changed(&|signature| signature[64] = 35),
        changed(&|signature| signature[..32].fill(0)),
        changed(&|signature| signature[32..64].fill(0)),
        [0; 65],
        [0xff; 65],
    ] {
        let headers = signed_with(&draft, &hex::encode_prefixed(signature));
        let verdict = refused_signature(stage, &draft.body_with(&signature), &headers);
        assert_eq!((verdict.status, verdict.error_type), (401, json!("SIGNATURE_INVALID")));
    }
    let hex = hex::encode(good);
    for signature in [
        hex.clone(),
        format!("0x{}", &hex[2..]),
        format!("0x{hex}00"),
        format!("0X{hex}"),
        "0x".into(),
        format!("0x{}zz", &hex[2..]),
    ] {
        let mut body = draft.body();
        body["signature"] = json!(signature);
        let verdict = refused_signature(stage, &body, &signed_with(&draft, &signature));
        assert_eq!((verdict.status, verdict.error_type), (400, json!("VALIDATION_ERROR")), "{signature}");
    }
    let upper = format!("0x{}", hex.to_uppercase());
    let request = Request::get(ACME, &agents_path()).with_all(&signed_with(&draft, &upper));
    assert_eq!(stage.site().gateway.ask(&request).status, 200, "nothing of it was spent");
}

fn signature_fields_of_every_form_are_judged_alike(stage: &Stage) {
    let (agent, _) = stage.agent(3);
    let draft = agent.draft();
    let headers = signed(&draft);
    let long = "9".repeat(79);
    let beyond = "115792089237316195423570985008687907853269984665640564039457584007913129639936";
    for (name, field) in [("X-Agent-Id", "agentId"), ("X-Agent-Nonce", "nonce")] {
        for value in ["x", "-1", "+1", "1.0", "0x1", "1e3", "1 2", "\u{663}", &long, beyond] {
            let mut body = draft.body();
            body[field] = json!(value);
            let verdict = refused_signature(stage, &body, &replaced(&headers, name, value));
            assert_eq!((verdict.status, verdict.error_type), (400, json!("VALIDATION_ERROR")), "{value}");
            assert_eq!(verdict.details["field"], json!(field));
        }
    }
    for value in ["", "x", "-1", "1.5", "0x1", "+1", "1 2", "\"1\"", "null", "99999999999999999999"] {
        let mut body = draft.body();
        body["timestamp"] = serde_json::from_str(value).unwrap_or(json!(value));
        let api = stage.site().gateway.service.verify_signature(&body);
        let headers = replaced(&headers, "X-Agent-Timestamp", value);
        let answer = stage.site().gateway.ask(&Request::get(ACME, &agents_path()).with_all(&headers));
        assert_eq!(verdict(&answer).error_type, verdict(&api).error_type, "{value}");
        assert_eq!((answer.status, api.status), (400, 400), "{value}");
    }
    // Numbers with leading zeros are the same number.
    let padded = replaced(&headers, "X-Agent-Id", &format!("00{}", agent.text()));
    let padded = replaced(&padded, "X-Agent-Nonce", &format!("000{}", draft.nonce));
    let path = agents_path();
    assert_eq!(stage.site().gateway.ask(&Request::get(ACME, &path).with_all(&padded)).status, 200);
    assert_eq!(stage.site().upstream.only(&path).header("x-agent-id"), Some(agent.text().as_str()));
    refused_draft(stage, &draft);
}

fn timestamps_are_judged_alike(stage: &Stage) {
    let (agent, _) = stage.agent(3);
    for timestamp in [0, unix_seconds() - 3_600, unix_seconds() + 3_600, u64::from(u32::MAX)] {
        let verdict = refused_draft(stage, &agent.draft().timestamp(timestamp));
        assert_eq!((verdict.status, verdict.error_type), (400, json!("REPLAY_DETECTED")), "{timestamp}");
    }
    let draft = agent.draft();
    stage.site().gateway.service.verify_signature(&draft.body()).success(200);
    let verdict = refused_draft(stage, &draft);
    assert_eq!((verdict.status, verdict.error_type), (400, json!("REPLAY_DETECTED")));
}

fn agents_that_do_not_exist_are_judged_alike(stage: &Stage) {
    for id in [U256::ZERO, U256::from(888_888_887_u64), U256::MAX] {
        let verdict = refused_draft(stage, &stage.world().known_agent(id, ALICE).draft());
        assert_eq!((verdict.status, &verdict.error_type), (404, &json!("AGENT_NOT_FOUND")));
        assert_eq!(verdict.details, json!({ "agentId": id.to_string() }));
    }
}

fn an_origin_is_judged_alike(stage: &Stage) {
    let agent = stage.world().agent(4);
    let gateway = &stage.site().gateway;
    let key = agent.generate_for(&gateway.service, "https://App.test:443/agent?x");
    for origin in [
        "https://app.test",
        "https://app.test:443",
        "http://app.test",
        "https://app.test:8443",
        "https://other.test",
    ] {
        let api = gateway.service.post("/verify", &json!({ "apiKey": key, "origin": origin })).success(200);
        let path = agents_path();
        let answer = gateway.ask(&Request::get(ACME, &path).key(&key).with("Origin", origin));
        assert_eq!(answer.status, 200, "{origin}: {}", answer.text());
        let seen = stage.site().upstream.only(&path);
        let mismatch = api["endpointMismatch"].to_string();
        assert_eq!(seen.header("x-agent-endpoint-mismatch"), Some(mismatch.as_str()), "{origin}");
    }
}

fn a_dead_chain_is_told_alike(stage: &Stage) {
    let mut relay = Relay::new(stage.world().chain().node);
    let site = Site::of(stage).set("chain.rpc_urls", vec![format!("http://{}", relay.address)]);
    let site = site.agent(4).start();
    let service = &site.gateway.service;
    relay.close();
    // A profile that was read a moment ago may be used for one more moment.
    let api = until("the chain is missed", SOON, || {
        let answer = service.verify(site.key());
        (answer.status != 200).then(|| verdict(&answer))
    });
    assert_eq!((api.status, &api.error_type), (503, &json!("RPC_ERROR")));
    assert_eq!(verdict(&site.gateway.ask(&site.by_key())), api);
    let api = verdict(&service.verify_signature(&site.agent().signed()));
    assert_eq!(api.status, 503);
    assert_eq!(verdict(&site.gateway.ask(&site.by_signature())), api);
    assert_eq!(site.status(), 200, "a public route needs no chain");
    assert_eq!(site.upstream.seen().len(), 1);
}

/// Only time is lost: what an owner is told to do helps, and keys go on.
fn nonces_that_may_be_lost_are_told_alike(stage: &Stage) {
    let site = Site::of(stage).set("signature.max_ahead", "30m").set("signature.nonce_retention", "35m");
    let mut site = site.agent(4).start();
    site.gateway.service.kill();
    let accepted_from = unix_seconds() + 1_000;
    forget_nonces(&site.gateway.service.data().join("tiergate.redb"), accepted_from);
    site.gateway.launch("");

    let moment = format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(accepted_from)).to_string();
    let service = &site.gateway.service;
    let checks = json!({ "store": "ok", "chain": "ok", "signatures": format!("refused until {moment}") });
    assert_eq!(service.get("/readyz").success(200), json!({ "status": "ready", "checks": checks }));
    assert_eq!(site.gateway.ask(&site.by_key()).status, 200);

    let told = format!("Nonces may have been lost: sign again at {moment} or later");
    let early = site.agent().draft().timestamp(accepted_from - 1);
    let by_early = Request::get(ACME, &agents_path()).with_all(&signed(&early));
    let answers = SIGNED_ENDPOINTS.map(|endpoint| service.signed(endpoint, &early.body()));
    for answer in answers.iter().chain([&site.gateway.ask(&by_early)]) {
        let details = json!({ "agentId": early.agent.to_string(), "nonce": early.nonce.to_string() });
        answer.is_error(400, "REPLAY_DETECTED", details);
        assert_eq!(answer.json()["error"], json!(told));
        let wait_secs = answer.header("retry-after").unwrap().parse().unwrap();
        assert!((accepted_from - unix_seconds()..=1_000).contains(&wait_secs), "{wait_secs}");
    }
    for draft in [early.timestamp(accepted_from), site.agent().draft().timestamp(accepted_from)] {
        let in_time = Request::get(ACME, &agents_path()).with_all(&signed(&draft));
        assert_eq!(site.gateway.ask(&in_time).status, 200);
        site.gateway.service.verify_signature(&draft.body()).error(400, "REPLAY_DETECTED");
    }
    service.verify(site.key()).success(200);
}

/// Lets a store that is closed have forgotten the nonces of all signatures before this moment.
pub(crate) fn forget_nonces(file: &Path, before_secs: u64) {
    let database = Database::open(file).unwrap();
    let transaction = database.begin_write().unwrap();
    let mut meta = transaction.open_table(TableDefinition::<&str, u64>::new("meta")).unwrap();
    meta.insert("forgotten_before", before_secs).unwrap();
    drop(meta);
    transaction.commit().unwrap();
}
