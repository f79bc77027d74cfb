//! Clients that take their time: they get an end or nothing, and nobody else waits for them.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::rig::case::{Case, cases};
use crate::rig::frames::{DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, block, frame};
use crate::rig::scope::{Running, beside};
use crate::rig::scripts::script;
use crate::rig::site::Site;
use crate::rig::stage::{ACME, Stage, public_path};
use crate::rig::upstream::Then;
use crate::support::time::{SOON, Stopwatch, until};
use crate::support::wire::{Request, Wire};

pub(crate) const CASES: &[Case] = cases![
    an_answer_that_nobody_reads_ends_in_time,
    a_body_that_stops_arriving_is_given_up,
    heads_that_drip_end_in_time_and_hurt_nobody,
    prefaces_that_drip_end_in_time_and_hurt_nobody,
    bodies_that_drip_hurt_nobody,
    bodies_that_drip_over_http_2_hurt_nobody,
    headers_of_http_2_that_never_end_hurt_nobody,
    clients_that_read_no_answers_hurt_nobody,
    clients_that_read_no_answers_over_http_2_hurt_nobody,
];

/// Slow clients of each kind.
const CLIENTS: usize = 20;

/// How long a slow client waits before it goes on.
const PAUSE: Duration = Duration::from_millis(50);

/// What came within a pause: bytes, nothing yet, or the end of the connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Something,
    Nothing,
    End,
}

/// Passes a pause with listening.
pub(crate) fn listen_for_a_pause(wire: &Wire) -> Heard {
    let mut socket = wire.socket();
    socket.0.set_read_timeout(Some(PAUSE)).unwrap();
    match socket.read(&mut [0; 4_096]) {
        Ok(0) => Heard::End,
        Ok(_) => Heard::Something,
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Heard::Nothing,
        Err(_) => Heard::End,
    }
}

/// Sends one byte after each pause, and then none, until the gateway says something or closes; says how long that took.
fn drip(site: &Site, running: &Running, mut bytes: impl Iterator<Item = u8>) -> Duration {
    let watch = Stopwatch::start();
    let mut wire = site.gateway.connect();
    wire.send(&[bytes.next().unwrap()]);
    while running.is_on() && listen_for_a_pause(&wire) == Heard::Nothing {
        let _ = bytes.next().map(|byte| wire.write(&[byte]));
    }
    watch.elapsed()
}

/// The gateway waits ten seconds for what begins a request, and then ends it.
#[track_caller]
fn are_ended_in_time(times: &[Duration]) {
    assert_eq!(times.len(), CLIENTS);
    let limit = Duration::from_secs(10)..SOON;
    assert!(times.iter().all(|time| limit.contains(time)), "{times:?}");
}

fn heads_that_drip_end_in_time_and_hurt_nobody(stage: &Stage) {
    let site = Site::crowded(stage);
    let begin = b"GET /public/drip HTTP/1.1\r\nHost: acme.test\r\nX-Slow: ";
    let head = || begin.iter().copied().chain(std::iter::repeat(b'x'));
    are_ended_in_time(&site.endures(CLIENTS, |running| drip(&site, running, head())));
    assert_eq!(site.upstream.count_at("/public/drip"), 0);
}

fn prefaces_that_drip_end_in_time_and_hurt_nobody(stage: &Stage) {
    let site = Site::crowded(stage);
    let lengths = AtomicUsize::new(0);
    let times = site.endures(CLIENTS, |running| {
        // Each stops at another byte.
        let length = 1 + lengths.fetch_add(1, Ordering::SeqCst) % (PREFACE.len() - 1);
        drip(&site, running, PREFACE[..length].iter().copied())
    });
    are_ended_in_time(&times);
}

/// Slow clients send a piece after each pause, as long as good requests are made. None of them is closed.
fn drips_along(site: &Site, path: &str, begin: &[u8], piece: &[u8]) {
    let before = site.upstream.count_at(path);
    let drip = |running: &Running| {
        let mut wire = site.gateway.connect();
        wire.send(begin);
        while running.is_on() {
            assert_ne!(listen_for_a_pause(&wire), Heard::End);
            wire.send(piece);
        }
    };
    beside(CLIENTS, drip, |running| {
        let all = before + CLIENTS;
        until("what drips is passed on as it comes", SOON, || {
            assert!(running.is_on());
            (site.upstream.count(|seen| seen.path() == path && seen.body_bytes > 0) == all).then_some(())
        });
        site.goes_on();
    });
    assert_eq!(site.upstream.count(|seen| seen.path() == path && seen.whole), 0);
}

fn bodies_that_drip_hurt_nobody(stage: &Stage) {
    let site = Site::crowded(stage);
    let path = public_path();
    let length = Request::new("POST", ACME, &path).with("Content-Length", "1000000").bytes();
    drips_along(&site, &path, &length, b"x");
    let chunked = Request::new("POST", ACME, &path).with("Transfer-Encoding", "chunked").bytes();
    drips_along(&site, &path, &chunked, b"1\r\nx\r\n");
}

/// What begins an HTTP/2 connection, and a first stream.
fn beginning(settings: &[u8], method: &str, path: &str, flags: u8) -> Vec<u8> {
    let fields = [(":method", method), (":scheme", "http"), (":authority", ACME), (":path", path)];
    [PREFACE.to_vec(), frame(SETTINGS, 0, 0, settings), frame(HEADERS, flags, 1, &block(&fields))].concat()
}

