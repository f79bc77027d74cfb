//! Reads one request head off a connection and checks its bytes, before any HTTP library sees them.
//!
//! What the libraries repair or accept can't be told from what they are given afterwards; these are the bytes that came.

use std::time::Duration;

use bytes::{Buf, BytesMut};
use pingora::protocols::Stream;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use crate::wire::framing::{self, Head, Problem};

/// How long a request head may take to arrive, from its first byte.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);

/// The longest request head, in bytes.
pub(super) const HEAD_BYTES_MAX: usize = 32 * 1024;

/// What most heads fit into.
const USUAL_HEAD_BYTES: usize = 2 * 1024;

/// Why there is no head.
#[derive(Debug)]
pub(super) enum NoHead {
    /// The client is gone.
    Gone,
    /// It takes too long to arrive.
    TooSlow,
    /// It is longer than [`HEAD_BYTES_MAX`], or holds too many headers.
    TooLong,
    /// It may be read in more than one way, or is not HTTP.
    Malformed(Problem),
}

/// Reads until `buffer` begins with a whole head; what has come behind it stays in the buffer.
pub(super) async fn read(stream: &mut Stream, buffer: &mut BytesMut) -> Result<Head, NoHead> {
    timeout(HEAD_TIME_MAX, read_untimed(stream, buffer)).await.unwrap_or(Err(NoHead::TooSlow))
}

async fn read_untimed(stream: &mut Stream, buffer: &mut BytesMut) -> Result<Head, NoHead> {
    let mut searched = 0;
    loop {
        // An empty line before a request is skipped (RFC 9112, section 2.2).
        if searched == 0 && buffer.starts_with(b"\r\n") {
            buffer.advance(2);
        }
        if let Some(end) = end_of_head(buffer, searched) {
            let head =
                buffer.get(..end).filter(|head| head.len() <= HEAD_BYTES_MAX).ok_or(NoHead::TooLong)?;
            return framing::check(head).map_err(|problem| match problem {
                framing::TOO_MANY_HEADERS => NoHead::TooLong,
                other => NoHead::Malformed(other),
            });
        }
        if buffer.len() > HEAD_BYTES_MAX {
            return Err(NoHead::TooLong);
        }
        searched = buffer.len();
        buffer.reserve(USUAL_HEAD_BYTES);
        match stream.read_buf(buffer).await {
            Ok(0) | Err(_) => return Err(NoHead::Gone),
            Ok(_) => {}
        }
    }
}

/// Where the first empty line ends, by whichever line ends; `searched` bytes have been looked through before.
fn end_of_head(text: &[u8], searched: usize) -> Option<usize> {
    let from = searched.saturating_sub(3);
    let mut rest = text.get(from..)?;
    let mut at = from;
    while let Some(feed) = rest.iter().position(|byte| *byte == b'\n') {
        rest = rest.get(feed + 1..)?;
        at += feed + 1;
        match rest {
            [b'\n', ..] => return Some(at + 1),
            [b'\r', b'\n', ..] => return Some(at + 2),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::end_of_head;

    #[test]
    fn a_head_ends_at_its_first_empty_line_wherever_the_pieces_were_cut() {
        for (text, end) in [("a\r\n\r\nb", 5), ("a\n\nb\r\n\r\n", 3), ("a\r\nb\n\r\nc", 7)] {
            for searched in 0..end {
                assert_eq!(end_of_head(text.as_bytes(), searched), Some(end), "{text:?} {searched}");
            }
        }
        assert_eq!(end_of_head(b"a\r\nb\r\n\r", 0), None);
    }
}
