//! Header blocks (HPACK, RFC 7541) as far as it takes to find what no request may have.

use std::{collections::VecDeque, sync::LazyLock};

use crate::http1::Problem;
use crate::http1::lines::{is_of_urls, is_text, is_token, target_problem};
use crate::http2::{AUTHORITY, Broken, METHOD, NAME, PSEUDO, REFUSED, SCHEME, VALUE};

/// The longest table that we allow, and each entry's overhead, in bytes (RFC 7541, sections 4.1 and 4.2).
const TABLE_BYTES_MAX: usize = 4_096;
const ENTRY_BYTES: usize = 32;

/// How much memory a connection keeps for texts, in bytes.
const TEXT_BYTES: usize = 1_024;

/// The lengths of the names in the table that all have, from 1 on (RFC 7541, appendix A).
#[rustfmt::skip]
const STATIC: [u8; 61] = [
    10, 7, 7, 5, 5, 7, 7, 7, 7, 7, 7, 7, 7, 7, 14, 15, 15, 13, 6, 27, 3, 5, 13, 13, 19, 16, 16, 14, 16, 13, 12,
    6, 4, 4, 6, 7, 4, 4, 8, 17, 13, 8, 19, 13, 4, 8, 12, 18, 19, 5, 7, 7, 11, 6, 10, 25, 17, 10, 4, 3, 16,
];

/// A name, as far as rules about values differ.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Name {
    Authority,
    Method,
    Path,
    Scheme,
    Other,
    Bad(Problem),
}

/// An entry of the table.
#[derive(Debug, Clone, Copy)]
struct Entry {
    name: Name,
    name_bytes: usize,
    /// With its overhead.
    bytes: usize,
    problem: Option<Problem>,
}

/// The table of a connection.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// The newest first.
    entries: VecDeque<Entry>,
    bytes: usize,
    /// The text that is looked at.
    text: Vec<u8>,
}

impl Table {
    /// Reads a block, and says what is wrong with it; `found` is what is already. Then `rewritten` is a block that can be read: bad
    /// text is other text of the same length, so that both tables stay the same, and at its end it says that it is to be
    /// refused, or by `resets` that its stream is to be reset.
    pub(super) fn read(
        &mut self,
        block: &[u8],
        resets: bool,
        mut found: Option<Problem>,
        rewritten: &mut Vec<u8>,
    ) -> Result<Option<Problem>, Broken> {
        let (mut rest, mut copied) = (block, block);
        while let Some(first) = rest.first() {
            let field = rest;
            let (prefix, is_kept) = match first {
                0x80.. => {
                    found = found.or(self.entry(integer(&mut rest, 7)?)?.problem);
                    continue;
                }
                0x40.. => (6, true),
                0x20.. => {
                    // The table gets smaller. It is always the newest part of this one.
                    integer(&mut rest, 5)?;
                    continue;
                }
                _ => (4, false),
            };
            let index = integer(&mut rest, prefix)?;
            let (mut name, mut name_bytes) = if index == 0 {
                string(&mut rest, &mut self.text)?;
                (Name::of(&self.text), self.text.len())
            } else {
                let entry = self.entry(index)?;
                (entry.name, entry.name_bytes)
            };
            let value = rest;
            string(&mut rest, &mut self.text)?;
            let (problem, bytes) = (name.problem(&self.text), name_bytes + self.text.len());
            if let Some(problem) = problem {
                rewritten.extend_from_slice(until(copied, field));
                // The table has other names already. A method is not empty, nor is a name.
                let is_bad = matches!(name, Name::Bad(_));
                if is_bad && index <= STATIC.len() || !is_bad && self.text.is_empty() {
                    name = Name::Bad(problem);
                    name_bytes = name_bytes.max(1);
                    rewritten.push(if is_kept { 0x40 } else { 0 });
                    fill(rewritten, b'a', name_bytes);
                } else {
                    rewritten.extend_from_slice(until(field, value));
                }
                let length = bytes.checked_sub(name_bytes).ok_or(Broken)?;
                fill(rewritten, if name == Name::Path { b'/' } else { b'a' }, length);
                copied = rest;
            }
            if is_kept {
                let bytes = bytes + ENTRY_BYTES;
                self.entries.push_front(Entry { name, name_bytes, bytes, problem });
                self.bytes += bytes;
                while self.bytes > TABLE_BYTES_MAX
                    && let Some(oldest) = self.entries.pop_back()
                {
                    self.bytes -= oldest.bytes;
                }
            }
            found = found.or(problem);
        }
        self.text.shrink_to(TEXT_BYTES);
        if let Some(problem) = found {
            rewritten.extend_from_slice(copied);
            // The library resets the stream of a block with a header of HTTP/1's connections.
            let (name, value) = if resets { ("connection", "") } else { (REFUSED, problem) };
            rewritten.push(0);
            for text in [name, value] {
                rewritten.push(u8::try_from(text.len()).unwrap_or_default());
                rewritten.extend_from_slice(text.as_bytes());
            }
        }
        Ok(found)
    }

    fn entry(&self, index: usize) -> Result<Entry, Broken> {
        let Some(name_bytes) = STATIC.get(index.wrapping_sub(1)) else {
            return index
                .checked_sub(STATIC.len() + 1)
                .and_then(|at| self.entries.get(at))
                .copied()
                .ok_or(Broken);
        };
        let (name, problem) = match index {
            1 => (Name::Authority, None),
            2 | 3 => (Name::Method, None),
            4 | 5 => (Name::Path, None),
            6 | 7 => (Name::Scheme, None),
            8..15 => (Name::Bad(PSEUDO), Some(PSEUDO)),
            _ => (Name::Other, None),
        };
        Ok(Entry { name, name_bytes: usize::from(*name_bytes), bytes: 0, problem })
    }
}

