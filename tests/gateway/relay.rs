//! The relay of HTTP/1: what a client sends is what its upstream gets, and the next request begins behind it.

use std::{io::Read, net::Shutdown, sync::Mutex};

use serde_json::json;

use crate::rig::case::{Case, cases};
use crate::rig::scripts::{self, script};
use crate::rig::stage::{ACME, Stage, public_path};
use crate::rig::upstream::{Then, lock};
use crate::support::time::{SOON, until};
use crate::support::wire::{Request, Wire};

pub(crate) const CASES: &[Case] = cases![
    other_lines_of_both_sides_keep_their_order_and_spelling,
    a_small_request_and_its_answer_are_one_write_each,
    an_upload_that_is_answered_early_is_its_connections_last,
    trailers_that_route_or_name_somebody_are_dropped_and_others_pass,
    a_final_answer_takes_the_place_of_100_continue,
    interim_answers_pass_in_order,
    many_requests_in_one_packet_are_answered_in_order,
    a_client_that_ends_its_side_in_a_body_is_never_whole,
    a_client_that_ends_its_side_after_its_request_has_left,
];

/// Whether a header is the gateway's own.
fn is_ours(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let begins = ["x-agent-", "x-forwarded-", "x-request-id", "forwarded", "via"];
    begins.iter().any(|begin| name.starts_with(begin))
}

fn other_than_ours(headers: &[(String, String)]) -> Vec<(String, String)> {
    headers.iter().filter(|(name, _)| !is_ours(name)).cloned().collect()
}

fn other_lines_of_both_sides_keep_their_order_and_spelling(stage: &Stage) {
    let site = stage.site();
    let path = public_path();
    let lines = [
        ("X-One", "1"),
        ("aCCept", "*/*"),
        ("cookie", "a=1"),
        ("X_TWO", "two  words"),
        ("X-One", "3"),
        ("content-LENGTH", "0"),
        ("Cookie", "b=2"),
        ("X-Empty", ""),
    ];
    let sent: Vec<_> = lines.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let answer = "HTTP/1.1 200 Very Fine\r\nX-OTHER: 1\r\nset-cookie: a\r\nDate: today\r\nSet-Cookie: b\r\n\
                  content-length: 0\r\nx-other: 2\r\n\r\n";
    site.upstream.on(&path, scripts::bytes(answer, Then::Goes));
    let mut wire = site.gateway.connect();
    // Some of the lines stand between others that end here.
    let mut request = Request::get(ACME, &path).with_all(&sent[..4]);
    request = request.with("X-Agent-Id", "1").with("TE", "trailers").with("X_Request_Id", "x");
    wire.send(&request.with_all(&sent[4..]).bytes());
    let got = String::from_utf8(wire.take(answer.len()).unwrap()).unwrap();
    assert!(got.starts_with(&answer[..answer.len() - 2]), "{got}");
    let seen = other_than_ours(&site.upstream.only(&path).headers);
    let host = [("Host".to_owned(), ACME.to_owned())];
    assert_eq!(seen, [&host[..], &sent].concat());
}

fn a_small_request_and_its_answer_are_one_write_each(stage: &Stage) {
    let site = stage.site();
    for chunked in [false, true] {
        for _ in 0..20 {
            let path = public_path();
            let whole = scripts::answer("200 OK", &[("Connection", "close")], &[b'y'; 1_000]);
            // The script runs when one read has brought the head.
            site.upstream.on(
                &path,
                script(move |exchange| {
                    let came_with_head = exchange.buffered();
                    let text = if came_with_head.ends_with(b"hello") || came_with_head.ends_with(b"0\r\n\r\n")
                    {
                        whole.clone()
                    } else {
                        scripts::answer("500 In Pieces", &[], &came_with_head)
                    };
                    exchange.write(&text)?;
                    Ok(Then::Closes)
                }),
            );
            let request = Request::new("POST", ACME, &path);
            let bytes = match chunked {
                false => request.body(b"hello").bytes(),
                true => {
                    [&request.with("Transfer-Encoding", "chunked").bytes(), &b"5\r\nhello\r\n0\r\n\r\n"[..]]
                        .concat()
                }
            };
            let mut wire = site.gateway.connect();
            wire.send(&bytes);
            let mut piece = [0; 65_536];
            let count = wire.socket().read(&mut piece).unwrap();
            let answer = String::from_utf8_lossy(&piece[..count]).into_owned();
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
            assert!(answer.ends_with(&"y".repeat(1_000)), "its answer came in pieces: {answer}");
        }
    }
}

