//! Connections to upstreams: used again where that is safe, tried elsewhere where nothing was sent, and nothing sent twice.

use std::time::Duration;

use crate::rig::case::{Case, cases};
use crate::rig::frames::{GOAWAY, REFUSED, RST_STREAM, frame};
use crate::rig::h2c::{self, H2Upstream, Message};
use crate::rig::refusals::is_upstream_error;
use crate::rig::scripts;
use crate::rig::site::Site;
use crate::rig::stage::{ACME, Stage, public_path};
use crate::rig::upstream::Then;
use crate::slow::{Heard, listen_for_a_pause};
use crate::support::time::{SOON, Stopwatch, until};
use crate::support::wire::{Request, Wire};

pub(crate) const CASES: &[Case] = cases![
    a_connection_is_used_again_for_a_second_less_than_its_upstream_keeps_it,
    a_retry_that_can_not_connect_is_its_upstreams_failure_and_goes_elsewhere,
    a_request_that_was_sent_twice_fails_once_and_where_it_was,
    a_retry_that_succeeds_is_no_failure,
    a_request_that_an_http_2_upstream_has_not_processed_is_sent_again,
    a_request_that_an_http_2_upstream_may_have_processed_is_not_sent_again,
    a_silent_upstream_of_http_2_ends_a_request_after_read_and_its_connection_gets_no_more,
    an_upstream_of_http_2_that_is_silent_again_and_again_takes_no_more_descriptors,
];

/// A site with an upstream of HTTP/2 whose first connection says this at its first request.
fn with_first_words(stage: &Stage, frames: Vec<u8>, retries: i64) -> (Site, H2Upstream) {
    let upstream = H2Upstream::that_first_says(frames);
    let url = vec![format!("h2c://{}", upstream.address)];
    let site = Site::of(stage).impatient().tenant(|tenant| {
        let tenant = tenant.set("upstreams", url).set("connect_retries", retries);
        tenant.set("health.interval", "0s").set("health.eject_after", 1)
    });
    (site.start(), upstream)
}

/// A frame that refuses the first stream, or all streams.
fn reset(code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, 1, &code.to_be_bytes())
}

fn go_away(code: u32) -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[0_u32.to_be_bytes(), code.to_be_bytes()].concat())
}

// threat: A buried upstream, a storm of retries
fn a_request_that_an_http_2_upstream_has_not_processed_is_sent_again(stage: &Stage) {
    for (frames, method) in [([reset(REFUSED), go_away(0)].concat(), "POST"), (go_away(0), "GET")] {
        let (site, upstream) = with_first_words(stage, frames, 1);
        let path = public_path();
        let answer = site.gateway.ask(&Request::new(method, ACME, &path).body(b"body"));
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(upstream.only(&path).body, b"body");
        assert_eq!(site.status(), 200, "it was not ejected");
    }
    let (site, upstream) = with_first_words(stage, go_away(0), 0);
    let path = public_path();
    is_upstream_error(&site.gateway.ask(&Request::get(ACME, &path)));
    assert!(upstream.seen().is_empty());
}

// threat: A buried upstream, a storm of retries
fn a_request_that_an_http_2_upstream_may_have_processed_is_not_sent_again(stage: &Stage) {
    // CANCEL, INTERNAL_ERROR, and a goodbye for a reason (RFC 9113, section 7).
    for frames in [reset(8), reset(2), go_away(2)] {
        let (site, upstream) = with_first_words(stage, frames, 2);
        let path = public_path();
        is_upstream_error(&site.gateway.ask(&Request::get(ACME, &path)));
        assert!(upstream.seen().is_empty());
    }
}

