//! Bodies flow through as they come, in both directions, in bounded memory and within the tenant's cap.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use crate::rig::case::{Case, cases};
use crate::rig::frames::{End, Frames};
use crate::rig::h2c::H2Upstream;
use crate::rig::scripts::{self, Cue, script};
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::rig::upstream::{Exchange, Then, Upstream};
use crate::rig::{refusals::is_unauthenticated, scope::beside, site::Site};
use crate::support::time::{SOON, until};
use crate::support::wire::Request;

pub(crate) const CASES: &[Case] = cases![
    an_upload_waits_for_its_upstream_in_bounded_memory,
    an_answer_waits_for_its_reader_in_bounded_memory,
    both_directions_flow_at_once,
    a_client_that_waits_to_be_told_to_continue_is_told,
    a_refused_client_is_not_told_to_continue,
    a_body_at_the_cap_passes_and_one_beyond_is_413,
    a_chunked_body_beyond_the_cap_never_arrives_whole,
];

const MIB: usize = 1024 * 1024;

/// What is sent in each direction.
const LARGE_BYTES: usize = 32 * MIB;

/// How much of it may be under way, where the buffers of client and upstream are small: those of the gateway. 6 MiB were
/// measured, without what the kernel holds for the gateway to read.
const UNDER_WAY_BYTES_MAX: usize = 10 * MIB;

/// Waits until as much has been written as there is room for. What nobody reads must not make room for more.
#[track_caller]
fn stands_still(site: &Site, written: &AtomicUsize, read: usize) {
    let mut last = (0, 0);
    until("the writer has to wait", SOON, || {
        if last.1 % 10 == 0 {
            assert_eq!(site.status(), 200);
        }
        let now = written.load(Ordering::SeqCst);
        last = if now == last.0 { (now, last.1 + 1) } else { (now, 0) };
        (now > 0 && last.1 == 40).then_some(())
    });
    let waiting = unread_by_gateway(site);
    let taken = last.0;
    assert!(
        taken <= read + waiting + UNDER_WAY_BYTES_MAX,
        "{taken} bytes were taken, {read} read, {waiting} wait"
    );
}

/// Bytes that wait in the kernel for the gateway to read them: the faster it has read, the larger the kernel makes its buffers.
fn unread_by_gateway(site: &Site) -> usize {
    let [gateway, upstream] = [site.gateway.address.port(), site.upstream.address.port()];
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let queues = table.lines().skip(1).map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |word: &str| usize::from_str_radix(word.rsplit(':').next().unwrap(), 16).unwrap();
        let is_its = number(words[1]) == usize::from(gateway) || number(words[2]) == usize::from(upstream);
        if is_its { number(words[4]) } else { 0 }
    });
    queues.sum()
}

// threat: Huge or costly heads and bodies
fn an_upload_waits_for_its_upstream_in_bounded_memory(stage: &Stage) {
    let site = Site::start(stage);
    let piece = vec![b'x'; MIB];
    let chunk = [format!("{MIB:x}\r\n").as_bytes(), &piece, b"\r\n"].concat();
    for is_chunked in [false, true] {
        let (path, cue, written) = (public_path(), Cue::new(), AtomicUsize::new(0));
        let goes_on = Arc::clone(&cue);
        site.upstream.on(
            &path,
            script(move |exchange| {
                goes_on.wait()?;
                scripts::echo()(exchange)
            }),
        );
        let request = Request::new("POST", ACME, &path);
        let (head, piece, end) = match is_chunked {
            false => (request.with("Content-Length", &LARGE_BYTES.to_string()), &piece, ""),
            true => (request.with("Transfer-Encoding", "chunked"), &chunk, "0\r\n\r\n"),
        };
        let upload = |_: &_| {
            let mut wire = site.gateway.connect_pinned();
            wire.send(&head.bytes());
            for part in piece.chunks(16_384).cycle().take(piece.len().div_ceil(16_384) * LARGE_BYTES / MIB) {
                wire.send(part);
                written.fetch_add(part.len(), Ordering::SeqCst);
            }
            wire.send(end.as_bytes());
            wire.answer().json()
        };
        let answers = beside(1, upload, |_| {
            stands_still(&site, &written, 0);
            cue.give();
        });
        assert_eq!(answers[0]["bodyBytes"], json!(LARGE_BYTES));
    }
}

// threat: Slow clients hold everything
fn an_answer_waits_for_its_reader_in_bounded_memory(stage: &Stage) {
    let site = Site::start(stage);
    let (path, written) = (public_path(), Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&written);
    site.upstream.on(
        &path,
        script(move |exchange| {
            exchange.write(format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE_BYTES}\r\n\r\n").as_bytes())?;
            for _ in 0..LARGE_BYTES / 16_384 {
                exchange.write(&[b'z'; 16_384])?;
                counter.fetch_add(16_384, Ordering::SeqCst);
            }
            Ok(Then::Goes)
        }),
    );
    let mut wire = site.gateway.connect_pinned();
    wire.send(&Request::get(ACME, &path).bytes());
    assert_eq!(wire.head().unwrap().status, 200);
    for read in 0..2 {
        stands_still(&site, &written, read * MIB);
        wire.take(MIB).unwrap();
    }
    for _ in 2..LARGE_BYTES / MIB {
        assert!(wire.take(MIB).unwrap().iter().all(|byte| *byte == b'z'));
    }
    until("all is written", SOON, || (written.load(Ordering::SeqCst) == LARGE_BYTES).then_some(()));
    assert_eq!(Request::get(ACME, &public_path()).ask_on(&mut wire).status, 200);
}