/// Reads the early answer to the beginning of an upload; the rest that is sent then holds a request, which is none.
fn an_upload_that_is_answered_early_is_its_connections_last(stage: &Stage) {
    let site = stage.site();
    for (chunked, then) in
        [(false, Then::Goes), (true, Then::Goes), (false, Then::Closes), (true, Then::Closes)]
    {
        let (path, inner) = (public_path(), public_path());
        let refusal = scripts::answer("422 No", &[("X-Why", "size")], b"no");
        site.upstream.on(
            &path,
            script(move |exchange| {
                exchange.write(&refusal)?;
                if then == Then::Goes {
                    exchange.read_body()?;
                }
                Ok(then)
            }),
        );
        let inner_request = String::from_utf8(Request::get(ACME, &inner).bytes()).unwrap();
        let request = Request::new("POST", ACME, &path);
        let (request, begin, rest) = match chunked {
            false => {
                let length = (5 + inner_request.len()).to_string();
                (request.with("Content-Length", &length), "hello".to_owned(), inner_request)
            }
            true => (
                request.with("Transfer-Encoding", "chunked"),
                "5\r\nhello\r\n".to_owned(),
                format!("{:x}\r\n{inner_request}\r\n0\r\n\r\n{inner_request}", inner_request.len()),
            ),
        };
        let mut wire = site.gateway.connect();
        wire.send(&[request.bytes(), begin.into_bytes()].concat());
        let answer = wire.answer();
        assert_eq!((answer.status, answer.header("x-why")), (422, Some("size")), "{}", answer.text());
        assert_eq!((answer.body.as_slice(), answer.header("connection")), (b"no".as_slice(), Some("close")));
        let _ = wire.write(rest.as_bytes());
        assert_eq!(String::from_utf8_lossy(&wire.rest()), "", "another answer");
        site.is_unseen(&inner);
        assert!(!site.upstream.only(&path).whole);
    }
}

