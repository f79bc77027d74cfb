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

use crate::rig::authz::{Asked, DIALECTS, Dialect, Told, Verdict};
use crate::rig::case::{Case, cases};
use crate::rig::doors::{ALL, BY_HEADERS, BY_LINES, Door, Doors, Said, Shown};
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
type Row = (&'static [Door], Shown, (u16, &'static str), Value);

/// Gateways whose calls hold their own headers beside the client's, and all others that read headers.
const ANOTHERS: [Door; 2] = [Door::Asked(Dialect::Forward), Door::Asked(Dialect::Nginx)];
const TOLD_APART: [Door; 5] =
    [Door::Gateway, Door::Http2, Door::Asked(Dialect::Envoy), Door::Asked(Dialect::Grpc), Door::Raw];

fn acme(asked: &Asked) -> Doors<'_> {
    Doors::of(asked, "acme", ACME)
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
    let mut unproven = |at: &'static [Door], headers: &[(&str, &str)]| {
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
    let doors = acme(asked);
    let mut rows =
        [keys_of_every_form(), headers_of_every_form(&agent, &good), signatures_of_every_form(&agent)]
            .concat();
    rows.extend([U256::ZERO, U256::from(888_888_886_u64), U256::MAX].map(nobody));
    for (at, shown, verdict, details) in rows {
        doors.refuse(at, &shown, verdict, &details);
    }
    for method in ["HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
        let told =
            Told { target: format!("{}?api_key={good}", agents_path()), ..doors.told(method, "/agents") };
        for door in BY_HEADERS.into_iter().filter(|door| method != "HEAD" || *door != Door::Http2) {
            assert_eq!(doors.ask(door, &told).answer.status, 401, "{method} {door:?}");
        }
    }
    let in_body = format!("{{\"apiKey\":\"{good}\"}}");
    let posted = doors.told("POST", "/agents").direct().body(in_body.as_bytes());
    is_unauthenticated(&asked.site.gateway.ask(&posted));
    doors.let_nothing_through();
    // Which credentials count is the tenant's own.
    for (tenant, host, other) in [
        ("keys", "keys.test", Shown::signed(&agent.draft())),
        ("signatures", "signatures.test", Shown::key(&good)),
    ] {
        let doors = Doors::of(asked, tenant, host);
        doors.refuse(&BY_HEADERS, &other, UNPROVEN, &of_nobody());
        doors.let_nothing_through();
    }
    for door in [Door::Api, Door::Gateway] {
        doors.show(door, &Shown::signed(&agent.draft()))[0].passes(166, 165);
    }
}

/// The limit and what is left of it at the API, whose window is its own, and everywhere else.
struct Window {
    limit: u32,
    left: [u32; 2],
}

impl Window {
    fn of(tier: usize) -> Self {
        Self { limit: LIMITS[tier - 1], left: [LIMITS[tier - 1]; 2] }
    }

    /// Checks that each passes with one less than was left before.
    #[track_caller]
    fn spend(&mut self, said: &[Said]) {
        for said in said {
            let left = &mut self.left[usize::from(said.door == Door::Api)];
            *left -= 1;
            said.passes(self.limit, *left);
        }
    }
}

// threat: Shared caches
// threat: API and gateway judge differently
// threat: Forged identity passes beside ours
// threat: A gateway asks twice, or remembers the answer
fn an_agent_of_each_tier_passes_with_the_same_identity_and_limit(stage: &Stage) {
    let doors = acme(stage.asked());
    for tier in 2..=4 {
        let (agent, key) = stage.asked_agent(tier);
        let mut window = Window::of(tier);
        for door in ALL.into_iter().take(if tier == 2 { 5 } else { 8 }).chain([Door::Api]) {
            for shown in [Shown::key(&key), Shown::signed(&agent.draft())] {
                let said = doors.show(door, &shown);
                window.spend(&said);
                said.iter().for_each(|said| assert_eq!(said.identity, expected(&agent, tier), "{said:?}"));
            }
        }
    }
    let (agent, key) = stage.asked_agent(1);
    for (door, shown) in
        [(Door::Api, Shown::signed(&agent.draft())), (Door::Gateway, Shown::headers(&[("X-API-Key", &key)]))]
    {
        Window::of(1).spend(&doors.show(door, &shown));
    }
}

