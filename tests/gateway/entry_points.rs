//! One table of credentials, asked of every place that takes them: the API, our gateway over HTTP/1 and HTTP/2, and other gateways
//! in each dialect. A row names the places that can carry it.
//!
//! Rules are tested where they are written; here stands one row for each way that a rule is wired.

use std::time::{Duration, UNIX_EPOCH};
use std::{net::IpAddr, path::Path};

use alloy::primitives::{U256, hex};
use humantime::format_rfc3339_seconds;
use redb::{Database, TableDefinition};
use serde_json::{Value, json};

use crate::rig::authz::{Asked, DIALECTS, Dialect, Original, Verdict};
use crate::rig::case::{Case, cases};
use crate::rig::entry_points::{
    ALL, BY_HEADERS, BY_LINES, EntryPoint, EntryPoints, Said, Shown, Window, within_a_minute,
};
use crate::rig::identity::{everyone_is_gold, expected, graded};
use crate::rig::stage::{ACME, PAGE, Stage, agents_path, public_path};
use crate::rig::{credentials::signed, refusals::is_unauthenticated, site::Site};
use crate::support::agents::{Agent, LIMITS, unknown_key};
use crate::support::signing::{ALICE, BOB, Draft};
use crate::support::time::{SOON, unix_seconds, until};
use crate::support::{client::with, relay::Relay, service::SIGNED_ENDPOINTS, wire::Wire};

pub(crate) const CASES: &[Case] = cases![
    a_refused_credential_is_refused_alike_reaches_no_upstream_and_spends_nothing,
    an_agent_of_each_tier_passes_with_the_same_identity_and_limit,
    each_form_of_a_good_credential_passes,
    routes_mean_the_same,
    the_source_of_a_tier_and_a_stake_that_is_not_read_mean_the_same,
    an_origin_means_the_same,
    pages_of_other_origins_read_the_same,
    documents_are_shown_by_our_gateway_alone,
    an_announced_length_means_the_same_where_it_is_told,
    a_dead_chain_means_the_same,
    nonces_that_may_be_lost_mean_the_same,
];

/// Cases that the store has a part in.
pub(crate) const STORED: &[Case] = cases![
    keys_and_agents_of_every_state_mean_the_same,
    a_signature_passes_once_whoever_asks,
    an_agent_has_one_limit_whoever_asks,
    at_once_exactly_the_limit_passes,
    a_client_of_a_public_route_has_one_limit_whoever_asks,
];

const INVALID: (u16, &str) = (400, "VALIDATION_ERROR");
const UNPROVEN: (u16, &str) = (401, "INVALID_API_KEY");
const NOT_SIGNED: (u16, &str) = (401, "SIGNATURE_INVALID");
const REPLAY: (u16, &str) = (400, "REPLAY_DETECTED");
const BLOCKED: (u16, &str) = (403, "TIER_BLOCKED");
const MISSING: (u16, &str) = (404, "AGENT_NOT_FOUND");
const LIMITED: (u16, &str) = (429, "RATE_LIMITED");

/// A credential, the places that can carry it, and what each of them says.
type Row = (&'static [EntryPoint], Shown, (u16, &'static str), Value);

/// Gateways whose calls hold their own headers beside the client's, and all others that read headers.
const ANOTHERS: [EntryPoint; 2] = [EntryPoint::Asked(Dialect::Forward), EntryPoint::Asked(Dialect::Nginx)];
const TOLD_APART: [EntryPoint; 5] = [
    EntryPoint::Gateway,
    EntryPoint::Http2,
    EntryPoint::Asked(Dialect::Envoy),
    EntryPoint::Asked(Dialect::Grpc),
    EntryPoint::Raw,
];

fn acme(asked: &Asked) -> EntryPoints<'_> {
    EntryPoints::of(asked, "acme", ACME)
}

fn of_nobody() -> Value {
    json!({ "agentId": null })
}

/// What a `VALIDATION_ERROR` says of a field.
fn wrong(field: &str, received: impl Into<Value>) -> Value {
    json!({ "field": field, "received": received.into() })
}

fn replayed(draft: &Draft) -> Value {
    json!({ "agentId": draft.agent.to_string(), "nonce": draft.nonce.to_string() })
}

fn keys_of_every_form() -> Vec<Row> {
    let unknown = unknown_key(30);
    let (prefix, secret) = unknown.split_at("svc_live_v1_".len());
    let cut = |secret: &str| format!("{prefix}{}…", &secret[..8]);
    let rows = [
        (prefix.to_owned(), prefix.to_owned()),
        (format!("{prefix}{}", &secret[1..]), cut(&secret[1..])),
        (format!("{prefix}{secret}0"), cut(secret)),
        (format!("{prefix}{}", secret.to_uppercase()), cut(&secret.to_uppercase())),
        (format!("{prefix}{}", "x".repeat(500)), cut(&"x".repeat(8))),
    ];
    let malformed = rows.map(|(key, shown)| (&ALL[..], Shown::Key(key), INVALID, wrong("apiKey", shown)));
    malformed.into_iter().chain([(&ALL[..], Shown::Key(unknown), UNPROVEN, of_nobody())]).collect()
}

