//! Heads of requests and answers, read in one pass (RFC 9112, sections 2 to 6).

use std::ops::Range;

use crate::http1::fields::{Fields, Options, Problem, Spans, is_websocket};
use crate::http1::lines::{Body, Lines, RequestHead, is_token};
use crate::http1::name::Name;

/// An answer's head that means one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AnswerHead {
    /// The status, 100 to 999.
    pub(crate) status: u16,
    /// The span of the reason phrase; may be empty.
    pub(crate) reason: Range<usize>,
    /// How its body ends, for this request's method.
    pub(crate) body: Body,
    /// True if the connection can't be used again after the answer: HTTP/1.0, `Connection: close`, or a body that ends
    /// with the connection.
    pub(crate) closes: bool,
}

/// The option after which no message follows.
const CLOSE: &[u8] = b"close";

const LENGTH_TWICE: Problem = "Content-Length stands more than once";
const CODING_TWICE: Problem = "Transfer-Encoding stands more than once";

/// The problems of an answer whose sender is well, and says one thing twice.
pub(crate) const REPEATED: [Problem; 2] = [LENGTH_TWICE, CODING_TWICE];

/// Headers that `Connection` must not take away.
const PROTECTED: [Name; 4] = [Name::Host, Name::ForwardedFor, Name::ForwardedHost, Name::ForwardedProto];

/// Reads a whole request head, from the request line to the empty line; writes its fields into `fields`, which is cleared
/// before.
pub(crate) fn read_request(text: &[u8], fields: &mut Spans) -> Result<RequestHead, Problem> {
    fields.clear();
    let mut lines = Lines::of(text)?;
    let mut head = lines.request_line()?;
    let (mut framing, mut hosts, mut options) = (Framing::default(), 0, Options::default());
    while let Some((name, value)) = lines.field(fields)? {
        if name == Name::Other {
            continue;
        }
        framing.read(name, value, head.is_http_1_0)?;
        if name == Name::Host {
            hosts += 1;
            if value.contains(&b'@') {
                return Err("the Host header holds user info");
            }
        } else if name == Name::Connection {
            options.add(value)?;
        }
        head.upgrades |= name == Name::Upgrade && is_websocket(value);
    }
    if hosts > 1 {
        return Err("there is more than one Host header");
    }
    if hosts == 0 && !head.is_http_1_0 {
        return Err("there is no Host header");
    }
    head.body = framing.body()?.unwrap_or(head.body);
    head.closes |= check_options(&options)?;
    Ok(head)
}

/// Reads a head that somebody else gives part by part as one that came whole, and gives its text too. `spans` are those of its
/// fields, of which `Host` comes first.
///
/// Error: a client's head would be refused, or a part says more than it is for.
pub(crate) fn head_from_parts<'a>(
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

/// Reads a whole answer head, from the status line to the empty line, of a request whose method is HEAD or not.
pub(crate) fn read_answer(head: &[u8], is_to_head: bool, fields: &mut Spans) -> Result<AnswerHead, Problem> {
    fields.clear();
    let mut lines = Lines::of(head)?;
    let (status, reason, is_http_1_0) = lines.status_line()?;
    let (mut framing, mut options) = (Framing::default(), Options::default());
    while let Some((name, value)) = lines.field(fields)? {
        framing.read(name, value, is_http_1_0)?;
        if name == Name::Connection {
            options.add(value)?;
        }
    }
    let body = framing.body()?.unwrap_or(Body::ToClose);
    let has_no_body = is_to_head || matches!(status, 100..=199 | 204 | 304);
    let body = if has_no_body { Body::Length(0) } else { body };
    let closes = is_http_1_0 || options.name(CLOSE) || body == Body::ToClose;
    Ok(AnswerHead { status, reason, body, closes })
}

/// Checks the fields that tell where a message's body ends, of a head that another reader has read.
/// Error: two readers may find its end in different places.
pub(crate) fn check_framing(fields: &impl Fields, is_http_1_0: bool) -> Result<(), Problem> {
    let mut framing = Framing::default();
    for name in [Name::ContentLength, Name::TransferEncoding] {
        fields.values(name).try_for_each(|value| framing.read(name, value, is_http_1_0))?;
    }
    framing.body().map(drop)
}

/// The end of a head: behind the first empty line, by whichever line ends. `searched` bytes were looked through before.
pub(crate) fn end_of_head(text: &[u8], searched: usize) -> Option<usize> {
    // The last two bytes may be the beginning of the empty line.
    let mut at = searched.saturating_sub(2);
    // 32 bytes at a time, and the two that may belong to an empty line that begins with the last of them.
    while let Some(block) = text.get(at..).and_then(<[u8]>::first_chunk::<34>)
        && !has_end(block)
    {
        at += 32;
    }
    let mut rest = text.get(at..)?;
    loop {
        rest = match rest {
            [b'\n', b'\r', b'\n', rest @ ..] | [b'\n', b'\n', rest @ ..] => {
                return Some(text.len() - rest.len());
            }
            [_, rest @ ..] => rest,
            [] => return None,
        };
    }
}

/// True if an empty line begins in the first 32 bytes. Without branches, so that it is compiled to vector instructions.
fn has_end(block: &[u8; 34]) -> bool {
    let triples = block[..32].iter().zip(&block[1..33]).zip(&block[2..]);
    triples.fold(false, |found, ((first, second), third)| {
        let is_crlf = (*second == b'\r') & (*third == b'\n');
        found | ((*first == b'\n') & ((*second == b'\n') | is_crlf))
    })
}

/// The fields that tell where a body ends.
#[derive(Default)]
struct Framing {
    length: Option<u64>,
    chunked: bool,
}

impl Framing {
    fn read(&mut self, name: Name, value: &[u8], is_http_1_0: bool) -> Result<(), Problem> {
        if name == Name::ContentLength {
            return if self.length.replace(decimal(value)?).is_some() { Err(LENGTH_TWICE) } else { Ok(()) };
        }
        if name != Name::TransferEncoding {
            Ok(())
        } else if is_http_1_0 {
            Err("HTTP/1.0 has no Transfer-Encoding")
        } else if !value.eq_ignore_ascii_case(b"chunked") {
            Err("Transfer-Encoding is not chunked alone")
        } else if std::mem::replace(&mut self.chunked, true) {
            Err(CODING_TWICE)
        } else {
            Ok(())
        }
    }

    fn body(&self) -> Result<Option<Body>, Problem> {
        match (self.length, self.chunked) {
            (Some(_), true) => Err("there are both Content-Length and Transfer-Encoding"),
            (length, false) => Ok(length.map(Body::Length)),
            (None, true) => Ok(Some(Body::Chunked)),
        }
    }
}

fn decimal(text: &[u8]) -> Result<u64, Problem> {
    const PHRASE: Problem = "Content-Length is not one decimal number";
    if text.is_empty() || text.len() > 19 || !text.iter().all(u8::is_ascii_digit) {
        return Err(PHRASE);
    }
    Ok(text.iter().fold(0, |number: u64, digit| number * 10 + u64::from(digit - b'0')))
}

/// Checks the options of a request's `Connection`, and says whether one of them is `close`.
fn check_options(options: &Options<'_>) -> Result<bool, Problem> {
    for option in options.iter() {
        if !option.iter().all(|byte| is_token(*byte)) {
            return Err("Connection holds an option that is not a token");
        }
        if PROTECTED.contains(&Name::of(option)) {
            return Err("Connection names a header that is not for one hop");
        }
    }
    Ok(options.name(CLOSE))
}
