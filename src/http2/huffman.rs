//! The Huffman code of HPACK (RFC 7541, section 5.2), whose codes of one length follow each other.

use std::sync::LazyLock;

use crate::http2::Broken;

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

/// All lengths, and the bytes in the order of their codes.
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