/// Headers in which no credential stands, or more than one. All the ways to write them are in `wire::credentials`.
fn headers_of_every_form(agent: &Agent, good: &str) -> Vec<Row> {
    let (unknown, bearer) = (unknown_key(31), format!("Bearer {good}"));
    let mut rows = Vec::new();
    let mut unproven = |at: &'static [EntryPoint], headers: &[(&str, &str)]| {
        rows.push((at, Shown::headers(headers), UNPROVEN, of_nobody()));
    };
    for headers in [
        &[][..],
        &[("Authorization", "Bearer eyJhbGciOiJub25lIn0.e30.")],
        &[("Authorization", ""), ("X-API-Key", "another service's")],
        &[("Authorization", &format!("Basic {good}"))],
        &[("Authorization", good)],
        &[("Cookie", &format!("X-API-Key={good}"))],
        &[("Proxy-Authorization", &bearer)],
        &[("X-API-Key", &format!("{good},{unknown}"))],
        &[("X-API-Key", good), ("Authorization", &bearer)],
        &[("X-API-Key", &unknown), ("Authorization", &bearer)],
        // Envoy joins these two.
        &[("X-API-Key", good), ("X-API-Key", good)],
        &[("Authorization", &bearer), ("Authorization", &format!("Bearer {unknown}"))],
        &[("X-Agent-Id", &agent.text())],
    ] {
        unproven(&BY_HEADERS, headers);
    }
    unproven(&BY_LINES, &[("X-API-Key", good), ("X-Between", "x"), ("x-api-key", "")]);
    // In calls of gateways that don't say which headers are the client's, another spelling of ours is a mistake.
    unproven(&TOLD_APART, &[("X_Api_Key", good)]);
    rows.push((&ANOTHERS, Shown::headers(&[("X_Api_Key", good)]), INVALID, wrong("request", Value::Null)));
    // Joined by Envoy, each of these is a malformed one.
    let signed = signed(&agent.draft());
    for (at, (name, _)) in signed.iter().enumerate() {
        let mut twice = signed.clone();
        twice.insert(at, (name.clone(), "1".to_owned()));
        rows.push((&BY_LINES, Shown::Headers(twice), UNPROVEN, of_nobody()));
    }
    for (name, value) in [("X-API-Key", good), ("Authorization", &bearer), ("X-API-Key", &unknown)] {
        let whole = Shown::Headers([&signed[..], &[(name.to_owned(), value.to_owned())]].concat());
        let part = Shown::headers(&[(name, value), ("X-Agent-Nonce", "1")]);
        for both in [whole, part] {
            rows.push((&BY_HEADERS, both, INVALID, wrong("credentials", Value::Null)));
        }
    }
    rows
}

fn signatures_of_every_form(agent: &Agent) -> Vec<Row> {
    let draft = agent.draft();
    let (body, bytes) = (draft.body(), draft.signature());
    let mut rows = Vec::new();
    let mut row =
        |body: Value, verdict, details| rows.push((&ALL[..], Shown::Signed(body), verdict, details));
    for (field, bad) in [("agentId", "x"), ("signature", "0x"), ("nonce", "-1"), ("timestamp", "x")] {
        row(with(&body, field, json!(bad)), INVALID, wrong(field, bad));
        row(with(&body, field, None), INVALID, wrong(field, Value::Null));
    }
    let nobodys = |recovered| json!({ "agentId": agent.text(), "owner": ALICE.address.to_checksum(None), "recoveredSigner": recovered });
    row(draft.clone().by(BOB).body(), NOT_SIGNED, nobodys(json!(BOB.address.to_checksum(None))));
    let order: U256 = "0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141".parse().unwrap();
    let high_s = (order - U256::from_be_slice(&bytes[32..64])).to_be_bytes::<32>();
    for signature in [[&bytes[..32], &high_s, &[55 - bytes[64]]].concat(), vec![0xff; 65]] {
        row(draft.body_with(&signature), NOT_SIGNED, nobodys(Value::Null));
    }
    for secs in [0, unix_seconds() - 3_600, unix_seconds() + 3_600, u64::MAX] {
        let late = agent.draft().timestamp(secs);
        row(late.body(), REPLAY, with(&replayed(&late), "field", json!("timestamp")));
    }
    rows
}