// threat: A second form of a nonce or signature
fn each_form_of_a_good_credential_passes(stage: &Stage) {
    let doors = acme(stage.asked());
    let (agent, key) = stage.asked_agent(4);
    let mut window = Window::of(4);
    for headers in [
        &[("AUTHORIZATION", &*format!("bEaReR  {key}"))][..],
        &[("x-Api-kEY", &key), ("Authorization", "Bearer sk-abc")],
        &[("X-API-Key", &key), ("Authorization", "Basic eDp5"), ("Cookie", "a=b")],
    ] {
        BY_HEADERS.into_iter().for_each(|door| window.spend(&doors.show(door, &Shown::headers(headers))));
    }
    for door in ALL {
        // The edges of the window are those of `domain::freshness`; here minutes lie between them and the timestamps.
        let draft = agent.draft().timestamp(unix_seconds() - 120);
        let upper = format!("0x{}", hex::encode(draft.signature()).to_uppercase());
        window.spend(&doors.show(door, &Shown::Signed(with(&draft.body(), "signature", json!(upper)))));
        let draft = agent.draft().timestamp(unix_seconds() + 55);
        let mut bytes = draft.signature();
        bytes[64] -= 27;
        // Numbers with leading zeros are the same number.
        let padded = with(&draft.body_with(&bytes), "agentId", json!(format!("00{}", agent.id)));
        let padded = Shown::Signed(with(&padded, "nonce", json!(format!("000{}", draft.nonce))));
        let said = doors.show(door, &padded);
        assert_eq!(said[0].identity, expected(&agent, 4), "the canonical form");
        window.spend(&said);
        doors.refuse(&ALL, &padded, REPLAY, &replayed(&draft));
    }
}

// threat: A revoked key opens again
// threat: API and gateway judge differently
// threat: Another gateway's verdict is not ours
fn keys_and_agents_of_every_state_mean_the_same(stage: &Stage) {
    let asked = stage.asked();
    let (doors, admits) = (acme(asked), acme(asked));
    let service = &asked.site.gateway.service;
    let [(revoked, revoked_key), (rotated, rotated_key), (burned, burned_key)] =
        [(); 3].map(|()| stage.asked_agent(4));
    admits.show(Door::Gateway, &Shown::key(&revoked_key))[0].passes(2_700, 2_699);
    service.revoke(&revoked.signed()).success(200);
    doors.refuse(&ALL, &Shown::key(&revoked_key), UNPROVEN, &of_nobody());
    admits.show(Door::Gateway, &Shown::key(&rotated_key))[1].passes(2_700, 2_698);
    let fresh = service.rotate(&rotated.signed()).success(200);
    doors.refuse(&ALL, &Shown::key(&rotated_key), UNPROVEN, &of_nobody());
    let fresh = admits.show(Door::Gateway, &Shown::key(fresh["apiKey"].as_str().unwrap()));
    fresh[0].passes(2_700, 2_697);
    stage.world().chain().burn(ALICE, burned.id);
    for shown in [Shown::key(&burned_key), Shown::signed(&burned.draft())] {
        doors.refuse(&ALL, &shown, MISSING, &json!({ "agentId": burned.text() }));
    }
    let (unstaked, unstaked_key) = stage.asked_agent(0);
    let lacks = json!({
        "agentId": unstaked.text(), "currentTier": 0, "requiredTier": 1, "requiredStake": "1000000000000000000000",
    });
    for shown in [Shown::key(&unstaked_key), Shown::signed(&unstaked.draft())] {
        doors.refuse(&ALL, &shown, BLOCKED, &lacks);
    }
    doors.let_nothing_through();
}

// threat: A nonce passes twice, or a stranger burns it
// threat: A gateway asks twice, or remembers the answer
fn a_signature_passes_once_whoever_asks(stage: &Stage) {
    let asked = stage.asked();
    let (doors, beta) = (acme(asked), Doors::of(asked, "beta", "beta.test"));
    let agent = stage.world().agent(3);
    let mut window = Window::of(3);
    for (at, door) in ALL.into_iter().enumerate() {
        let draft = match at {
            0 => agent.draft().nonce(U256::ZERO),
            1 => agent.draft().nonce(U256::MAX),
            _ => agent.draft(),
        };
        let stranger = Shown::signed(&draft.clone().by(BOB));
        assert_eq!(doors.show(door, &stranger)[0].answer.status, 401, "and uses nothing up");
        window.spend(&doors.show(door, &Shown::signed(&draft)));
        for doors in [&doors, &beta] {
            doors.refuse(&ALL, &Shown::signed(&draft), REPLAY, &replayed(&draft));
        }
        let later = Shown::signed(&draft.clone().timestamp(draft.timestamp - 100));
        doors.refuse(&ALL, &later, REPLAY, &replayed(&draft));
    }
}

