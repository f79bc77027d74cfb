//! Where a body in chunks ends (RFC 9112, section 7.1), read strictly: what two readers may read differently is refused
//! while it passes by, before anybody acts on it.

/// The longest line of a chunk's size with its extensions, or of a trailer, in bytes.
const LINE_BYTES_MAX: usize = 4 * 1024;

/// The longest trailer section, in bytes.
const TRAILER_BYTES_MAX: usize = 16 * 1024;

/// A body in chunks breaks the syntax, or one of the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a body in chunks breaks its syntax")]
pub struct BrokenChunks;

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// A chunk's size; whether a digit has come.
    Size(bool),
    /// A chunk's extensions, which mean nothing to us.
    Extension,
    /// The line feed behind a chunk's size.
    SizeEnd,
    /// So many bytes of data.
    Data(u64),
    /// The line end behind a chunk's data.
    DataCr,
    /// The same.
    DataLf,
    /// A trailer, or the empty line at the end.
    LineStart,
    /// The rest of a trailer; whether its colon has come.
    Trailer(bool),
    /// The line feed behind a trailer.
    TrailerEnd,
    /// The last line feed.
    LastLf,
    /// Nothing: the body is over.
    Over,
}

/// Follows a body in chunks, piece by piece.
#[derive(Debug)]
pub struct Chunks {
    next: Next,
    size: u64,
    line_bytes: usize,
    trailer_bytes: usize,
}

impl Chunks {
    /// At the beginning of a body.
    #[must_use]
    pub const fn new() -> Self {
        Self { next: Next::Size(false), size: 0, line_bytes: 0, trailer_bytes: 0 }
    }

    /// Whether the body is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.next == Next::Over
    }

    /// Follows the next bytes; says how many of them belong to the body.
    ///
    /// # Errors
    ///
    /// [`BrokenChunks`]; the body can't be read any further then.
    pub fn follow(&mut self, bytes: &[u8]) -> Result<usize, BrokenChunks> {
        let mut rest = bytes;
        while !self.is_over() {
            if let Next::Data(left) = self.next {
                let taken = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                rest = rest.get(taken..).unwrap_or_default();
                let left = left.saturating_sub(taken as u64);
                self.next = if left == 0 { Next::DataCr } else { Next::Data(left) };
                if left != 0 {
                    break;
                }
            }
            let [byte, others @ ..] = rest else { break };
            self.step(*byte)?;
            rest = others;
        }
        Ok(bytes.len().saturating_sub(rest.len()))
    }

    fn step(&mut self, byte: u8) -> Result<(), BrokenChunks> {
        self.next = match (self.next, byte) {
            (Next::Size(_), digit) if digit.is_ascii_hexdigit() => {
                self.add_digit(digit)?;
                Next::Size(true)
            }
            (Next::Size(true), b';') => Next::Extension,
            (Next::Size(true) | Next::Extension, b'\r') => Next::SizeEnd,
            (Next::Extension, byte) if is_text(byte) => self.in_line(Next::Extension)?,
            (Next::SizeEnd, b'\n') if self.size == 0 => self.begin_line(Next::LineStart),
            (Next::SizeEnd, b'\n') => Next::Data(std::mem::take(&mut self.size)),
            (Next::DataCr, b'\r') => Next::DataLf,
            (Next::DataLf, b'\n') => self.begin_line(Next::Size(false)),
            (Next::LineStart, b'\r') => Next::LastLf,
            (Next::LineStart, byte) if is_name(byte) => self.in_trailer(Next::Trailer(false))?,
            (Next::Trailer(false), b':') => self.in_trailer(Next::Trailer(true))?,
            (Next::Trailer(false), byte) if is_name(byte) => self.in_trailer(Next::Trailer(false))?,
            (Next::Trailer(true), b'\r') => Next::TrailerEnd,
            (Next::Trailer(true), byte) if is_text(byte) => self.in_trailer(Next::Trailer(true))?,
            (Next::TrailerEnd, b'\n') => self.begin_line(Next::LineStart),
            (Next::LastLf, b'\n') => Next::Over,
            _ => return Err(BrokenChunks),
        };
        Ok(())
    }

    fn add_digit(&mut self, digit: u8) -> Result<(), BrokenChunks> {
        let value = char::from(digit).to_digit(16).ok_or(BrokenChunks)?;
        let larger = self.size.checked_mul(16).and_then(|size| size.checked_add(u64::from(value)));
        // Beyond 63 bits other readers may count differently.
        self.size = larger.filter(|size| *size <= i64::MAX as u64).ok_or(BrokenChunks)?;
        self.in_line(Next::Size(true)).map(drop)
    }

    const fn begin_line(&mut self, next: Next) -> Next {
        self.line_bytes = 0;
        next
    }

    fn in_line(&mut self, next: Next) -> Result<Next, BrokenChunks> {
        self.line_bytes += 1;
        if self.line_bytes > LINE_BYTES_MAX { Err(BrokenChunks) } else { Ok(next) }
    }

    fn in_trailer(&mut self, next: Next) -> Result<Next, BrokenChunks> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > TRAILER_BYTES_MAX { Err(BrokenChunks) } else { self.in_line(next) }
    }
}