// threat: Several credentials
// threat: A second form of a nonce or signature
// threat: A limit locks out
// threat: API and gateway judge differently
// threat: Another gateway's verdict is not ours
fn a_refused_credential_is_refused_alike_reaches_no_upstream_and_spends_nothing(stage: &Stage) {
    let asked = stage.asked();
    let (agent, good) = stage.asked_agent(3);
    let nobody = |id: U256| {
        let signed = Shown::signed(&stage.world().known_agent(id, ALICE).draft());
        (&ALL[..], signed, MISSING, json!({ "agentId": id.to_string() }))
    };
    let entries = acme(asked);
    let mut rows =
        [keys_of_every_form(), headers_of_every_form(&agent, &good), signatures_of_every_form(&agent)]
            .concat();
    rows.extend([U256::ZERO, U256::from(888_888_886_u64), U256::MAX].map(nobody));
    for (at, shown, verdict, details) in rows {
        entries.refuse(at, &shown, verdict, &details);
    }
    for method in ["HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
        let original = Original {
            target: format!("{}?api_key={good}", agents_path()),
            ..entries.original(method, "/agents")
        };
        for entry in BY_HEADERS.into_iter().filter(|entry| method != "HEAD" || *entry != EntryPoint::Http2) {
            assert_eq!(entries.ask(entry, &original).answer.status, 401, "{method} {entry:?}");
        }
    }
    let in_body = format!("{{\"apiKey\":\"{good}\"}}");
    let posted = entries.original("POST", "/agents").direct().body(in_body.as_bytes());
    is_unauthenticated(&asked.site.gateway.ask(&posted));
    entries.let_nothing_through();
    // Which credentials count is the tenant's own.
    for (tenant, host, other) in [
        ("keys", "keys.test", Shown::signed(&agent.draft())),
        ("signatures", "signatures.test", Shown::key(&good)),
    ] {
        let entries = EntryPoints::of(asked, tenant, host);
        entries.refuse(&BY_HEADERS, &other, UNPROVEN, &of_nobody());
        entries.let_nothing_through();
    }
    for entry in [EntryPoint::Api, EntryPoint::Gateway] {
        entries.show(entry, &Shown::signed(&agent.draft()))[0].passes(166, 165);
    }
}

// threat: Shared caches
// threat: API and gateway judge differently
// threat: Forged identity passes beside ours
// threat: A gateway asks twice, or remembers the answer
fn an_agent_of_each_tier_passes_with_the_same_identity_and_limit(stage: &Stage) {
    let entries = acme(stage.asked());
    for tier in 2..=4 {
        let (agent, key) = stage.asked_agent(tier);
        let mut window = Window::of(tier);
        for entry in ALL.into_iter().take(if tier == 2 { 5 } else { 8 }).chain([EntryPoint::Api]) {
            for shown in [Shown::key(&key), Shown::signed(&agent.draft())] {
                let said = entries.show(entry, &shown);
                window.spend(&said);
                said.iter().for_each(|said| assert_eq!(said.identity, expected(&agent, tier), "{said:?}"));
            }
        }
    }
    let (agent, key) = stage.asked_agent(1);
    for (entry, shown) in [
        (EntryPoint::Api, Shown::signed(&agent.draft())),
        (EntryPoint::Gateway, Shown::headers(&[("X-API-Key", &key)])),
    ] {
        Window::of(1).spend(&entries.show(entry, &shown));
    }
}

// threat: A second form of a nonce or signature
fn each_form_of_a_good_credential_passes(stage: &Stage) {
    let entries = acme(stage.asked());
    let (agent, key) = stage.asked_agent(4);
    let mut window = Window::of(4);
    for headers in [
        &[("AUTHORIZATION", &*format!("bEaReR  {key}"))][..],
        &[("x-Api-kEY", &key), ("Authorization", "Bearer sk-abc")],
        &[("X-API-Key", &key), ("Authorization", "Basic eDp5"), ("Cookie", "a=b")],
    ] {
        BY_HEADERS.into_iter().for_each(|entry| window.spend(&entries.show(entry, &Shown::headers(headers))));
    }
    for entry in ALL {
        // The edges of the window are those of `domain::freshness`; here minutes lie between them and the timestamps.
        let draft = agent.draft().timestamp(unix_seconds() - 120);
        let upper = format!("0x{}", hex::encode(draft.signature()).to_uppercase());
        window.spend(&entries.show(entry, &Shown::Signed(with(&draft.body(), "signature", json!(upper)))));
        let draft = agent.draft().timestamp(unix_seconds() + 55);
        let mut bytes = draft.signature();
        bytes[64] -= 27;
        // Numbers with leading zeros are the same number.
        let padded = with(&draft.body_with(&bytes), "agentId", json!(format!("00{}", agent.id)));
        let padded = Shown::Signed(with(&padded, "nonce", json!(format!("000{}", draft.nonce))));
        let said = entries.show(entry, &padded);
        assert_eq!(said[0].identity, expected(&agent, 4), "the canonical form");
        window.spend(&said);
        entries.refuse(&ALL, &padded, REPLAY, &replayed(&draft));
    }
}

