//! Upgrades: every refusal is the same with and without one, and only a route that allows them passes one on.

use std::io;

use serde_json::json;
use tungstenite::protocol::Role;
use tungstenite::{Message, WebSocket};

use crate::access_log::line_of;
use crate::rig::case::{Case, cases};
use crate::rig::credentials::signed;
use crate::rig::refusals::{is_unauthenticated, refused};
use crate::rig::scripts::{self, script};
use crate::rig::site::Site;
use crate::rig::stage::{ACME, Stage, agents_path, public_path, unique};
use crate::rig::tenants::Tenant;
use crate::rig::upstream::{Exchange, Script, Then};
use crate::support::agents::unknown_key;
use crate::support::signing::BOB;
use crate::support::wire::{Patient, Request, Wire};

pub(crate) const CASES: &[Case] = cases![
    every_refusal_is_the_same_with_an_upgrade,
    connect_reaches_nothing,
    trace_is_405_and_reaches_nothing,
    a_route_without_upgrades_does_not_pass_one_on,
    an_unknown_upgrade_and_h2c_are_never_passed_on,
    a_websocket_talks_both_ways_where_the_route_allows_it,
    an_upgrade_that_is_answered_at_once_is_not_cut_off,
    the_limit_on_bodies_does_not_end_a_websocket,
    a_websocket_needs_a_credential_like_anything_else,
    a_page_of_an_origin_that_cors_does_not_list_opens_no_websocket,
    an_upstream_that_does_not_upgrade_answers_as_usual,
    a_switch_to_another_protocol_is_not_waited_for_and_the_connection_kept,
    behind_a_switch_nothing_of_ours_is_written_and_the_log_says_why_it_ended,
    bytes_sent_along_with_an_upgrade_are_not_a_request,
    a_body_that_comes_with_an_upgrade_is_forwarded_as_a_body,
];

pub(crate) type Kind = &'static [(&'static str, &'static str)];

