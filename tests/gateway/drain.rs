//! The end of the process: readiness, the delay, the grace, and a second signal.

use std::{net::TcpStream, sync::Arc, thread, time::Duration};

use rustix::process::Signal;
use serde_json::json;

use crate::rig::authz::{Asked, Dialect, Original};
use crate::rig::case::{Case, cases};
use crate::rig::frames::{End, Frames};
use crate::rig::h2c::{self, Message};
use crate::rig::listeners::{HTTP_1, LISTENER, ListenerTls};
use crate::rig::scripts::{self, Cue};
use crate::rig::stage::{ACME, Stage, public_path};
use crate::rig::{gateway::Gateway, site::Site, tunnels::Greeting, upstream::Upstream};
use crate::support::time::{SOON, Stopwatch, until};
use crate::support::wire::{Request, Wire};
use crate::upgrades::{open_socket, talks, websocket_echo};

pub(crate) const CASES: &[Case] = cases![
    during_the_delay_readiness_is_503_and_everything_else_is_served,
    a_process_without_connections_ends_at_once,
    idle_connections_are_told_of_the_end_and_then_closed,
    connections_that_the_system_has_taken_are_served_at_every_listener_and_none_is_reset,
    streams_go_on_and_the_process_ends_with_the_last_of_them,
    streams_that_outlive_the_grace_are_cut_off,
    a_second_signal_and_an_interrupt_end_the_process_at_once,
];

/// The longest grace: no test waits for its end.
const LONG: &str = "24h";

fn exit_code(gateway: &Gateway) -> Option<i32> {
    gateway.service.process.as_ref().unwrap().exit_code()
}

/// The process ends long before [`LONG`] is over.
#[track_caller]
fn ends(gateway: &Gateway) {
    assert_eq!(until("the process ends", SOON, || exit_code(gateway)), 0, "{}", gateway.service.log());
}

fn refuses_connections(gateway: &Gateway) {
    for address in [gateway.address, gateway.service.api, gateway.service.admin] {
        until("no connection is taken", SOON, || TcpStream::connect(address).err());
    }
}

fn during_the_delay_readiness_is_503_and_everything_else_is_served(stage: &Stage) {
    let site = Site::of(stage).set("shutdown.delay", "1h").set("shutdown.grace", LONG).agent(4).start();
    let gateway = &site.gateway;
    let mut kept = gateway.connect();
    let served = |kept: &mut Wire| {
        for wire in [kept, &mut gateway.connect()] {
            let answer = site.by_key().ask_on(wire);
            assert_eq!((answer.status, answer.header("connection")), (200, None));
        }
        let request = Message::request(http::Method::GET, ACME, &public_path());
        assert_eq!(h2c::ask(gateway.address, &request).unwrap().status, 200);
        gateway.service.verify(site.key()).success(200);
        gateway.service.samples();
    };
    served(&mut kept);
    let checks = json!({ "store": "ok", "chain": "ok" });
    gateway.service.await_ready();
    assert_eq!(gateway.service.get("/readyz").success(200), json!({ "status": "ready", "checks": checks }));
    gateway.signal(Signal::TERM);
    // The answer of a moment ago does not serve any more.
    let stopping = json!({ "status": "stopping", "checks": checks });
    until("it is not ready", SOON, || {
        let unready = gateway.service.get("/readyz");
        (unready.status == 503 && unready.json() == stopping).then_some(())
    });
    assert_eq!(gateway.service.get("/readyz?for=balancer").status, 503);
    served(&mut kept);
    gateway.signal(Signal::TERM);
    ends(gateway);
}

fn a_process_without_connections_ends_at_once(stage: &Stage) {
    let Site { gateway, .. } = &Site::of(stage).set("shutdown.grace", LONG).start();
    gateway.signal(Signal::TERM);
    ends(gateway);
}

fn idle_connections_are_told_of_the_end_and_then_closed(stage: &Stage) {
    for way in ["relay", "library"] {
        let site = Site::of(stage).set("shutdown.grace", LONG).way(way).start();
        let gateway = &site.gateway;
        let request = Request::get(ACME, &public_path());
        let (mut used, mut idle, mut silent) = (gateway.connect(), gateway.connect(), gateway.connect());
        assert_eq!(request.ask_on(&mut idle).status, 200);
        let mut frames = Frames::open(gateway.address);
        let pseudo = [(":method", "GET"), (":scheme", "http"), (":authority", ACME), (":path", "/public/h2")];
        frames.headers(&pseudo, true);
        assert_eq!(frames.end(), End::Answered);
        gateway.signal(Signal::TERM);
        until("an answer is the last one", SOON, || {
            let answer = request.ask_on(&mut used);
            assert_eq!(answer.status, 200);
            (answer.header("connection") == Some("close")).then_some(())
        });
        let watch = Stopwatch::start();
        for wire in [&mut used, &mut idle, &mut silent] {
            assert_eq!(wire.rest(), b"", "it is closed without another answer");
        }
        assert!(watch.elapsed() < SOON / 2, "{:?}", watch.elapsed());
        assert!(frames.goodbye(), "{way}");
        ends(gateway);
    }
}