// threat: A revoked key opens again
// threat: API and gateway judge differently
// threat: Another gateway's verdict is not ours
fn keys_and_agents_of_every_state_mean_the_same(stage: &Stage) {
    let asked = stage.asked();
    let (entries, admits) = (acme(asked), acme(asked));
    let service = &asked.site.gateway.service;
    let [(revoked, revoked_key), (rotated, rotated_key), (burned, burned_key)] =
        [(); 3].map(|()| stage.asked_agent(4));
    admits.show(EntryPoint::Gateway, &Shown::key(&revoked_key))[0].passes(2_700, 2_699);
    service.revoke(&revoked.signed()).success(200);
    entries.refuse(&ALL, &Shown::key(&revoked_key), UNPROVEN, &of_nobody());
    admits.show(EntryPoint::Gateway, &Shown::key(&rotated_key))[1].passes(2_700, 2_698);
    let fresh = service.rotate(&rotated.signed()).success(200);
    entries.refuse(&ALL, &Shown::key(&rotated_key), UNPROVEN, &of_nobody());
    let fresh = admits.show(EntryPoint::Gateway, &Shown::key(fresh["apiKey"].as_str().unwrap()));
    fresh[0].passes(2_700, 2_697);
    stage.world().chain().burn(ALICE, burned.id);
    for shown in [Shown::key(&burned_key), Shown::signed(&burned.draft())] {
        entries.refuse(&ALL, &shown, MISSING, &json!({ "agentId": burned.text() }));
    }
    let (unstaked, unstaked_key) = stage.asked_agent(0);
    let lacks = json!({
        "agentId": unstaked.text(), "currentTier": 0, "requiredTier": 1, "requiredStake": "1000000000000000000000",
    });
    for shown in [Shown::key(&unstaked_key), Shown::signed(&unstaked.draft())] {
        entries.refuse(&ALL, &shown, BLOCKED, &lacks);
    }
    entries.let_nothing_through();
}

// threat: A nonce passes twice, or a stranger burns it
// threat: A gateway asks twice, or remembers the answer
fn a_signature_passes_once_whoever_asks(stage: &Stage) {
    let asked = stage.asked();
    let (entries, beta) = (acme(asked), EntryPoints::of(asked, "beta", "beta.test"));
    let agent = stage.world().agent(3);
    let mut window = Window::of(3);
    for (at, entry) in ALL.into_iter().enumerate() {
        let draft = match at {
            0 => agent.draft().nonce(U256::ZERO),
            1 => agent.draft().nonce(U256::MAX),
            _ => agent.draft(),
        };
        let stranger = Shown::signed(&draft.clone().by(BOB));
        assert_eq!(entries.show(entry, &stranger)[0].answer.status, 401, "and uses nothing up");
        window.spend(&entries.show(entry, &Shown::signed(&draft)));
        for entries in [&entries, &beta] {
            entries.refuse(&ALL, &Shown::signed(&draft), REPLAY, &replayed(&draft));
        }
        let later = Shown::signed(&draft.clone().timestamp(draft.timestamp - 100));
        entries.refuse(&ALL, &later, REPLAY, &replayed(&draft));
    }
}

// threat: A fresh budget, or another tenant's
// threat: API and gateway judge differently
// threat: Another gateway's verdict is not ours
// threat: A gateway asks twice, or remembers the answer
fn an_agent_has_one_limit_whoever_asks(stage: &Stage) {
    let asked = stage.asked();
    let entries = acme(asked);
    within_a_minute(|| {
        let (agent, key) = stage.asked_agent(2);
        let mut window = Window::of(2);
        let (by_key, one) = (Shown::key(&key), Shown::headers(&[("X-API-Key", &key)]));
        BY_HEADERS.into_iter().for_each(|entry| window.spend(&entries.show(entry, &by_key)));
        for _ in 0..16 {
            window.spend(&entries.show(EntryPoint::Api, &by_key));
        }
        window.spend(&entries.show(EntryPoint::Gateway, &Shown::signed(&agent.draft())));
        window.spend(&entries.show(EntryPoint::Http2, &one));
        let draft = agent.draft();
        let limited = json!({ "agentId": agent.text(), "tier": 2, "limit": 16, "retryAfter": "some" });
        for shown in [by_key, Shown::signed(&draft)] {
            entries.refuse(&ALL, &shown, LIMITED, &limited);
        }
        entries.show(EntryPoint::Gateway, &one)[0].says(16, 0);
        // Another tenant's limit is its own, and the nonce of what was limited is still good there.
        EntryPoints::of(asked, "beta", "beta.test")
            .show(EntryPoint::Asked(Dialect::Envoy), &Shown::signed(&draft))[0]
            .passes(16, 15);
    });
    let own = EntryPoints::of(asked, "own", "own.test");
    for tier in 1..=4 {
        let ((agent, key), limit) = (stage.asked_agent(tier), u32::try_from(tier).unwrap());
        let one = Shown::headers(&[("X-API-Key", &key)]);
        for left in (0..limit).rev() {
            own.show(EntryPoint::Gateway, &one)[0].passes(limit, left);
        }
        let limited = json!({ "agentId": agent.text(), "tier": tier, "limit": limit, "retryAfter": "some" });
        own.refuse(&BY_HEADERS, &one, LIMITED, &limited);
        entries.show(EntryPoint::Gateway, &one)[0].passes(LIMITS[tier - 1], LIMITS[tier - 1] - 1);
    }
}

