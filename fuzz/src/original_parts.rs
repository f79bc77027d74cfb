//! Requests that other gateways tell part by part: the parts that we judge are those that were sent.

use crate::http1::{FIELDS_MAX, Spans, head::head_from_parts};

/// Parts behind each other, with 0xff in between: method, target, host, then names and values.
pub fn check(input: &[u8]) {
    let mut parts = input.split(|byte| *byte == 0xff);
    let mut next = || parts.next().unwrap_or_default();
    let line = [next(), next(), next()];
    let rest: Vec<&[u8]> = parts.collect();
    let fields: Vec<_> = rest.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    check_parts(line, &fields);
}

/// Reads these parts as one request, and compares.
pub fn check_parts(line: [&[u8]; 3], fields: &[(&[u8], &[u8])]) {
    let mut spans = Spans::default();
    let Ok((text, head)) = head_from_parts(line, fields.iter().copied(), &mut spans) else { return };
    assert!(fields.len() < FIELDS_MAX && head.body != crate::http1::Body::ToClose);
    let [method, target, host] = line;
    assert_eq!((&text[head.method], &text[head.target]), (method, target));
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let trimmed = |value: &[u8]| -> Vec<u8> {
        let begin = value.iter().position(|byte| !blank(byte)).unwrap_or(value.len());
        let end = value.iter().rposition(|byte| !blank(byte)).map_or(begin, |at| at + 1);
        value[begin..end].to_vec()
    };
    let host: (&[u8], &[u8]) = (b"Host", host);
    let expected = std::iter::once(&host).chain(fields);
    let expected: Vec<_> = expected.map(|(name, value)| (name.to_vec(), trimmed(value))).collect();
    let ours = crate::ours(&text, &spans).into_iter().map(|(name, value)| (name.to_vec(), value.to_vec()));
    assert_eq!(ours.collect::<Vec<_>>(), expected);
}
