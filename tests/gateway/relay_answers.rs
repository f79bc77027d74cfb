//! The relay of HTTP/1: where an upstream's answer ends, whose it is, and what is no answer.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use socket2::{Domain, Socket, Type};

use crate::rig::case::{Case, cases};
use crate::rig::scripts::{self, script};
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::rig::upstream::{Script, Then};
use crate::rig::{refusals::is_upstream_error, site::Site, tenants::Tenant};
use crate::support::time::{SOON, until};
use crate::support::wire::{Request, Wire};

pub(crate) const CASES: &[Case] = cases![
    a_bodyless_request_on_a_connection_that_was_closed_goes_to_another_once,
    a_request_that_may_do_something_twice_is_not_sent_again,
    an_answer_that_breaks_off_before_any_of_it_was_written_is_502,
    a_flood_of_interim_answers_ends,
    nothing_follows_an_interim_answer_that_was_begun,
];

/// A site of its own, whose upstream is asked again however often it has failed.
fn patient(stage: &Stage) -> Site {
    Site::of(stage).tenant(|tenant| tenant.set("health.eject_after", 0)).start()
}

/// The next request of the connection gets its own answer.
#[track_caller]
fn next_is_itself(site: &Site, wire: &mut Wire) {
    let next = public_path();
    let answer = Request::get(ACME, &next).ask_on(wire);
    assert_eq!((answer.status, &answer.json()["target"]), (200, &serde_json::json!(next)));
    site.upstream.only(&next);
}

// threat: Answers of others, requests that run twice
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

// threat: Answers of others, requests that run twice
fn a_request_that_may_do_something_twice_is_not_sent_again(stage: &Stage) {
    let site = patient(stage);
    let silent = || scripts::closes_first(1);
    let begins = || scripts::bytes("H", Then::Closes);
    let hints = || scripts::bytes("HTTP/1.1 103 Early Hints\r\n\r\n", Then::Closes);
    type Try = (&'static str, &'static [u8], fn() -> Script);
    let garbage = || scripts::bytes("garbage", Then::Closes);
    let tries: [Try; 8] = [
        ("POST", b"", silent),
        ("DELETE", b"", silent),
        ("PUT", b"body", silent),
        ("GET", b"body", silent),
        ("OPTIONS", b"body", silent),
        ("GET", b"", begins),
        ("GET", b"", hints),
        ("GET", b"", garbage),
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

// threat: A dead or broken upstream
fn an_answer_that_breaks_off_before_any_of_it_was_written_is_502(stage: &Stage) {
    let site = patient(stage);
    for interim in ["", "HTTP/1.1 103 Early Hints\r\n\r\n"] {
        let path = public_path();
        let answer =
            format!("{interim}HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\nx\r\n");
        site.upstream.on(&path, scripts::bytes(answer, Then::Goes));
        is_upstream_error(&site.gateway.ask(&Request::get(ACME, &path)));
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
    let site = Site::of(stage).tenant(|tenant| tenant.set("max_body_bytes", 1_000));
    let hurried = |upstream| Tenant::new("hurried", "hurried.test", upstream).set("timeouts.total", "5s");
    let site = site.also(|upstream| hurried(upstream).public()).start();
    let hints = format!("HTTP/1.1 103 Early Hints\r\nLink: {}\r\n\r\n", "x".repeat(60_000));
    let too_long = [b"7d0\r\n", &[b'x'; 2_000][..]].concat();
    for (host, rest, error) in [
        (ACME, &too_long[..], "PAYLOAD_TOO_LARGE"),
        (ACME, b"no chunk\r\n", "VALIDATION_ERROR"),
        // Its time is over.
        ("hurried.test", b"", "UPSTREAM_TIMEOUT"),
    ] {
        let path = public_path();
        site.upstream.on(&path, scripts::early(hints.clone()));
        let stream = narrow(site.gateway.address);
        let mut wire = Wire::over(stream.try_clone().unwrap()).unwrap();
        wire.send(&Request::new("POST", host, &path).with("Transfer-Encoding", "chunked").bytes());
        // The gateway writes as much as the client takes before it looks for more of the request.
        stream.peek(&mut [0]).unwrap();
        wire.send(rest);
        // The client must not take the rest of the interim answer before that.
        until(error, SOON, || {
            let metrics = site.gateway.service.samples();
            (metrics.sum("tiergate_denials_total", &["\"gateway\"", error]) == 1.0).then_some(())
        });
        let got = String::from_utf8(wire.rest()).unwrap();
        assert!(got.len() < hints.len(), "{error}: the client took all of it");
        assert!(hints.starts_with(&got), "{error}: ...{:?}", got.split("xxx").last());
    }
}