fn at_once_exactly_the_limit_passes(stage: &Stage) {
    let asked = stage.asked();
    for entry in [EntryPoint::Api, EntryPoint::Gateway, EntryPoint::Asked(Dialect::Forward), EntryPoint::Raw]
    {
        within_a_minute(|| {
            let (entries, (_, key)) = (acme(asked), stage.asked_agent(2));
            let shown = if entry == EntryPoint::Api {
                Shown::key(&key)
            } else {
                Shown::headers(&[("X-API-Key", &key)])
            };
            let said: Vec<Said> = std::thread::scope(|scope| {
                let client = || (0..8).flat_map(|_| entries.show(entry, &shown)).collect::<Vec<_>>();
                let clients: Vec<_> = (0..8).map(|_| scope.spawn(client)).collect();
                clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
            });
            let left =
                |said: &Said| said.answer.header("X-RateLimit-Remaining").unwrap().parse::<u32>().unwrap();
            let (passed, limited): (Vec<_>, Vec<_>) = said.into_iter().partition(|said| said.passes);
            let mut left: Vec<u32> = passed.iter().map(left).collect();
            left.sort_unstable();
            assert_eq!(left, (0..16).collect::<Vec<_>>(), "each that passes {entry:?} counts once");
            assert!(limited.iter().all(|said| said.answer.status == 429), "{entry:?}");
        });
    }
}

// threat: Another gateway's verdict is not ours
// threat: A client chooses its address
fn a_client_of_a_public_route_has_one_limit_whoever_asks(stage: &Stage) {
    let asked = stage.asked();
    let entries = EntryPoints::of(asked, "limited", "limited.test");
    let own: IpAddr = Wire::open(asked.site.gateway.address).own_address().ip();
    let original = |client| entries.original("GET", "/limited").from(client);
    let left = |said: Said| said.answer.header("x-ratelimit-remaining").map(str::to_owned);
    let asking = BY_HEADERS.into_iter().chain([EntryPoint::Gateway]);
    let lefts: Vec<_> = asking.map(|entry| left(entries.ask(entry, &original(own))).unwrap()).collect();
    assert_eq!(lefts, ["7", "6", "5", "4", "3", "2", "1", "0"]);
    let said = BY_HEADERS.map(|entry| entries.ask(entry, &original(own)));
    let verdicts = said.each_ref().map(|said| Verdict::of(&said.answer));
    assert_eq!(said.map(|said| said.answer.status), [429; 7]);
    assert!(verdicts.iter().all(|verdict| *verdict == verdicts[0]), "{verdicts:?}");
    for (at, dialect) in DIALECTS.into_iter().enumerate() {
        let other = format!("198.51.100.{at}").parse().unwrap();
        let said = entries.ask(EntryPoint::Asked(dialect), &original(other));
        assert_eq!(left(said).as_deref(), Some("7"), "each client has its own limit");
    }
}

