//! Other readers of heads: they read alike what we accept.

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_assert_eq, prop_oneof, proptest};
use proptest::sample::{Index, select};

use crate::http1::fields::{FIELDS_MAX, Spans};
use crate::http1::head::{read_answer, read_request};
use crate::http1::tests::heads;

type Texts<'a> = Vec<(&'a [u8], &'a [u8])>;

fn fields_of<'a>(head: &'a [u8], spans: &'a Spans) -> Texts<'a> {
    spans.iter().map(|span| (&head[span.name.clone()], &head[span.value.clone()])).collect()
}

fn fields_there<'a>(headers: &[httparse::Header<'a>]) -> Texts<'a> {
    headers.iter().map(|header| (header.name.as_bytes(), header.value)).collect()
}

fn request_is_read_alike(head: &[u8]) {
    let mut spans = Spans::default();
    let Ok(ours) = read_request(head, &mut spans) else { return };
    let mut headers = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut theirs = httparse::Request::new(&mut headers);
    let length = theirs.parse(head);
    if ours.has_odd_target && length.is_err() {
        return;
    }
    assert_eq!(length, Ok(httparse::Status::Complete(head.len())));
    assert_eq!(theirs.method.unwrap().as_bytes(), &head[ours.method]);
    assert_eq!(theirs.path.unwrap().as_bytes(), &head[ours.target]);
    assert_eq!(theirs.version.unwrap() == 0, ours.is_http_1_0);
    assert_eq!(fields_there(theirs.headers), fields_of(head, &spans));
}

fn answer_is_read_alike(head: &[u8]) {
    let mut spans = Spans::default();
    let Ok(ours) = read_answer(head, false, &mut spans) else { return };
    let mut headers = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut theirs = httparse::Response::new(&mut headers);
    assert_eq!(theirs.parse(head), Ok(httparse::Status::Complete(head.len())));
    assert_eq!(theirs.code, Some(ours.status));
    let reason = &head[ours.reason];
    // It leaves out a reason with bytes beyond ASCII.
    assert_eq!(theirs.reason.unwrap().as_bytes(), if reason.is_ascii() { reason } else { b"" });
    assert_eq!(fields_there(theirs.headers), fields_of(head, &spans));
}

/// Pieces of heads, good and bad.
fn token() -> impl Strategy<Value = String> {
    prop_oneof![
        "[A-Za-z0-9!#$%&'*+.^_`|~-]{1,9}",
        select(vec!["Host", "Content-Length", "TRANSFER-encoding", "Connection", "Upgrade", "X-API-Key"])
            .prop_map(str::to_owned),
    ]
}

fn value() -> impl Strategy<Value = String> {
    let known = ["5", "05", "chunked", "CHUNKED", "close", "te, close", "host", "a@b", "", " \t", "5\t "];
    prop_oneof![select(known.to_vec()).prop_map(str::to_owned), "[ -~\t\u{80}-\u{ff}]{0,30}"]
}

fn fields() -> impl Strategy<Value = String> {
    let field = (token(), "[ \t]{0,2}", value(), "[ \t]{0,2}");
    vec(field.prop_map(|(name, before, value, behind)| format!("{name}:{before}{value}{behind}\r\n")), 0..6)
        .prop_map(|fields| fields.concat())
}

fn request() -> impl Strategy<Value = Vec<u8>> {
    let first = ("[A-Z]{1,7}", "/[!-~\u{80}-\u{ff}]{0,20}", select(vec!["1.1", "1.0"]), fields());
    let written = first.prop_map(|(method, target, version, fields)| {
        format!("{method} {target} HTTP/{version}\r\nHost: a\r\n{fields}\r\n").into_bytes()
    });
    prop_oneof![written, select(heads::ambiguous("/")).prop_map(String::into_bytes)]
}

fn answer() -> impl Strategy<Value = Vec<u8>> {
    let first = (select(vec!["1.1", "1.0"]), 100_u16..1000, "( [ -~\t\u{80}-\u{ff}]{0,12})?", fields());
    first.prop_map(|(version, status, reason, fields)| {
        format!("HTTP/{version} {status}{reason}\r\n{fields}\r\n").into_bytes()
    })
}

/// Heads with some bytes replaced, put in or taken out.
fn mutated(head: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![any::<u8>(), select(b"\r\n\t :;,#@\0\x7f\x80".to_vec())];
    let change = (any::<Index>(), 0_usize..2, prop_oneof![Just(None), byte.prop_map(Some)]);
    (head, vec(change, 0..4)).prop_map(|(mut head, changes)| {
        for (at, taken, put) in changes {
            let at = at.index(head.len() + 1);
            head.splice(at..(at + taken).min(head.len()), put);
        }
        head
    })
}

proptest! {
    // threat: Request smuggling
    #[test]
    fn requests_are_read_as_another_reader_reads_them(head in mutated(request())) {
        request_is_read_alike(&head);
    }

    // threat: Answers of others, requests that run twice
    #[test]
    fn answers_are_read_as_another_reader_reads_them(head in mutated(answer())) {
        answer_is_read_alike(&head);
    }

    #[test]
    fn a_well_written_head_is_read(name in "[a-z]{1,9}", value in "[!-~]([ -~]{0,20}[!-~])?") {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\nx-{name}: {value}\r\n\r\n");
        let mut spans = Spans::default();
        read_request(head.as_bytes(), &mut spans).unwrap();
        prop_assert_eq!(&head[spans[1].name.clone()], format!("x-{name}"));
        prop_assert_eq!(&head[spans[1].value.clone()], value);
    }
}
