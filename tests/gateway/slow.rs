//! Clients that take their time: they get an end or nothing, and nobody else waits for them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::{io::Read, sync::Arc, time::Duration};

use crate::rig::authz::{Asked, Dialect, Original};
use crate::rig::case::{Case, cases};
use crate::rig::frames::{
    DATA, END_HEADERS, END_STREAM, End, Frames, HEADERS, PREFACE, SETTINGS, block, frame,
};
use crate::rig::h2c::{self, H2Upstream, Message};
use crate::rig::scope::{Running, beside};
use crate::rig::stage::{ACME, Stage, public_path};
use crate::rig::{scripts::script, site::Site, tenants::Tenant, tunnels::Terminator, upstream::Then};
use crate::support::metrics::Samples;
use crate::support::time::{SOON, Stopwatch, until};
use crate::support::wire::{Request, Wire};
use crate::upstream_tls::{Trust, UP};

pub(crate) const CASES: &[Case] = cases![
    an_answer_that_nobody_reads_ends_in_time,
    a_connection_is_idle_between_requests_for_as_long_as_is_set_at_every_listener,
    a_body_that_stops_arriving_is_given_up,
    a_body_of_http_2_that_stalls_is_ended_after_read_toward_any_upstream,
    a_body_of_http_2_that_goes_on_moving_is_not_ended,
    streams_that_stalled_leave_their_room_to_others,
    an_upload_by_the_library_is_given_up_after_read,
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

// threat: Slow clients hold everything
fn heads_that_drip_end_in_time_and_hurt_nobody(stage: &Stage) {
    let site = Site::crowded(stage);
    let begin = b"GET /public/drip HTTP/1.1\r\nHost: acme.test\r\nX-Slow: ";
    let head = || begin.iter().copied().chain(std::iter::repeat(b'x'));
    are_ended_in_time(&site.endures(CLIENTS, |running| drip(&site, running, head())));
    assert_eq!(site.upstream.count_at("/public/drip"), 0);
}

// threat: Slow clients hold everything
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

// threat: Slow clients hold everything
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

// threat: Slow clients hold everything
fn bodies_that_drip_over_http_2_hurt_nobody(stage: &Stage) {
    let site = Site::crowded(stage);
    let path = public_path();
    drips_along(&site, &path, &beginning(&[], "POST", &path, END_HEADERS), &frame(DATA, 0, 1, b"x"));
}

// threat: Slow clients hold everything
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

/// How much of an answer that nobody reads may be under way, where the buffers of client and upstream are small: those of
/// the gateway. Half a MiB was measured.
const UNDER_WAY_BYTES_MAX: usize = 2 << 20;

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

// threat: Slow clients hold everything
fn clients_that_read_no_answers_hurt_nobody(stage: &Stage) {
    let site = Site::crowded(stage);
    let path = public_path();
    let endless = Endless::at(&site, &path);
    let mut held: Vec<Wire> = (0..CLIENTS).map(|_| site.gateway.connect_pinned()).collect();
    held.iter_mut().for_each(|wire| wire.send(&Request::get(ACME, &path).bytes()));
    endless.waits_for(&site, &path, CLIENTS);
    drop(held);
}

/// Requests on connections of HTTP/2 that grant no window at all, or one that is never renewed.
fn without_window(site: &Site, path: &str, clients: usize) -> Vec<Wire> {
    let (none, some) = ([0, 4, 0, 0, 0, 0], [0, 4, 0, 0, 0xff, 0xff]);
    let open = |at| {
        let settings = if at % 2 == 0 { &none } else { &some };
        let mut wire = site.gateway.connect_pinned();
        wire.send(&beginning(settings, "GET", path, END_HEADERS | END_STREAM));
        wire
    };
    (0..clients).map(open).collect()
}

// threat: Slow clients hold everything
fn clients_that_read_no_answers_over_http_2_hurt_nobody(stage: &Stage) {
    let site = Site::crowded(stage);
    let path = public_path();
    let endless = Endless::at(&site, &path);
    let held = without_window(&site, &path, CLIENTS);
    endless.waits_for(&site, &path, CLIENTS);
    drop(held);
}

fn a_connection_is_idle_between_requests_for_as_long_as_is_set_at_every_listener(stage: &Stage) {
    const IDLE: Duration = Duration::from_secs(5);
    for way in ["relay", "library"] {
        let Asked { site, authz } = &Asked::start(Site::of(stage).way(way).set("listen.idle", "5s"));
        let (gateway, service) = (site.gateway.address, &site.gateway.service);
        let request = Request::get(ACME, &public_path());
        let (mut silent, watch) = (Wire::open(gateway), Stopwatch::start());
        let mut wires = [
            (gateway, request.clone()),
            (service.api, Request::get("localhost", "/livez")),
            (service.admin, Request::get("localhost", "/metrics")),
            (*authz, Original::get(ACME, &public_path()).of_tenant("t").call(Dialect::Forward)),
        ]
        .map(|(address, request)| {
            let mut wire = Wire::open(address);
            assert_eq!(request.ask_on(&mut wire).status, 200);
            wire
        });
        let mut frames = [gateway, *authz].map(|address| {
            let mut frames = Frames::open(address);
            let pseudo =
                [(":method", "GET"), (":scheme", "http"), (":authority", ACME), (":path", "/public/h2")];
            frames.headers(&pseudo, true);
            assert_eq!(frames.end(), End::Answered);
            frames
        });
        wires.iter_mut().for_each(|wire| assert_eq!(wire.rest(), b"", "it is closed"));
        frames.iter_mut().for_each(|frames| assert!(!frames.goodbye(), "it is closed"));
        assert!((IDLE..SOON).contains(&watch.elapsed()), "{:?}", watch.elapsed());
        assert_eq!(request.ask_on(&mut silent).status, 200, "it has had no request yet");
    }
}

/// How long an answer that nobody reads may go on: the gateway waits a minute for each write.
const UNREAD_WITHIN: Duration = Duration::from_secs(200);

// threat: Slow clients hold everything
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

// threat: Slow clients hold everything
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

/// How long upstreams and their clients may be silent where that is waited for.
const READ: Duration = Duration::from_millis(500);

/// `CANCEL` (RFC 9113, section 7).
const CANCEL: u32 = 8;

/// A tenant for each protocol toward upstreams.
struct AnyUpstream {
    site: Site,
    h2: H2Upstream,
    _terminator: Terminator,
    _trust: Trust,
}

/// Their hosts.
const ANY_UPSTREAM: [&str; 3] = ["plain.test", "h2c.test", "https.test"];

impl AnyUpstream {
    /// Upstreams and clients that may be silent for so long.
    fn start(stage: &Stage, read: Duration) -> Self {
        let (trust, h2) = (Trust::new(), H2Upstream::start(H2Upstream::ok));
        let terminator = Terminator::start(h2.address, &trust.authority.issue(UP), None, &["h2"]);
        let site = Site::of(stage);
        let plain = Tenant::new("plain", ANY_UPSTREAM[0], site.upstream().address);
        let h2c = Tenant::of("h2c", &[ANY_UPSTREAM[1]], &[&format!("h2c://{}", h2.address)]);
        let https = trust.tenant("https", ANY_UPSTREAM[2], &terminator);
        let read = format!("{}ms", read.as_millis());
        let tenants = [plain.public(), h2c.public(), https].map(|tenant| tenant.set("timeouts.read", &*read));
        Self { site: site.only(tenants.to_vec()).start(), h2, _terminator: terminator, _trust: trust }
    }

    /// How many requests ended in this way, of the tenant at a host.
    fn count(&self, host: &str, outcome: &str) -> f64 {
        let samples = Samples::parse(&self.site.gateway.service.metrics());
        let tenant = format!("tenant=\"{}\"", host.trim_end_matches(".test"));
        samples.sum("tiergate_gateway_requests_total", &[&tenant, &format!("outcome=\"{outcome}\"")])
    }
}

fn upload(host: &'static str, path: &str) -> Vec<u8> {
    let fields = [(":method", "POST"), (":scheme", "http"), (":authority", host), (":path", path)];
    block(&fields)
}

// threat: Slow clients hold everything
fn a_body_of_http_2_that_stalls_is_ended_after_read_toward_any_upstream(stage: &Stage) {
    let any = AnyUpstream::start(stage, READ);
    for host in ANY_UPSTREAM {
        let path = public_path();
        let mut frames = Frames::open(any.site.gateway.address);
        let watch = Stopwatch::start();
        frames.write(&frame(HEADERS, END_HEADERS, 1, &upload(host, &path)));
        frames.data(b"hello", false);
        // A plain upstream is read from by itself, so that there is an answer to give.
        let expected = if host == ANY_UPSTREAM[0] { End::Answered } else { End::Reset(CANCEL) };
        assert_eq!(frames.end(), expected, "{host}");
        assert!((READ..SOON).contains(&watch.elapsed()), "{host}: {:?}", watch.elapsed());
        let outcome = if host == ANY_UPSTREAM[0] { "refused" } else { "abandoned" };
        until("it is counted", SOON, || (any.count(host, outcome) == 1.0).then_some(()));
    }
}

// threat: Slow clients hold everything
// threat: A frozen upstream of HTTP/2 swallows requests
fn a_body_of_http_2_that_goes_on_moving_is_not_ended(stage: &Stage) {
    // Long, for a busy machine sends a piece late.
    let any = AnyUpstream::start(stage, 12 * READ);
    let mut moving = ANY_UPSTREAM.map(|host| {
        let (path, mut wire) = (public_path(), any.site.gateway.connect());
        let head = frame(HEADERS, END_HEADERS, 1, &upload(host, &path));
        wire.send(&[PREFACE, &frame(SETTINGS, 0, 0, &[]), &head].concat());
        (host, path, wire)
    });
    let watch = Stopwatch::start();
    while watch.elapsed() < 18 * READ {
        for (_, _, wire) in &mut moving {
            assert_ne!(listen_for_a_pause(wire), Heard::End);
            wire.send(&frame(DATA, 0, 1, b"x"));
        }
    }
    moving.iter_mut().for_each(|(_, _, wire)| wire.send(&frame(DATA, END_STREAM, 1, b".")));
    for (host, path, _wire) in moving {
        until("the upstream has it whole", SOON, || {
            let plain = any.site.upstream.count(|seen| seen.path() == path && seen.whole);
            let h2 = any.h2.seen().iter().filter(|seen| seen.uri.path() == path).count();
            (plain + h2 == 1).then_some(())
        });
        until("it is counted", SOON, || (any.count(host, "forwarded") == 1.0).then_some(()));
    }
}

// threat: Slow clients hold everything
fn streams_that_stalled_leave_their_room_to_others(stage: &Stage) {
    // Long, for those at the end must be answered within that.
    let any = AnyUpstream::start(stage, 10 * READ);
    let (host, address) = (ANY_UPSTREAM[1], any.site.gateway.address);
    h2c::run(async {
        let client = h2c::connect(address).await.unwrap();
        // As many as a connection may have, and more than one to the upstream may.
        let mut held = Vec::new();
        for _ in 0..128 {
            let mut client = client.clone().ready().await.unwrap();
            let request = http::Request::post(format!("http://{host}{}", public_path())).body(()).unwrap();
            let (answer, mut body) = client.send_request(request, false).unwrap();
            body.send_data("hello".into(), false).unwrap();
            held.push((answer, body));
        }
        let mut bodies = Vec::new();
        for (answer, body) in held {
            assert_eq!(answer.await.unwrap_err().reason(), Some(h2::Reason::CANCEL));
            bodies.push(body);
        }
        for _ in 0..20 {
            let request = Message::request(http::Method::POST, host, &public_path()).body(b"hello");
            assert_eq!(h2c::exchange(client.clone(), &request).await.unwrap().status, 200);
        }
    });
    until("each is counted", SOON, || (any.count(host, "abandoned") == 128.0).then_some(()));
}

// threat: Slow clients hold everything
fn an_upload_by_the_library_is_given_up_after_read(stage: &Stage) {
    let any = AnyUpstream::start(stage, READ);
    for host in ANY_UPSTREAM {
        let mut wire = any.site.gateway.connect();
        let watch = Stopwatch::start();
        wire.send(&Request::new("POST", host, &public_path()).with("Content-Length", "10").bytes());
        wire.send(b"hello");
        wire.answer().error(408, "REQUEST_TIMEOUT");
        assert!((READ..SOON).contains(&watch.elapsed()), "{host}: {:?}", watch.elapsed());
    }
}