// threat: A fresh budget, or another tenant's
// threat: API and gateway judge differently
// threat: Another gateway's verdict is not ours
// threat: A gateway asks twice, or remembers the answer
fn an_agent_has_one_limit_whoever_asks(stage: &Stage) {
    let asked = stage.asked();
    let doors = acme(asked);
    let (agent, key) = stage.asked_agent(2);
    let mut window = Window::of(2);
    let (by_key, one) = (Shown::key(&key), Shown::headers(&[("X-API-Key", &key)]));
    BY_HEADERS.into_iter().for_each(|door| window.spend(&doors.show(door, &by_key)));
    for _ in 0..16 {
        window.spend(&doors.show(Door::Api, &by_key));
    }
    window.spend(&doors.show(Door::Gateway, &Shown::signed(&agent.draft())));
    window.spend(&doors.show(Door::Http2, &one));
    let draft = agent.draft();
    let limited = json!({ "agentId": agent.text(), "tier": 2, "limit": 16, "retryAfter": "some" });
    for shown in [by_key, Shown::signed(&draft)] {
        doors.refuse(&ALL, &shown, LIMITED, &limited);
    }
    doors.show(Door::Gateway, &one)[0].says(16, 0);
    // Another tenant's limit is its own, and the nonce of what was limited is still good there.
    Doors::of(asked, "beta", "beta.test").show(Door::Asked(Dialect::Envoy), &Shown::signed(&draft))[0]
        .passes(16, 15);
    let own = Doors::of(asked, "own", "own.test");
    for tier in 1..=4 {
        let ((agent, key), limit) = (stage.asked_agent(tier), u32::try_from(tier).unwrap());
        let one = Shown::headers(&[("X-API-Key", &key)]);
        for left in (0..limit).rev() {
            own.show(Door::Gateway, &one)[0].passes(limit, left);
        }
        let limited = json!({ "agentId": agent.text(), "tier": tier, "limit": limit, "retryAfter": "some" });
        own.refuse(&BY_HEADERS, &one, LIMITED, &limited);
        doors.show(Door::Gateway, &one)[0].passes(LIMITS[tier - 1], LIMITS[tier - 1] - 1);
    }
}

fn at_once_exactly_the_limit_passes(stage: &Stage) {
    let asked = stage.asked();
    for door in [Door::Api, Door::Gateway, Door::Asked(Dialect::Forward), Door::Raw] {
        let (doors, (_, key)) = (acme(asked), stage.asked_agent(2));
        let shown = if door == Door::Api { Shown::key(&key) } else { Shown::headers(&[("X-API-Key", &key)]) };
        let said: Vec<Said> = std::thread::scope(|scope| {
            let client = || (0..8).flat_map(|_| doors.show(door, &shown)).collect::<Vec<_>>();
            let clients: Vec<_> = (0..8).map(|_| scope.spawn(client)).collect();
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
        });
        let left = |said: &Said| said.answer.header("X-RateLimit-Remaining").unwrap().parse::<u32>().unwrap();
        let (passed, limited): (Vec<_>, Vec<_>) = said.into_iter().partition(|said| said.passes);
        let mut left: Vec<u32> = passed.iter().map(left).collect();
        left.sort_unstable();
        assert_eq!(left, (0..16).collect::<Vec<_>>(), "each that passes {door:?} counts once");
        assert!(limited.iter().all(|said| said.answer.status == 429), "{door:?}");
    }
}

// threat: Another gateway's verdict is not ours
// threat: A client chooses its address
fn a_client_of_a_public_route_has_one_limit_whoever_asks(stage: &Stage) {
    let asked = stage.asked();
    let doors = Doors::of(asked, "limited", "limited.test");
    let own: IpAddr = Wire::open(asked.site.gateway.address).own_address().ip();
    let told = |client| doors.told("GET", "/limited").from(client);
    let left = |said: Said| said.answer.header("x-ratelimit-remaining").map(str::to_owned);
    let asking = BY_HEADERS.into_iter().chain([Door::Gateway]);
    let lefts: Vec<_> = asking.map(|door| left(doors.ask(door, &told(own))).unwrap()).collect();
    assert_eq!(lefts, ["7", "6", "5", "4", "3", "2", "1", "0"]);
    let said = BY_HEADERS.map(|door| doors.ask(door, &told(own)));
    let verdicts = said.each_ref().map(|said| Verdict::of(&said.answer));
    assert_eq!(said.map(|said| said.answer.status), [429; 7]);
    assert!(verdicts.iter().all(|verdict| *verdict == verdicts[0]), "{verdicts:?}");
    for (at, dialect) in DIALECTS.into_iter().enumerate() {
        let other = format!("198.51.100.{at}").parse().unwrap();
        let said = doors.ask(Door::Asked(dialect), &told(other));
        assert_eq!(left(said).as_deref(), Some("7"), "each client has its own limit");
    }
}

