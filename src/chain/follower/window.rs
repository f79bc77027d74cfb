//! The accounted-for blocks, as a value without IO: what a head means, and which blocks' logs to read.
//!
//! Logs may come later than their block. So each poll with a new head reads those of the last [`OVERLAP`] blocks again, in pieces where a node
//! gives less at once. Logs of a block at or below a floor say nothing new: everybody was dropped there.
//!
//! A rollback is a head that is not higher than the followed block and of a later time. A node that has less is behind. A back end
//! that still has what a reorganization took away is behind what is known (`dated`), since a head that is followed is of a later date.

use std::collections::VecDeque;

use crate::chain::block::{Block, Log};
use crate::chain::registries::logs::Kind;

/// How many accounted-for blocks are remembered.
const BLOCKS_MAX: usize = 256;

/// The most blocks whose logs are asked for at once.
const AT_ONCE_MAX: u64 = 1_000;

/// The logs of so many blocks before the new ones are read again.
const OVERLAP: u64 = 16;

/// The logs of no more pieces are read in one poll. Where there are more, everybody is dropped instead.
pub(super) const PIECES_MAX: usize = 64;

/// After this time more blocks are asked for at once again, in microseconds.
const GROWS_AFTER_MICROS: u64 = 60_000_000;

/// How many times as many then.
const GROWTH: u64 = 4;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::chain) struct Window {
    /// By rising number. The last is the followed one.
    blocks: VecDeque<Block>,
    /// Up to this block everybody was dropped.
    floor: u64,
    /// How many blocks' logs nodes give at once, and since when.
    at_once: u64,
    since_micros: u64,
}

/// Where a head is, as seen from the accounted-for blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::chain) enum Position {
    /// The first: nothing is accounted for.
    First,
    /// At the followed block.
    Same,
    /// Above it, with new blocks.
    Ahead,
    /// At a block that was accounted for before.
    Behind,
    /// Another block is in the place of one that was accounted for.
    Reorganized,
}

/// Logs to ask for at once: those of one kind in these blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::chain) struct Piece {
    pub(in crate::chain) kind: Kind,
    pub(in crate::chain) from: u64,
    pub(in crate::chain) to: u64,
}

impl Piece {
    pub(super) const fn blocks(&self) -> u64 {
        self.to - self.from + 1
    }

    /// Halves. None: it is of one block.
    pub(super) fn halves(&self) -> Option<[Self; 2]> {
        let middle = self.from + self.blocks() / 2;
        (self.from < self.to).then(|| [Self { to: middle - 1, ..*self }, Self { from: middle, ..*self }])
    }
}

impl Window {
    pub(in crate::chain) const fn new() -> Self {
        Self { blocks: VecDeque::new(), floor: 0, at_once: AT_ONCE_MAX, since_micros: 0 }
    }

    /// The followed block.
    pub(in crate::chain) fn last(&self) -> Option<&Block> {
        self.blocks.back()
    }

    /// Finds what a node's head means.
    pub(in crate::chain) fn position(&self, head: &Block) -> Position {
        let Some(last) = self.last() else { return Position::First };
        match head.number > last.number {
            _ if head.hash == last.hash => Position::Same,
            true => Position::Ahead,
            // Along one chain no time falls. An earlier block may be that of a back end which is stuck on a fork.
            false if head.timestamp > last.timestamp => Position::Reorganized,
            false => Position::Behind,
        }
    }

    /// The logs to read up to this head, which is ahead; those of tokens are asked for by themselves. `None`: more than one poll
    /// reads.
    pub(in crate::chain) fn pieces(&self, head: &Block, has_tokens: bool) -> Option<VecDeque<Piece>> {
        let from = (self.last()?.number + 1).saturating_sub(OVERLAP).max(self.floor + 1);
        let mut pieces = VecDeque::new();
        for kind in [Some(Kind::All), has_tokens.then_some(Kind::Tokens)].into_iter().flatten() {
            let mut next = from;
            while next <= head.number {
                let last = head.number.min(next.saturating_add(self.at_once - 1));
                pieces.push_back(Piece { kind, from: next, to: last });
                next = last + 1;
                if pieces.len() > PIECES_MAX {
                    return None;
                }
            }
        }
        Some(pieces)
    }

    /// Nodes gave the logs of no more blocks than these at once.
    pub(super) fn shrink(&mut self, blocks: u64, now_micros: u64) {
        self.at_once = blocks.clamp(1, self.at_once);
        self.since_micros = now_micros;
    }

    /// Nodes gave all that was asked for. After a while they may give more.
    pub(super) fn grow(&mut self, now_micros: u64) {
        if now_micros.saturating_sub(self.since_micros) >= GROWS_AFTER_MICROS {
            self.at_once = (self.at_once * GROWTH).min(AT_ONCE_MAX);
            self.since_micros = now_micros;
        }
    }

    /// The logs up to this head were read. False when they contradict what was accounted for: the chain was reorganized. Some
    /// pieces could not be had, so everybody is dropped there.
    pub(in crate::chain) fn account(&mut self, head: Block, logs: &[Log], lost: &[Piece]) -> bool {
        let is_other = |log: &Log| {
            let mut known = self.blocks.iter().chain([&head]);
            known.any(|block| block.number == log.block_number && block.hash != log.block_hash)
        };
        if logs.iter().any(is_other) {
            return false;
        }
        for piece in lost {
            self.floor = piece.to.max(self.floor);
        }
        self.blocks.push_back(head);
        let surplus = self.blocks.len().saturating_sub(BLOCKS_MAX);
        self.blocks.drain(..surplus);
        true
    }

    /// Begins anew at this block.
    pub(in crate::chain) fn begin(&mut self, block: Block) {
        self.blocks = VecDeque::from([block]);
        self.floor = block.number;
    }

    /// Forgets what was accounted for: the next head is a beginning.
    pub(in crate::chain) fn forget(&mut self) {
        *self = Self { at_once: self.at_once, since_micros: self.since_micros, ..Self::new() };
    }
}

#[cfg(test)]
mod tests;
