//! The relay of HTTP/1: where an upstream's answer ends, whose it is, and what is no answer.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use socket2::{Domain, Socket, Type};

use crate::rig::case::{Case, cases};
use crate::rig::refusals::is_upstream_error;
use crate::rig::scripts::{self, script};
use crate::rig::site::Site;
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::rig::upstream::{Script, Then};
use crate::support::metrics::Samples;
use crate::support::time::{SOON, until};
use crate::support::wire::{Request, Wire};

pub(crate) const CASES: &[Case] = cases![
    an_answer_that_ends_by_close_reaches_http_1_1_in_chunks_and_http_1_0_as_it_is,
    an_answer_that_a_reset_cuts_off_is_never_whole,
    an_answer_of_a_length_or_in_chunks_that_is_cut_off_is_never_whole,
    a_bodyless_request_on_a_connection_that_was_closed_goes_to_another_once,
    a_request_that_may_do_something_twice_is_not_sent_again,
    what_stands_behind_an_answer_is_never_the_next_ones,
    an_answer_that_two_readers_may_read_differently_is_502,
    answers_without_a_body_end_with_their_head_whatever_length_they_tell,
    a_flood_of_interim_answers_ends,
    nothing_follows_an_interim_answer_that_was_begun,
];

/// A site of its own, whose upstream is asked again however often it has failed.
fn patient(stage: &Stage) -> Site {
    Site::of(stage).tenant(|tenant| tenant.set("health.eject_after", 0)).start()
}

fn http_1_0(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.0\r\nHost: {ACME}\r\n\r\n").into_bytes()
}

/// The next request of the connection gets its own answer.
#[track_caller]
fn next_is_itself(site: &Site, wire: &mut Wire) {
    let next = public_path();
    let answer = Request::get(ACME, &next).ask_on(wire);
    assert_eq!((answer.status, &answer.json()["target"]), (200, &serde_json::json!(next)));
    site.upstream.only(&next);
}

fn an_answer_that_ends_by_close_reaches_http_1_1_in_chunks_and_http_1_0_as_it_is(stage: &Stage) {
    let site = stage.site();
    for head in
        ["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.0 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"]
    {
        for body in ["", "hello", "5\r\nhello\r\n0\r\n\r\n"] {
            let path = public_path();
            site.upstream.on(&path, scripts::bytes(format!("{head}{body}"), Then::Closes));
            let mut wire = site.gateway.connect();
            let answer = Request::get(ACME, &path).ask_on(&mut wire);
            assert_eq!((answer.status, answer.header("transfer-encoding")), (200, Some("chunked")));
            assert_eq!((answer.header("connection"), answer.text().as_str()), (None, body));
            next_is_itself(site, &mut wire);
            let mut wire = site.gateway.connect();
            wire.send(&http_1_0(&path));
            let answer = wire.head().unwrap();
            assert_eq!((answer.status, answer.header("transfer-encoding")), (200, None));
            assert_eq!(answer.header("connection"), Some("close"));
            assert_eq!(String::from_utf8(wire.rest()).unwrap(), body);
        }
    }
}

/// Reads a request's head, byte by byte, and leaves its body: then the end of the connection is a reset.
fn break_off(mut stream: TcpStream, answer: &str) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    stream.peek(&mut byte).unwrap();
    stream.write_all(answer.as_bytes()).unwrap();
}

/// Checks that a client tells half an answer from a whole one. One of HTTP/1.0 can't where no length was announced: no safe
/// code resets a connection.
#[track_caller]
fn is_seen_as_half(site: &Site, path: &str, what: &str) {
    let request = Request::new("POST", ACME, path).body(b"unread");
    let mut wire = site.gateway.connect();
    wire.send(&request.bytes());
    if let Ok(head) = wire.head() {
        assert_eq!(head.status, 200, "{what}: {head:?}");
        assert!(wire.body(head).is_err(), "{what}: half of it is taken for the whole");
    }
}

