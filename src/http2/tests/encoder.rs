//! An encoder of HPACK (RFC 7541) that writes each field as it is told to.

use std::collections::VecDeque;

use crate::http2::{hpack::BITS, tests::Field};

/// The Huffman code of a text (RFC 7541, appendix B).
pub(super) fn encode(text: &[u8]) -> Vec<u8> {
    let mut order: Vec<usize> = (0..BITS.len()).collect();
    order.sort_by_key(|byte| BITS[*byte]);
    let (mut codes, mut code, mut before) = (vec![0_u32; BITS.len()], 0, 0);
    for byte in order {
        code <<= BITS[byte] - before;
        (codes[byte], before, code) = (code, BITS[byte], code + 1);
    }
    let bits = |byte: &u8| {
        let (code, bits) = (codes[usize::from(*byte)], BITS[usize::from(*byte)]);
        (0..bits).rev().map(move |at| code >> at & 1 == 1)
    };
    let bits: Vec<bool> = text.iter().flat_map(bits).collect();
    let octet =
        |bits: &[bool]| (0..8).fold(0, |octet, at| octet << 1 | u8::from(*bits.get(at).unwrap_or(&true)));
    bits.chunks(8).map(octet).collect()
}

/// An encoder that writes fields as it is told to.
#[derive(Default)]
pub(super) struct Encoder {
    table: VecDeque<Field>,
    block: Vec<u8>,
}

/// The fields of the table that all have which the tests name.
const STATIC: [(usize, &str, &str); 7] = [
    (1, ":authority", ""),
    (2, ":method", "GET"),
    (4, ":path", "/"),
    (6, ":scheme", "http"),
    (8, ":status", "200"),
    (32, "cookie", ""),
    (58, "user-agent", ""),
];

impl Encoder {
    fn integer(&mut self, bits: u8, prefix: u32, value: usize) {
        let most = (1 << prefix) - 1;
        if value < most {
            return self.block.push(bits | u8::try_from(value).unwrap());
        }
        self.block.push(bits | u8::try_from(most).unwrap());
        let mut rest = value - most;
        while rest >= 128 {
            self.block.push(u8::try_from(rest % 128).unwrap() | 128);
            rest /= 128;
        }
        self.block.push(u8::try_from(rest).unwrap());
    }

    fn string(&mut self, text: &[u8], is_code: bool) {
        let (bits, text) = if is_code { (0x80, encode(text)) } else { (0, text.to_vec()) };
        self.integer(bits, 7, text.len());
        self.block.extend_from_slice(&text);
    }

    /// The lowest bits of `how`: is it indexed where it can be, its name, does it stay, is it compressed.
    fn field(&mut self, (name, value): &Field, how: u8) {
        let ours = self.table.iter().enumerate().map(|(at, (name, value))| (at + 62, &**name, &**value));
        let all = STATIC.map(|(at, name, value)| (at, name.as_bytes(), value.as_bytes()));
        let known: Vec<(usize, bool)> = (all.into_iter().chain(ours))
            .filter(|(_, known, _)| known == name)
            .map(|(at, _, known)| (at, known == value))
            .collect();
        if let Some((at, _)) = known.iter().find(|(_, is_whole)| *is_whole && how & 1 != 0) {
            return self.integer(0x80, 7, *at);
        }
        let (bits, prefix) = if how & 4 != 0 { (0x40, 6) } else { (how & 0x10, 4) };
        match known.last().filter(|_| how & 2 != 0) {
            Some((at, _)) => self.integer(bits, prefix, *at),
            None => {
                self.block.push(bits);
                self.string(name, how & 8 != 0);
            }
        }
        self.string(value, how & 8 != 0);
        if how & 4 != 0 {
            self.table.push_front((name.clone(), value.clone()));
            let size = |table: &VecDeque<Field>| {
                table.iter().map(|(name, value)| name.len() + value.len() + 32).sum()
            };
            while !self.table.is_empty() && 4_096_usize < size(&self.table) {
                self.table.pop_back();
            }
        }
    }

    /// Empties the table (RFC 7541, section 4.2).
    pub(super) fn shrink(&mut self) {
        self.table.clear();
        self.integer(0x20, 5, 0);
        self.integer(0x20, 5, 4_096);
    }

    pub(super) fn block(&mut self, fields: &[(Field, u8)]) -> Vec<u8> {
        fields.iter().for_each(|(field, how)| self.field(field, *how));
        std::mem::take(&mut self.block)
    }
}
