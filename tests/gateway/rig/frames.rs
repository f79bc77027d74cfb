//! HTTP/2 frames made by hand (RFC 9113; RFC 7541 without compression), for headers that no library would send.

use std::collections::{HashMap, HashSet};
use std::{io, net::SocketAddr};

use crate::support::wire::Wire;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Frame types (RFC 9113, section 6).
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// `REFUSED_STREAM` and `ENHANCE_YOUR_CALM` (RFC 9113, section 7).
pub(crate) const REFUSED: u32 = 7;
pub(crate) const CALM: u32 = 11;

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// With an answer, whose HPACK block is not read.
    Answered,
    /// With RST_STREAM and this error code.
    Reset(u32),
    /// With the whole connection, and this error code where the gateway said goodbye.
    Closed(Option<u32>),
}

/// A connection on which frames are written as they are.
pub(crate) struct Frames {
    wire: Wire,
    ended: HashMap<u32, End>,
    /// The streams that the gateway has reset.
    reset: HashSet<u32>,
    /// The bodies of all answers, one after the other.
    pub(crate) body: Vec<u8>,
    /// True if the gateway has announced the end of the connection, without an error.
    has_goodbye: bool,
}

impl Frames {
    pub(crate) fn open(gateway: SocketAddr) -> Self {
        let mut wire = Wire::open(gateway);
        wire.send(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat());
        Self { wire, ended: HashMap::new(), reset: HashSet::new(), body: Vec::new(), has_goodbye: false }
    }

    /// Sends a block of headers on stream 1.
    pub(crate) fn headers(&mut self, fields: &[(&str, &str)], ends: bool) {
        self.headers_of(1, fields, ends);
    }

    /// Sends a block of headers on a stream.
    pub(crate) fn headers_of(&mut self, stream: u32, fields: &[(&str, &str)], ends: bool) {
        let flags = END_HEADERS | if ends { END_STREAM } else { 0 };
        self.write(&frame(HEADERS, flags, stream, &block(fields)));
    }

    pub(crate) fn data(&mut self, bytes: &[u8], ends: bool) {
        self.write(&frame(DATA, if ends { END_STREAM } else { 0 }, 1, bytes));
    }

    /// Reads until stream 1 ends.
    pub(crate) fn end(&mut self) -> End {
        self.end_of(1)
    }

    /// Reads until a stream ends.
    pub(crate) fn end_of(&mut self, stream: u32) -> End {
        loop {
            if let Some(end) = self.ended.get(&stream) {
                return *end;
            }
            let Ok((kind, flags, of, payload)) = self.read() else { return End::Closed(None) };
            let code = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
            match (kind, of) {
                (SETTINGS, 0) if flags & ACK == 0 => self.write(&frame(SETTINGS, ACK, 0, &[])),
                (GOAWAY, 0) if code(4) != 0 => return End::Closed(Some(code(4))),
                (RST_STREAM, _) => drop(self.ended.entry(of).or_insert(End::Reset(code(0)))),
                (HEADERS | DATA, _) if flags & END_STREAM != 0 => drop(self.ended.insert(of, End::Answered)),
                _ => {}
            }
        }
    }

    /// True if stream 1 was reset, as far as was read.
    pub(crate) fn is_reset(&self) -> bool {
        self.reset.contains(&1)
    }

    /// Reads until stream 1 is reset.
    pub(crate) fn until_reset(&mut self) {
        while !self.is_reset() {
            self.read().unwrap();
        }
    }

    /// Reads until the connection is closed. True if the gateway announced that, without an error.
    pub(crate) fn goodbye(&mut self) -> bool {
        while self.read().inspect_err(|error| assert_ne!(error.kind(), io::ErrorKind::WouldBlock)).is_ok() {}
        self.has_goodbye
    }

    /// The gateway may have closed in the meantime, which is for the reader to see.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let _ = self.wire.write(bytes);
    }

    fn read(&mut self) -> io::Result<(u8, u8, u32, Vec<u8>)> {
        let head = self.wire.take(9)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let (kind, flags, payload) = (head[3], head[4], self.wire.take(usize::try_from(length).unwrap())?);
        match kind {
            RST_STREAM => drop(self.reset.insert(stream)),
            DATA => self.body.extend_from_slice(&payload),
            GOAWAY => self.has_goodbye |= payload[4..8] == [0; 4],
            // Behind a goodbye it asks if the client has seen it.
            PING if flags & ACK == 0 => self.write(&frame(PING, ACK, 0, &payload)),
            _ => {}
        }
        Ok((kind, flags, stream, payload))
    }
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Literal header fields without indexing, names and values as they are.
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        text(&mut block, name);
        text(&mut block, value);
    }
    block
}

pub(crate) fn text(block: &mut Vec<u8>, text: &str) {
    match u8::try_from(text.len()) {
        Ok(length) if length < 127 => block.push(length),
        _ => {
            block.push(127);
            let mut rest = text.len() - 127;
            while rest >= 128 {
                block.push(u8::try_from(rest % 128).unwrap() | 128);
                rest /= 128;
            }
            block.push(u8::try_from(rest).unwrap());
        }
    }
    block.extend_from_slice(text.as_bytes());
}