// threat: Another gateway's verdict is not ours
fn routes_mean_the_same(stage: &Stage) {
    let asked = stage.asked();
    let (doors, golden) = (acme(asked), Doors::of(asked, "golden", "golden.test"));
    let (agent, silver) = stage.asked_agent(2);
    let keyed = |doors: &Doors<'_>, folder: &str| doors.told("GET", folder).key(&silver);
    let at = |method: &str, path: &str| Told::new(method, ACME, path);
    let blocked = json!({
        "agentId": agent.text(), "currentTier": 2, "requiredTier": 3, "requiredStake": "100000000000000000000000",
    });
    for (told, verdict, details) in [
        (keyed(&doors, "/denied"), (403, "FORBIDDEN"), Value::Null),
        (keyed(&doors, "/denied/..%2Fpublic"), (403, "FORBIDDEN"), Value::Null),
        (keyed(&doors, "/gold"), BLOCKED, blocked.clone()),
        (keyed(&golden, "/agents"), BLOCKED, blocked),
        (at("GET", "/agents/?path=/public/x"), UNPROVEN, of_nobody()),
        (at("GET", "/posted/x"), (405, "METHOD_NOT_ALLOWED"), Value::Null),
        (keyed(&doors, "/.well-known/openid-configuration"), (404, "NOT_FOUND"), Value::Null),
        (at("POST", "/register"), (404, "NOT_FOUND"), Value::Null),
        (at("POST", "/register").key(&unknown_key(32)), UNPROVEN, of_nobody()),
    ] {
        doors.refuse_request(&BY_HEADERS, &told, verdict, &details);
    }
    // HTTP/2 has words of its own for these.
    let socket = at("GET", "/socket/x").with("Upgrade", "websocket");
    let apart: Vec<Door> = BY_HEADERS.into_iter().filter(|door| *door != Door::Http2).collect();
    doors.refuse_request(&apart, &socket, UNPROVEN, &of_nobody());
    for method in ["get", "hEAD", "POSTx", "TRACE", "CONNECT", "connect", "trace"] {
        doors.refuse_request(&apart, &at(method, "/public/x"), (405, "METHOD_NOT_ALLOWED"), &Value::Null);
    }
    for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PURGE"] {
        let reads = matches!(method, "GET" | "HEAD");
        for door in BY_HEADERS {
            for folder in ["/public", "/read"].into_iter().filter(|folder| reads || *folder == "/public") {
                let told = keyed(&doors, folder);
                let (method, target) = (method.to_owned(), format!("{}?x=%2F", told.target));
                let said = doors.ask(door, &Told { method, target, ..told });
                assert!(said.passes, "{said:?}");
                let limit = said.answer.header("x-ratelimit-limit");
                assert_eq!((&*said.identity, limit), (&[][..], None), "nobody is known there");
            }
        }
        if !reads {
            doors.refuse_request(&BY_HEADERS, &at(method, "/read/x"), UNPROVEN, &of_nobody());
            let denied = at(method, "/denied/x").key(&silver);
            doors.refuse_request(&BY_HEADERS, &denied, (403, "FORBIDDEN"), &Value::Null);
        }
    }
    BY_HEADERS.into_iter().for_each(|door| assert!(golden.ask(door, &keyed(&golden, "/silver")).passes));
    let (_, gold) = stage.asked_agent(3);
    golden.show(Door::Gateway, &Shown::key(&gold))[0].passes(166, 165);
    // None of this has cost anything.
    doors.ask(Door::Gateway, &keyed(&doors, "/agents")).passes(16, 15);
}

