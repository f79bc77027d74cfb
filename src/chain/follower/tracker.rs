//! The accounted-for blocks, as a value without IO: what a head means, which blocks' logs to read next, what they drop.
//!
//! A rollback is another hash at a height that was accounted for. A node that has less is behind. Blocks that a
//! reorganization took away are remembered, so that a back end that still has them is behind, too.

use std::collections::{BTreeSet, VecDeque};

use alloy::primitives::{Address, B256};

use crate::chain::block::{Block, Log};
use crate::chain::registries::logs::Drops;

/// How many accounted-for blocks, and abandoned ones, are remembered.
const BLOCKS_MAX: usize = 256;

/// The most new blocks that are read; with more everybody is dropped instead.
const GAP_MAX: u64 = 5_000;

/// The most blocks whose logs are asked for at once.
const SPAN_MAX: u64 = 1_000;

/// So many requests that went well in a row, and more blocks are tried again.
const CALM_REQUESTS: u32 = 16;

/// A range begins so many blocks before the new ones: a node's logs may come later than its blocks.
const OVERLAP: u64 = 16;

/// How many logs are remembered, so that those of the overlap are not applied twice.
const SEEN_MAX: usize = 20_000;

/// Which log: the number and hash of its block, and its place there.
type LogId = (u64, B256, u64);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::chain) struct BlockTracker {
    /// By rising number. The last is the followed one.
    blocks: VecDeque<Block>,
    abandoned: VecDeque<B256>,
    /// Logs up to this block are of no concern: everybody was dropped since.
    began_at: u64,
    seen: BTreeSet<LogId>,
    span: u64,
    calm: u32,
    /// The organization registry.
    organizations: Option<Address>,
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
    /// It is too far ahead to read what is between.
    Gap,
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

impl Range {
    /// There is one new block, and no other is asked for.
    pub(in crate::chain) const fn is_single(&self) -> bool {
        self.from == self.to
    }
}

impl BlockTracker {
    pub(in crate::chain) fn new(organizations: Option<Address>) -> Self {
        Self {
            blocks: VecDeque::new(),
            abandoned: VecDeque::new(),
            began_at: 0,
            seen: BTreeSet::new(),
            span: SPAN_MAX,
            calm: 0,
            organizations,
        }
    }

    /// The followed block.
    pub(in crate::chain) fn last(&self) -> Option<&Block> {
        self.blocks.back()
    }

    /// What a node's head means.
    pub(in crate::chain) fn position(&self, head: &Block) -> Position {
        let Some(last) = self.last() else { return Position::First };
        if head.hash == last.hash {
            return Position::Same;
        }
        if head.number > last.number {
            return match head.number - last.number {
                1 if head.parent != last.hash => Position::Reorganized,
                ahead if ahead > GAP_MAX => Position::Gap,
                _ => Position::Ahead,
            };
        }
        if self.contradicts(head.number, head.hash) && !self.abandoned.contains(&head.hash) {
            return Position::Reorganized;
        }
        Position::Behind
    }

    /// The blocks to read next towards this head, which is ahead.
    pub(in crate::chain) fn range(&self, head: &Block) -> Option<Range> {
        let last = *self.last()?;
        let to = head.number.min(last.number.saturating_add(self.span));
        let overlap = if self.span > OVERLAP { OVERLAP } else { 0 };
        let from = (last.number + 1).saturating_sub(overlap).max(self.began_at + 1).min(to);
        Some(Range { from, to, last })
    }

    /// A range was more than the node gives at once.
    pub(in crate::chain) fn shrink(&mut self, range: &Range) {
        let asked = range.to - range.last.number;
        self.calm = 0;
        self.span = (asked.min(self.span) / 2).max(1);
    }

    /// The logs of a range were read. `None`: they contradict what was accounted for, the chain was reorganized.
    pub(in crate::chain) fn account(&mut self, range: &Range, block: Block, logs: &[Log]) -> Option<Drops> {
        let is_at = |log: &&Log| log.block_number == block.number && log.block_hash != block.hash;
        let contradicts = |log: &Log| self.contradicts(log.block_number, log.block_hash);
        if logs.iter().any(|log| contradicts(log) || is_at(&log)) {
            return None;
        }
        let mut drops = Drops::default();
        for log in logs.iter().filter(|log| log.block_number > self.began_at) {
            if self.seen.insert((log.block_number, log.block_hash, log.log_index)) {
                drops.add(log, self.organizations);
            }
        }
        self.grow(range);
        self.push(block);
        if drops.everybody.is_some() {
            self.began_at = block.number;
        }
        let oldest = block.number.saturating_sub(OVERLAP);
        self.seen.retain(|(number, ..)| *number > oldest);
        if self.seen.len() > SEEN_MAX {
            // To apply a log twice costs a read.
            self.seen.clear();
        }
        Some(drops)
    }

    /// Begins anew at this block.
    pub(in crate::chain) fn begin(&mut self, block: Block) {
        self.forget();
        self.began_at = block.number;
        self.push(block);
    }

    /// Forgets what was accounted for: the next head is a beginning.
    pub(in crate::chain) fn forget(&mut self) {
        self.seen.clear();
        self.blocks.clear();
        self.abandoned.clear();
    }

    /// A reorganization took blocks away: begins anew at this one.
    pub(in crate::chain) fn reorganize(&mut self, block: Block) {
        let mut abandoned = std::mem::take(&mut self.abandoned);
        abandoned.extend(self.blocks.iter().map(|block| block.hash));
        abandoned.retain(|hash| *hash != block.hash && *hash != block.parent);
        while abandoned.len() > BLOCKS_MAX {
            abandoned.pop_front();
        }
        self.begin(block);
        self.abandoned = abandoned;
    }

    fn push(&mut self, block: Block) {
        self.blocks.push_back(block);
        if self.blocks.len() > BLOCKS_MAX {
            self.blocks.pop_front();
        }
    }

    fn grow(&mut self, range: &Range) {
        if range.to - range.last.number < self.span {
            return;
        }
        self.calm += 1;
        if self.calm >= CALM_REQUESTS {
            self.calm = 0;
            self.span = (self.span + self.span.div_ceil(4)).min(SPAN_MAX);
        }
    }

    /// True when another block was accounted for at this height.
    fn contradicts(&self, number: u64, hash: B256) -> bool {
        let known = self.blocks.binary_search_by_key(&number, |block| block.number);
        known.ok().and_then(|index| self.blocks.get(index)).is_some_and(|block| block.hash != hash)
    }
}

#[cfg(test)]
mod tests;
