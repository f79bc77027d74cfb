//! Upgrades: every refusal is the same with and without one, and only a route that allows them passes one on.

use std::io::{self, Read, Write};

use serde_json::json;
use tungstenite::protocol::Role;
use tungstenite::{Message, WebSocket};

use crate::access_log::line_of;
use crate::rig::case::{Case, cases};
use crate::rig::refusals::{is_unauthenticated, refused};
use crate::rig::scripts::{self, script};
use crate::rig::stage::{ACME, Stage, agents_path, unique};
use crate::rig::upstream::{Exchange, Script, Then};
use crate::rig::{site::Site, tenants::Tenant};
use crate::support::wire::{Patient, Request, Wire};

pub(crate) const CASES: &[Case] = cases![
    connect_and_trace_reach_nothing,
    an_upgrade_is_passed_on_by_its_route_alone_and_to_websocket_alone,
    a_websocket_talks_both_ways_where_the_route_allows_it_and_spends_a_budget,
    an_upgrade_that_is_answered_at_once_is_not_cut_off,
    a_page_of_an_origin_that_cors_does_not_list_opens_no_websocket,
    an_upstream_that_does_not_upgrade_answers_as_usual,
    a_switch_to_another_protocol_is_not_waited_for_and_the_connection_kept,
    behind_a_switch_nothing_of_ours_is_written_and_the_log_says_why_it_ended,
    bytes_sent_along_with_an_upgrade_are_not_a_request,
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

/// They open no tunnel, and the request behind them is judged by itself.
// threat: An upgrade gets around the check
fn connect_and_trace_reach_nothing(stage: &Stage) {
    let ((_, key), site, word) = (stage.agent(4), stage.site(), unique());
    let own = site.upstream.address.to_string();
    let [open, socket, denied] = ["public", "socket", "denied"].map(|folder| format!("/{folder}/{word}"));
    for (method, host, target, status) in [
        ("CONNECT", ACME, "acme.test:443", 405),
        ("CONNECT", ACME, &socket, 405),
        ("CONNECT", ACME, &own, 405),
        ("CONNECT", &own, &own, 404),
        ("TRACE", ACME, &open, 405),
        ("TRACE", ACME, &denied, 405),
        ("TRACE", ACME, &socket, 405),
    ] {
        let request = Request::new(method, host, target);
        for request in [request.clone(), request.key(&key)] {
            let mut wire = site.gateway.connect();
            wire.send(&request.bytes());
            assert_eq!(wire.answer().status, status, "{method} {target}");
            let sent = wire.write(&Request::get(ACME, &format!("/agents/{word}")).bytes());
            match sent.and_then(|()| wire.try_answer()) {
                Ok(answer) => is_unauthenticated(&answer),
                Err(_) => assert_eq!(String::from_utf8_lossy(&wire.rest()), "", "it is closed"),
            }
        }
    }
    site.is_unseen(&word);
}

/// Whatever a route without upgrades is asked for, and h2c or an unknown protocol everywhere, is a request as any.
// threat: An upgrade gets around the check
fn an_upgrade_is_passed_on_by_its_route_alone_and_to_websocket_alone(stage: &Stage) {
    let ((_, key), site) = (stage.agent(4), stage.site());
    for (at, kind) in KINDS.iter().enumerate() {
        for folder in if at > 4 { &["agents", "public", "socket"][..] } else { &["agents", "public"] } {
            let path = format!("/{folder}/{}", unique());
            let answer = site.gateway.ask(&with_kind(Request::get(ACME, &path).key(&key), kind));
            assert_eq!((answer.status, &answer.json()["target"]), (200, &json!(path)), "{kind:?}");
            let seen = site.upstream.only(&path);
            let connection = seen.header("connection").unwrap_or_default().to_lowercase();
            assert!(!connection.contains("upgrade"), "{kind:?}: {connection}");
            assert_eq!((seen.header("upgrade"), seen.header("http2-settings")), (None, None), "{kind:?}");
        }
    }
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

// threat: An upgrade gets around the check
fn a_websocket_talks_both_ways_where_the_route_allows_it_and_spends_a_budget(stage: &Stage) {
    let (agent, key) = stage.agent(1);
    let site = stage.site();
    let path = format!("/socket/{}", unique());
    site.upstream.on(&path, websocket_echo());
    let request = Request::get(ACME, &path).key(&key);
    let mut wire = site.gateway.connect();
    talks(&mut open_socket(&mut wire, &request));
    let seen = site.upstream.only(&path);
    assert_eq!(seen.header("x-agent-id"), Some(agent.text().as_str()));
    assert!(!String::from_utf8_lossy(&seen.head).contains(&key), "the credential stays here");
    assert_eq!(site.gateway.ask(&with_kind(request, WEBSOCKET)).status, 429);
    let path = format!("/open-socket/{}", unique());
    site.upstream.on(&path, websocket_echo());
    let mut wire = site.gateway.connect();
    talks(&mut open_socket(&mut wire, &Request::get(ACME, &path)));
    assert_eq!(site.upstream.only(&path).header("x-agent-id"), None);
}

/// The answer is there before the gateway reads for it. Those of upstreams nearby may be.
fn an_upgrade_that_is_answered_at_once_is_not_cut_off(stage: &Stage) {
    let open = |tenant: Tenant| tenant.route("/open/*", "access = \"public\"\nupgrades = true");
    let site = Site::of(stage).tenant(open).start();
    site.upstream.greet(Some(|mut stream| {
        let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
        let mut seen = stream.write_all(head.as_bytes()).map_or(Vec::new(), |()| vec![0]);
        while !seen.is_empty() && !seen.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            seen = if stream.read_exact(&mut byte).is_ok() {
                [seen, byte.to_vec()].concat()
            } else {
                Vec::new()
            };
        }
        let mut socket = WebSocket::from_raw_socket(stream, Role::Server, None);
        let _ = socket.read().map(|message| socket.send(message));
    }));
    let is_cut_off = || {
        let mut wire = site.gateway.connect();
        let mut socket = open_socket(&mut wire, &Request::get(ACME, "/open/x"));
        let sent = socket.send(Message::text("hello"));
        sent.is_err() || socket.read().is_err()
    };
    let cut_off = (0..20).filter(|_| is_cut_off()).count();
    assert_eq!(cut_off, 0, "of 20 upgrades");
}

// threat: Pages of other origins
fn a_page_of_an_origin_that_cors_does_not_list_opens_no_websocket(stage: &Stage) {
    const PAGE: &str = "https://page.example";
    let sockets = |tenant: Tenant| {
        let public = tenant.route("/open", "access = \"public\"\nupgrades = true");
        public.route("/socket", "access = \"agents\"\nupgrades = true")
    };
    let other = |upstream| sockets(Tenant::new("plain", "plain.test", upstream));
    let any = |upstream| sockets(Tenant::new("any", "any.test", upstream)).set("cors.origins", vec!["*"]);
    // No limit on bodies ends a WebSocket.
    let listed = |tenant| sockets(tenant).set("cors.origins", vec![PAGE]).set("max_body_bytes", 100);
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
                assert_eq!(site.upstream.whole(&path).body, b"body");
                assert_ne!(answer.header("connection"), Some("close"), "{folder} {kind:?}");
            }
        }
    }
}

// threat: Our bytes in another's stream
fn behind_a_switch_nothing_of_ours_is_written_and_the_log_says_why_it_ended(stage: &Stage) {
    const FRAME: &[u8] = b"\x81\x02hi";
    for (reason, silence, total) in [("idle", "3s", "1h"), ("overdue", "1m", "5s"), ("upstream", "1m", "1h")]
    {
        let socket = |tenant: Tenant| {
            let tenant = tenant.route("/socket", "access = \"public\"\nupgrades = true");
            let tenant = tenant.set("timeouts.read", silence).set("timeouts.write", silence);
            tenant.set("timeouts.total", total)
        };
        let settings = Site::of(stage).set("log.access", true).set("log.format", "json");
        let Site { gateway, upstream, .. } = &settings.tenant(socket).start();
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

// threat: An upgrade gets around the check
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
