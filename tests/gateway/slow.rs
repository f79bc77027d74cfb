//! Clients that take their time, and more of them than there is room for: they get an end or nothing, and nobody else
//! waits for them.

use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::Method;

use crate::rig::beside::Neighbourhood;
use crate::rig::case::{Case, cases};
use crate::rig::frames::{DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, block, frame};
use crate::rig::gateway::Gateway;
use crate::rig::h2c::{self, Message};
use crate::rig::scripts::script;
use crate::rig::secure::{LISTENER, SecureGateway};
use crate::rig::stage::{ACME, Stage, public_path};
use crate::rig::tenants::Tenant;
use crate::rig::upstream::{Then, Upstream};
use crate::support::time::{SOON, Stopwatch, until};
use crate::support::wire::{Request, Wire};

pub(crate) const CASES: &[Case] = cases![
    a_body_that_stops_arriving_is_given_up,
    heads_that_drip_end_in_time_and_hurt_nobody,
    prefaces_that_drip_end_in_time_and_hurt_nobody,
    bodies_that_drip_hurt_nobody,
    bodies_that_drip_over_http_2_hurt_nobody,
    headers_of_http_2_that_never_end_hurt_nobody,
    clients_that_read_no_answers_hurt_nobody,
    clients_that_read_no_answers_over_http_2_hurt_nobody,
    a_connection_too_many_is_turned_away_and_room_comes_back,
    streams_of_one_connection_are_no_connections,
    stalled_handshakes_take_up_room_like_any_connection,
];

/// Slow clients of each kind.
const CLIENTS: usize = 20;

/// How long a slow client waits before it goes on.
const PAUSE: Duration = Duration::from_millis(50);

/// What came within a pause: bytes, nothing yet, or the end of the connection.
#[derive(Debug, PartialEq, Eq)]
enum Heard {
    Something,
    Nothing,
    End,
}

/// Passes a pause with listening.
fn listen_for_a_pause(wire: &Wire) -> Heard {
    let mut socket = wire.socket();
    socket.0.set_read_timeout(Some(PAUSE)).unwrap();
    match socket.read(&mut [0; 4_096]) {
        Ok(0) => Heard::End,
        Ok(_) => Heard::Something,
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Heard::Nothing,
        Err(_) => Heard::End,
    }
}

/// Sends one piece after each pause until the gateway says something or closes; says how long that took.
fn drip(wire: &mut Wire, piece: &[u8]) -> Duration {
    let watch = Stopwatch::start();
    while listen_for_a_pause(wire) == Heard::Nothing {
        let _ = wire.write(piece);
        assert!(watch.elapsed() < SOON * 2, "nothing ends it");
    }
    watch.elapsed()
}

fn heads_that_drip_end_in_time_and_hurt_nobody(stage: &Stage) {
    let neighbours = Neighbourhood::new(stage);
    let times = neighbours.endures(CLIENTS, || {
        let mut wire = neighbours.gateway.connect();
        wire.send(b"GET /public/drip HTTP/1.1\r\nHost: acme.test\r\nX-Slow: ");
        drip(&mut wire, b"x")
    });
    assert!(times.iter().all(|time| time.as_secs() >= 5), "a slow client is not a bad one: {times:?}");
    assert!(neighbours.upstream.seen_at("/public/drip").is_empty());
}

fn prefaces_that_drip_end_in_time_and_hurt_nobody(stage: &Stage) {
    let neighbours = Neighbourhood::new(stage);
    let lengths = AtomicUsize::new(0);
    neighbours.endures(CLIENTS, || {
        // Each stops at another byte.
        let length = 1 + lengths.fetch_add(1, Ordering::SeqCst) % (PREFACE.len() - 1);
        let mut wire = neighbours.gateway.connect();
        wire.send(&PREFACE[..length]);
        drip(&mut wire, b"")
    });
}

/// Sends a piece after each pause, as long as the gateway takes it and good requests are made.
fn drips_along(neighbours: &Neighbourhood, begin: impl Fn(&mut Wire) + Sync, piece: &[u8]) {
    let done = AtomicBool::new(false);
    let still_open = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut wire = neighbours.gateway.connect();
                begin(&mut wire);
                let mut is_open = true;
                while is_open && !done.load(Ordering::SeqCst) {
                    is_open = listen_for_a_pause(&wire) != Heard::End && wire.write(piece).is_ok();
                }
                still_open.fetch_add(usize::from(is_open), Ordering::SeqCst);
            });
        }
        neighbours.endures(0, || ());
        neighbours.endures(0, || ());
        done.store(true, Ordering::SeqCst);
    });
    assert_eq!(still_open.into_inner(), CLIENTS, "whoever goes on is waited for");
}