// threat: Another gateway's verdict is not ours
fn routes_mean_the_same(stage: &Stage) {
    let asked = stage.asked();
    let (entries, golden) = (acme(asked), EntryPoints::of(asked, "golden", "golden.test"));
    let (agent, silver) = stage.asked_agent(2);
    let keyed = |entries: &EntryPoints<'_>, folder: &str| entries.original("GET", folder).key(&silver);
    let at = |method: &str, path: &str| Original::new(method, ACME, path);
    let blocked = json!({
        "agentId": agent.text(), "currentTier": 2, "requiredTier": 3, "requiredStake": "100000000000000000000000",
    });
    for (original, verdict, details) in [
        (keyed(&entries, "/denied"), (403, "FORBIDDEN"), Value::Null),
        (keyed(&entries, "/denied/..%2Fpublic"), (403, "FORBIDDEN"), Value::Null),
        (keyed(&entries, "/gold"), BLOCKED, blocked.clone()),
        (keyed(&golden, "/agents"), BLOCKED, blocked),
        (at("GET", "/agents/?path=/public/x"), UNPROVEN, of_nobody()),
        (at("GET", "/posted/x"), (405, "METHOD_NOT_ALLOWED"), Value::Null),
        (keyed(&entries, "/.well-known/openid-configuration"), (404, "NOT_FOUND"), Value::Null),
        (at("POST", "/register"), (404, "NOT_FOUND"), Value::Null),
        (at("POST", "/register").key(&unknown_key(32)), UNPROVEN, of_nobody()),
    ] {
        entries.refuse_request(&BY_HEADERS, &original, verdict, &details);
    }
    // HTTP/2 has words of its own for these.
    let socket = at("GET", "/socket/x").with("Upgrade", "websocket");
    let apart: Vec<EntryPoint> = BY_HEADERS.into_iter().filter(|entry| *entry != EntryPoint::Http2).collect();
    entries.refuse_request(&apart, &socket, UNPROVEN, &of_nobody());
    for method in ["get", "hEAD", "POSTx", "TRACE", "CONNECT", "connect", "trace"] {
        entries.refuse_request(&apart, &at(method, "/public/x"), (405, "METHOD_NOT_ALLOWED"), &Value::Null);
    }
    for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PURGE"] {
        let reads = matches!(method, "GET" | "HEAD");
        for entry in BY_HEADERS {
            for folder in ["/public", "/read"].into_iter().filter(|folder| reads || *folder == "/public") {
                let original = keyed(&entries, folder);
                let (method, target) = (method.to_owned(), format!("{}?x=%2F", original.target));
                let said = entries.ask(entry, &Original { method, target, ..original });
                assert!(said.passes, "{said:?}");
                let limit = said.answer.header("x-ratelimit-limit");
                assert_eq!((&*said.identity, limit), (&[][..], None), "nobody is known there");
            }
        }
        if !reads {
            entries.refuse_request(&BY_HEADERS, &at(method, "/read/x"), UNPROVEN, &of_nobody());
            let denied = at(method, "/denied/x").key(&silver);
            entries.refuse_request(&BY_HEADERS, &denied, (403, "FORBIDDEN"), &Value::Null);
        }
    }
    BY_HEADERS.into_iter().for_each(|entry| assert!(golden.ask(entry, &keyed(&golden, "/silver")).passes));
    let (_, gold) = stage.asked_agent(3);
    golden.show(EntryPoint::Gateway, &Shown::key(&gold))[0].passes(166, 165);
    // None of this has cost anything.
    entries.ask(EntryPoint::Gateway, &keyed(&entries, "/agents")).passes(16, 15);
}

/// What is not set is stripped, as each decision is checked for.
fn the_source_of_a_tier_and_a_stake_that_is_not_read_mean_the_same(stage: &Stage) {
    for has_vault in [false, true] {
        let asked = Asked::start(everyone_is_gold(Site::of(stage), has_vault).agent(2));
        let entries = EntryPoints::of(&asked, "t", ACME);
        for entry in BY_HEADERS {
            let forged = entries.original("GET", "/agents").key(asked.site.key());
            let forged = forged.with("X-Agent-Staked-Amount", "1").with("X-Agent-Tier-Source", "forged");
            assert_eq!(
                entries.ask(entry, &forged).identity,
                graded(asked.site.agent(), has_vault),
                "{entry:?}"
            );
        }
    }
}

// threat: Another gateway's verdict is not ours
fn an_origin_means_the_same(stage: &Stage) {
    let asked = stage.asked();
    let agent = stage.world().agent(4);
    let key = agent.generate_for(&asked.site.gateway.service, "https://App.test:443/agent?x");
    let (entries, declared) = (acme(asked), EntryPoints::of(asked, "declared", "declared.test"));
    for (origin, mismatch) in [
        ("https://app.test", "false"),
        ("HTTPS://APP.TEST:443/elsewhere#x", "false"),
        ("http://app.test", "true"),
        ("https://app.test:8443", "true"),
        ("https://app.test.evil.test", "true"),
        ("https://sub.app.test", "true"),
        ("https://app.test.", "true"),
    ] {
        let from = Shown::From(key.clone(), origin.to_owned());
        for said in ALL.iter().flat_map(|entry| entries.show(*entry, &from)) {
            assert_eq!(said.identity[4].1, mismatch, "{origin}: {said:?}");
        }
        if mismatch == "true" {
            let details = json!({ "agentId": agent.text() });
            declared.refuse(&BY_HEADERS, &from, (403, "ENDPOINT_MISMATCH"), &details);
        } else {
            let said = BY_HEADERS.iter().flat_map(|entry| declared.show(*entry, &from));
            said.for_each(|said| assert!(said.passes, "{said:?}"));
        }
    }
    for origin in ["", "app.test", "https://app.test https://evil.test", "file://"] {
        let from = Shown::From(key.clone(), origin.to_owned());
        entries.refuse(&ALL, &from, INVALID, &wrong("origin", origin));
    }
    let origins = ["https://app.test", "https://evil.test"].map(|origin| ("Origin", origin));
    let twice = Shown::headers(&[&[("X-API-Key", &*key)], &origins[..]].concat());
    entries.refuse(&BY_LINES, &twice, INVALID, &wrong("origin", Value::Null));
    for said in ALL.iter().flat_map(|entry| entries.show(*entry, &Shown::key(&key))) {
        assert_eq!(said.identity[4].1, "false", "none was told: {said:?}");
    }
    let original = entries.original("GET", "/agents").key(&key).with("Origin", "https://evil.test");
    assert!(entries.ask(EntryPoint::Gateway, &original).passes);
    let seen = asked.site.upstream.only(&original.target);
    assert_eq!(seen.header("origin"), Some("https://evil.test"), "the upstream needs it for its own checks");
}