fn bodies_that_drip_over_http_2_hurt_nobody(stage: &Stage) {
    let site = Site::crowded(stage);
    let path = public_path();
    drips_along(&site, &path, &beginning(&[], "POST", &path, END_HEADERS), &frame(DATA, 0, 1, b"x"));
}

fn headers_of_http_2_that_never_end_hurt_nobody(stage: &Stage) {
    let site = Site::crowded(stage);
    let path = public_path();
    let begin = beginning(&[], "GET", &path, END_STREAM);
    let held: Vec<Wire> = (0..200)
        .map(|_| {
            let mut wire = site.gateway.connect();
            wire.send(&begin);
            wire
        })
        .collect();
    site.goes_on();
    drop(held);
    assert_eq!(site.upstream.count_at(&path), 0);
}

/// How much of an answer that nobody reads may be under way: the buffers of two connections, and a little of the
/// gateway's.
const UNDER_WAY_BYTES_MAX: usize = 24 << 20;

/// Answers of the upstream without end.
#[derive(Default)]
struct Endless {
    written: AtomicUsize,
    ended: AtomicUsize,
}

impl Endless {
    fn at(site: &Site, path: &str) -> Arc<Self> {
        let shared = Arc::<Self>::default();
        let endless = Arc::clone(&shared);
        site.upstream.on(
            path,
            script(move |exchange| {
                exchange.read_body()?;
                exchange.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
                let chunk = [b"4000\r\n".as_slice(), &[b'x'; 16_384], b"\r\n"].concat();
                while exchange.write(&chunk).is_ok() {
                    endless.written.fetch_add(chunk.len(), Ordering::SeqCst);
                }
                endless.ended.fetch_add(1, Ordering::SeqCst);
                Ok(Then::Closes)
            }),
        );
        shared
    }

    /// Good requests are served beside answers that nobody reads, and the upstream has to stop writing those.
    #[track_caller]
    fn waits_for(&self, site: &Site, path: &str, clients: usize) {
        until("all are being answered", SOON, || (site.upstream.count_at(path) == clients).then_some(()));
        let (mut last, mut looks) = (0, 0);
        while looks < 3 {
            site.goes_on();
            let now = self.written.load(Ordering::SeqCst);
            looks = if now == last { looks + 1 } else { 0 };
            assert!(now <= clients * UNDER_WAY_BYTES_MAX, "{now} bytes were taken and none read");
            last = now;
        }
    }
}

fn clients_that_read_no_answers_hurt_nobody(stage: &Stage) {
    let site = Site::crowded(stage);
    let path = public_path();
    let endless = Endless::at(&site, &path);
    let mut held: Vec<Wire> = (0..CLIENTS).map(|_| site.gateway.connect()).collect();
    held.iter_mut().for_each(|wire| wire.send(&Request::get(ACME, &path).bytes()));
    endless.waits_for(&site, &path, CLIENTS);
    drop(held);
}

/// Requests on connections of HTTP/2 that grant no window at all, or one that is never renewed.
fn without_window(site: &Site, path: &str, clients: usize) -> Vec<Wire> {
    let (none, some) = ([0, 4, 0, 0, 0, 0], [0, 4, 0, 0, 0xff, 0xff]);
    let open = |at| {
        let settings = if at % 2 == 0 { &none } else { &some };
        let mut wire = site.gateway.connect();
        wire.send(&beginning(settings, "GET", path, END_HEADERS | END_STREAM));
        wire
    };
    (0..clients).map(open).collect()
}

fn clients_that_read_no_answers_over_http_2_hurt_nobody(stage: &Stage) {
    let site = Site::crowded(stage);
    let path = public_path();
    let endless = Endless::at(&site, &path);
    let held = without_window(&site, &path, CLIENTS);
    endless.waits_for(&site, &path, CLIENTS);
    drop(held);
}

/// How long an answer that nobody reads may go on: the gateway waits a minute for each write.
const UNREAD_WITHIN: Duration = Duration::from_secs(200);

fn an_answer_that_nobody_reads_ends_in_time(stage: &Stage) {
    let site = Site::crowded(stage);
    let path = public_path();
    let endless = Endless::at(&site, &path);
    let mut held = without_window(&site, &path, 2);
    held.push(site.gateway.connect());
    held[2].send(&Request::get(ACME, &path).bytes());
    until("the upstream is told", UNREAD_WITHIN, || {
        assert_eq!(site.status(), 200);
        (endless.ended.load(Ordering::SeqCst) == 3).then_some(())
    });
    // The clients never closed their side.
    drop(held);
}

fn a_body_that_stops_arriving_is_given_up(stage: &Stage) {
    let site = Site::crowded(stage);
    let path = public_path();
    let outcomes = site.endures(3, |_| {
        let mut wire = site.gateway.connect();
        wire.send(&Request::new("POST", ACME, &path).with("Content-Length", "10").bytes());
        wire.send(b"hello");
        wire.answer().error(408, "REQUEST_TIMEOUT");
        wire.rest()
    });
    assert!(outcomes.iter().all(Vec::is_empty), "the connections end here");
    let half = site.upstream.count(|seen| seen.path() == path && !seen.whole && seen.body_bytes == 5);
    assert_eq!((half, site.upstream.count_at(&path)), (3, 3));
}