fn bodies_that_drip_hurt_nobody(stage: &Stage) {
    let neighbours = Neighbourhood::new(stage);
    let path = public_path();
    let length = Request::new("POST", ACME, &path).with("Content-Length", "1000000").bytes();
    drips_along(&neighbours, |wire| wire.send(&length), b"x");
    let chunked = Request::new("POST", ACME, &path).with("Transfer-Encoding", "chunked").bytes();
    drips_along(&neighbours, |wire| wire.send(&chunked), b"1\r\nx\r\n");
    let seen = neighbours.upstream.seen_at(&path);
    assert_eq!(seen.len(), 2 * CLIENTS, "what drips is passed on as it comes");
    assert!(seen.iter().all(|seen| !seen.whole));
    assert!(seen.iter().any(|seen| seen.body_bytes > 0));
}

/// What begins an HTTP/2 connection, and a first stream.
fn beginning(settings: &[u8], method: &str, path: &str, flags: u8) -> Vec<u8> {
    let fields = [(":method", method), (":scheme", "http"), (":authority", ACME), (":path", path)];
    [PREFACE.to_vec(), frame(SETTINGS, 0, 0, settings), frame(HEADERS, flags, 1, &block(&fields))].concat()
}

fn bodies_that_drip_over_http_2_hurt_nobody(stage: &Stage) {
    let neighbours = Neighbourhood::new(stage);
    let path = public_path();
    let begin = beginning(&[], "POST", &path, END_HEADERS);
    drips_along(&neighbours, |wire| wire.send(&begin), &frame(DATA, 0, 1, b"x"));
    let seen = neighbours.upstream.seen_at(&path);
    assert_eq!(seen.len(), CLIENTS);
    assert!(seen.iter().all(|seen| !seen.whole));
}

fn headers_of_http_2_that_never_end_hurt_nobody(stage: &Stage) {
    let neighbours = Neighbourhood::new(stage);
    let path = public_path();
    let begin = beginning(&[], "GET", &path, END_STREAM);
    let held: Vec<Wire> = (0..200)
        .map(|_| {
            let mut wire = neighbours.gateway.connect();
            wire.send(&begin);
            wire
        })
        .collect();
    neighbours.endures(1, || ());
    drop(held);
    assert!(neighbours.upstream.seen_at(&path).is_empty());
}

/// Answers without end, and counts how much of them was taken.
fn endless(upstream: &Upstream, path: &str) {
    upstream.on(
        path,
        script(|exchange| {
            exchange.read_body()?;
            exchange.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
            let chunk = [b"10000\r\n".as_slice(), &[b'x'; 65_536], b"\r\n"].concat();
            while exchange.write(&chunk).is_ok() {}
            Ok(Then::Closes)
        }),
    );
}

fn clients_that_read_no_answers_hurt_nobody(stage: &Stage) {
    let neighbours = Neighbourhood::new(stage);
    let path = public_path();
    endless(&neighbours.upstream, &path);
    let held: Vec<Wire> = (0..CLIENTS)
        .map(|_| {
            let mut wire = neighbours.gateway.connect();
            wire.send(&Request::get(ACME, &path).bytes());
            wire
        })
        .collect();
    until("all are being answered", SOON, || {
        (neighbours.upstream.seen_at(&path).len() == CLIENTS).then_some(())
    });
    neighbours.endures(1, || ());
    neighbours.endures(1, || ());
    drop(held);
}

fn clients_that_read_no_answers_over_http_2_hurt_nobody(stage: &Stage) {
    let neighbours = Neighbourhood::new(stage);
    let path = public_path();
    endless(&neighbours.upstream, &path);
    // Some grant no window at all, others one that is never renewed.
    let (none, some) = (&[0, 4, 0, 0, 0, 0], &[0, 4, 0, 0, 0xff, 0xff]);
    let held: Vec<Wire> = (0..CLIENTS)
        .map(|at| {
            let settings = if at % 2 == 0 { none } else { some };
            let mut wire = neighbours.gateway.connect();
            wire.send(&beginning(settings, "GET", &path, END_HEADERS | END_STREAM));
            wire
        })
        .collect();
    until("all are being answered", SOON, || {
        (neighbours.upstream.seen_at(&path).len() == CLIENTS).then_some(())
    });
    neighbours.endures(1, || ());
    neighbours.endures(1, || ());
    drop(held);
}

fn a_body_that_stops_arriving_is_given_up(stage: &Stage) {
    let neighbours = Neighbourhood::new(stage);
    let path = public_path();
    let outcomes = neighbours.endures(3, || {
        let mut wire = neighbours.gateway.connect();
        wire.send(&Request::new("POST", ACME, &path).with("Content-Length", "10").bytes());
        wire.send(b"hello");
        let answer = wire.answer();
        answer.error(408, "REQUEST_TIMEOUT");
        wire.rest()
    });
    assert!(outcomes.iter().all(Vec::is_empty), "the connections end here");
    let seen = neighbours.upstream.seen_at(&path);
    assert!(seen.len() == 3 && seen.iter().all(|seen| !seen.whole && seen.body_bytes == 5), "{seen:?}");
}