// threat: A gateway takes a refusal for leave
fn pages_of_other_origins_read_the_same(stage: &Stage) {
    let asked = stage.asked();
    let entries = EntryPoints::of(asked, "pages", "pages.test");
    let from = |origin: &str| Shown::headers(&[("Origin", origin)]);
    let allowed = |said: &Said| said.answer.header("access-control-allow-origin").map(str::to_owned);
    for (origin, wanted) in [(PAGE, Some(PAGE)), ("https://evil.test", None)] {
        entries.refuse(&BY_HEADERS, &from(origin), UNPROVEN, &of_nobody());
        let said = &entries.show(EntryPoint::Gateway, &from(origin))[0];
        assert_eq!(
            (allowed(said).as_deref(), said.answer.header("vary").is_some()),
            (wanted, true),
            "{said:?}"
        );
    }
    let (_, key) = stage.asked_agent(4);
    for said in
        BY_HEADERS.iter().flat_map(|entry| entries.show(*entry, &Shown::From(key.clone(), PAGE.to_owned())))
    {
        assert_eq!((said.passes, allowed(&said).as_deref()), (true, Some(PAGE)), "{said:?}");
    }
    // A preflight's answer lets no request pass. Where any 2xx may be leave, the gateway in front answers preflights.
    let preflight = entries.original("OPTIONS", "/agents").with("Origin", PAGE);
    let preflight = preflight.with("Access-Control-Request-Method", "POST");
    let wanted = entries.ask(EntryPoint::Gateway, &preflight).answer;
    for entry in [EntryPoint::Http2, EntryPoint::Asked(Dialect::Grpc), EntryPoint::Raw] {
        let said = entries.ask(entry, &preflight).answer;
        assert_eq!((Verdict::of(&said), said.status), (Verdict::of(&wanted), 204), "{entry:?}");
        for name in ["access-control-allow-methods", "access-control-allow-headers", "access-control-max-age"]
        {
            assert_eq!(said.header(name), wanted.header(name), "{name}");
        }
    }
    for dialect in [Dialect::Forward, Dialect::Nginx, Dialect::Envoy] {
        assert_eq!(asked.ask(dialect, &preflight).error(), (403, "FORBIDDEN".to_owned()), "{dialect:?}");
    }
}

/// The documents are answers with 200, which another gateway takes for leave. It shows its own.
// threat: A gateway takes a refusal for leave
fn documents_are_shown_by_our_gateway_alone(stage: &Stage) {
    let asked = stage.asked();
    let shown = Original::get(ACME, "/.well-known/tiergate");
    assert_eq!(asked.site.gateway.ask(&shown.direct()).status, 200);
    for path in [&*shown.target, "/.well-known/oauth-protected-resource/agents/x"] {
        for dialect in DIALECTS {
            let said = asked.ask(dialect, &Original::get(ACME, path));
            assert_eq!(said.error(), (401, "INVALID_API_KEY".to_owned()), "{dialect:?} {path}");
            let challenge = said.answer.header("www-authenticate").unwrap();
            assert!(!challenge.contains("resource_metadata"), "{challenge}");
            assert_eq!(said.answer.header("link"), None, "it leads to no document that is not shown");
        }
    }
}

/// Over HTTP a gateway announces the length of its own call.
fn an_announced_length_means_the_same_where_it_is_told(stage: &Stage) {
    let entries = EntryPoints::of(stage.asked(), "short", "short.test");
    let original =
        |length| Original::new("POST", "short.test", &public_path()).with("content-length", length);
    let asking = [EntryPoint::Asked(Dialect::Grpc), EntryPoint::Raw];
    asking.into_iter().for_each(|entry| assert!(entries.ask(entry, &original("1000")).passes));
    let asking = [EntryPoint::Gateway, EntryPoint::Asked(Dialect::Grpc), EntryPoint::Raw];
    entries.refuse_request(&asking, &original("1001"), (413, "PAYLOAD_TOO_LARGE"), &Value::Null);
}