impl Default for Chunks {
    fn default() -> Self {
        Self::new()
    }
}

/// What may stand in a header's value (RFC 9110, section 5.5).
const fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

const fn is_name(byte: u8) -> bool {
    crate::wire::framing::is_token(byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::{BrokenChunks, Chunks, LINE_BYTES_MAX, TRAILER_BYTES_MAX};

    fn follow(body: &[u8]) -> Result<(usize, bool), BrokenChunks> {
        let mut chunks = Chunks::new();
        chunks.follow(body).map(|taken| (taken, chunks.is_over()))
    }

    #[test]
    fn a_body_ends_with_its_last_line_and_what_follows_is_left() {
        for body in [
            "0\r\n\r\n",
            "5\r\nhello\r\n0\r\n\r\n",
            "00005\r\nhello\r\n000\r\n\r\n",
            "A;x=\"y z\"\r\n0123456789\r\n1\r\n!\r\n0;last\r\n\r\n",
            "5\r\nhello\r\n0\r\nX-Sum: 1\r\nX-Empty:\r\n\r\n",
        ] {
            let behind = format!("{body}GET / HTTP/1.1\r\n");
            assert_eq!(follow(behind.as_bytes()), Ok((body.len(), true)), "{body:?}");
            for end in 0..body.len() {
                assert_eq!(follow(&body.as_bytes()[..end]), Ok((end, false)), "{body:?} {end}");
            }
        }
    }

    #[test]
    fn whatever_else_is_broken() {
        for body in [
            "\r\n",
            "x",
            "-5",
            "+5",
            "0x5",
            " 5",
            "5 ",
            "5,5",
            "5\n",
            "5\rh",
            ";\r\n",
            "5\r\nhello0",
            "5\r\nhello\n",
            "5\r\nhelloX",
            "4\r\nhello",
            "0\r\n\n",
            "0\r\n ",
            "0\r\nx\r",
            "0\r\n: y",
            "0\r\nx y",
            "0\r\nx: \0",
            "0\r\nx: y\n",
            "5;a\nb",
            "5;a\rb",
            "5;\0",
            "8000000000000000",
            "10000000000000005",
        ] {
            assert_eq!(follow(body.as_bytes()), Err(BrokenChunks), "{body:?}");
        }
    }

    #[test]
    fn lines_and_trailers_have_an_end() {
        let extension = format!("5;{}", "x".repeat(LINE_BYTES_MAX));
        assert_eq!(follow(extension.as_bytes()), Err(BrokenChunks));
        assert_eq!(follow("0".repeat(LINE_BYTES_MAX + 1).as_bytes()), Err(BrokenChunks));
        let trailers = "x: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n".repeat(TRAILER_BYTES_MAX / 40);
        assert_eq!(follow(format!("0\r\n{trailers}").as_bytes()), Err(BrokenChunks));
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_give_the_same_end(cuts in proptest::collection::vec(1_usize..9, 0..40), junk in any::<Vec<u8>>()) {
            let body = b"5;a=b\r\nhello\r\n10\r\n0123456789abcdef\r\n0\r\nX: y\r\n\r\n";
            let whole = [body.as_slice(), &junk].concat();
            let mut chunks = Chunks::new();
            let mut rest = whole.as_slice();
            let mut taken = 0;
            for cut in cuts.into_iter().chain([whole.len()]) {
                let (piece, others) = rest.split_at(cut.min(rest.len()));
                taken += chunks.follow(piece).unwrap();
                rest = others;
            }
            prop_assert_eq!((taken, chunks.is_over()), (body.len(), true));
        }

        #[test]
        fn no_bytes_panic(body in any::<Vec<u8>>()) {
            let _ = follow(&body);
        }
    }
}