/// How many connections the gateway holds in the cases that follow.
const ROOM: usize = 8;

/// Nobody is answered on a connection of its own.
#[track_caller]
fn is_full(gateway: &Gateway) {
    let mut wire = gateway.connect();
    let _ = wire.write(&Request::get(ACME, &public_path()).bytes());
    assert_eq!(wire.rest(), b"", "it is closed without a word");
}

fn until_there_is_room(gateway: &Gateway) -> Wire {
    until("there is room", SOON, || {
        let mut wire = gateway.connect();
        wire.write(&Request::get(ACME, &public_path()).bytes()).ok()?;
        wire.try_answer().is_ok_and(|answer| answer.status == 200).then_some(wire)
    })
}

fn a_connection_too_many_is_turned_away_and_room_comes_back(stage: &Stage) {
    let upstream = Upstream::start();
    let settings = stage.settings().set("listen.max_connections", i64::try_from(ROOM).unwrap());
    let gateway = Gateway::start_with(settings, &[Tenant::new("t", ACME, upstream.address).public()], &[]);
    let mut held: Vec<Wire> = (0..ROOM).map(|_| until_there_is_room(&gateway)).collect();
    for _ in 0..20 {
        is_full(&gateway);
        for wire in &mut held {
            assert_eq!(Request::get(ACME, &public_path()).ask_on(wire).status, 200, "the others go on");
        }
    }
    assert_eq!(gateway.service.get("/readyz").status, 200, "the API has room of its own");
    let metrics = gateway.service.metrics();
    let counted = metrics.lines().find(|line| {
        line.starts_with("tiergate_connections_turned_away_total") && line.contains("\"gateway\"")
    });
    let counted: usize = counted.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
    assert!(counted >= 20, "{counted}");
    for _ in 0..3 {
        held.truncate(ROOM / 2);
        while held.len() < ROOM {
            held.push(until_there_is_room(&gateway));
        }
        is_full(&gateway);
    }
}

fn streams_of_one_connection_are_no_connections(stage: &Stage) {
    let upstream = Upstream::start();
    let settings = stage.settings().set("listen.max_connections", i64::try_from(ROOM).unwrap());
    let gateway = Gateway::start_with(settings, &[Tenant::new("t", ACME, upstream.address).public()], &[]);
    let held: Vec<Wire> = (1..ROOM).map(|_| until_there_is_room(&gateway)).collect();
    let count = 50;
    h2c::run(async {
        let client = loop {
            // Connections before this one may not have been noticed to be gone.
            let Ok(client) = h2c::connect(gateway.address).await else { continue };
            let request = Message::request(Method::GET, ACME, &public_path());
            if h2c::exchange(client.clone(), &request).await.is_ok() {
                break client;
            }
        };
        let exchanges = (0..count).map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                let request = Message::request(Method::GET, ACME, &public_path());
                h2c::exchange(client, &request).await.unwrap().status
            })
        });
        for exchange in exchanges.collect::<Vec<_>>() {
            assert_eq!(exchange.await.unwrap(), 200);
        }
        is_full(&gateway);
        let request = Message::request(Method::GET, ACME, &public_path());
        assert_eq!(h2c::exchange(client, &request).await.unwrap().status, 200);
    });
    until_there_is_room(&gateway);
    drop(held);
}

fn stalled_handshakes_take_up_room_like_any_connection(stage: &Stage) {
    let upstream = Upstream::start();
    let settings = stage.settings().set("listen.max_connections", i64::try_from(ROOM).unwrap());
    let secure =
        SecureGateway::start(settings, |_, _| vec![Tenant::new("t", LISTENER, upstream.address).public()]);
    // All are kept: one that closed would give its place back at a time that nobody knows.
    let mut stalled: Vec<Wire> = Vec::new();
    let request = Request::get(LISTENER, &public_path());
    // Connections of the start give their places back when they like: then there is room until it is filled as well.
    until("there is no room for whoever comes now", SOON, || {
        stalled.extend((0..ROOM).map(|_| Wire::open(secure.address)));
        let mut next = Wire::open(secure.address);
        // A handshake that is taken is not answered before it is whole.
        let _ = next.write(b"\x16\x03\x01\x02\0");
        if listen_for_a_pause(&next) != Heard::End {
            return None;
        }
        let mut wire = secure.gateway.connect();
        let _ = wire.write(&request.bytes());
        wire.try_answer().is_err().then_some(())
    });
    drop(stalled);
    until("there is room", SOON, || {
        let mut wire = secure.gateway.connect();
        wire.write(&request.bytes()).ok()?;
        wire.try_answer().is_ok_and(|answer| answer.status == 200).then_some(())
    });
}