fn an_answer_that_a_reset_cuts_off_is_never_whole(stage: &Stage) {
    let site = patient(stage);
    site.upstream.greet(Some(|stream| break_off(stream, "HTTP/1.1 200 OK\r\n\r\nhalf")));
    is_seen_as_half(&site, &public_path(), "to the end of the connection");
    site.upstream.greet(Some(|stream| break_off(stream, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")));
    is_seen_as_half(&site, &public_path(), "of a length");
}

fn an_answer_of_a_length_or_in_chunks_that_is_cut_off_is_never_whole(stage: &Stage) {
    let site = patient(stage);
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nx\r\n",
    ] {
        let path = public_path();
        site.upstream.on(&path, scripts::bytes(answer, Then::Closes));
        is_seen_as_half(&site, &path, answer);
    }
}

fn a_bodyless_request_on_a_connection_that_was_closed_goes_to_another_once(stage: &Stage) {
    let site = Site::of(stage).tenant(|tenant| tenant.set("health.eject_after", 0)).agent(2).start();
    let mut charged = 0;
    for (method, closed, status) in
        [("GET", 1, 200), ("HEAD", 1, 200), ("OPTIONS", 1, 200), ("GET", 2, 502), ("HEAD", 2, 502)]
    {
        let path = agents_path();
        site.upstream.on(&path, scripts::closes_first(closed));
        let mut wire = site.gateway.connect();
        next_is_itself(&site, &mut wire);
        let answer = Request::new(method, ACME, &path).key(site.key()).ask_on(&mut wire);
        assert_eq!(answer.status, status, "{method}: {answer:?}");
        charged += 1;
        assert_eq!(answer.allowance(), (16, 16 - charged), "{method} is charged once");
        let seen = site.upstream.seen_at(&path);
        assert_eq!(seen.len(), 2, "{method}: {seen:?}");
        assert_ne!(seen[0].connection, seen[1].connection);
        let lines = |at: usize| String::from_utf8_lossy(&seen[at].head).into_owned();
        assert_eq!(lines(0), lines(1), "it is the same request");
    }
}

fn a_request_that_may_do_something_twice_is_not_sent_again(stage: &Stage) {
    let site = patient(stage);
    let silent = || scripts::closes_first(1);
    let begins = || scripts::bytes("H", Then::Closes);
    let hints = || scripts::bytes("HTTP/1.1 103 Early Hints\r\n\r\n", Then::Closes);
    type Try = (&'static str, &'static [u8], fn() -> Script);
    let tries: [Try; 7] = [
        ("POST", b"", silent),
        ("DELETE", b"", silent),
        ("PUT", b"body", silent),
        ("GET", b"body", silent),
        ("OPTIONS", b"body", silent),
        ("GET", b"", begins),
        ("GET", b"", hints),
    ];
    for (method, body, upstream) in tries {
        let path = public_path();
        site.upstream.on(&path, upstream());
        let mut wire = site.gateway.connect();
        next_is_itself(&site, &mut wire);
        let request = Request::new(method, ACME, &path);
        let request = if body.is_empty() { request } else { request.body(body) };
        is_upstream_error(&request.ask_on(&mut wire));
        site.upstream.only(&path);
    }
    // A connection that has carried no request before is not closed for being old.
    let path = public_path();
    site.upstream.hang_up();
    site.upstream.on(&path, scripts::closes_first(2));
    is_upstream_error(&site.gateway.ask(&Request::get(ACME, &path)));
    assert!(site.upstream.count_at(&path) <= 2);
}

fn what_stands_behind_an_answer_is_never_the_next_ones(stage: &Stage) {
    let site = patient(stage);
    let forged = "HTTP/1.1 200 Forged\r\nContent-Length: 6\r\n\r\nforged";
    for (method, answer) in [
        ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
        ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        ("GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
        ("GET", "HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 6\r\n\r\n"),
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"),
        ("HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
    ] {
        for behind in [forged, "x", "\r\n", "0\r\n\r\n"] {
            let path = public_path();
            site.upstream.on(&path, scripts::bytes(format!("{answer}{behind}"), Then::Goes));
            let mut wire = site.gateway.connect();
            let got = Request::new(method, ACME, &path).ask_on(&mut wire);
            assert!(matches!(got.status, 200 | 204 | 304), "{method} {answer:?}: {got:?}");
            for _ in 0..3 {
                next_is_itself(&site, &mut wire);
            }
            next_is_itself(&site, &mut site.gateway.connect());
        }
    }
}

fn an_answer_that_two_readers_may_read_differently_is_502(stage: &Stage) {
    let site = patient(stage);
    let mut wrong = Vec::new();
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: 0x2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nok",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
        "HTTP/1.1 200 OK\r\nX: 1\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nX: 1\r\n folded\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nX: 1\rY: 2\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nX: \0\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nno colon\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\n: no name\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/2 200 OK\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 20 OK\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        "\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        "ok",
        "",
    ] {
        let path = public_path();
        site.upstream.on(&path, scripts::bytes(answer, Then::Closes));
        let got = site.gateway.ask(&Request::get(ACME, &path));
        if got.status == 502 {
            is_upstream_error(&got);
        } else {
            wrong.push(format!("{answer:?}: {got:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn answers_without_a_body_end_with_their_head_whatever_length_they_tell(stage: &Stage) {
    let site = stage.site();
    for (method, line, kept) in [
        ("GET", "204 No Content", None),
        ("POST", "204 No Content", None),
        ("GET", "304 Not Modified", Some("7")),
        ("HEAD", "200 OK", Some("7")),
        ("HEAD", "404 Not Found", Some("7")),
    ] {
        let mut wire = site.gateway.connect();
        for _ in 0..3 {
            let path = public_path();
            let answer = format!("HTTP/1.1 {line}\r\nContent-Length: 7\r\nETag: \"x\"\r\n\r\n");
            site.upstream.on(&path, scripts::bytes(answer, Then::Goes));
            wire.send(&Request::new(method, ACME, &path).bytes());
            let head = wire.head().unwrap();
            assert_eq!(
                (head.header("content-length"), head.header("etag")),
                (kept, Some("\"x\"")),
                "{head:?}"
            );
            assert_eq!((head.header("connection"), head.header("transfer-encoding")), (None, None));
            next_is_itself(site, &mut wire);
        }
    }
}

fn a_flood_of_interim_answers_ends(stage: &Stage) {
    let site = patient(stage);
    let written = Arc::new(AtomicUsize::new(0));
    for interims in [32, 33, usize::MAX] {
        let (path, counter) = (public_path(), Arc::clone(&written));
        site.upstream.on(
            &path,
            script(move |exchange| {
                for _ in 0..interims {
                    exchange.write(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")?;
                    counter.fetch_add(1, Ordering::SeqCst);
                }
                scripts::echo()(exchange)
            }),
        );
        let answer = site.gateway.ask(&Request::get(ACME, &path));
        if interims == 32 {
            assert_eq!(answer.status, 200, "{}", answer.text());
        } else {
            is_upstream_error(&answer);
        }
    }
    assert!(written.load(Ordering::SeqCst) < 1_000_000, "the upstream's connection is closed");
}

/// A client that takes less than 60 kB before it reads: its window is small, and so are its segments, by which the other side's
/// buffer goes.
fn narrow(server: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(2_048).unwrap();
    socket.set_tcp_mss(536).unwrap();
    socket.connect(&server.into()).unwrap();
    socket.into()
}

fn nothing_follows_an_interim_answer_that_was_begun(stage: &Stage) {
    let site =
        Site::of(stage).tenant(|tenant| tenant.set("max_body_bytes", 1_000).set("timeouts.total", "1s"));
    let site = site.start();
    let hints = format!("HTTP/1.1 103 Early Hints\r\nLink: {}\r\n\r\n", "x".repeat(60_000));
    let too_long = [b"7d0\r\n", &[b'x'; 2_000][..]].concat();
    for (rest, error) in [
        (&too_long[..], "PAYLOAD_TOO_LARGE"),
        (b"no chunk\r\n", "VALIDATION_ERROR"),
        // Its time is over.
        (b"", "UPSTREAM_TIMEOUT"),
    ] {
        let path = public_path();
        site.upstream.on(&path, scripts::early(hints.clone()));
        let stream = narrow(site.gateway.address);
        let mut wire = Wire::over(stream.try_clone().unwrap()).unwrap();
        wire.send(&Request::new("POST", ACME, &path).with("Transfer-Encoding", "chunked").bytes());
        // The gateway writes as much as the client takes before it looks for more of the request.
        stream.peek(&mut [0]).unwrap();
        wire.send(rest);
        // The client must not take the rest of the interim answer before that.
        until(error, SOON, || {
            let metrics = Samples::parse(&site.gateway.service.metrics());
            (metrics.sum("tiergate_denials_total", &["\"gateway\"", error]) == 1.0).then_some(())
        });
        let got = String::from_utf8(wire.rest()).unwrap();
        assert!(got.len() < hints.len(), "{error}: the client took all of it");
        assert!(hints.starts_with(&got), "{error}: ...{:?}", got.split("xxx").last());
    }
}
