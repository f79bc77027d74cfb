//! Bodies in chunks, cut anywhere, beside a naive reader and hyper.

use crate::http1::{Decoder, Piece, chunked::TRAILER_BYTES_MAX};
use crate::hyper_reads;

/// The longest line, in bytes.
const LINE_BYTES_MAX: usize = 4 * 1024;

const HEAD: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

#[derive(Debug, PartialEq, Eq)]
struct Read {
    data: Vec<u8>,
    trailers: Vec<(Vec<u8>, Vec<u8>)>,
    taken: usize,
    is_over: bool,
}

/// The first byte says how many of the next ones are lengths of pieces. The rest is the body.
pub fn check(input: &[u8]) {
    let Some((count, rest)) = input.split_first() else { return };
    let Some((lengths, body)) = rest.split_at_checked(usize::from(count % 16)) else { return };
    let whole = read(body, std::iter::empty());
    let cut = read(body, lengths.iter().map(|length| usize::from(*length)));
    assert_eq!(cut, whole, "cut into pieces");
    assert_eq!(read(body, std::iter::repeat(1)), whole, "cut into bytes");

    let over = whole.filter(|read| read.is_over);
    assert_eq!(naive(body), over, "the naive reader");
    let Some(over) = over else { return };
    // It counts the bytes of trailers in another way up to the same limit.
    let trailer_bytes: usize = over.trailers.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
    if over.trailers.len() > hyper_reads::FIELDS_MAX || trailer_bytes + 64 > TRAILER_BYTES_MAX {
        return;
    }
    let theirs = hyper_reads::request_with(HEAD, &body[..over.taken]).expect("the head is good");
    let (data, trailers) = theirs.body.expect("hyper refuses");
    assert_eq!(data, over.data);
    let ours = over.trailers.iter().map(|(name, value)| (name.as_slice(), value.as_slice())).collect();
    crate::assert_same_fields(&trailers, &ours);
}

/// `None`: it is broken. The last piece is the rest of the bytes.
fn read(body: &[u8], lengths: impl Iterator<Item = usize>) -> Option<Read> {
    let mut decoder = Decoder::default();
    let (mut data, mut taken, mut rest) = (Vec::new(), 0, body);
    for length in lengths.chain([usize::MAX]) {
        let (mut piece, others) = rest.split_at(length.min(rest.len()));
        rest = others;
        let length = piece.len();
        loop {
            match decoder.next(&mut piece).ok()? {
                Piece::Data(more) => {
                    assert!(!more.is_empty());
                    data.extend_from_slice(more);
                }
                Piece::More => break assert!(piece.is_empty() && !decoder.is_over()),
                Piece::End => break assert!(decoder.is_over()),
            }
        }
        taken += length - piece.len();
        if rest.is_empty() || decoder.is_over() {
            break;
        }
    }
    let trailers = decoder.trailers().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
    Some(Read { data, trailers, taken, is_over: decoder.is_over() })
}

/// Reads line by line, when all bytes are there. `None`: it is broken, or goes on.
fn naive(body: &[u8]) -> Option<Read> {
    let mut rest = body;
    let mut data = Vec::new();
    loop {
        let line = line(&mut rest)?;
        let mut parts = line.splitn(2, |byte| *byte == b';');
        let (size, extension) = (parts.next()?, parts.next().unwrap_or_default());
        let is_good =
            !size.is_empty() && size.iter().all(u8::is_ascii_hexdigit) && extension.iter().all(is_text);
        if !is_good || size.len() + extension.len() > LINE_BYTES_MAX {
            return None;
        }
        let digits = std::str::from_utf8(size).ok()?.trim_start_matches('0');
        let size = if digits.is_empty() { 0 } else { i64::from_str_radix(digits, 16).ok()? };
        if size == 0 {
            break;
        }
        let (chunk, others) = rest.split_at_checked(usize::try_from(size).ok()?)?;
        data.extend_from_slice(chunk);
        rest = others.strip_prefix(b"\r\n")?;
    }
    let (mut trailers, mut bytes) = (Vec::new(), 0);
    loop {
        let line = line(&mut rest)?;
        if line.is_empty() {
            return Some(Read { data, trailers, taken: body.len() - rest.len(), is_over: true });
        }
        bytes += line.len();
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
        let is_good = !name.is_empty() && name.iter().all(is_token) && value.iter().all(is_text);
        if !is_good || line.len() > LINE_BYTES_MAX || bytes > TRAILER_BYTES_MAX {
            return None;
        }
        trailers.push((name.to_vec(), value.trim_ascii().to_vec()));
    }
}

fn line<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = rest.windows(2).position(|bytes| bytes == b"\r\n")?;
    let line = &rest[..end];
    *rest = &rest[end + 2..];
    Some(line)
}

fn is_text(byte: &u8) -> bool {
    *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f)
}
