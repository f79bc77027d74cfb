//! HTTP/2 as bytes (RFC 9113): heads of requests, before the library reads them. Pure: no IO, no time, no configuration.
//!
//! A head that can't be a request's is the fault of its stream (section 8.1.1). The library ends the connection for it,
//! which a proxy in front shares among its clients. So such heads are made readable, and say that they are to be refused.
//!
//! Without it `a_clients_bytes_end_no_other_clients_requests_behind_a_proxy_that_speaks_http_2` fails, and three more of
//! `tests/gateway/http2.rs`.

mod hpack;

use bytes::BytesMut;
use http::HeaderMap;

use crate::http1::{Problem, TARGET_PROBLEMS};
use crate::http2::hpack::Table;

/// A block that can't be decoded: the fault of the connection (RFC 9113, section 4.3).
#[derive(Debug)]
struct Broken;

/// The header that says why a request is refused, also where a client has written it.
const REFUSED: &str = "tiergate-refused";

/// The longest header block that is waited for, with its frames, in bytes: more than the library takes.
const BLOCK_BYTES_MAX: usize = 128 * 1024;

const NAME: Problem = "a header name is not a token in lower case";
const PSEUDO: Problem = "there is a pseudo-header that requests don't have";
const METHOD: Problem = "the method is not a token";
const SCHEME: Problem = "the scheme is not one";
const AUTHORITY: Problem = "the authority is not a host with a port";
const PRIORITIES: Problem = "a stream depends on itself";
const VALUE: Problem = "a header's value holds a control character";
const OURS: Problem = "there is a header that the gateway alone writes";

/// The reason why a request that the library has read is to be refused.
pub(crate) fn problem(fields: &HeaderMap) -> Option<Problem> {
    let why = fields.get(REFUSED)?.as_bytes();
    let ours = [NAME, PSEUDO, METHOD, SCHEME, AUTHORITY, VALUE];
    Some(ours.into_iter().chain(TARGET_PROBLEMS).find(|problem| problem.as_bytes() == why).unwrap_or(OURS))
}

const HEAD_BYTES: usize = 9;

/// The longest payload that we allow, in bytes.
const PAYLOAD_BYTES_MAX: usize = 16_384;

const PREFACE_BYTES: usize = 24;

const HEADERS: u8 = 1;
const PUSH_PROMISE: u8 = 5;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
const STREAM_BITS: u32 = u32::MAX >> 1;

/// A connection's frames, from its preface on.
#[derive(Debug)]
pub(crate) struct Frames {
    /// How many of the bytes that come next are shown as they are.
    passing: usize,
    /// How much of a header block that is not whole yet was looked at.
    walked: usize,
    /// The last stream that was begun.
    last: u32,
    table: Table,
    /// True once the library sees what it ends the connection for.
    is_over: bool,
}

#[derive(Clone, Copy)]
struct Head {
    /// The length of the frame with its head.
    bytes: usize,
    kind: u8,
    flags: u8,
    stream: u32,
}

impl Head {
    fn of(bytes: &[u8]) -> Option<Self> {
        let [a, b, c, kind, flags, stream @ ..] = bytes.first_chunk::<HEAD_BYTES>()?;
        let payload = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let stream = u32::from_be_bytes(*stream) & STREAM_BITS;
        Some(Self { bytes: HEAD_BYTES + payload, kind: *kind, flags: *flags, stream })
    }
}

impl Frames {
    pub(crate) fn new() -> Self {
        Self { passing: PREFACE_BYTES, walked: 0, last: 0, table: Table::default(), is_over: false }
    }

    /// How many of these bytes, which come next, can be shown as they are.
    pub(crate) fn until_headers(&mut self, bytes: &[u8]) -> usize {
        while let Some(head) = bytes.get(self.passing..).and_then(Head::of)
            && !matches!(head.kind, HEADERS | PUSH_PROMISE)
        {
            self.passing += head.bytes;
        }
        if self.is_over { bytes.len() } else { self.passing.min(bytes.len()) }
    }

    /// As many of the bytes that come next were shown.
    pub(crate) fn shown(&mut self, bytes: usize) {
        self.passing = self.passing.saturating_sub(bytes);
    }

