//! Where a body ends: an upstream sees it as it was meant, and the next request begins behind it.

use crate::rig::case::{Case, cases};
use crate::rig::refusals::is_malformed;
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::support::time::{SOON, until};
use crate::support::wire::{Request, Wire};

pub(crate) const CASES: &[Case] = cases![
    well_framed_requests_are_seen_as_they_were_meant_and_so_is_the_next,
    odd_but_clear_chunks_are_one_body_and_what_follows_is_the_next_request,
    broken_chunks_end_the_connection_and_nothing_behind_them_is_forwarded,
    trailers_frame_nothing,
    broken_trailers_end_the_connection_and_their_request_is_never_whole,
    a_body_of_a_refused_request_is_not_the_next_request,
    a_body_of_a_get_is_a_body,
    hop_by_hop_headers_that_frame_the_body_can_not_be_named_away,
];

/// The next request of the connection gets its own answer.
#[track_caller]
fn next_is_itself(stage: &Stage, wire: &mut Wire, next: &str) {
    let answer = wire.answer();
    assert_eq!((answer.status, &answer.json()["target"]), (200, &serde_json::json!(next)));
    stage.site().upstream.only(next);
}

fn chunked(path: &str, body: &str) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nHost: {ACME}\r\nTransfer-Encoding: chunked\r\n\r\n{body}").into_bytes()
}

fn well_framed_requests_are_seen_as_they_were_meant_and_so_is_the_next(stage: &Stage) {
    let site = stage.site();
    let inner = "GET /public/inner HTTP/1.1\r\nHost: acme.test\r\n\r\n";
    let bodies = ["", "x", "0\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n", inner, "\r\n", "\0\r\n\r\n"];
    for body in bodies {
        let (path, next) = (public_path(), public_path());
        let mut wire = site.gateway.connect();
        wire.send(&Request::new("POST", ACME, &path).body(body.as_bytes()).bytes());
        wire.send(&Request::get(ACME, &next).bytes());
        assert_eq!(wire.answer().status, 200);
        let seen = site.upstream.whole(&path);
        assert_eq!((seen.method.as_str(), seen.body), ("POST", body.as_bytes().to_vec()));
        assert_eq!(
            seen.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("content-length")).count(),
            1
        );
        next_is_itself(stage, &mut wire, &next);
    }
    site.is_unseen("/public/inner");
}

fn odd_but_clear_chunks_are_one_body_and_what_follows_is_the_next_request(stage: &Stage) {
    let site = stage.site();
    for (body, meant) in [
        ("0\r\n\r\n", ""),
        ("000\r\n\r\n", ""),
        ("5\r\nhello\r\n0\r\n\r\n", "hello"),
        ("00000005\r\nhello\r\n0\r\n\r\n", "hello"),
        ("A\r\n0123456789\r\n0\r\n\r\n", "0123456789"),
        ("a\r\n0123456789\r\n0\r\n\r\n", "0123456789"),
        ("1\r\nh\r\n4\r\nello\r\n0\r\n\r\n", "hello"),
        ("5\r\n0\r\n\r\n\r\n0\r\n\r\n", "0\r\n\r\n"),
        ("5;name=value\r\nhello\r\n0\r\n\r\n", "hello"),
        ("5;name=\"a;b\"\r\nhello\r\n0;last\r\n\r\n", "hello"),
        ("5;0\r\nhello\r\n0\r\n\r\n", "hello"),
        ("5\r\nhello\r\n0\r\nX-Trailer: x\r\n\r\n", "hello"),
    ] {
        let (path, next) = (public_path(), public_path());
        let mut wire = site.gateway.connect();
        wire.send(&[chunked(&path, body), Request::get(ACME, &next).bytes()].concat());
        assert_eq!(wire.answer().status, 200, "{body:?}");
        assert_eq!(site.upstream.whole(&path).body, meant.as_bytes(), "{body:?}");
        next_is_itself(stage, &mut wire, &next);
    }
    site.are_unseen(&[]);
}