/// Waits until so much of a body has come to the upstream.
fn until_arrived(upstream: &Upstream, path: &str, bytes: usize) {
    until("the upstream has read so much", SOON, || {
        (upstream.count(|seen| seen.path() == path && seen.body_bytes >= bytes) > 0).then_some(())
    });
}

fn both_directions_flow_at_once(stage: &Stage) {
    let site = stage.site();
    let path = public_path();
    site.upstream.on(
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
    let mut wire = site.gateway.connect();
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
    let site = stage.site();
    for upstream_tells in [true, false] {
        let path = public_path();
        site.upstream.on(
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
        let mut wire = site.gateway.connect();
        wire.send(&request.bytes());
        if upstream_tells {
            assert_eq!(wire.head().unwrap().status, 100);
        }
        wire.send(b"hello");
        assert_eq!(wire.answer().json()["bodyBytes"], json!(5));
        assert_eq!(site.upstream.only(&path).body, b"hello");
    }
}

fn a_refused_client_is_not_told_to_continue(stage: &Stage) {
    let site = stage.site();
    let path = agents_path();
    let mut wire = site.gateway.connect();
    let request =
        Request::new("POST", ACME, &path).with("Expect", "100-continue").with("Content-Length", "5");
    wire.send(&request.bytes());
    let head = wire.head().unwrap();
    is_unauthenticated(&wire.body(head).unwrap());
    site.is_unseen(&path);
}

// threat: Huge or costly heads and bodies
fn a_body_at_the_cap_passes_and_one_beyond_is_413(stage: &Stage) {
    let site = Site::of(stage).tenant(|tenant| tenant.set("max_body_bytes", 1_000)).start();
    for (bytes, status) in [(0, 200), (999, 200), (1_000, 200), (1_001, 413), (10_000_000, 413)] {
        let path = public_path();
        let mut wire = site.gateway.connect();
        let _ = wire.write(&Request::new("POST", ACME, &path).body(&vec![b'x'; bytes]).bytes());
        let answer = wire.answer();
        assert_eq!(answer.status, status, "{bytes} bytes: {}", answer.text());
        if status == 413 {
            answer.error(413, "PAYLOAD_TOO_LARGE");
            site.is_unseen(&path);
        } else {
            assert_eq!(site.upstream.only(&path).body_bytes, bytes);
        }
    }
    // It is refused by what it announces: nothing of it need be sent.
    let mut wire = site.gateway.connect();
    let length = u64::from(u32::MAX).to_string();
    wire.send(&Request::new("POST", ACME, &public_path()).with("Content-Length", &length).bytes());
    wire.answer().error(413, "PAYLOAD_TOO_LARGE");
}

// threat: Huge or costly heads and bodies
fn a_chunked_body_beyond_the_cap_never_arrives_whole(stage: &Stage) {
    let site = Site::of(stage).tenant(|tenant| tenant.set("max_body_bytes", 1_000)).start();
    let chunk = [b"64\r\n".as_slice(), &[b'x'; 100], b"\r\n"].concat();
    for (chunks, passes) in [(0, true), (10, true), (11, false), (5_000, false)] {
        let (path, next) = (public_path(), public_path());
        let mut wire = site.gateway.connect();
        wire.send(&Request::new("POST", ACME, &path).with("Transfer-Encoding", "chunked").bytes());
        let at_the_cap = chunks.min(10);
        wire.send(&chunk.repeat(at_the_cap));
        if !passes {
            until_arrived(&site.upstream, &path, 100 * at_the_cap);
        }
        let rest = chunk.repeat(chunks - at_the_cap);
        let _ = wire.write(&[rest, b"0\r\n\r\n".to_vec(), Request::get(ACME, &next).bytes()].concat());
        if passes {
            assert_eq!(wire.answer().json()["bodyBytes"], json!(100 * chunks));
            continue;
        }
        let answer = wire.answer();
        answer.error(413, "PAYLOAD_TOO_LARGE");
        assert_eq!(wire.rest(), b"", "the connection ends here");
        let seen = site.upstream.only(&path);
        assert!(!seen.whole && seen.body_bytes == 1_000, "{seen:?}");
        site.is_unseen(&next);
    }
    let upstream = H2Upstream::start(H2Upstream::ok);
    let site = Site::of(stage).h2c(&upstream).tenant(|tenant| tenant.set("max_body_bytes", 1_000)).start();
    let (mut wire, path) = (site.gateway.connect(), public_path());
    wire.send(&Request::new("POST", ACME, &path).with("Transfer-Encoding", "chunked").bytes());
    wire.send(&chunk.repeat(11));
    wire.answer().error(413, "PAYLOAD_TOO_LARGE");
    assert_eq!(wire.rest(), b"", "the connection ends here");
    let mut frames = Frames::open(site.gateway.address);
    let pseudo = [(":method", "POST"), (":scheme", "http"), (":authority", ACME), (":path", &path)];
    frames.headers(&pseudo, false);
    frames.data(&[b'x'; 1_001], false);
    assert_eq!(frames.end(), End::Answered);
    assert!(String::from_utf8_lossy(&frames.body).contains("PAYLOAD_TOO_LARGE"));
    until("no place is taken", SOON, || {
        let samples = site.gateway.service.samples();
        (samples.sum("tiergate_gateway_requests_in_flight", &[]) == 0.0).then_some(())
    });
    assert!(upstream.seen().is_empty());
}
