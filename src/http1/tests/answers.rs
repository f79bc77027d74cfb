//! Answer heads.

use http::HeaderMap;

use crate::http1::fields::{FIELDS_MAX, Problem, Spans, TOO_MANY_FIELDS};
use crate::http1::head::{AnswerHead, check_framing, read_answer};
use crate::http1::{Body, tests::heads};

fn read(head: &str) -> Result<(AnswerHead, Spans), Problem> {
    let mut fields = Spans::default();
    read_answer(head.as_bytes(), false, &mut fields).map(|read| (read, fields))
}

fn with(line: &str, fields: &str) -> AnswerHead {
    read(&format!("{line}\r\n{fields}\r\n")).unwrap().0
}

#[test]
fn an_answer_that_two_readers_may_read_differently_is_refused() {
    for head in [
        "",
        "\r\n\r\n",
        "hello\r\n\r\n",
        "\0\0\0\0\r\n\r\n",
        "HTTP/1.1\r\n\r\n",
        "HTTP/1.1 \r\n\r\n",
        "HTTP/1.1 abc OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n",
        "HTTP/1.1 +20 OK\r\n\r\n",
        "HTTP/1.1  200 OK\r\n\r\n",
        "HTTP/1.1\t200 OK\r\n\r\n",
        "HTTP/1.1 200\tOK\r\n\r\n",
        "HTTP/1.1 200OK\r\n\r\n",
        "HTTP/1.1 200 O\0K\r\n\r\n",
        "HTTP/1.1 200 O\rK\r\n\r\n",
        "HTTP/1.1 200 OK\n\r\n\r\n",
        "HTTP/1.1 200 OK\n\n",
        "HTTP/1.1 200\n\r\n\r\n",
        " HTTP/1.1 200 OK\r\n\r\n",
        "\r\nHTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.2 200 OK\r\n\r\n",
        "HTTP/2 200\r\n\r\n",
        "http/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ] {
        assert!(read(head).is_err(), "{head:?}");
    }
}

/// The list of requests, where it is about fields that answers have too.
#[test]
fn fields_that_are_refused_in_a_request_are_refused_in_an_answer() {
    let mut tried = 0;
    for request in heads::ambiguous("/") {
        let head = request.strip_suffix(heads::NO_CHUNKS).unwrap_or(&request);
        let Some((_, fields)) = head.split_once(" HTTP/1.1\r\nHost: acme.test\r\n") else { continue };
        if ["\r\n", "Connection: ", "hOsT: ", "Host: "].iter().any(|begin| fields.starts_with(begin)) {
            continue;
        }
        let answer = format!("HTTP/1.1 200 OK\r\n{fields}");
        assert!(read(&answer).is_err(), "{answer:?}");
        tried += 1;
    }
    assert!(tried > 60, "{tried}");
}

#[test]
fn a_status_and_its_reason_are_read() {
    for (line, status, reason) in [
        ("HTTP/1.1 200 OK", 200, "OK"),
        ("HTTP/1.1 999 Not \t \u{e9}", 999, "Not \t \u{e9}"),
        ("HTTP/1.0 100 ", 100, ""),
        ("HTTP/1.1 404", 404, ""),
    ] {
        let head = format!("{line}\r\nX: y\r\n\r\n");
        let (read, fields) = read(&head).unwrap();
        assert_eq!((read.status, &head[read.reason]), (status, reason));
        assert_eq!((&head[fields[0].name.clone()], &head[fields[0].value.clone()]), ("X", "y"));
    }
}

#[test]
fn a_body_ends_as_its_framing_the_status_and_the_method_say() {
    const LENGTH: &str = "Content-Length: 5\r\n";
    const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";
    for (status, fields, body) in [
        (200, LENGTH, Body::Length(5)),
        (200, CHUNKED, Body::Chunked),
        (200, "", Body::ToClose),
        (404, "", Body::ToClose),
        (100, LENGTH, Body::Length(0)),
        (101, "", Body::Length(0)),
        (199, CHUNKED, Body::Length(0)),
        (204, LENGTH, Body::Length(0)),
        (205, LENGTH, Body::Length(5)),
        (304, LENGTH, Body::Length(0)),
        (304, CHUNKED, Body::Length(0)),
    ] {
        let head = format!("HTTP/1.1 {status} X\r\n{fields}\r\n");
        assert_eq!(read(&head).unwrap().0.body, body, "{head:?}");
        let mut spans = Spans::default();
        let to_head = read_answer(head.as_bytes(), true, &mut spans).unwrap();
        assert_eq!((to_head.body, to_head.closes), (Body::Length(0), false), "{head:?}");
        assert_eq!(spans.len(), fields.lines().count(), "the fields stay");
    }
}

#[test]
fn a_connection_closes_with_http_1_0_the_option_close_or_a_body_without_end() {
    const LENGTH: &str = "Content-Length: 5\r\n";
    assert!(!with("HTTP/1.1 200 OK", LENGTH).closes);
    assert!(!with("HTTP/1.1 304 Same", "Connection: keep-alive, \"close\"\r\n").closes);
    assert!(with("HTTP/1.1 200 OK", "").closes);
    assert!(with("HTTP/1.1 204 Empty", "Connection: x\r\nconnection: a , CLOSE\r\n").closes);
    assert!(with("HTTP/1.0 200 OK", &format!("Connection: keep-alive\r\n{LENGTH}")).closes);
}

#[test]
fn more_fields_than_the_limit_are_refused() {
    let head = |fields: usize| format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(fields));
    assert_eq!(read(&head(FIELDS_MAX)).unwrap().1.len(), FIELDS_MAX);
    assert_eq!(read(&head(FIELDS_MAX + 1)).unwrap_err(), TOO_MANY_FIELDS);
}

#[test]
fn a_head_that_a_library_has_read_frames_its_body_once() {
    let check = |fields: &[(&'static str, &'static str)], is_http_1_0| {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(*name, value.parse().unwrap());
        }
        check_framing(&map, is_http_1_0).is_ok()
    };
    let (length, chunked) = (("content-length", "5"), ("transfer-encoding", "chunked"));
    assert!(check(&[], false) && check(&[length], false) && check(&[chunked], false));
    for fields in [&[length, chunked], &[length, length], &[chunked, chunked]] {
        assert!(!check(fields, false), "{fields:?}");
    }
    assert!(!check(&[chunked], true), "HTTP/1.0 has no chunks");
}