    /// How many of the bytes that come next can be shown, once header blocks at their beginning can be read.
    pub(crate) fn next(&mut self, bytes: &mut BytesMut) -> usize {
        if self.passing == 0 && !self.is_over && self.block(bytes).is_err() {
            self.is_over = true;
            // The library may take it where its table is another one. It takes no index 0.
            bytes.clear();
            write(bytes, HEADERS, END_HEADERS, 1, &[0x80]);
        }
        self.until_headers(bytes)
    }

    /// Reads the header block at the beginning, if it is whole.
    fn block(&mut self, bytes: &mut BytesMut) -> Result<(), Broken> {
        let Some(first) = Head::of(bytes).filter(|head| matches!(head.kind, HEADERS | PUSH_PROMISE)) else {
            return Ok(());
        };
        let mut flags = 0;
        while flags & END_HEADERS == 0 {
            let Some(head) = bytes.get(self.walked..).and_then(Head::of) else { return Ok(()) };
            let end = self.walked + head.bytes;
            if head.bytes > HEAD_BYTES + PAYLOAD_BYTES_MAX || end > BLOCK_BYTES_MAX {
                // More than the library takes, as it says itself.
                self.is_over = true;
                return Ok(());
            }
            let follows = self.walked == 0 || head.kind == CONTINUATION && head.stream == first.stream;
            if !follows || first.kind == PUSH_PROMISE {
                return Err(Broken);
            }
            if bytes.len() < end {
                return Ok(());
            }
            (self.walked, flags) = (end, head.flags);
        }
        let end = std::mem::take(&mut self.walked);
        let (mut block, depends_on_itself) = fragment(first, bytes)?;
        let mut rest = bytes.get(first.bytes..end).unwrap_or_default();
        while let Some(head) = Head::of(rest) {
            block.extend_from_slice(rest.get(HEAD_BYTES..head.bytes).unwrap_or_default());
            rest = rest.get(head.bytes..).unwrap_or_default();
        }
        let resets = depends_on_itself || first.stream <= self.last;
        self.last = self.last.max(first.stream);
        let mut rewritten = Vec::new();
        let found = depends_on_itself.then_some(PRIORITIES);
        self.passing = end;
        if self.table.read(&block, resets, found, &mut rewritten)?.is_some() {
            let rest = bytes.split_off(end);
            bytes.clear();
            let (mut kind, mut flags) = (HEADERS, first.flags & END_STREAM);
            let mut pieces = rewritten.chunks(PAYLOAD_BYTES_MAX).peekable();
            while let Some(piece) = pieces.next() {
                flags |= if pieces.peek().is_none() { END_HEADERS } else { 0 };
                write(bytes, kind, flags, first.stream, piece);
                (kind, flags) = (CONTINUATION, 0);
            }
            self.passing = bytes.len();
            bytes.unsplit(rest);
        }
        Ok(())
    }
}

fn write(out: &mut BytesMut, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    out.extend_from_slice(&length);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// The part of a block that is in a frame of headers, without padding and priority (RFC 9113, section 6.2), and whether the stream depends
/// on itself: then the library would not read it, and have another table.
fn fragment(head: Head, bytes: &[u8]) -> Result<(Vec<u8>, bool), Broken> {
    let mut payload = bytes.get(HEAD_BYTES..head.bytes).ok_or(Broken)?;
    let mut depends_on_itself = false;
    let padding =
        if head.flags & PADDED == 0 { 0 } else { usize::from(*payload.split_off_first().ok_or(Broken)?) };
    if head.flags & PRIORITY != 0 {
        let (dependency, rest) = payload.split_first_chunk::<4>().ok_or(Broken)?;
        depends_on_itself = u32::from_be_bytes(*dependency) & STREAM_BITS == head.stream;
        payload = rest.get(1..).ok_or(Broken)?;
    }
    let block = payload.get(..payload.len().checked_sub(padding).ok_or(Broken)?).ok_or(Broken)?;
    Ok((block.to_vec(), depends_on_itself))
}

#[cfg(test)]
mod tests;