/// What is not set is stripped, as each decision is checked for.
fn the_source_of_a_tier_and_a_stake_that_is_not_read_mean_the_same(stage: &Stage) {
    for has_vault in [false, true] {
        let asked = Asked::start(everyone_is_gold(Site::of(stage), has_vault).agent(2));
        let doors = Doors::of(&asked, "t", ACME);
        for door in BY_HEADERS {
            let forged = doors.told("GET", "/agents").key(asked.site.key());
            let forged = forged.with("X-Agent-Staked-Amount", "1").with("X-Agent-Tier-Source", "forged");
            assert_eq!(doors.ask(door, &forged).identity, graded(asked.site.agent(), has_vault), "{door:?}");
        }
    }
}

// threat: Another gateway's verdict is not ours
fn an_origin_means_the_same(stage: &Stage) {
    let asked = stage.asked();
    let agent = stage.world().agent(4);
    let key = agent.generate_for(&asked.site.gateway.service, "https://App.test:443/agent?x");
    let (doors, declared) = (acme(asked), Doors::of(asked, "declared", "declared.test"));
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
        for said in ALL.iter().flat_map(|door| doors.show(*door, &from)) {
            assert_eq!(said.identity[4].1, mismatch, "{origin}: {said:?}");
        }
        if mismatch == "true" {
            let details = json!({ "agentId": agent.text() });
            declared.refuse(&BY_HEADERS, &from, (403, "ENDPOINT_MISMATCH"), &details);
        } else {
            let said = BY_HEADERS.iter().flat_map(|door| declared.show(*door, &from));
            said.for_each(|said| assert!(said.passes, "{said:?}"));
        }
    }
    for origin in ["", "app.test", "https://app.test https://evil.test", "file://"] {
        let from = Shown::From(key.clone(), origin.to_owned());
        doors.refuse(&ALL, &from, INVALID, &wrong("origin", origin));
    }
    let origins = ["https://app.test", "https://evil.test"].map(|origin| ("Origin", origin));
    let twice = Shown::headers(&[&[("X-API-Key", &*key)], &origins[..]].concat());
    doors.refuse(&BY_LINES, &twice, INVALID, &wrong("origin", Value::Null));
    for said in ALL.iter().flat_map(|door| doors.show(*door, &Shown::key(&key))) {
        assert_eq!(said.identity[4].1, "false", "none was told: {said:?}");
    }
    let told = doors.told("GET", "/agents").key(&key).with("Origin", "https://evil.test");
    assert!(doors.ask(Door::Gateway, &told).passes);
    let seen = asked.site.upstream.only(&told.target);
    assert_eq!(seen.header("origin"), Some("https://evil.test"), "the upstream needs it for its own checks");
}

