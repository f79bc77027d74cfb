//! Upstreams that die, hang, answer garbage or nothing: the client gets the right error or an aborted answer, and never
//! the bytes of another request.

use std::sync::Arc;

use serde_json::json;

use crate::rig::case::{Case, cases};
use crate::rig::refusals::{is_upstream_error, is_upstream_timeout, refused};
use crate::rig::scope::beside;
use crate::rig::scripts::{self, Cue, script};
use crate::rig::site::{IMPATIENT, Site};
use crate::rig::stage::{ACME, Stage, public_path};
use crate::rig::upstream::{Script, Then};
use crate::support::client::Answer;
use crate::support::time::{SOON, Stopwatch, until};
use crate::support::wire::{Request, Wire};

pub(crate) const CASES: &[Case] = cases![
    an_upstream_that_hangs_before_its_answer_is_504,
    an_answer_that_hangs_in_the_middle_is_aborted_in_time,
    an_answer_longer_than_announced_does_not_become_the_next_one,
    a_total_time_limit_ends_a_request_that_trickles,
    after_trouble_nobody_gets_anothers_bytes,
];

/// What a script's answer becomes, and that the next request and a neighbour's get their own.
#[track_caller]
fn answer_to(site: &Site, host: &str, script: Script) -> Answer {
    let path = public_path();
    site.upstream.on(&path, script);
    let mut wire = site.gateway.connect();
    let answer = Request::get(host, &path).ask_on(&mut wire);
    next_is_its_own(site, &mut wire);
    answer
}

/// The gateway may close a connection after an error, but then says nothing more on it.
#[track_caller]
fn next_is_its_own(site: &Site, wire: &mut Wire) {
    let next = public_path();
    let sent = wire.write(&Request::get(ACME, &next).bytes());
    match sent.and_then(|()| wire.try_answer()) {
        Ok(answer) => assert_eq!((answer.status, &answer.json()["target"]), (200, &json!(next))),
        Err(_) => assert_eq!(wire.rest(), b""),
    }
    own_answer(site);
}

/// A request on a connection of its own gets its own answer.
#[track_caller]
fn own_answer(site: &Site) {
    let path = public_path();
    assert_eq!(site.gateway.ask(&Request::get(ACME, &path)).json()["target"], json!(path));
}

/// The rest of an answer whose head was passed on is cut off, and the connection with it.
#[track_caller]
fn is_cut(site: &Site, wire: &mut Wire, head: Answer) {
    assert_eq!(head.status, 200);
    if let Ok(answer) = wire.body(head) {
        panic!("whole: {}", answer.text());
    }
    let rest = String::from_utf8_lossy(&wire.rest()).into_owned();
    assert!(!rest.contains("HTTP/1.1") && !rest.contains("errorType"), "an error inside an answer: {rest}");
    own_answer(site);
}

// threat: A dead or broken upstream
fn an_upstream_that_hangs_before_its_answer_is_504(stage: &Stage) {
    let site = Site::of(stage).impatient().start();
    let watch = Stopwatch::start();
    is_upstream_timeout(&answer_to(&site, IMPATIENT, scripts::hang("")));
    assert!(watch.elapsed().as_millis() >= 500, "it was waited for");
    for begun in ["H", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX"] {
        is_upstream_timeout(&answer_to(&site, IMPATIENT, scripts::hang(begun)));
    }
}

/// Answers that promise more than they hold.
const CUT: &[&str] = &[
    "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly so much",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
];

fn an_answer_that_hangs_in_the_middle_is_aborted_in_time(stage: &Stage) {
    let site = Site::of(stage).impatient().start();
    for cut in &CUT[..3] {
        // A tenant that waits so shortly may give up before the answer has begun.
        until("an answer is cut off", SOON, || {
            let path = public_path();
            site.upstream.on(&path, scripts::hang(*cut));
            let mut wire = site.gateway.connect();
            wire.send(&Request::get(IMPATIENT, &path).bytes());
            let head = wire.head().unwrap();
            if head.status == 504 {
                return None;
            }
            is_cut(&site, &mut wire, head);
            Some(())
        });
    }
}

