//! The frames of a client (RFC 9113, section 4): where header blocks begin and end.

use bytes::BytesMut;

use crate::http2::fields::Table;
use crate::http2::{BLOCK_BYTES_MAX, Broken};

const HEAD_BYTES: usize = 9;

/// The longest payload that we allow, in bytes.
const PAYLOAD_BYTES_MAX: usize = 16_384;

const PREFACE_BYTES: usize = 24;

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

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
    /// True once frames came that the library ends the connection for: it sees everything as it is.
    is_lost: bool,
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
        let stream = u32::from_be_bytes(*stream) & (u32::MAX >> 1);
        Some(Self { bytes: HEAD_BYTES + payload, kind: *kind, flags: *flags, stream })
    }

    fn write(self, out: &mut BytesMut) {
        let [_, length @ ..] = u32::try_from(self.bytes - HEAD_BYTES).unwrap_or_default().to_be_bytes();
        out.extend_from_slice(&length);
        out.extend_from_slice(&[self.kind, self.flags]);
        out.extend_from_slice(&self.stream.to_be_bytes());
    }
}

impl Frames {
    pub(crate) fn new() -> Self {
        Self { passing: PREFACE_BYTES, walked: 0, last: 0, table: Table::default(), is_lost: false }
    }

    /// How many of these bytes, which come next, can be shown as they are.
    pub(crate) fn until_headers(&mut self, bytes: &[u8]) -> usize {
        while let Some(head) = bytes.get(self.passing..).and_then(Head::of)
            && head.kind != HEADERS
        {
            self.passing += head.bytes;
        }
        if self.is_lost { bytes.len() } else { self.passing.min(bytes.len()) }
    }

    /// As many of the bytes that come next were shown.
    pub(crate) fn shown(&mut self, bytes: usize) {
        self.passing = self.passing.saturating_sub(bytes);
    }

    /// How many of the bytes that come next can be shown, once header blocks at their beginning are fit for the library.
    pub(crate) fn next(&mut self, bytes: &mut BytesMut) -> usize {
        if self.passing == 0 && !self.is_lost {
            self.is_lost = self.block(bytes).is_err();
        }
        self.until_headers(bytes)
    }

    /// Reads the header block at the beginning, if it is whole.
    fn block(&mut self, bytes: &mut BytesMut) -> Result<(), Broken> {
        let Some(first) = Head::of(bytes).filter(|head| head.kind == HEADERS) else { return Ok(()) };
        let mut flags = 0;
        while flags & END_HEADERS == 0 {
            let Some(head) = bytes.get(self.walked..).and_then(Head::of) else { return Ok(()) };
            let end = self.walked + head.bytes;
            let follows = self.walked == 0 || head.kind == CONTINUATION && head.stream == first.stream;
            if !follows || head.bytes > HEAD_BYTES + PAYLOAD_BYTES_MAX || end > BLOCK_BYTES_MAX {
                return Err(Broken);
            }
            if bytes.len() < end {
                return Ok(());
            }
            (self.walked, flags) = (end, head.flags);
        }
        let end = std::mem::take(&mut self.walked);
        let payload = fragment(bytes.get(HEAD_BYTES..first.bytes).unwrap_or_default(), first.flags)?;
        let is_trailer = first.stream <= self.last;
        self.last = self.last.max(first.stream);
        let mut fit = Vec::new();
        let problem = if first.bytes == end {
            self.table.read(payload, is_trailer, &mut fit)?
        } else {
            let mut whole = payload.to_vec();
            let mut rest = bytes.get(first.bytes..end).unwrap_or_default();
            while let Some(head) = Head::of(rest) {
                whole.extend_from_slice(rest.get(HEAD_BYTES..head.bytes).unwrap_or_default());
                rest = rest.get(head.bytes..).unwrap_or_default();
            }
            self.table.read(&whole, is_trailer, &mut fit)?
        };
        self.passing = end;
        if problem.is_some() {
            let rest = bytes.split_off(end);
            bytes.clear();
            let mut flags = first.flags & END_STREAM;
            let mut kind = HEADERS;
            let mut pieces = fit.chunks(PAYLOAD_BYTES_MAX).peekable();
            while let Some(piece) = pieces.next() {
                flags |= if pieces.peek().is_none() { END_HEADERS } else { 0 };
                Head { bytes: HEAD_BYTES + piece.len(), kind, flags, stream: first.stream }.write(bytes);
                bytes.extend_from_slice(piece);
                (kind, flags) = (CONTINUATION, 0);
            }
            self.passing = bytes.len();
            bytes.unsplit(rest);
        }
        Ok(())
    }
}

/// The part of a block that is in a frame of headers, without its padding and priority (RFC 9113, section 6.2).
fn fragment(mut payload: &[u8], flags: u8) -> Result<&[u8], Broken> {
    let padding =
        if flags & PADDED == 0 { 0 } else { usize::from(*payload.split_off_first().ok_or(Broken)?) };
    if flags & PRIORITY != 0 {
        payload = payload.get(5..).ok_or(Broken)?;
    }
    payload.get(..payload.len().checked_sub(padding).ok_or(Broken)?).ok_or(Broken)
}
