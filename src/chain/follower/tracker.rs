//! The accounted-for blocks, as a value without IO: what a head means, and which blocks' logs to read next.
//!
//! A rollback is a head that is not higher than the followed block and of a later time. A node that has less is behind.
//! Blocks that a reorganization took away are remembered, so that a back end that still has them is behind, too.

use std::collections::VecDeque;

use alloy::primitives::B256;

use crate::chain::block::{Block, Log};

/// How many accounted-for blocks, and abandoned ones, are remembered.
const BLOCKS_MAX: usize = 256;

/// The most blocks whose logs are asked for at once.
const SPAN_MAX: u64 = 1_000;

/// A range begins so many blocks before the new ones: a node's logs may come later than its blocks.
const OVERLAP: u64 = 16;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::chain) struct BlockTracker {
    /// By rising number. The last is the followed one.
    blocks: VecDeque<Block>,
    abandoned: VecDeque<B256>,
    /// How many new blocks nodes give the logs of at once, in sixteenths: it shrinks at once and grows slowly.
    span_16ths: u64,
}

/// Where a head is, as seen from the accounted-for blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::chain) enum Position {
    /// Nothing is accounted for.
    First,
    /// It is the followed block.
    Same,
    /// It has new blocks.
    Ahead,
    /// It was accounted for, or abandoned, before.
    Behind,
    /// Another block is in the place of one that was accounted for.
    Reorganized,
}

/// The blocks whose logs are to be read next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::chain) struct Range {
    /// The first block whose logs are asked for.
    pub(in crate::chain) from: u64,
    /// The block that is accounted for then.
    pub(in crate::chain) to: u64,
    /// The followed block, which must be on the same chain.
    pub(in crate::chain) last: Block,
}

impl BlockTracker {
    pub(in crate::chain) const fn new() -> Self {
        Self { blocks: VecDeque::new(), abandoned: VecDeque::new(), span_16ths: 16 * SPAN_MAX }
    }

    /// The followed block.
    pub(in crate::chain) fn last(&self) -> Option<&Block> {
        self.blocks.back()
    }

    /// What a node's head means.
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

    /// The blocks to read next towards this head, which is ahead.
    pub(in crate::chain) fn range(&self, head: &Block) -> Option<Range> {
        let last = *self.last()?;
        let to = head.number.min(last.number.saturating_add(self.span()));
        let overlap = if self.span() > OVERLAP { OVERLAP } else { 0 };
        Some(Range { from: (last.number + 1).saturating_sub(overlap), to, last })
    }

    /// A range was more than the node gives at once.
    pub(in crate::chain) fn shrink(&mut self, range: &Range) {
        self.span_16ths = 16 * ((range.to - range.last.number) / 2).max(1);
    }

    /// The logs of a range up to this block were read. False when they contradict what was accounted for: the chain was
    /// reorganized.
    pub(in crate::chain) fn account(&mut self, range: &Range, block: Block, logs: &[Log]) -> bool {
        let is_other = |log: &Log| log.block_number == block.number && log.block_hash != block.hash;
        if logs.iter().any(|log| is_other(log) || self.contradicts(log.block_number, log.block_hash)) {
            return false;
        }
        if block.number - range.last.number == self.span() {
            self.span_16ths = (self.span_16ths + (self.span_16ths / 64).max(1)).min(16 * SPAN_MAX);
        }
        self.blocks.push_back(block);
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
    }

    /// Forgets what was accounted for: the next head is a beginning.
    pub(in crate::chain) fn forget(&mut self) {
        *self = Self { span_16ths: self.span_16ths, ..Self::new() };
    }

    const fn span(&self) -> u64 {
        self.span_16ths / 16
    }

    /// True when another block was accounted for at this height.
    pub(in crate::chain) fn contradicts(&self, number: u64, hash: B256) -> bool {
        let known = self.blocks.binary_search_by_key(&number, |block| block.number);
        known.ok().and_then(|index| self.blocks.get(index)).is_some_and(|block| block.hash != hash)
    }
}

#[cfg(test)]
mod tests;