fn broken_chunks_end_the_connection_and_nothing_behind_them_is_forwarded(stage: &Stage) {
    let site = stage.site();
    let (mut wrong, mut sent) = (Vec::new(), Vec::new());
    for body in [
        "x\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "5h\r\nhello\r\n0\r\n\r\n",
        "5 5\r\nhello\r\n0\r\n\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "5,5\r\nhello\r\n0\r\n\r\n",
        "10000000000000005\r\nhello\r\n0\r\n\r\n",
        "ffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\rhello\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhelloX\r\n0\r\n\r\n",
        "4\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\n\r\n",
        "5\r\nhello\r\n0\r\n\n",
        "5;a\nb\r\nhello\r\n0\r\n\r\n",
        "5;a\rb\r\nhello\r\n0\r\n\r\n",
    ] {
        let (path, next) = (public_path(), public_path());
        let mut wire = site.gateway.connect();
        wire.send(&[chunked(&path, body), Request::get(ACME, &next).bytes()].concat());
        // The head may have been forwarded before the body turned out to be broken.
        let status = wire.try_answer().ok().map(|answer| answer.status);
        let behind = String::from_utf8_lossy(&wire.rest()).into_owned();
        if !matches!(status, None | Some(400)) || !behind.is_empty() {
            wrong.push(format!("{body:?}: {status:?}, behind: {behind}"));
        }
        sent.push((path, next));
    }
    site.are_unseen(&sent.iter().map(|(_, next)| next.clone()).collect::<Vec<_>>());
    for (path, _) in sent {
        wrong.extend(site.upstream.seen_at(&path).iter().any(|seen| seen.whole).then_some(path));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn trailers_frame_nothing(stage: &Stage) {
    let site = stage.site();
    for trailer in [
        "Content-Length: 5",
        "Transfer-Encoding: chunked",
        "Host: golden.test",
        "Connection: close",
        "X-Forwarded-For: 9.9.9.9",
        "Authorization: Bearer svc_live_v1_x",
        "X-API-Key: svc_live_v1_x",
        "X-Request-Id: forged",
        "Forwarded: for=9.9.9.9",
    ] {
        let (path, next) = (public_path(), public_path());
        let mut wire = site.gateway.connect();
        let body = format!("5\r\nhello\r\n0\r\n{trailer}\r\n\r\n");
        wire.send(&[chunked(&path, &body), Request::get(ACME, &next).bytes()].concat());
        assert_eq!(wire.answer().status, 200, "{trailer}");
        let seen = site.upstream.whole(&path);
        assert_eq!((seen.body.as_slice(), &seen.trailers), (b"hello".as_slice(), &Vec::new()), "{trailer}");
        next_is_itself(stage, &mut wire, &next);
    }
    site.are_unseen(&[]);
}

fn broken_trailers_end_the_connection_and_their_request_is_never_whole(stage: &Stage) {
    let site = stage.site();
    for trailer in
        ["no colon\r\n", " folded: x\r\n", "X : x\r\n", "X: x\n", ": x\r\n", "X: a\rb\r\n", "X: \0\r\n"]
    {
        let (path, next) = (public_path(), public_path());
        let mut wire = site.gateway.connect();
        wire.send(&chunked(&path, "5\r\nhello\r\n"));
        until("the head has come", SOON, || (site.upstream.count_at(&path) == 1).then_some(()));
        wire.send(&[format!("0\r\n{trailer}\r\n").as_bytes(), &Request::get(ACME, &next).bytes()].concat());
        is_malformed(&wire.answer());
        assert_eq!(String::from_utf8_lossy(&wire.rest()), "", "{trailer:?}: another answer");
        site.is_unseen(&next);
        assert!(!site.upstream.only(&path).whole, "{trailer:?}");
    }
}

fn a_body_of_a_refused_request_is_not_the_next_request(stage: &Stage) {
    let site = stage.site();
    let inner_path = public_path();
    let mut behind = vec![inner_path.clone()];
    let inner = format!("GET {inner_path} HTTP/1.1\r\nHost: {ACME}\r\n\r\n");
    let chunk = format!("{:x}\r\n{inner}\r\n0\r\n\r\n", inner.len());
    for (host, path, status) in [
        (ACME, agents_path(), 401),
        (ACME, "/denied/x".to_owned(), 403),
        ("unknown.test", public_path(), 404),
    ] {
        let with_length = Request::new("POST", host, &path).body(inner.as_bytes()).bytes();
        let head = Request::new("POST", host, &path).with("Transfer-Encoding", "chunked").bytes();
        let (after_length, after_chunks) = (public_path(), public_path());
        let mut wire = site.gateway.connect();
        wire.send(&[with_length, Request::get(ACME, &after_length).bytes()].concat());
        assert_eq!(wire.answer().status, status);
        next_is_itself(stage, &mut wire, &after_length);
        let mut wire = site.gateway.connect();
        wire.send(&[head, chunk.clone().into_bytes(), Request::get(ACME, &after_chunks).bytes()].concat());
        assert_eq!(wire.answer().status, status);
        assert_eq!(String::from_utf8_lossy(&wire.rest()), "", "another answer");
        behind.push(after_chunks);
    }
    site.are_unseen(&behind);
}

fn a_body_of_a_get_is_a_body(stage: &Stage) {
    let site = stage.site();
    let inner = public_path();
    let body = format!("GET {inner} HTTP/1.1\r\nHost: {ACME}\r\n\r\n");
    for method in ["GET", "HEAD", "DELETE", "OPTIONS"] {
        let (path, next) = (public_path(), public_path());
        let mut wire = site.gateway.connect();
        wire.send(&Request::new(method, ACME, &path).body(body.as_bytes()).bytes());
        wire.send(&Request::get(ACME, &next).bytes());
        let answer = wire.head().unwrap();
        assert_eq!(answer.status, 200, "{method}");
        if method != "HEAD" {
            wire.body(answer).unwrap();
        }
        assert_eq!(site.upstream.whole(&path).body, body.as_bytes(), "{method}");
        next_is_itself(stage, &mut wire, &next);
    }
    site.is_unseen(&inner);
}

fn hop_by_hop_headers_that_frame_the_body_can_not_be_named_away(stage: &Stage) {
    let site = stage.site();
    let inner = public_path();
    let body = format!("GET {inner} HTTP/1.1\r\nHost: {ACME}\r\n\r\n");
    for (options, status) in [
        ("Content-Length", 200),
        ("content-length, close", 200),
        ("Transfer-Encoding", 200),
        ("keep-alive, Content-Length", 200),
        ("Host", 400),
    ] {
        let path = public_path();
        let request = Request::new("POST", ACME, &path).with("Connection", options).body(body.as_bytes());
        let answer = site.gateway.ask(&request);
        assert_eq!(answer.status, status, "{options}: {}", answer.text());
        if status == 200 {
            let seen = site.upstream.whole(&path);
            assert_eq!((seen.body.as_slice(), seen.all("host")), (body.as_bytes(), vec![ACME]), "{options}");
        } else {
            site.is_unseen(&path);
        }
    }
    site.is_unseen(&inner);
}