fn connections_that_the_system_has_taken_are_served_at_every_listener_and_none_is_reset(stage: &Stage) {
    // The listener of operators holds 64 connections.
    const EACH: usize = 60;
    for signal in [Signal::TERM, Signal::QUIT] {
        let site = Site::of(stage).set("shutdown.delay", "0s").set("shutdown.grace", LONG);
        let Asked { site, authz } = &Asked::start(site);
        let (gateway, service) = (&site.gateway, &site.gateway.service);
        let secure = Site::of(stage).set("shutdown.delay", "0s").set("shutdown.grace", LONG);
        let secure = secure.tls(ListenerTls::new()).start();
        gateway.freeze();
        secure.gateway.freeze();
        let requests = [
            (gateway.address, Request::get(ACME, &public_path())),
            (service.api, Request::get("localhost", "/livez")),
            (service.admin, Request::get("localhost", "/metrics")),
            (*authz, Original::get(ACME, &public_path()).of_tenant("t").call(Dialect::Forward)),
        ];
        let (mut waiting, mut over_http_2) = (Vec::new(), Vec::new());
        for _ in 0..EACH {
            for (address, request) in &requests {
                let mut wire = Wire::open(*address);
                wire.send(&request.bytes());
                waiting.push((wire, address));
            }
            for address in [gateway.address, *authz] {
                let mut frames = Frames::open(address);
                let pseudo =
                    [(":method", "GET"), (":scheme", "http"), (":authority", ACME), (":path", "/public/h2")];
                frames.headers(&pseudo, true);
                over_http_2.push(frames);
            }
        }
        let over_tls: Vec<_> = (0..10).map(|_| TcpStream::connect(secure.tls().address).unwrap()).collect();
        gateway.signal(signal);
        gateway.signal(Signal::CONT);
        for (wire, address) in &mut waiting {
            assert_eq!(wire.try_answer().map(|answer| answer.status).ok(), Some(200), "{address}");
        }
        for frames in &mut over_http_2 {
            assert_eq!(frames.end(), End::Answered);
        }
        // Few and all at once: a handshake may take ten seconds from when it is accepted.
        let greeting = &Greeting::new(&secure.tls().authority, LISTENER, HTTP_1);
        thread::scope(|scope| {
            for stream in over_tls {
                scope.spawn(move || greeting.meet_on(stream).unwrap());
            }
            secure.gateway.signal(signal);
            secure.gateway.signal(Signal::CONT);
        });
        drop((waiting, over_http_2));
        ends(gateway);
        ends(&secure.gateway);
    }
}

/// An event stream with its first event, at a path of its own; each cue brings another one, the last of which is its end.
pub(crate) fn event_stream(gateway: &Gateway, upstream: &Upstream, cues: &[Arc<Cue>]) -> Wire {
    let path = public_path();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
    upstream.on(&path, scripts::chunks_on_cue(head, &["data: 1\n\n", "data: 2\n\n", "data: 3\n\n"], cues));
    let mut wire = gateway.connect();
    wire.send(&Request::get(ACME, &path).bytes());
    assert_eq!(wire.head().unwrap().status, 200);
    assert_eq!(wire.chunk().unwrap().unwrap(), b"data: 1\n\n");
    wire
}

fn streams_go_on_and_the_process_ends_with_the_last_of_them(stage: &Stage) {
    let socket = "access = \"public\"\nupgrades = true";
    let site = Site::of(stage).tenant(|tenant| tenant.route("/socket", socket)).set("shutdown.grace", LONG);
    let Site { gateway, upstream, .. } = &site.start();
    let cues = [Cue::new(), Cue::new()];
    let mut events = event_stream(gateway, upstream, &cues);
    upstream.on("/socket", websocket_echo());
    let mut wire = gateway.connect();
    let mut socket = open_socket(&mut wire, &Request::get(ACME, "/socket"));
    gateway.signal(Signal::TERM);
    refuses_connections(gateway);
    cues[0].give();
    assert_eq!(events.chunk().unwrap().unwrap(), b"data: 2\n\n");
    cues[1].give();
    assert_eq!(events.chunk().unwrap().unwrap(), b"data: 3\n\n");
    assert_eq!(events.chunk().unwrap(), None);
    drop(events);
    assert_eq!(exit_code(gateway), None, "the socket is still open");
    talks(&mut socket);
    drop((socket, wire));
    ends(gateway);
    assert!(!gateway.service.log().contains("cut off"), "{}", gateway.service.log());
}

fn streams_that_outlive_the_grace_are_cut_off(stage: &Stage) {
    let grace = Duration::from_secs(2);
    let Site { gateway, upstream, .. } = &Site::of(stage).set("shutdown.grace", "2s").start();
    let never = [Cue::new()];
    let mut events = event_stream(gateway, upstream, &never);
    let watch = Stopwatch::start();
    gateway.signal(Signal::TERM);
    assert!(events.chunk().is_err(), "it is cut off");
    assert!((grace..9 * grace).contains(&watch.elapsed()), "{:?}", watch.elapsed());
    ends(gateway);
    assert!(gateway.service.log().contains("cut off: shutdown.grace is over"), "{}", gateway.service.log());
}

fn a_second_signal_and_an_interrupt_end_the_process_at_once(stage: &Stage) {
    for (first, second) in [
        (Signal::TERM, Some(Signal::TERM)),
        (Signal::QUIT, Some(Signal::QUIT)),
        (Signal::TERM, Some(Signal::INT)),
        (Signal::INT, None),
    ] {
        let Site { gateway, upstream, .. } = &Site::of(stage).set("shutdown.grace", LONG).start();
        let mut events = event_stream(gateway, upstream, &[Cue::new()]);
        gateway.signal(first);
        if let Some(second) = second {
            refuses_connections(gateway);
            assert_eq!(exit_code(gateway), None, "a stream is under way");
            gateway.signal(second);
        }
        assert!(events.chunk().is_err(), "{first:?}: it is cut off");
        ends(gateway);
    }
}
