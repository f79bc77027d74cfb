//! Where a body ends: an upstream sees it as it was meant, and the next request begins behind it.

use crate::rig::case::{Case, cases};
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::support::wire::{Request, Wire};

pub(crate) const CASES: &[Case] = cases![
    broken_chunks_and_trailers_end_the_connection_and_nothing_behind_them_is_forwarded,
    a_body_of_a_refused_request_is_not_the_next_request,
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

// threat: Request smuggling
fn broken_chunks_and_trailers_end_the_connection_and_nothing_behind_them_is_forwarded(stage: &Stage) {
    let site = stage.site();
    let (mut wrong, mut sent) = (Vec::new(), Vec::new());
    for body in [
        "x\r\nhello\r\n0\r\n\r\n",
        "10000000000000005\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "4\r\nhello\r\n0\r\n\r\n",
        "5;a\nb\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\r\nno colon\r\n\r\n",
        "5\r\nhello\r\n0\r\nX: a\rb\r\n\r\n",
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

// threat: Request smuggling
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