// threat: A failure admits somebody, or looks like an answer
// threat: Another gateway's verdict is not ours
fn a_dead_chain_means_the_same(stage: &Stage) {
    let mut relay = Relay::new(stage.world().chain().node);
    let node = format!("http://{}", relay.address);
    let site = Site::of(stage).set("chain.rpc_urls", vec![node.clone()]);
    // Each dialect's refusal is that of the chain, and not of the time that a decision may take.
    let asked = Asked::start(site.agent(4));
    let (entries, site) = (EntryPoints::of(&asked, "t", ACME), &asked.site);
    let by_key = Shown::key(site.key());
    ALL.iter()
        .flat_map(|entry| entries.show(*entry, &by_key))
        .for_each(|said| assert!(said.passes, "{said:?}"));
    relay.close();
    // A profile that was read a moment ago may be used for one more moment.
    until("the chain is missed", SOON, || (!entries.show(EntryPoint::Api, &by_key)[0].passes).then_some(()));
    let passed = site.passed();
    for shown in [by_key, Shown::signed(&site.agent().draft())] {
        let said = entries.show(EntryPoint::Api, &shown);
        let method = said[0].answer.error(503, "RPC_ERROR")["method"].clone();
        entries.refuse(&ALL, &shown, (503, "RPC_ERROR"), &json!({ "rpcUrl": node, "method": method }));
    }
    assert_eq!(site.passed(), passed);
    for entry in BY_HEADERS {
        assert!(
            entries.ask(entry, &entries.original("GET", "/public")).passes,
            "a public route needs no chain"
        );
    }
}

/// Only time is lost: what an owner is told to do helps, and keys go on.
// threat: Another gateway's verdict is not ours
fn nonces_that_may_be_lost_mean_the_same(stage: &Stage) {
    let site = Site::of(stage).set("signature.max_ahead", "30m").set("signature.nonce_retention", "35m");
    let mut asked = Asked::start(site.agent(4));
    asked.site.gateway.service.kill();
    let accepted_from = unix_seconds() + 1_000;
    forget_nonces(&asked.site.gateway.service.data().join("tiergate.redb"), accepted_from);
    asked.site.gateway.launch("");

    let (entries, service) = (EntryPoints::of(&asked, "t", ACME), &asked.site.gateway.service);
    let moment = format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(accepted_from)).to_string();
    let checks = json!({ "store": "ok", "chain": "ok", "signatures": format!("refused until {moment}") });
    assert_eq!(service.get("/readyz").success(200), json!({ "status": "ready", "checks": checks }));
    let original = format!("Nonces may have been lost: sign again at {moment} or later");
    let early = asked.site.agent().draft().timestamp(accepted_from - 1);
    let by_api = SIGNED_ENDPOINTS.map(|endpoint| service.signed(endpoint, &early.body()));
    let shown = Shown::signed(&early);
    let by_headers = BY_HEADERS.iter().flat_map(|entry| entries.show(*entry, &shown)).map(|said| said.answer);
    for answer in by_api.into_iter().chain(by_headers) {
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!((answer.status, &body["errorType"]), (400, &json!("REPLAY_DETECTED")));
        assert_eq!((&body["error"], &body["details"]), (&json!(original), &replayed(&early)));
        let wait_secs = answer.header("retry-after").unwrap().parse().unwrap();
        assert!((accepted_from - unix_seconds()..=1_000).contains(&wait_secs), "{wait_secs}");
    }
    for entry in ALL {
        let draft = asked.site.agent().draft().timestamp(accepted_from);
        assert!(entries.show(entry, &Shown::signed(&draft))[0].passes, "{entry:?}");
        entries.refuse(&ALL, &Shown::signed(&draft), REPLAY, &replayed(&draft));
        assert!(entries.show(entry, &Shown::key(asked.site.key()))[0].passes, "{entry:?}");
    }
    assert!(entries.show(EntryPoint::Gateway, &Shown::signed(&early.timestamp(accepted_from)))[0].passes);
}

/// Lets a store that is closed have forgotten the nonces of all signatures before this moment.
fn forget_nonces(file: &Path, before_secs: u64) {
    let database = Database::open(file).unwrap();
    let transaction = database.begin_write().unwrap();
    let mut meta = transaction.open_table(TableDefinition::<&str, u64>::new("meta")).unwrap();
    meta.insert("forgotten_before", before_secs).unwrap();
    drop(meta);
    transaction.commit().unwrap();
}