// threat: Answers of others, requests that run twice
fn an_answer_longer_than_announced_does_not_become_the_next_one(stage: &Stage) {
    let site = Site::start(stage);
    let poison = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
    for (first, status, text) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, "ok"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 200, "ok"),
        ("HTTP/1.1 204 Empty\r\n\r\n", 204, ""),
        ("HTTP/1.1 304 Same\r\n\r\n", 304, ""),
    ] {
        let answer = answer_to(&site, ACME, scripts::bytes(format!("{first}{poison}"), Then::Goes));
        assert_eq!((answer.status, answer.text().as_str()), (status, text));
    }
    let path = public_path();
    site.upstream.on(
        &path,
        scripts::bytes(format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{poison}"), Then::Goes),
    );
    let mut wire = site.gateway.connect();
    assert_eq!(Request::new("HEAD", ACME, &path).ask_on(&mut wire).status, 200);
    next_is_its_own(&site, &mut wire);
}

// threat: A dead or broken upstream
fn a_total_time_limit_ends_a_request_that_trickles(stage: &Stage) {
    let site = Site::of(stage).tenant(|tenant| tenant.set("timeouts.total", "1s")).start();
    let path = public_path();
    let trickle = script(|exchange| {
        exchange.read_body()?;
        exchange.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        // Paced by a time-out of its own.
        exchange.socket()?.0.set_read_timeout(Some(std::time::Duration::from_millis(100)))?;
        loop {
            exchange.write(b"1\r\nx\r\n")?;
            if exchange.read_raw().is_ok() {
                return Ok(Then::Closes);
            }
        }
    });
    site.upstream.on(&path, trickle);
    until("an answer is cut off", SOON, || {
        let watch = Stopwatch::start();
        let mut wire = site.gateway.connect();
        wire.send(&Request::get(ACME, &path).bytes());
        let head = wire.head().unwrap();
        let whole = wire.body(head).is_ok();
        assert!(watch.elapsed().as_secs() >= 1, "{:?}", watch.elapsed());
        (!whole).then_some(())
    });
    let path = public_path();
    site.upstream.on(&path, scripts::hang(""));
    refused(&site.gateway.ask(&Request::get(ACME, &path)), 504);
}

// threat: Answers of others, requests that run twice
fn after_trouble_nobody_gets_anothers_bytes(stage: &Stage) {
    let site = Site::start(stage);
    let rounds = |_: &_| {
        for round in 0..20 {
            let (bad, good) = (public_path(), public_path());
            let cut = CUT[round % CUT.len()].replace("hello", "alien").replace("only", "alien");
            site.upstream.on(&bad, scripts::bytes(cut, Then::Closes));
            let mut wire = site.gateway.connect();
            wire.send(&[Request::get(ACME, &bad).bytes(), Request::get(ACME, &good).bytes()].concat());
            // An answer that had not begun is a 502, and the next request is answered.
            match wire.try_answer() {
                Ok(answer) => {
                    is_upstream_error(&answer);
                    assert_eq!(wire.answer().json()["target"], json!(good));
                }
                Err(_) => assert!(!String::from_utf8_lossy(&wire.rest()).contains("HTTP/1.1")),
            }
            own_answer(&site);
        }
    };
    beside(4, rounds, |_| {
        // A client that leaves in the middle leaves nothing behind either.
        let late = Cue::new();
        for _ in 0..20 {
            let path = public_path();
            let head = "HTTP/1.1 200 OK\r\n";
            site.upstream.on(&path, scripts::chunks_on_cue(head, &["alien", "late"], &[Arc::clone(&late)]));
            let mut wire = site.gateway.connect();
            wire.send(&Request::get(ACME, &path).bytes());
            assert_eq!(wire.head().unwrap().status, 200);
        }
        late.give();
        (0..20).for_each(|_| own_answer(&site));
    });
    (0..20).for_each(|_| own_answer(&site));
}