// threat: A frozen upstream of HTTP/2 swallows requests
fn a_silent_upstream_of_http_2_ends_a_request_after_read_and_its_connection_gets_no_more(stage: &Stage) {
    for (is_http2, is_announced) in [(false, true), (false, false), (true, true), (true, false)] {
        let upstream = H2Upstream::that_first_says(Vec::new());
        let url = vec![format!("h2c://{}", upstream.address)];
        let site = Site::of(stage).set("listen.workers", 1).tenant(|tenant| {
            let tenant = tenant.set("upstreams", url).set("timeouts.read", "3s");
            tenant.set("health.interval", "0s").set("health.eject_after", 0)
        });
        let site = site.start();
        let (gateway, path, watch) = (&site.gateway, public_path(), Stopwatch::start());
        if is_http2 {
            let request = Message::request(http::Method::POST, ACME, &path).body(b"hello");
            let request = if is_announced { request.with("content-length", "5") } else { request };
            match h2c::ask(gateway.address, &request) {
                Ok(answer) => assert!(is_announced && answer.status == 504, "{}", answer.text()),
                Err(error) => assert!(!is_announced && error.reason() == Some(h2::Reason::CANCEL)),
            }
        } else if is_announced {
            gateway.ask(&Request::new("POST", ACME, &path).body(b"hello")).error(504, "UPSTREAM_TIMEOUT");
        } else {
            let mut wire = gateway.connect();
            wire.send(&Request::new("POST", ACME, &path).with("Transfer-Encoding", "chunked").bytes());
            wire.send(b"5\r\nhello\r\n0\r\n\r\n");
            let ended = || listen_for_a_pause(&wire) != Heard::Nothing;
            until("it is ended", SOON, || ended().then_some(()));
        }
        assert!((Duration::from_secs(3)..SOON).contains(&watch.elapsed()), "{:?}", watch.elapsed());
        for _ in 0..3 {
            let answer = gateway.ask(&Request::new("POST", ACME, &public_path()).body(b"hello"));
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
    }
}

// threat: All connections or descriptors taken
fn an_upstream_of_http_2_that_is_silent_again_and_again_takes_no_more_descriptors(stage: &Stage) {
    let upstream = H2Upstream::silent();
    let site = Site::of(stage).set("listen.workers", 1).h2c(&upstream).tenant(|tenant| {
        tenant.set("timeouts.read", "200ms").set("health.interval", "0s").set("health.eject_after", 0)
    });
    let site = site.start();
    let open = || {
        let pid = site.gateway.service.process.as_ref().unwrap().pid;
        std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
    };
    let fails = || {
        let mut wire = site.gateway.connect();
        wire.send(&Request::new("POST", ACME, &public_path()).with("Transfer-Encoding", "chunked").bytes());
        wire.send(b"5\r\nhello\r\n0\r\n\r\n");
        until("it is ended", SOON, || (listen_for_a_pause(&wire) != Heard::Nothing).then_some(()));
    };
    (0..4).for_each(|_| fails());
    let before = open();
    (0..8).for_each(|_| fails());
    until("there are no more", SOON, || (open() <= before).then_some(()));
}

fn a_connection_is_used_again_for_a_second_less_than_its_upstream_keeps_it(stage: &Stage) {
    let site = Site::start(stage);
    for (says, is_reused) in [
        ("timeout=1", false),
        ("max=5, TimeOut = 1", false),
        ("timeout=0", false),
        ("timeout=1000", true),
        ("timeout=4294967296", true),
        ("max=1", true),
        ("timeout", true),
    ] {
        let (path, mut wire) = (public_path(), site.gateway.connect());
        let answer = scripts::answer("200 OK", &[("Keep-Alive", says)], b"");
        site.upstream.on(&path, scripts::bytes(answer, Then::Goes));
        for _ in 0..2 {
            assert_eq!(Request::get(ACME, &path).ask_on(&mut wire).status, 200);
        }
        let seen = site.upstream.seen_at(&path);
        assert_eq!((seen.len(), seen[0].connection == seen[1].connection), (2, is_reused), "{says}");
    }
}

/// A site with two upstreams that take turns, ejected for good after so many failures.
fn pair(stage: &Stage, eject_after: i64, connect_retries: i64) -> Site {
    let site = Site::of(stage).upstreams(2).tenant(|tenant| {
        let tenant = tenant.set("connect_retries", connect_retries).set("health.interval", "0s");
        tenant.set("health.eject_after", eject_after).set("health.eject_for", "1h")
    });
    site.start()
}

/// A client's connection whose worker has a used connection to each upstream of a pair; the first is next.
fn warm(site: &Site) -> Wire {
    let mut wire = site.gateway.connect();
    for upstream in site.upstreams::<2>() {
        let path = public_path();
        assert_eq!(Request::get(ACME, &path).ask_on(&mut wire).status, 200);
        upstream.only(&path);
    }
    wire
}

fn a_retry_that_can_not_connect_is_its_upstreams_failure_and_goes_elsewhere(stage: &Stage) {
    for (connect_retries, status, elsewhere) in [(1, 200, 1), (0, 502, 0)] {
        let site = pair(stage, 1, connect_retries);
        let [leaving, other] = site.upstreams();
        let (mut wire, path) = (warm(&site), public_path());
        leaving.on(&path, scripts::hang(""));
        wire.send(&Request::get(ACME, &path).bytes());
        until("the upstream has it", SOON, || (leaving.count_at(&path) == 1).then_some(()));
        leaving.close();
        assert_eq!((wire.answer().status, other.count_at(&path)), (status, elsewhere));
        // It is ejected, so nobody else meets it.
        (0..6).for_each(|_| assert_eq!(site.status(), 200));
    }
}

fn a_request_that_was_sent_twice_fails_once_and_where_it_was(stage: &Stage) {
    let site = pair(stage, 2, 1);
    let [sick, other] = site.upstreams();
    let mut wires = [warm(&site), warm(&site)];
    for wire in &mut wires {
        let path = public_path();
        [sick, other].iter().for_each(|upstream| upstream.on(&path, scripts::closes_first(usize::MAX)));
        is_upstream_error(&Request::get(ACME, &path).ask_on(wire));
        assert!(sick.count_at(&path) > 0 && other.count_at(&path) == 0);
        assert_eq!(site.status(), 200, "the other has its turn");
    }
    // Two failures eject it.
    let passed_by = public_path();
    (0..6).for_each(|_| assert_eq!(site.gateway.ask(&Request::get(ACME, &passed_by)).status, 200));
    assert_eq!((sick.count_at(&passed_by), other.count_at(&passed_by)), (0, 6));
}

fn a_retry_that_succeeds_is_no_failure(stage: &Stage) {
    let site = pair(stage, 1, 1);
    let [first, other] = site.upstreams();
    let (mut wire, path) = (warm(&site), public_path());
    first.on(&path, scripts::closes_first(1));
    assert_eq!(Request::get(ACME, &path).ask_on(&mut wire).status, 200);
    assert_eq!((first.count_at(&path), other.count_at(&path)), (2, 0));
    let both = public_path();
    (0..6).for_each(|_| assert_eq!(site.gateway.ask(&Request::get(ACME, &both)).status, 200));
    assert_eq!((first.count_at(&both), other.count_at(&both)), (3, 3));
}
