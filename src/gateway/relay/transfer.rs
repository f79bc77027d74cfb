//! A body on its way: taken as its framing frames it (RFC 9112, section 6.3), written as its destination needs it.

use crate::http1::{Body, BrokenChunks, Decoder, Piece, chunked::write_size, name::Name};
use crate::mcp::{Filter, Unreadable};
use crate::message_signature::BodyDigest;

/// The last chunk, without the trailers behind it.
const LAST_CHUNK: &[u8] = b"0\r\n";

/// A body on its way.
#[derive(Debug)]
pub(super) struct Transfer {
    framing: Framing,
    writes_chunks: bool,
    /// True if a trailer is passed on.
    keeps_trailer: fn(Name, &[u8]) -> bool,
    /// How much of the body was taken, in bytes, without its framing.
    pub(super) bytes: u64,
    /// The digest that it must have, where that is known.
    pub(super) digest: Option<Box<BodyDigest>>,
    /// Takes out of its list what its client may not call.
    pub(super) filter: Option<Box<Filter>>,
}

/// The rest of a body, as its framing frames it.
#[derive(Debug)]
enum Framing {
    Length(u64),
    Chunked(Decoder),
    ToClose,
    Over,
}

/// A body that can't be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Broken {
    Chunks,
    List,
}

impl From<BrokenChunks> for Broken {
    fn from(_: BrokenChunks) -> Self {
        Self::Chunks
    }
}

impl From<Unreadable> for Broken {
    fn from(_: Unreadable) -> Self {
        Self::List
    }
}

/// The framing's connection ended in the middle of the body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unfinished;

impl Transfer {
    pub(super) fn new(body: Body, writes_chunks: bool, keeps_trailer: fn(Name, &[u8]) -> bool) -> Self {
        let framing = match body {
            Body::Length(0) => Framing::Over,
            Body::Length(bytes) => Framing::Length(bytes),
            Body::Chunked => Framing::Chunked(Decoder::default()),
            Body::ToClose => Framing::ToClose,
        };
        Self { framing, writes_chunks, keeps_trailer, bytes: 0, digest: None, filter: None }
    }

    /// True if the whole body was taken, and is another than its digest says.
    pub(super) fn is_another(&self) -> bool {
        self.is_over() && self.digest.as_ref().is_some_and(|digest| !digest.matches())
    }

    /// True if the whole body was taken.
    pub(super) const fn is_over(&self) -> bool {
        matches!(self.framing, Framing::Over)
    }

    /// How many bytes may be read straight into the destination's buffer; `None` if they need another framing.
    pub(super) fn straight(&self) -> Option<usize> {
        if self.filter.is_none() { self.unframed() } else { None }
    }

    /// How many bytes of the framing are the body's as they come.
    fn unframed(&self) -> Option<usize> {
        match self.framing {
            Framing::Length(left) => Some(usize::try_from(left).unwrap_or(usize::MAX)),
            Framing::ToClose if !self.writes_chunks => Some(usize::MAX),
            Framing::ToClose | Framing::Chunked(_) | Framing::Over => None,
        }
    }

    /// Counts bytes, at most [`Self::straight`], that were read straight into the destination's buffer.
    pub(super) fn took(&mut self, bytes: &[u8]) {
        let count = bytes.len();
        if let Some(digest) = &mut self.digest {
            digest.update(bytes);
        }
        self.bytes = self.bytes.saturating_add(count as u64);
        if let Framing::Length(left) = self.framing {
            let left = left.saturating_sub(count as u64);
            self.framing = if left == 0 { Framing::Over } else { Framing::Length(left) };
        }
    }

    /// Takes what belongs to the body off the beginning of `bytes`, and says how much that is.
    pub(super) fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Broken> {
        let Some(mut filter) = self.filter.take() else { return Ok(self.take_plain(bytes, out)?) };
        let (mut data, in_chunks) = (Vec::new(), std::mem::take(&mut self.writes_chunks));
        let taken = self.take_plain(bytes, &mut data)?;
        self.write_filtered(&mut filter, &data, in_chunks, out)?;
        (self.filter, self.writes_chunks) = (Some(filter), in_chunks);
        Ok(taken)
    }

    fn write_filtered(
        &self,
        filter: &mut Filter,
        data: &[u8],
        in_chunks: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), Unreadable> {
        write_data(&filter.push(data, self.is_over())?, in_chunks, out);
        if in_chunks && self.is_over() {
            write_end(std::iter::empty(), self.keeps_trailer, out);
        }
        Ok(())
    }

    fn take_plain(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, BrokenChunks> {
        if let Some(most) = self.unframed() {
            let taken = bytes.get(..most).unwrap_or(bytes);
            out.extend_from_slice(taken);
            self.took(taken);
            return Ok(taken.len());
        }
        let mut rest = bytes;
        match &mut self.framing {
            Framing::Chunked(decoder) => loop {
                match decoder.next(&mut rest)? {
                    Piece::Data(data) => {
                        self.bytes = self.bytes.saturating_add(data.len() as u64);
                        if let Some(digest) = &mut self.digest {
                            digest.update(data);
                        }
                        write_data(data, self.writes_chunks, out);
                    }
                    Piece::More => break,
                    Piece::End => {
                        if self.writes_chunks {
                            write_end(decoder.trailers(), self.keeps_trailer, out);
                        }
                        self.framing = Framing::Over;
                        break;
                    }
                }
            },
            Framing::ToClose => {
                rest = &[];
                self.bytes = self.bytes.saturating_add(bytes.len() as u64);
                write_data(bytes, self.writes_chunks, out);
            }
            Framing::Length(_) | Framing::Over => {}
        }
        Ok(bytes.len() - rest.len())
    }

    /// The framing's connection has ended.
    pub(super) fn source_closed(&mut self, out: &mut Vec<u8>) -> Result<(), Unfinished> {
        match self.framing {
            Framing::ToClose => {
                self.framing = Framing::Over;
                if let Some(mut filter) = self.filter.take() {
                    let written = self.write_filtered(&mut filter, b"", self.writes_chunks, out);
                    return written.map_err(|_| Unfinished);
                }
                if self.writes_chunks {
                    write_end(std::iter::empty(), self.keeps_trailer, out);
                }
                Ok(())
            }
            Framing::Over => Ok(()),
            Framing::Length(_) | Framing::Chunked(_) => Err(Unfinished),
        }
    }
}

fn write_data(data: &[u8], in_chunks: bool, out: &mut Vec<u8>) {
    if data.is_empty() {
        return;
    }
    if in_chunks {
        write_size(data.len(), out);
        out.extend_from_slice(data);
        out.extend_from_slice(b"\r\n");
    } else {
        out.extend_from_slice(data);
    }
}

fn write_end<'a>(
    trailers: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    keeps: fn(Name, &[u8]) -> bool,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(LAST_CHUNK);
    for (name, value) in trailers.filter(|(name, _)| keeps(Name::of(name), name)) {
        for part in [name, b": ", value, b"\r\n"] {
            out.extend_from_slice(part);
        }
    }
    out.extend_from_slice(b"\r\n");
}
