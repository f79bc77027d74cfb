//! Answer heads: httparse and hyper read alike what we accept.

use crate::http1::head::{end_of_head, read_answer};
use crate::http1::{Body, FIELDS_MAX};
use crate::hyper_reads;

/// The status, the reason, the end of the body and the fields, if we accept the head.
pub fn parts(input: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (first, head) = input.split_first()?;
    let mut spans = crate::http1::Spans::default();
    let ours = read_answer(head, first & 1 == 1, &mut spans).ok()?;
    let line = [ours.status.to_string().as_bytes(), &head[ours.reason], &crate::end_of(ours.body)]
        .map(<[u8]>::to_vec);
    Some([line.to_vec(), crate::flat(crate::ours(head, &spans))].concat())
}

/// The first byte says whether the request was a HEAD. The rest is the head.
pub fn check(input: &[u8]) {
    let Some((first, head)) = input.split_first() else { return };
    let is_to_head = first & 1 == 1;
    let mut spans = crate::http1::Spans::default();
    let Ok(ours) = read_answer(head, is_to_head, &mut spans) else { return };
    assert_eq!(end_of_head(head, 0), Some(head.len()), "a head has no empty line but the last");
    let fields = crate::ours(head, &spans);
    let reason = &head[ours.reason];

    let mut headers = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut theirs = httparse::Response::new(&mut headers);
    assert_eq!(theirs.parse(head), Ok(httparse::Status::Complete(head.len())));
    assert_eq!(theirs.code, Some(ours.status));
    // It leaves out a reason with bytes beyond ASCII.
    assert_eq!(theirs.reason.unwrap().as_bytes(), if reason.is_ascii() { reason } else { b"" });
    assert_eq!(crate::of_httparse(theirs.headers), fields);

    if ours.body == Body::ToClose {
        assert!(ours.closes);
    }
    // It waits for the answer behind an interim one, and makes a tunnel of a 101.
    if ours.status < 200 {
        return;
    }
    let theirs = hyper_reads::answer(head, is_to_head).expect("hyper refuses");
    assert_eq!(theirs.head.status.as_u16(), ours.status);
    crate::assert_same_fields(&theirs.head.headers, &fields);
    assert_eq!(theirs.body, hyper_reads::expected(ours.body));
}
