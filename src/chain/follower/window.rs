//! The accounted-for blocks, as a value without IO: what a head means, and which blocks' logs to read.
//!
//! Logs may come later than their block. So each poll with a new head reads those of the last [`OVERLAP`] blocks again, in pieces where a node
//! gives less at once. Logs of a block at or below a floor say nothing new: everybody was dropped there.
//!
//! A rollback is a head that is not higher than the followed block and of a later time. A node that has less is behind.
//! Blocks that a reorganization took away are remembered, so that a back end that still has them is behind, too.

use std::collections::VecDeque;

use alloy::primitives::B256;

use crate::chain::block::{Block, Log};
use crate::chain::registries::logs::Kind;

/// How many accounted-for blocks, and abandoned ones, are remembered.
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
    abandoned: VecDeque<B256>,
    /// Up to this block everybody was dropped.
    floor: u64,
    /// Up to this block all details were.
    details_floor: u64,
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
    /// At a block that was accounted for, or abandoned, before.
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

    /// Smaller pieces: halves, and of one block what decides and details apart. None: it is the smallest.
    pub(super) fn parts(&self) -> Option<[Self; 2]> {
        let middle = self.from + self.blocks() / 2;
        match self.kind {
            _ if self.from < self.to => {
                Some([Self { to: middle - 1, ..*self }, Self { from: middle, ..*self }])
            }
            Kind::All => Some([Kind::Deciding, Kind::Details].map(|kind| Self { kind, ..*self })),
            Kind::Deciding | Kind::Details | Kind::Tokens => None,
        }
    }
}

impl Window {
    pub(in crate::chain) const fn new() -> Self {
        Self {
            blocks: VecDeque::new(),
            abandoned: VecDeque::new(),
            floor: 0,
            details_floor: 0,
            at_once: AT_ONCE_MAX,
            since_micros: 0,
        }
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
            _ if self.has_abandoned(head.hash) => Position::Behind,
            true => Position::Ahead,
            // Along one chain no time falls. An earlier block may be that of a back end which is stuck on a fork.
            false if head.timestamp > last.timestamp => Position::Reorganized,
            false => Position::Behind,
        }
    }

    /// True when a reorganization took the block away.
    pub(in crate::chain) fn has_abandoned(&self, hash: B256) -> bool {
        self.abandoned.contains(&hash)
    }

    /// The logs to read up to this head, which is ahead; those of tokens are asked for by themselves. `None`: more than one poll
    /// reads.
    pub(in crate::chain) fn pieces(
        &self,
        head: &Block,
        has: impl Fn(Kind) -> bool,
    ) -> Option<VecDeque<Piece>> {
        let from = (self.last()?.number + 1).saturating_sub(OVERLAP).max(self.floor + 1);
        let all_from = if has(Kind::Details) { from.max(self.details_floor + 1) } else { head.number + 1 };
        let mut pieces = VecDeque::new();
        for (kind, from, to) in [
            (Kind::Deciding, from, head.number.min(all_from - 1)),
            (Kind::All, all_from, head.number),
            (Kind::Tokens, from, if has(Kind::Tokens) { head.number } else { 0 }),
        ] {
            let mut next = from;
            while next <= to {
                let last = to.min(next.saturating_add(self.at_once - 1));
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
    /// pieces could not be had, so everybody or all details are dropped there.
    pub(in crate::chain) fn account(&mut self, head: Block, logs: &[Log], lost: &[Piece]) -> bool {
        let is_other = |log: &Log| log.block_number == head.number && log.block_hash != head.hash;
        if logs.iter().any(|log| is_other(log) || self.contradicts(log.block_number, log.block_hash)) {
            return false;
        }
        for piece in lost {
            let floor = if piece.kind == Kind::Details { &mut self.details_floor } else { &mut self.floor };
            *floor = piece.to.max(*floor);
        }
        self.blocks.push_back(head);
        let surplus = self.blocks.len().saturating_sub(BLOCKS_MAX);
        self.blocks.drain(..surplus);
        true
    }

    /// Begins anew at this block. `is_reorganized`: the blocks so far were taken away.
    pub(in crate::chain) fn begin(&mut self, block: Block, is_reorganized: bool) {
        if is_reorganized {
            self.abandoned.extend(self.blocks.iter().map(|block| block.hash));
            self.abandoned.retain(|hash| *hash != block.hash && *hash != block.parent);
            let surplus = self.abandoned.len().saturating_sub(BLOCKS_MAX);
            self.abandoned.drain(..surplus);
        } else {
            self.abandoned.clear();
        }
        self.blocks = VecDeque::from([block]);
        (self.floor, self.details_floor) = (block.number, block.number);
    }

    /// Forgets what was accounted for: the next head is a beginning.
    pub(in crate::chain) fn forget(&mut self) {
        *self = Self { at_once: self.at_once, since_micros: self.since_micros, ..Self::new() };
    }

    /// True when another block was accounted for at this height.
    pub(in crate::chain) fn contradicts(&self, number: u64, hash: B256) -> bool {
        let known = self.blocks.binary_search_by_key(&number, |block| block.number);
        known.ok().and_then(|index| self.blocks.get(index)).is_some_and(|block| block.hash != hash)
    }
}

#[cfg(test)]
mod tests;