fn trailers_that_route_or_name_somebody_are_dropped_and_others_pass(stage: &Stage) {
    let site = stage.site();
    let dropped = [
        "X-Agent-Id: 1",
        "x_agent_tier: 4",
        "X.Agent.Owner: me",
        "X-Agent-Signature: 0x",
        "Authorization: Bearer x",
        "X-API-Key: x",
        "X_Api_Key: x",
        "Cookie: a=1",
        "Host: other.test",
        "Content-Length: 1",
        "Content-Type: text/plain",
        "Range: bytes=0-1",
        "Signature_Input: s=()",
        "Transfer-Encoding: chunked",
        "Connection: close",
        "Upgrade: x",
        "Forwarded: for=1.2.3.4",
        "X-Forwarded-For: 1.2.3.4",
        "X-Request-Id: x",
        "X_Request_Id: x",
    ];
    let path = public_path();
    site.upstream.on(
        &path,
        script(|exchange| {
            exchange.read_body()?;
            let trailers = "X-Sum: a\r\nX-RateLimit-Limit: 9\r\nRateLimit: 1\r\nx-rate-limit-reset: 1\r\n\
                            Content-Length: 1\r\nX-Request-Id: x\r\nX-Sum: b";
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            exchange.write(format!("{head}2\r\nok\r\n0\r\n{trailers}\r\n\r\n").as_bytes())?;
            Ok(Then::Goes)
        }),
    );
    let mut wire = site.gateway.connect();
    wire.send(&Request::new("POST", ACME, &path).with("Transfer-Encoding", "chunked").bytes());
    let trailers = dropped.join("\r\n");
    wire.send(format!("5;x=y\r\nhello\r\n0\r\nX-Sum: 1\r\n{trailers}\r\nx-sum:2\r\n\r\n").as_bytes());
    assert_eq!(wire.head().unwrap().status, 200);
    let expected = "2\r\nok\r\n0\r\nX-Sum: a\r\nX-Sum: b\r\n\r\n";
    assert_eq!(String::from_utf8(wire.take(expected.len()).unwrap()).unwrap(), expected);
    let kept = [("X-Sum", "1"), ("x-sum", "2")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(site.upstream.whole(&path).trailers, kept);
    assert_eq!(Request::get(ACME, &public_path()).ask_on(&mut wire).status, 200);
}

fn a_final_answer_takes_the_place_of_100_continue(stage: &Stage) {
    let site = stage.site();
    for status in [417, 200] {
        let (path, behind) = (public_path(), public_path());
        let line = format!("{status} So");
        site.upstream.on(&path, scripts::early(scripts::answer(&line, &[], b"not needed")));
        let request = Request::new("POST", ACME, &path).with("Expect", "100-continue");
        let mut wire = site.gateway.connect();
        wire.send(&request.with("Content-Length", "5").bytes());
        let head = wire.head().unwrap();
        assert_eq!((head.status, head.header("connection")), (status, Some("close")));
        assert_eq!(wire.body(head).unwrap().body, b"not needed");
        // Nobody can tell whether these bytes are the body or a request.
        let _ = wire.write(&Request::get(ACME, &behind).bytes());
        assert_eq!(String::from_utf8_lossy(&wire.rest()), "", "another answer");
        site.is_unseen(&behind);
        assert!(!site.upstream.only(&path).whole);
    }
}

fn interim_answers_pass_in_order(stage: &Stage) {
    let site = stage.site();
    let path = public_path();
    let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\nX-RateLimit-Limit: 1\r\n\r\n\
                   HTTP/1.1 102 Processing\r\nContent-Length: 7\r\n\r\n";
    let last = String::from_utf8(scripts::answer("200 OK", &[], b"ok")).unwrap();
    site.upstream.on(&path, scripts::bytes(format!("{interim}{last}"), Then::Goes));
    let mut wire = site.gateway.connect();
    wire.send(&Request::get(ACME, &path).bytes());
    let heads = [(); 3].map(|()| wire.head().unwrap());
    assert_eq!([heads[0].status, heads[1].status, heads[2].status], [103, 102, 200]);
    assert_eq!(heads[0].headers, [("Link".to_owned(), "</a>; rel=preload".to_owned())]);
    assert_eq!(heads[1].headers, [], "an interim answer has no body");
    assert_eq!(wire.take(2).unwrap(), b"ok");
    assert_eq!(Request::get(ACME, &public_path()).ask_on(&mut wire).status, 200);
}

// threat: Request smuggling
fn many_requests_in_one_packet_are_answered_in_order(stage: &Stage) {
    let site = stage.site();
    let (mut packet, mut paths) = (Vec::new(), Vec::new());
    for number in 0..60 {
        let path = public_path();
        let inner = String::from_utf8(Request::get(ACME, "/public/inner-of-many").bytes()).unwrap();
        let body = inner.repeat(number % 4);
        // A body has any method, and its framing can't be named away.
        let request = Request::new(["POST", "GET", "DELETE", "OPTIONS"][number / 3 % 4], ACME, &path);
        let request = request.with("Connection", "Content-Length, Transfer-Encoding");
        packet.extend(match number % 3 {
            0 => Request::get(ACME, &path).bytes(),
            1 => request.body(body.as_bytes()).bytes(),
            _ => {
                let mut bytes = request.with("Transfer-Encoding", "chunked").bytes();
                for chunk in body.as_bytes().chunks(7) {
                    bytes.extend([format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
                }
                [&bytes, &b"0\r\n\r\n"[..]].concat()
            }
        });
        paths.push((path, if number % 3 == 0 { String::new() } else { body }));
    }
    let mut wire = site.gateway.connect();
    wire.send(&packet);
    for (path, body) in paths {
        let answer = wire.answer().json();
        assert_eq!(answer, json!({ "target": path, "bodyBytes": body.len() }));
        assert_eq!(site.upstream.only(&path).body, body.as_bytes());
    }
    site.is_unseen("inner-of-many");
}

fn a_client_that_ends_its_side_in_a_body_is_never_whole(stage: &Stage) {
    let site = stage.site();
    for (framing, value, begin) in [
        ("Content-Length", "6", "hello"),
        ("Transfer-Encoding", "chunked", "5\r\nhello\r\n"),
        ("Transfer-Encoding", "chunked", "5\r\nhello\r\n0\r\n"),
    ] {
        let path = public_path();
        let ends = std::sync::Arc::new(Mutex::new(None));
        let says = std::sync::Arc::clone(&ends);
        site.upstream.on(
            &path,
            script(move |exchange| {
                let end = exchange.read_body();
                *lock(&says) = Some(end.is_ok());
                end.map(|()| Then::Closes)
            }),
        );
        let mut wire = site.gateway.connect();
        wire.send(&Request::new("POST", ACME, &path).with(framing, value).bytes());
        wire.send(begin.as_bytes());
        wire.socket().0.shutdown(Shutdown::Write).unwrap();
        assert_eq!(String::from_utf8_lossy(&wire.rest()), "", "half a request has no answer");
        // The end may come before anything was sent upstream.
        if site.upstream.count_at(&path) == 1 {
            assert!(!until("the upstream is told", SOON, || *lock(&ends)), "{begin:?}");
        }
        site.are_unseen(&[]);
        assert!(site.upstream.seen_at(&path).iter().all(|seen| !seen.whole), "{begin:?}");
    }
}

fn a_client_that_ends_its_side_after_its_request_has_left(stage: &Stage) {
    let site = stage.site();
    let path = public_path();
    let left = scripts::Cue::new();
    let says = std::sync::Arc::clone(&left);
    site.upstream.on(
        &path,
        script(move |exchange| {
            exchange.until_closed();
            says.give();
            Ok(Then::Closes)
        }),
    );
    let mut wire: Wire = site.gateway.connect();
    wire.send(&Request::get(ACME, &path).bytes());
    until("the upstream has it", SOON, || (site.upstream.count_at(&path) == 1).then_some(()));
    wire.socket().0.shutdown(Shutdown::Write).unwrap();
    left.wait().unwrap();
    assert_eq!(String::from_utf8_lossy(&wire.rest()), "", "nobody waits for an answer");
}