/// The headers of each kind of upgrade.
pub(crate) const KINDS: &[Kind] = &[
    &[],
    &[
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ],
    &[("Connection", "Upgrade"), ("Upgrade", "WebSocket")],
    &[("Upgrade", "websocket")],
    &[("Connection", "keep-alive, Upgrade"), ("Upgrade", "websocket")],
    &[("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "AAMAAABkAAQAAP__")],
    &[("Connection", "Upgrade"), ("Upgrade", "tiergate/1")],
    &[("Connection", "Upgrade"), ("Upgrade", "websocket, h2c")],
    &[("Connection", "Upgrade"), ("Upgrade", "")],
];

pub(crate) const WEBSOCKET: Kind = KINDS[1];

pub(crate) fn with_kind(request: Request, kind: &[(&str, &str)]) -> Request {
    kind.iter().fold(request, |request, (name, value)| request.with(name, value))
}

fn every_refusal_is_the_same_with_an_upgrade(stage: &Stage) {
    let site = stage.site();
    let (unstaked, no_tier) = stage.agent(0);
    let (_, spent) = stage.agent(1);
    let (agent, good) = stage.agent(2);
    assert_eq!(site.gateway.ask(&Request::get(ACME, &agents_path()).key(&spent)).status, 200);
    let replayed = signed(&agent.draft());
    assert_eq!(site.gateway.ask(&Request::get(ACME, &agents_path()).with_all(&replayed)).status, 200);
    let (word, stranger) = (unique(), signed(&agent.draft().by(BOB)));
    let at = |folder: &str| Request::get(ACME, &format!("/{folder}/{word}"));
    let refusals = [
        (at("agents"), 401, "INVALID_API_KEY"),
        (at("socket"), 401, "INVALID_API_KEY"),
        (at("denied"), 403, "FORBIDDEN"),
        (Request::get("unknown.test", &format!("/public/{word}")), 404, "NOT_FOUND"),
        (at("socket").key(&unknown_key(30)), 401, "INVALID_API_KEY"),
        (at("socket").key("svc_live_v1_short"), 400, "VALIDATION_ERROR"),
        (at("socket").key(&no_tier), 403, "TIER_BLOCKED"),
        (at("socket").key(&spent), 429, "RATE_LIMITED"),
        (at("gold").key(&good), 403, "TIER_BLOCKED"),
        (at("socket").key(&good).key(&good), 401, "INVALID_API_KEY"),
        (at("socket").key(&good).with_all(&replayed), 400, "VALIDATION_ERROR"),
        (at("socket").with_all(&replayed), 400, "REPLAY_DETECTED"),
        (at("socket").with_all(&stranger), 401, "SIGNATURE_INVALID"),
        (at("socket").with_all(&signed(&unstaked.draft())), 403, "TIER_BLOCKED"),
        (Request::get("signatures.test", &format!("/x/{word}")).key(&good), 401, "INVALID_API_KEY"),
    ];
    for (request, status, error_type) in &refusals {
        // The first kind is none.
        for kind in KINDS {
            let answer = site.gateway.ask(&with_kind(request.clone(), kind));
            assert_eq!(refused(&answer, *status), *error_type, "{request:?} with {kind:?}");
        }
    }
    site.is_unseen(&word);
}

/// Refuses a request with this method, and judges what comes behind it as a request of its own.
#[track_caller]
fn opens_nothing(stage: &Stage, request: &Request, status: u16, word: &str) {
    let site = stage.site();
    let mut wire = site.gateway.connect();
    wire.send(&request.bytes());
    assert_eq!(wire.answer().status, status);
    let sent = wire.write(&Request::get(ACME, &format!("/agents/{word}")).bytes());
    match sent.and_then(|()| wire.try_answer()) {
        Ok(answer) => is_unauthenticated(&answer),
        Err(_) => assert_eq!(String::from_utf8_lossy(&wire.rest()), "", "it is closed"),
    }
}

fn connect_reaches_nothing(stage: &Stage) {
    let (_, key) = stage.agent(4);
    let word = unique();
    let own = stage.site().upstream.address.to_string();
    let (open, socket) = (format!("/public/{word}"), format!("/socket/{word}"));
    for (host, target, status) in [
        (ACME, "acme.test:443", 405),
        (ACME, &open, 405),
        (ACME, &socket, 405),
        (ACME, &own, 405),
        (&own, &own, 404),
        ("unknown.test", "unknown.test:443", 404),
    ] {
        let request = Request::new("CONNECT", host, target);
        opens_nothing(stage, &request, status, &word);
        opens_nothing(stage, &request.key(&key), status, &word);
    }
    stage.site().is_unseen(&word);
}

fn trace_is_405_and_reaches_nothing(stage: &Stage) {
    let (_, key) = stage.agent(4);
    let word = unique();
    for folder in ["public", "agents", "denied", "read", "socket"] {
        let request = Request::new("TRACE", ACME, &format!("/{folder}/{word}"));
        opens_nothing(stage, &request, 405, &word);
        opens_nothing(stage, &request.key(&key).body(b"body"), 405, &word);
    }
    stage.site().is_unseen(&word);
}

/// Forwards a request with each of these upgrades as one without any.
fn pass_no_upgrade_on(stage: &Stage, folders: &[&str], kinds: impl Iterator<Item = &'static Kind>) {
    let (_, key) = stage.agent(4);
    let site = stage.site();
    let mut passed = 0;
    for kind in kinds {
        for folder in folders {
            let path = format!("/{folder}/{}", unique());
            let answer = site.gateway.ask(&with_kind(Request::get(ACME, &path).key(&key), kind));
            assert_eq!((answer.status, &answer.json()["target"]), (200, &json!(path)), "{kind:?}");
            let seen = site.upstream.only(&path);
            let connection = seen.header("connection").unwrap_or_default().to_lowercase();
            assert!(!connection.contains("upgrade"), "{kind:?}: {connection}");
            assert_eq!((seen.header("upgrade"), seen.header("http2-settings")), (None, None), "{kind:?}");
            passed += 1;
        }
    }
    assert!(passed >= 8, "{passed}");
}

fn a_route_without_upgrades_does_not_pass_one_on(stage: &Stage) {
    pass_no_upgrade_on(stage, &["agents", "public"], KINDS.iter());
}

fn an_unknown_upgrade_and_h2c_are_never_passed_on(stage: &Stage) {
    let is_unknown = |kind: &&Kind| {
        kind.iter().any(|(name, value)| *name == "Upgrade" && !value.eq_ignore_ascii_case("websocket"))
    };
    pass_no_upgrade_on(stage, &["socket", "open-socket"], KINDS.iter().filter(is_unknown));
}

/// Upgrades whatever asks for it, and then sends every message back.
pub(crate) fn websocket_echo() -> Script {
    script(|exchange: &mut Exchange| {
        let Some(key) = exchange.seen.header("sec-websocket-key").map(str::to_owned) else {
            return (scripts::echo())(exchange);
        };
        let accept = tungstenite::handshake::derive_accept_key(key.as_bytes());
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
        );
        exchange.write(head.as_bytes())?;
        let early = exchange.buffered();
        let mut socket = WebSocket::from_partially_read(exchange.socket()?, early, Role::Server, None);
        while let Ok(message) = socket.read() {
            if message.is_text() || message.is_binary() {
                socket.send(message).map_err(io::Error::other)?;
            }
        }
        Ok(Then::Closes)
    })
}

pub(crate) fn open_socket(wire: &mut Wire, request: &Request) -> WebSocket<Patient> {
    wire.send(&with_kind(request.clone(), WEBSOCKET).bytes());
    let answer = wire.head().unwrap();
    assert_eq!(answer.status, 101, "{answer:?}");
    assert_eq!(answer.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert!(answer.header("upgrade").is_some_and(|upgrade| upgrade.eq_ignore_ascii_case("websocket")));
    WebSocket::from_raw_socket(wire.socket(), Role::Client, None)
}

pub(crate) fn talks(socket: &mut WebSocket<Patient>) {
    for text in ["one", "two", &"long ".repeat(100_000)] {
        socket.send(Message::text(text)).unwrap();
        assert_eq!(socket.read().unwrap().into_text().unwrap().as_str(), text);
    }
    let bytes = vec![0_u8; 300_000];
    socket.send(Message::binary(bytes.clone())).unwrap();
    assert_eq!(socket.read().unwrap().into_data(), bytes);
    socket.close(None).unwrap();
    while socket.read().is_ok() {}
}

fn a_websocket_talks_both_ways_where_the_route_allows_it(stage: &Stage) {
    let (agent, key) = stage.agent(3);
    let site = stage.site();
    let path = format!("/socket/{}", unique());
    site.upstream.on(&path, websocket_echo());
    let mut wire = site.gateway.connect();
    talks(&mut open_socket(&mut wire, &Request::get(ACME, &path).key(&key)));
    let seen = site.upstream.only(&path);
    assert_eq!(seen.header("x-agent-id"), Some(agent.text().as_str()));
    assert!(!String::from_utf8_lossy(&seen.head).contains(&key), "the credential stays here");
    let path = format!("/open-socket/{}", unique());
    site.upstream.on(&path, websocket_echo());
    let mut wire = site.gateway.connect();
    talks(&mut open_socket(&mut wire, &Request::get(ACME, &path)));
    assert_eq!(site.upstream.only(&path).header("x-agent-id"), None);
}

/// Upstreams nearby answer before the gateway has turned to its client again.
fn an_upgrade_that_is_answered_at_once_is_not_cut_off(stage: &Stage) {
    let site = stage.site();
    let path = format!("/open-socket/{}", unique());
    site.upstream.on(&path, websocket_echo());
    let is_cut_off = || {
        let mut wire = site.gateway.connect();
        let mut socket = open_socket(&mut wire, &Request::get(ACME, &path));
        let sent = socket.send(Message::text("hello"));
        sent.is_err() || socket.read().is_err()
    };
    let cut_off = (0..300).filter(|_| is_cut_off()).count();
    assert_eq!(cut_off, 0, "of 300 upgrades");
}

fn the_limit_on_bodies_does_not_end_a_websocket(stage: &Stage) {
    let socket = |tenant: Tenant| {
        tenant.set("max_body_bytes", 100).route("/socket", "access = \"public\"\nupgrades = true")
    };
    let Site { gateway, upstream, .. } = &Site::of(stage).tenant(socket).start();
    upstream.on("/socket", websocket_echo());
    talks(&mut open_socket(&mut gateway.connect(), &Request::get(ACME, "/socket")));
}

fn a_websocket_needs_a_credential_like_anything_else(stage: &Stage) {
    let (_, key) = stage.agent(1);
    let site = stage.site();
    let path = format!("/socket/{}", unique());
    site.upstream.on(&path, websocket_echo());
    let request = with_kind(Request::get(ACME, &path), WEBSOCKET);
    is_unauthenticated(&site.gateway.ask(&request));
    site.is_unseen(&path);
    let mut wire = site.gateway.connect();
    talks(&mut open_socket(&mut wire, &Request::get(ACME, &path).key(&key)));
    let limited = site.gateway.ask(&request.key(&key));
    assert_eq!(limited.status, 429, "an upgrade spends the budget like anything else");
}

fn a_page_of_an_origin_that_cors_does_not_list_opens_no_websocket(stage: &Stage) {
    const PAGE: &str = "https://page.example";
    let sockets = |tenant: Tenant| {
        let public = tenant.route("/open", "access = \"public\"\nupgrades = true");
        public.route("/socket", "access = \"agents\"\nupgrades = true")
    };
    let other = |upstream| sockets(Tenant::new("plain", "plain.test", upstream));
    let any = |upstream| sockets(Tenant::new("any", "any.test", upstream)).set("cors.origins", vec!["*"]);
    let listed = |tenant| sockets(tenant).set("cors.origins", vec![PAGE]);
    let site = Site::of(stage).tenant(listed).also(other).also(any).agent(4).start();
    for path in ["/open", "/socket"] {
        site.upstream.on(path, websocket_echo());
        let request = |host: &str| Request::get(host, path).key(site.key());
        for origins in [&["https://evil.example"][..], &["null"], &[PAGE, PAGE], &["https://PAGE.example"]] {
            let asked = origins.iter().fold(request(ACME), |request, origin| request.with("Origin", origin));
            let answer = site.gateway.ask(&with_kind(asked, WEBSOCKET));
            assert_eq!(refused(&answer, 403), "FORBIDDEN", "{origins:?}");
        }
        assert_eq!(site.upstream.count_at(path), 0);
        let elsewhere = |host: &str| request(host).with("Origin", "https://evil.example");
        for passing in [
            request(ACME),
            request(ACME).with("Origin", PAGE),
            elsewhere("plain.test"),
            elsewhere("any.test"),
        ] {
            talks(&mut open_socket(&mut site.gateway.connect(), &passing));
        }
        // A browser lets no such page read this answer.
        site.upstream.on(path, scripts::echo());
        assert_eq!(site.gateway.ask(&elsewhere(ACME)).status, 200);
        site.upstream.on(path, websocket_echo());
    }
}

/// The connection ends behind the answer: a client that believed in an upgrade would not speak HTTP on it.
fn an_upstream_that_does_not_upgrade_answers_as_usual(stage: &Stage) {
    let site = stage.site();
    let next = agents_path();
    for (status, number) in [("200 OK", 200), ("426 Upgrade Required", 426), ("403 Forbidden", 403)] {
        let path = format!("/open-socket/{}", unique());
        site.upstream.on(&path, scripts::bytes(scripts::answer(status, &[], b"no"), Then::Goes));
        let mut wire = site.gateway.connect();
        wire.send(&with_kind(Request::get(ACME, &path), WEBSOCKET).bytes());
        let answer = wire.answer();
        assert_eq!((answer.status, answer.text().as_str()), (number, "no"));
        let _ = wire.write(&Request::get(ACME, &next).bytes());
        assert_eq!(String::from_utf8_lossy(&wire.rest()), "", "another answer");
    }
    site.is_unseen(&next);
}

/// Java's client asks for h2c with every request until it is answered in it (RFC 9110, section 7.8).
fn a_switch_to_another_protocol_is_not_waited_for_and_the_connection_kept(stage: &Stage) {
    let library = Site::of(stage).way("library").start();
    for (site, folders) in [(stage.site(), &["public", "open-socket"][..]), (&library, &["public"])] {
        let mut wire = site.gateway.connect();
        for kind in [KINDS[5], KINDS[6], KINDS[8]] {
            for folder in folders {
                let path = format!("/{folder}/{}", unique());
                let request = with_kind(Request::new("POST", ACME, &path), kind).body(b"body");
                let answer = request.ask_on(&mut wire);
                assert_eq!(answer.status, 200, "{folder} {kind:?}: {}", answer.text());
                assert_ne!(answer.header("connection"), Some("close"), "{folder} {kind:?}");
            }
        }
    }
}

fn behind_a_switch_nothing_of_ours_is_written_and_the_log_says_why_it_ended(stage: &Stage) {
    const FRAME: &[u8] = b"\x81\x02hi";
    let socket = |tenant: Tenant| {
        tenant
            .impatient()
            .route("/socket", "access = \"public\"\nupgrades = true")
            .set("timeouts.total", "1s")
    };
    let settings = Site::of(stage).set("log.access", true).set("log.format", "json");
    let Site { gateway, upstream, .. } = &settings.tenant(socket).start();
    for reason in ["idle", "overdue", "upstream"] {
        let id = unique();
        upstream.on(
            "/socket",
            script(move |exchange| {
                exchange.write(
                    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
                )?;
                exchange.write(FRAME)?;
                if reason == "upstream" {
                    // The frame goes its way before the reset.
                    exchange.read_raw()?;
                    rustix::net::connect_unspec(&exchange.socket()?.0)?;
                }
                while reason == "overdue" && exchange.read_raw().is_ok_and(|bytes| !bytes.is_empty()) {
                    exchange.write(FRAME)?;
                }
                exchange.until_closed();
                Ok(Then::Closes)
            }),
        );
        let mut wire = gateway.connect();
        let request = with_kind(Request::get(ACME, "/socket"), WEBSOCKET).with("X-Request-Id", &id);
        wire.send(&request.bytes());
        assert_eq!(wire.head().unwrap().status, 101);
        assert_eq!(wire.take(FRAME.len()).unwrap(), FRAME);
        if reason == "upstream" {
            wire.send(b"x");
        }
        while reason == "overdue" && wire.write(b"x").is_ok() && wire.take(FRAME.len()).is_ok() {}
        assert_eq!(String::from_utf8_lossy(&wire.rest()), "", "{reason}");
        let line = line_of(gateway, "request_id", &id);
        assert_eq!((&line["reason"], &line["status"]), (&json!(reason), &json!(101)), "{line}");
        assert_eq!(line.get("error_type"), None, "{line}");
    }
}

fn bytes_sent_along_with_an_upgrade_are_not_a_request(stage: &Stage) {
    let site = stage.site();
    let agents = agents_path();
    // The library refuses them where the request may be upgraded; elsewhere the answer is the connection's last.
    for (folder, kind, status) in [("open-socket", KINDS[1], 400), ("public", KINDS[1], 403)] {
        let path = format!("/{folder}/{}", unique());
        let refusal = "HTTP/1.1 403 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        site.upstream.on(&path, scripts::hang(refusal));
        let smuggled = Request::get(ACME, &agents).with("X-Agent-Tier", "4").bytes();
        let mut wire = site.gateway.connect();
        wire.send(&[with_kind(Request::get(ACME, &path), kind).bytes(), smuggled].concat());
        assert_eq!(wire.answer().status, status, "{folder} {kind:?}");
        assert_eq!(String::from_utf8_lossy(&wire.rest()), "", "another answer");
    }
    site.is_unseen(&agents);
}

fn a_body_that_comes_with_an_upgrade_is_forwarded_as_a_body(stage: &Stage) {
    let site = stage.site();
    let inner = public_path();
    let body = format!("GET {inner} HTTP/1.1\r\nHost: {ACME}\r\n\r\n");
    for kind in KINDS {
        for folder in ["public", "open-socket"] {
            let path = format!("/{folder}/{}", unique());
            let request = with_kind(Request::new("POST", ACME, &path), kind).body(body.as_bytes());
            let answer = site.gateway.ask(&request);
            assert_eq!(answer.status, 200, "{folder} {kind:?}: {}", answer.text());
            assert_eq!(site.upstream.whole(&path).body, body.as_bytes(), "{kind:?}");
        }
    }
    site.is_unseen(&inner);
}