// threat: A gateway takes a refusal for leave
fn pages_of_other_origins_read_the_same(stage: &Stage) {
    let asked = stage.asked();
    let doors = Doors::of(asked, "pages", "pages.test");
    let from = |origin: &str| Shown::headers(&[("Origin", origin)]);
    let allowed = |said: &Said| said.answer.header("access-control-allow-origin").map(str::to_owned);
    for (origin, wanted) in [(PAGE, Some(PAGE)), ("https://evil.test", None)] {
        doors.refuse(&BY_HEADERS, &from(origin), UNPROVEN, &of_nobody());
        let said = &doors.show(Door::Gateway, &from(origin))[0];
        assert_eq!(
            (allowed(said).as_deref(), said.answer.header("vary").is_some()),
            (wanted, true),
            "{said:?}"
        );
    }
    let (_, key) = stage.asked_agent(4);
    for said in
        BY_HEADERS.iter().flat_map(|door| doors.show(*door, &Shown::From(key.clone(), PAGE.to_owned())))
    {
        assert_eq!((said.passes, allowed(&said).as_deref()), (true, Some(PAGE)), "{said:?}");
    }
    // A preflight's answer lets no request pass. Where any 2xx may be leave, the gateway in front answers preflights.
    let preflight = doors.told("OPTIONS", "/agents").with("Origin", PAGE);
    let preflight = preflight.with("Access-Control-Request-Method", "POST");
    let wanted = doors.ask(Door::Gateway, &preflight).answer;
    for door in [Door::Http2, Door::Asked(Dialect::Grpc), Door::Raw] {
        let said = doors.ask(door, &preflight).answer;
        assert_eq!((Verdict::of(&said), said.status), (Verdict::of(&wanted), 204), "{door:?}");
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
    let shown = Told::get(ACME, "/.well-known/tiergate");
    assert_eq!(asked.site.gateway.ask(&shown.direct()).status, 200);
    for path in [&*shown.target, "/.well-known/oauth-protected-resource/agents/x"] {
        for dialect in DIALECTS {
            let said = asked.ask(dialect, &Told::get(ACME, path));
            assert_eq!(said.error(), (401, "INVALID_API_KEY".to_owned()), "{dialect:?} {path}");
            let challenge = said.answer.header("www-authenticate").unwrap();
            assert!(!challenge.contains("resource_metadata"), "{challenge}");
            assert_eq!(said.answer.header("link"), None, "it leads to no document that is not shown");
        }
    }
}

/// Over HTTP a gateway announces the length of its own call.
fn an_announced_length_means_the_same_where_it_is_told(stage: &Stage) {
    let doors = Doors::of(stage.asked(), "short", "short.test");
    let told = |length| Told::new("POST", "short.test", &public_path()).with("content-length", length);
    let asking = [Door::Asked(Dialect::Grpc), Door::Raw];
    asking.into_iter().for_each(|door| assert!(doors.ask(door, &told("1000")).passes));
    let asking = [Door::Gateway, Door::Asked(Dialect::Grpc), Door::Raw];
    doors.refuse_request(&asking, &told("1001"), (413, "PAYLOAD_TOO_LARGE"), &Value::Null);
}

// threat: A failure admits somebody, or looks like an answer
// threat: Another gateway's verdict is not ours
fn a_dead_chain_means_the_same(stage: &Stage) {
    let mut relay = Relay::new(stage.world().chain().node);
    let node = format!("http://{}", relay.address);
    let site = Site::of(stage).set("chain.rpc_urls", vec![node.clone()]);
    // Each dialect's refusal is that of the chain, and not of the time that a decision may take.
    let asked = Asked::start(site.set("authz.timeout", "25s").agent(4));
    let (doors, site) = (Doors::of(&asked, "t", ACME), &asked.site);
    let by_key = Shown::key(site.key());
    ALL.iter().flat_map(|door| doors.show(*door, &by_key)).for_each(|said| assert!(said.passes, "{said:?}"));
    relay.close();
    // A profile that was read a moment ago may be used for one more moment.
    until("the chain is missed", SOON, || (!doors.show(Door::Api, &by_key)[0].passes).then_some(()));
    let passed = site.passed();
    for shown in [by_key, Shown::signed(&site.agent().draft())] {
        let said = doors.show(Door::Api, &shown);
        let method = said[0].answer.error(503, "RPC_ERROR")["method"].clone();
        doors.refuse(&ALL, &shown, (503, "RPC_ERROR"), &json!({ "rpcUrl": node, "method": method }));
    }
    assert_eq!(site.passed(), passed);
    for door in BY_HEADERS {
        assert!(doors.ask(door, &doors.told("GET", "/public")).passes, "a public route needs no chain");
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

    let (doors, service) = (Doors::of(&asked, "t", ACME), &asked.site.gateway.service);
    let moment = format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(accepted_from)).to_string();
    let checks = json!({ "store": "ok", "chain": "ok", "signatures": format!("refused until {moment}") });
    assert_eq!(service.get("/readyz").success(200), json!({ "status": "ready", "checks": checks }));
    let told = format!("Nonces may have been lost: sign again at {moment} or later");
    let early = asked.site.agent().draft().timestamp(accepted_from - 1);
    let by_api = SIGNED_ENDPOINTS.map(|endpoint| service.signed(endpoint, &early.body()));
    let shown = Shown::signed(&early);
    let by_doors = BY_HEADERS.iter().flat_map(|door| doors.show(*door, &shown)).map(|said| said.answer);
    for answer in by_api.into_iter().chain(by_doors) {
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!((answer.status, &body["errorType"]), (400, &json!("REPLAY_DETECTED")));
        assert_eq!((&body["error"], &body["details"]), (&json!(told), &replayed(&early)));
        let wait_secs = answer.header("retry-after").unwrap().parse().unwrap();
        assert!((accepted_from - unix_seconds()..=1_000).contains(&wait_secs), "{wait_secs}");
    }
    for door in ALL {
        let draft = asked.site.agent().draft().timestamp(accepted_from);
        assert!(doors.show(door, &Shown::signed(&draft))[0].passes, "{door:?}");
        doors.refuse(&ALL, &Shown::signed(&draft), REPLAY, &replayed(&draft));
        assert!(doors.show(door, &Shown::key(asked.site.key()))[0].passes, "{door:?}");
    }
    assert!(doors.show(Door::Gateway, &Shown::signed(&early.timestamp(accepted_from)))[0].passes);
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
