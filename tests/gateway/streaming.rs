//! Bodies flow through as they come, in both directions, in bounded memory and within the tenant's cap.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use crate::rig::case::{Case, cases};
use crate::rig::gateway::Gateway;
use crate::rig::refusals::{is_unauthenticated, is_unseen};
use crate::rig::scripts::{self, Cue, script};
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::rig::tenants::Tenant;
use crate::rig::upstream::{Exchange, Script, Then, Upstream};
use crate::support::time::{SOON, until};
use crate::support::wire::{Request, Wire};

pub(crate) const CASES: &[Case] = cases![
    megabytes_both_ways_leave_memory_flat,
    events_arrive_one_by_one,
    uploads_arrive_piece_by_piece,
    both_directions_flow_at_once,
    a_client_that_waits_to_be_told_to_continue_is_told,
    a_refused_client_is_not_told_to_continue,
    a_body_at_the_cap_passes_and_one_beyond_is_413,
    a_chunked_body_beyond_the_cap_never_arrives_whole,
    a_client_that_leaves_in_the_middle_of_an_upload_is_not_taken_for_one_that_is_done,
    an_upstream_learns_that_its_client_has_left,
    a_slow_reader_is_waited_for_in_bounded_memory,
];

const MIB: usize = 1024 * 1024;

/// What is sent in each direction.
const LARGE_BYTES: usize = 64 * MIB;

/// How much more memory a gateway may have while it passes that on: buffers, not bodies.
const GROWTH_KIB_MAX: u64 = 24 * 1024;

/// A gateway and an upstream of the case's own.
fn own(stage: &Stage, change: fn(Tenant) -> Tenant) -> (Gateway, Upstream) {
    let upstream = Upstream::start();
    let gateway = Gateway::start(stage, &[change(Tenant::new("t", ACME, upstream.address).public())]);
    (gateway, upstream)
}