impl Name {
    fn of(name: &[u8]) -> Self {
        match name {
            b":authority" => Self::Authority,
            b":method" => Self::Method,
            b":path" => Self::Path,
            b":scheme" => Self::Scheme,
            [b':', ..] => Self::Bad(PSEUDO),
            [_, ..] if name.iter().all(|byte| is_token(*byte) && !byte.is_ascii_uppercase()) => Self::Other,
            _ => Self::Bad(NAME),
        }
    }

    /// The reason why this name has no such value.
    fn problem(self, value: &[u8]) -> Option<Problem> {
        let are = |belongs: fn(u8) -> bool| value.iter().all(|byte| belongs(*byte));
        let (is_good, problem) = match self {
            Self::Authority => {
                (are(|byte| is_of_urls(byte) && !b"@/?".contains(&byte) || b"[]".contains(&byte)), AUTHORITY)
            }
            Self::Method => (are(is_token) && !value.is_empty(), METHOD),
            Self::Path => return target_problem(value),
            Self::Scheme => (are(is_of_urls), SCHEME),
            Self::Other => (are(is_text), VALUE),
            Self::Bad(problem) => (false, problem),
        };
        (!is_good).then_some(problem)
    }
}

/// The part of a slice that ends where another one, which is its end, begins.
fn until<'a>(whole: &'a [u8], end: &[u8]) -> &'a [u8] {
    whole.get(..whole.len() - end.len()).unwrap_or_default()
}

/// Reads an integer behind the bits of a prefix (RFC 7541, section 5.1).
fn integer(rest: &mut &[u8], prefix: u32) -> Result<usize, Broken> {
    let mut next = || rest.split_off_first().map(|byte| usize::from(*byte)).ok_or(Broken);
    let most = (1 << prefix) - 1;
    let mut value = next()? & most;
    if value < most {
        return Ok(value);
    }
    for shift in [0, 7, 14, 21] {
        let byte = next()?;
        value += (byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(Broken)
}

/// Reads a string (RFC 7541, section 5.2).
fn string(rest: &mut &[u8], text: &mut Vec<u8>) -> Result<(), Broken> {
    let is_code = rest.first().is_some_and(|first| *first >= 0x80);
    let length = integer(rest, 7)?;
    let raw = rest.split_off(..length).ok_or(Broken)?;
    text.clear();
    if is_code {
        return decode(raw, text);
    }
    text.extend_from_slice(raw);
    Ok(())
}

/// Writes a string of so many bytes (RFC 7541, sections 5.1 and 5.2).
fn fill(out: &mut Vec<u8>, byte: u8, length: usize) {
    let low = |rest: usize| u8::try_from(rest % 128).unwrap_or_default();
    if length < 127 {
        out.push(low(length));
    } else {
        out.push(127);
        let mut rest = length - 127;
        while rest >= 128 {
            out.push(low(rest) | 128);
            rest /= 128;
        }
        out.push(low(rest));
    }
    out.resize(out.len() + length, byte);
}

/// The bits of each byte's code, and of that of the end, which no text has (appendix B).
#[rustfmt::skip]
pub(super) const BITS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// The codes of one length.
struct Length {
    bits: u32,
    /// The highest word that begins with one of them.
    last: u32,
    /// The difference between a code and its place among all.
    offset: u32,
}

/// The lengths, and the bytes in the order of their codes.
static CODE: LazyLock<(Vec<Length>, Vec<usize>)> = LazyLock::new(|| {
    let mut bytes: Vec<usize> = (0..BITS.len()).collect();
    let bits_of = |byte: &usize| BITS.get(*byte).copied().map_or(0, u32::from);
    bytes.sort_by_key(bits_of);
    let (mut lengths, mut code, mut before, mut place) = (Vec::new(), 0_u32, 0, 0);
    for group in bytes.chunk_by(|one, other| bits_of(one) == bits_of(other)) {
        let (bits, count) = (group.first().map_or(0, bits_of), u32::try_from(group.len()).unwrap_or(0));
        code <<= bits - before;
        let last = ((u64::from(code + count) << (32 - bits)) - 1).try_into().unwrap_or(u32::MAX);
        lengths.push(Length { bits, last, offset: code.wrapping_sub(place) });
        (code, before, place) = (code + count, bits, place + count);
    }
    (lengths, bytes)
});

/// Adds what a code says to a text.
pub(super) fn decode(code: &[u8], text: &mut Vec<u8>) -> Result<(), Broken> {
    let (lengths, bytes) = &*CODE;
    let (mut window, mut bits, mut code) = (0_u64, 0, code.iter());
    loop {
        while bits <= 56
            && let Some(byte) = code.next()
        {
            window |= u64::from(*byte) << (56 - bits);
            bits += 8;
        }
        // Behind the last code are fewer than eight ones, and it is read as if there were more.
        let word = (window >> 32) as u32 | u32::MAX.checked_shr(bits).unwrap_or(0);
        if word == u32::MAX && bits < 8 {
            return Ok(());
        }
        let length =
            lengths.iter().find(|length| word <= length.last && length.bits <= bits).ok_or(Broken)?;
        let place = (word >> (32 - length.bits)).wrapping_sub(length.offset);
        let byte = bytes.get(place as usize).and_then(|byte| u8::try_from(*byte).ok());
        text.push(byte.ok_or(Broken)?);
        (window, bits) = (window << length.bits, bits - length.bits);
    }
}
