//! The head of a request that somebody else tells part by part. It is read as one that came whole.

use crate::http1::fields::{Problem, Spans};
use crate::http1::head::{RequestHead, read_request};

/// The head, and its text. `spans` are those of its fields, of which `Host` comes first.
///
/// # Errors
///
/// A client's head would be refused, or a part says more than it is for.
pub(crate) fn read_told<'a>(
    [method, target, host]: [&[u8]; 3],
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    spans: &mut Spans,
) -> Result<(Vec<u8>, RequestHead), Problem> {
    let mut text = Vec::with_capacity(512);
    let line = [method, b" ", target, b" HTTP/1.1\r\nHost: ", host, b"\r\n"];
    line.iter().for_each(|part| text.extend_from_slice(part));
    let mut count = 1;
    for (name, value) in fields {
        if name.contains(&b':') {
            return Err("a header name is not a token");
        }
        for part in [name, b": ", value, b"\r\n"] {
            text.extend_from_slice(part);
        }
        count += 1;
    }
    text.extend_from_slice(b"\r\n");
    let head = read_request(&text, spans)?;
    // One more is one that a part has smuggled in.
    if spans.len() == count { Ok((text, head)) } else { Err("a part of it holds a line end") }
}
