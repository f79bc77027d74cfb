//! Where a body ends: an upstream sees it as it was meant, and the next request begins behind it.

use crate::rig::case::{Case, cases};
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::support::wire::{Request, Wire};

pub(crate) const CASES: &[Case] = cases![a_body_of_a_refused_request_is_not_the_next_request,];

/// The next request of the connection gets its own answer.
#[track_caller]
fn next_is_itself(stage: &Stage, wire: &mut Wire, next: &str) {
    let answer = wire.answer();
    assert_eq!((answer.status, &answer.json()["target"]), (200, &serde_json::json!(next)));
    stage.site().upstream.only(next);
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
