//! Bodies in chunks (RFC 9112, section 7.1): read strictly, and written.

use crate::http1::lines::{is_text, is_token};

/// The longest line of a chunk's size with its extensions, or of a trailer, in bytes.
pub(super) const LINE_BYTES_MAX: usize = 4 * 1024;

/// The longest trailer section, in bytes.
pub(crate) const TRAILER_BYTES_MAX: usize = 16 * 1024;

/// A body in chunks breaks the syntax, or one of the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a body in chunks breaks its syntax")]
pub(crate) struct BrokenChunks;

/// The piece that one step of [`Decoder::next`] found at the beginning of the bytes it was given.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// Bytes of data. Never empty.
    Data(&'a [u8]),
    /// The body is over. The decoder holds its trailers.
    End,
    /// The bytes are used up, and the body goes on.
    More,
}

/// The next part of the body.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Next {
    /// The first digit of a chunk's size.
    #[default]
    FirstDigit,
    /// The rest of a chunk's size.
    Size,
    /// A chunk's extensions. They are read and dropped.
    Extension,
    /// The line feed behind a chunk's size.
    SizeEnd,
    Data(u64),
    /// The carriage return behind a chunk's data.
    DataCr,
    /// The line feed behind a chunk's data.
    DataLf,
    /// A trailer, or the empty line at the end.
    LineStart,
    /// The rest of a trailer; whether its colon has come.
    Trailer(bool),
    /// The line feed behind a trailer.
    TrailerEnd,
    /// The last line feed.
    LastLf,
    Over,
}

/// Reads a body in chunks, piece by piece.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    next: Next,
    size: u64,
    line_bytes: usize,
    trailer_bytes: usize,
    /// The trailers as they came, with a line feed behind each.
    trailers: Vec<u8>,
}

impl Decoder {
    /// Takes the next piece off `bytes`, which is moved behind what was taken. Behind the end of the body nothing is taken.
    /// Error: [`BrokenChunks`]; the body can't be read any further then.
    pub(crate) fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Piece<'a>, BrokenChunks> {
        while !self.is_over() {
            if let Next::Data(left) = self.next {
                let length = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                let (data, rest) = bytes.split_at(length);
                let left = left - data.len() as u64;
                self.next = if left == 0 { Next::DataCr } else { Next::Data(left) };
                *bytes = rest;
                return Ok(if data.is_empty() { Piece::More } else { Piece::Data(data) });
            }
            let [byte, rest @ ..] = *bytes else { return Ok(Piece::More) };
            self.step(*byte)?;
            *bytes = rest;
        }
        Ok(Piece::End)
    }

    /// True if the body is over.
    pub(crate) fn is_over(&self) -> bool {
        self.next == Next::Over
    }

    /// The trailers of a body that is over, as name and value, each trimmed.
    pub(crate) fn trailers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.trailers.split(|byte| *byte == b'\n').filter_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            let (name, value) = line.split_at(colon);
            Some((name, value.get(1..)?.trim_ascii()))
        })
    }

    fn step(&mut self, byte: u8) -> Result<(), BrokenChunks> {
        self.next = match (self.next, byte) {
            (Next::FirstDigit | Next::Size, digit) if digit.is_ascii_hexdigit() => self.add_digit(digit)?,
            (Next::Size, b';') => Next::Extension,
            (Next::Size | Next::Extension, b'\r') => Next::SizeEnd,
            (Next::Extension, byte) if is_text(byte) => self.in_line(Next::Extension)?,
            (Next::SizeEnd, b'\n') if self.size == 0 => self.begin_line(Next::LineStart),
            (Next::SizeEnd, b'\n') => Next::Data(std::mem::take(&mut self.size)),
            (Next::DataCr, b'\r') => Next::DataLf,
            (Next::DataLf, b'\n') => self.begin_line(Next::FirstDigit),
            (Next::LineStart, b'\r') => Next::LastLf,
            (Next::LineStart | Next::Trailer(false), byte) if is_token(byte) => {
                self.in_trailer(byte, Next::Trailer(false))?
            }
            (Next::Trailer(false), b':') => self.in_trailer(byte, Next::Trailer(true))?,
            (Next::Trailer(true), b'\r') => Next::TrailerEnd,
            (Next::Trailer(true), byte) if is_text(byte) => self.in_trailer(byte, Next::Trailer(true))?,
            (Next::TrailerEnd, b'\n') => {
                self.trailers.push(b'\n');
                self.begin_line(Next::LineStart)
            }
            (Next::LastLf, b'\n') => Next::Over,
            _ => return Err(BrokenChunks),
        };
        Ok(())
    }

    fn add_digit(&mut self, digit: u8) -> Result<Next, BrokenChunks> {
        let value = char::from(digit).to_digit(16).ok_or(BrokenChunks)?;
        let larger = self.size.checked_mul(16).and_then(|size| size.checked_add(u64::from(value)));
        // Beyond 63 bits other readers may count differently.
        self.size = larger.filter(|size| *size <= i64::MAX as u64).ok_or(BrokenChunks)?;
        self.in_line(Next::Size)
    }

    const fn begin_line(&mut self, next: Next) -> Next {
        self.line_bytes = 0;
        next
    }

    fn in_line(&mut self, next: Next) -> Result<Next, BrokenChunks> {
        self.line_bytes += 1;
        if self.line_bytes > LINE_BYTES_MAX { Err(BrokenChunks) } else { Ok(next) }
    }

    fn in_trailer(&mut self, byte: u8, next: Next) -> Result<Next, BrokenChunks> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > TRAILER_BYTES_MAX {
            return Err(BrokenChunks);
        }
        self.trailers.push(byte);
        self.in_line(next)
    }
}

/// Writes the line before a chunk of so many bytes. Behind the data goes CRLF.
pub(crate) fn write_size(size: usize, out: &mut Vec<u8>) {
    let digits = (usize::BITS - size.leading_zeros()).div_ceil(4).max(1);
    for at in (0..digits).rev() {
        let digit = (size >> (at * 4)) & 0xf;
        out.extend(b"0123456789abcdef".get(digit));
    }
    out.extend_from_slice(b"\r\n");
}