/// Reads the whole body and answers with as many bytes.
fn mirror_of_size() -> Script {
    script(|exchange| {
        exchange.read_body()?;
        let bytes = exchange.seen.body_bytes;
        exchange.write(format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n").as_bytes())?;
        let piece = vec![b'y'; MIB];
        for _ in 0..bytes / MIB {
            exchange.write(&piece)?;
        }
        Ok(Then::Goes)
    })
}

fn megabytes_both_ways_leave_memory_flat(stage: &Stage) {
    let (gateway, upstream) = own(stage, |tenant| tenant);
    let piece = vec![b'x'; MIB];
    let chunk = [format!("{MIB:x}\r\n").as_bytes(), &piece, b"\r\n"].concat();
    // The first round warms up what every request needs.
    let mut before = 0;
    for (count, framing) in [(1, "length"), (LARGE_BYTES / MIB, "length"), (LARGE_BYTES / MIB, "chunked")] {
        let path = public_path();
        upstream.on(&path, mirror_of_size());
        let mut wire = gateway.connect();
        let request = Request::new("POST", ACME, &path);
        if framing == "length" {
            wire.send(&request.with("Content-Length", &(count * MIB).to_string()).bytes());
            (0..count).for_each(|_| wire.send(&piece));
        } else {
            wire.send(&request.with("Transfer-Encoding", "chunked").bytes());
            (0..count).for_each(|_| wire.send(&chunk));
            wire.send(b"0\r\n\r\n");
        }
        let head = wire.head().unwrap();
        assert_eq!(
            (head.status, head.header("content-length")),
            (200, Some((count * MIB).to_string().as_str()))
        );
        for _ in 0..count {
            assert!(wire.take(MIB).unwrap().iter().all(|byte| *byte == b'y'));
        }
        assert_eq!(upstream.only(&path).body_bytes, count * MIB);
        let now = gateway.service.resident_kib();
        assert!(before == 0 || now < before + GROWTH_KIB_MAX, "{framing}: {before} KiB, then {now} KiB");
        before = before.max(now);
    }
}

fn events_arrive_one_by_one(stage: &Stage) {
    let (_, key) = stage.agent(3);
    let house = stage.house();
    let path = agents_path();
    let events = ["data: one\n\n", "data: two\n\n", "data: three\n\n"];
    let cues = [Cue::new(), Cue::new()];
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
    house.upstream.on(&path, scripts::chunks_on_cue(head, &events, &cues));
    let mut wire = house.gateway.connect();
    wire.send(&Request::get(ACME, &path).key(&key).bytes());
    let answer = wire.head().unwrap();
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/event-stream")));
    for (at, event) in events.iter().enumerate() {
        let mut got = Vec::new();
        while got.len() < event.len() {
            got.extend(wire.chunk().unwrap().unwrap());
        }
        assert_eq!(String::from_utf8_lossy(&got), *event);
        // Only now is the next one sent.
        if let Some(cue) = cues.get(at) {
            cue.give();
        }
    }
    assert_eq!(wire.chunk().unwrap(), None);
}

/// Waits until so much of a body has come to the upstream.
fn until_arrived(upstream: &Upstream, path: &str, bytes: usize) {
    until("the upstream has read so much", SOON, || {
        upstream.seen_at(path).first().filter(|seen| seen.body_bytes >= bytes).map(|_| ())
    });
}

fn uploads_arrive_piece_by_piece(stage: &Stage) {
    let house = stage.house();
    for chunked in [true, false] {
        let path = public_path();
        let mut wire = house.gateway.connect();
        let framing = if chunked { ("Transfer-Encoding", "chunked") } else { ("Content-Length", "15") };
        wire.send(&Request::new("POST", ACME, &path).with(framing.0, framing.1).bytes());
        for count in 1..=3 {
            wire.send(if chunked { b"5\r\nhello\r\n" } else { b"hello" });
            until_arrived(&house.upstream, &path, 5 * count);
        }
        if chunked {
            assert!(!house.upstream.only(&path).whole, "it goes on");
            wire.send(b"0\r\n\r\n");
        }
        assert_eq!(wire.answer().json()["bodyBytes"], json!(15));
        assert_eq!(house.upstream.only(&path).body, b"hellohellohello");
    }
}

fn both_directions_flow_at_once(stage: &Stage) {
    let house = stage.house();
    let path = public_path();
    house.upstream.on(
        &path,
        script(|exchange: &mut Exchange| {
            exchange.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
            let mut answered = 0;
            while exchange.read_piece()? {
                let piece = exchange.seen.body[answered..].to_vec();
                answered += piece.len();
                if !piece.is_empty() {
                    let chunk = [format!("{:x}\r\n", piece.len()).as_bytes(), &piece, b"\r\n"].concat();
                    exchange.write(&chunk)?;
                }
            }
            exchange.write(b"0\r\n\r\n")?;
            Ok(Then::Goes)
        }),
    );
    let mut wire = house.gateway.connect();
    wire.send(&Request::new("POST", ACME, &path).with("Transfer-Encoding", "chunked").bytes());
    assert_eq!(wire.head().unwrap().status, 200, "before anything of the body was sent");
    for word in ["first", "other", "third"] {
        wire.send(format!("5\r\n{word}\r\n").as_bytes());
        let mut got = Vec::new();
        while got.len() < 5 {
            got.extend(wire.chunk().unwrap().unwrap());
        }
        assert_eq!(got, word.as_bytes());
    }
    wire.send(b"0\r\n\r\n");
    assert_eq!(wire.chunk().unwrap(), None);
}

fn a_client_that_waits_to_be_told_to_continue_is_told(stage: &Stage) {
    let house = stage.house();
    for upstream_tells in [true, false] {
        let path = public_path();
        house.upstream.on(
            &path,
            script(move |exchange| {
                if upstream_tells && exchange.seen.header("expect").is_some() {
                    exchange.write(b"HTTP/1.1 100 Continue\r\n\r\n")?;
                }
                scripts::echo()(exchange)
            }),
        );
        let request =
            Request::new("POST", ACME, &path).with("Expect", "100-continue").with("Content-Length", "5");
        let mut wire = house.gateway.connect();
        wire.send(&request.bytes());
        if upstream_tells {
            assert_eq!(wire.head().unwrap().status, 100);
        }
        wire.send(b"hello");
        assert_eq!(wire.answer().json()["bodyBytes"], json!(5));
        assert_eq!(house.upstream.only(&path).body, b"hello");
    }
}

fn a_refused_client_is_not_told_to_continue(stage: &Stage) {
    let house = stage.house();
    let path = agents_path();
    let mut wire = house.gateway.connect();
    let request =
        Request::new("POST", ACME, &path).with("Expect", "100-continue").with("Content-Length", "5");
    wire.send(&request.bytes());
    let head = wire.head().unwrap();
    is_unauthenticated(&wire.body(head).unwrap());
    is_unseen(&house.upstream, &path);
}

fn a_body_at_the_cap_passes_and_one_beyond_is_413(stage: &Stage) {
    let (gateway, upstream) = own(stage, |tenant| tenant.set("max_body_bytes", 1_000));
    for (bytes, status) in [(0, 200), (999, 200), (1_000, 200), (1_001, 413), (10_000_000, 413)] {
        let path = public_path();
        let mut wire = gateway.connect();
        let _ = wire.write(&Request::new("POST", ACME, &path).body(&vec![b'x'; bytes]).bytes());
        let answer = wire.answer();
        assert_eq!(answer.status, status, "{bytes} bytes: {}", answer.text());
        if status == 413 {
            answer.error(413, "PAYLOAD_TOO_LARGE");
            is_unseen(&upstream, &path);
        } else {
            assert_eq!(upstream.only(&path).body_bytes, bytes);
        }
    }
    // It is refused by what it announces: nothing of it need be sent.
    let mut wire = gateway.connect();
    let length = u64::from(u32::MAX).to_string();
    wire.send(&Request::new("POST", ACME, &public_path()).with("Content-Length", &length).bytes());
    wire.answer().error(413, "PAYLOAD_TOO_LARGE");
}

fn a_chunked_body_beyond_the_cap_never_arrives_whole(stage: &Stage) {
    let (gateway, upstream) = own(stage, |tenant| tenant.set("max_body_bytes", 1_000));
    let chunk = [b"64\r\n".as_slice(), &[b'x'; 100], b"\r\n"].concat();
    for (chunks, passes) in [(0, true), (10, true), (11, false), (5_000, false)] {
        let (path, next) = (public_path(), public_path());
        let mut wire = gateway.connect();
        wire.send(&Request::new("POST", ACME, &path).with("Transfer-Encoding", "chunked").bytes());
        let _ = wire.write(
            &[chunk.repeat(chunks), b"0\r\n\r\n".to_vec(), Request::get(ACME, &next).bytes()].concat(),
        );
        if passes {
            assert_eq!(wire.answer().json()["bodyBytes"], json!(100 * chunks));
            continue;
        }
        let answer = wire.answer();
        answer.error(413, "PAYLOAD_TOO_LARGE");
        assert_eq!(wire.rest(), b"", "the connection ends here");
        assert!(upstream.seen_at(&path).iter().all(|seen| !seen.whole && seen.body_bytes <= 1_000));
        is_unseen(&upstream, &next);
    }
}

fn a_client_that_leaves_in_the_middle_of_an_upload_is_not_taken_for_one_that_is_done(stage: &Stage) {
    let house = stage.house();
    for chunked in [true, false] {
        let path = public_path();
        let gone = Cue::new();
        let (seen_gone, framing) = (
            Arc::clone(&gone),
            if chunked { ("Transfer-Encoding", "chunked") } else { ("Content-Length", "10") },
        );
        house.upstream.on(
            &path,
            script(move |exchange| {
                let end = exchange.read_body();
                seen_gone.give();
                end.map(|()| Then::Closes)
            }),
        );
        let mut wire = house.gateway.connect();
        wire.send(&Request::new("POST", ACME, &path).with(framing.0, framing.1).bytes());
        wire.send(if chunked { b"5\r\nhello\r\n" } else { b"hello" });
        until_arrived(&house.upstream, &path, 5);
        drop(wire);
        until("the upstream is told", SOON, || gone.is_given().then_some(()));
        let seen = house.upstream.only(&path);
        assert!(!seen.whole, "half a body is none: {seen:?}");
    }
}

fn an_upstream_learns_that_its_client_has_left(stage: &Stage) {
    let house = stage.house();
    let path = public_path();
    let gone = Cue::new();
    let seen_gone = Arc::clone(&gone);
    let (begun, go_on) = (Cue::new(), Cue::new());
    let (says_begun, waits) = (Arc::clone(&begun), Arc::clone(&go_on));
    house.upstream.on(
        &path,
        script(move |exchange| {
            exchange.read_body()?;
            exchange.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")?;
            says_begun.give();
            waits.wait()?;
            let chunk = [b"10000\r\n".as_slice(), &[b'x'; 65_536], b"\r\n"].concat();
            while exchange.write(&chunk).is_ok() {}
            seen_gone.give();
            Ok(Then::Closes)
        }),
    );
    let mut wire = house.gateway.connect();
    wire.send(&Request::get(ACME, &path).bytes());
    assert_eq!(wire.head().unwrap().status, 200);
    begun.wait().unwrap();
    drop(wire);
    go_on.give();
    until("the upstream is told", SOON, || gone.is_given().then_some(()));
}

fn a_slow_reader_is_waited_for_in_bounded_memory(stage: &Stage) {
    let (gateway, upstream) = own(stage, |tenant| tenant);
    assert_eq!(gateway.ask(&Request::get(ACME, &public_path())).status, 200);
    let before = gateway.service.resident_kib();
    let written = Arc::new(AtomicUsize::new(0));
    let paths: Vec<String> = (0..4).map(|_| public_path()).collect();
    for path in &paths {
        let counter = Arc::clone(&written);
        upstream.on(
            path,
            script(move |exchange| {
                exchange
                    .write(format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE_BYTES}\r\n\r\n").as_bytes())?;
                let piece = vec![b'z'; MIB];
                for _ in 0..LARGE_BYTES / MIB {
                    exchange.write(&piece)?;
                    counter.fetch_add(1, Ordering::SeqCst);
                }
                Ok(Then::Goes)
            }),
        );
    }
    let mut wires: Vec<Wire> = paths.iter().map(|_| gateway.connect()).collect();
    for (wire, path) in wires.iter_mut().zip(&paths) {
        wire.send(&Request::get(ACME, path).bytes());
        assert_eq!(wire.head().unwrap().status, 200);
        wire.take(MIB).unwrap();
    }
    let now = gateway.service.resident_kib();
    assert!(now < before + GROWTH_KIB_MAX, "{before} KiB, then {now} KiB");
    for wire in &mut wires {
        for _ in 1..LARGE_BYTES / MIB {
            wire.take(MIB).unwrap();
        }
    }
    assert_eq!(written.load(Ordering::SeqCst), 4 * LARGE_BYTES / MIB);
    let after = gateway.service.resident_kib();
    assert!(after < before + GROWTH_KIB_MAX, "{before} KiB, then {after} KiB");
}
