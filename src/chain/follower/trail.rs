//! The blocks that have been followed, and what a node's head means in their light. Pure: it says what to ask next, and
//! is told the answers.
//!
//! Hashes are the truth. A number says where to look, and never that two blocks are one. Wherever the trail can't be
//! carried on without a gap it begins anew at the node's head, and everything cached goes.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use alloy::primitives::{Address, B256};

use crate::chain::follower::events::{Culprit, Drops};
use crate::chain::follower::overlap::Overlap;
use crate::chain::follower::span::Span;
use crate::chain::rpc::lead::{BlockMark, LogMark};

/// How many followed blocks are remembered.
const MARKS_MAX: usize = 256;

/// Beyond so many new blocks their logs are not read: everything cached goes instead.
pub(super) const GAP_BLOCKS_MAX: u64 = 5_000;

/// No chain has so many blocks: a head above is not believed, and nothing is learned of it.
const HEAD_MAX: u64 = u64::MAX / 2;

/// How often one poll asks for logs. A gap that takes more is too large.
pub(super) const LOG_REQUESTS_MAX: u32 = 32;

/// How many logs within the overlap are remembered; the others are heeded once more, which is harmless.
const SEEN_MAX: usize = 16_384;

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "a handful are made at each poll, one after the other")]
pub(super) enum Step {
    /// Ask the node for the block of this number, and tell [`Trail::block`].
    Block(u64),
    /// Ask the node for the logs of these blocks, both included, and tell [`Trail::logs`] or [`Trail::too_large`].
    Logs { from: u64, to: u64 },
    /// Ask the node for the logs of this one block, of each contract by itself, and tell the same.
    LogsOfEach { block: u64 },
    /// The poll is over.
    Done(Outcome),
}

/// What a poll came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Everything up to this block is accounted for, once these are dropped.
    Followed { head: BlockMark, drops: Drops },
    /// What was followed before says nothing any more: everything goes, and this block is where it begins anew.
    Restarted { head: BlockMark, why: Why },
    /// This block's logs are more than the node gives. Nothing was learned; the next poll may fare better.
    Unread { block: u64 },
    /// The node has not got as far as we have. Nothing was learned.
    Behind,
}

/// Why the trail began anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// There was none yet.
    Start,
    /// Other blocks stand where the followed ones stood.
    Reorganized,
    /// The followed blocks are gone, and none stand in their place.
    RolledBack,
    /// Too much has happened since.
    Gap,
}

/// Followed blocks, the last of them being how far everything is accounted for.
#[derive(Debug)]
pub(super) struct Trail {
    /// Oldest first, by rising number. Not every block: those that were a head when somebody looked.
    marks: VecDeque<BlockMark>,
    /// Where the trail began, or everybody was dropped: the logs up to there concern nothing that was cached since.
    began_at: u64,
    /// The node that told the last block.
    told_by: Arc<str>,
    /// The node that did not know the last block at the last poll.
    unknown_to: Option<Arc<str>>,
    /// The block whose logs were too many at the last poll.
    unread: Option<u64>,
    overlap: Overlap,
    seen: HashSet<LogId>,
    span: Span,
    organizations: Option<Address>,
    poll: Option<Poll>,
}

/// A log's number, block and place in it.
type LogId = (u64, B256, u64);

/// The poll under way.
#[derive(Debug)]
struct Poll {
    told: Told,
    stage: Stage,
}

/// What a poll began with.
#[derive(Debug, Clone)]
struct Told {
    head: BlockMark,
    node: Arc<str>,
    asked_micros: u64,
}

#[derive(Debug)]
enum Stage {
    /// Whether the node has this block of ours below its head.
    Comparing { ours: BlockMark },
    /// Whether a node with a lower head knows the last block all the same.
    LookingAhead,
    /// Reading logs from `from`.
    Reading { from: u64, requests: u32, of_each: bool, drops: Drops, read: Vec<LogId> },
}

impl Trail {
    /// Nothing is followed yet. `organizations` is where the organization registry stands.
    pub(super) fn new(organizations: Option<Address>) -> Self {
        Self {
            marks: VecDeque::new(),
            began_at: 0,
            told_by: Arc::from(""),
            unknown_to: None,
            unread: None,
            overlap: Overlap::new(0, 0),
            seen: HashSet::new(),
            span: Span::new(),
            organizations,
            poll: None,
        }
    }

    /// Begins a poll with the head that a node told when it was asked at `asked_micros`. A poll that was begun before and
    /// not finished changed nothing.
    pub(super) fn head(&mut self, head: BlockMark, node: &Arc<str>, asked_micros: u64) -> Step {
        if head.number > HEAD_MAX {
            return Step::Done(Outcome::Behind);
        }
        let told = Told { head, node: Arc::clone(node), asked_micros };
        let Some(last) = self.marks.back().copied() else { return self.restart(told, Why::Start) };
        if head.hash == last.hash
            || (head.number == last.number.saturating_add(1) && head.parent == last.hash)
        {
            return self.begin_reading(told);
        }
        if head.number > last.number.saturating_add(GAP_BLOCKS_MAX) {
            return self.restart(told, Why::Gap);
        }
        if head.number == last.number || head.number == last.number.saturating_add(1) {
            return self.restart(told, Why::Reorganized);
        }
        // The last of ours that the node should have, whichever of the two is ahead.
        let Some(ours) = self.marks.iter().rev().find(|mark| mark.number <= head.number).copied() else {
            return self.restart(told, Why::Reorganized);
        };
        if ours.number == head.number {
            return if ours.hash == head.hash {
                self.poll = Some(Poll { told, stage: Stage::LookingAhead });
                Step::Block(last.number)
            } else {
                self.restart(told, Why::Reorganized)
            };
        }
        self.poll = Some(Poll { told, stage: Stage::Comparing { ours } });
        Step::Block(ours.number)
    }

    /// The block that was asked for, as the node has it.
    pub(super) fn block(&mut self, found: Option<BlockMark>) -> Step {
        let (Some(last), Some(poll)) = (self.marks.back().copied(), self.poll.take()) else {
            return Step::Done(Outcome::Behind);
        };
        let Poll { told, stage } = poll;
        let asked = match &stage {
            Stage::Comparing { ours } => *ours,
            Stage::LookingAhead | Stage::Reading { .. } => last,
        };
        match found {
            None => self.not_known(told),
            Some(found) if found.hash != asked.hash => self.restart(told, Why::Reorganized),
            Some(_) if asked != last => {
                self.poll = Some(Poll { told, stage: Stage::LookingAhead });
                Step::Block(last.number)
            }
            Some(_) if told.head.number > last.number => self.begin_reading(told),
            // The head came from a part of the node that lags; another part knows ours still.
            Some(_) => {
                self.unknown_to = None;
                Step::Done(Outcome::Followed { head: last, drops: Drops::default() })
            }
        }
    }

    /// The logs that were asked for.
    pub(super) fn logs(&mut self, logs: &[LogMark]) -> Step {
        let Some(Poll { told, stage: Stage::Reading { from, requests, of_each, mut drops, mut read } }) =
            self.poll.take()
        else {
            return Step::Done(Outcome::Behind);
        };
        for log in logs {
            if self.contradicts(log, told.head) {
                return self.restart(told, Why::Reorganized);
            }
            let id = (log.block_number, log.block_hash, log.log_index);
            if !self.seen.contains(&id) {
                drops.add(log, self.organizations);
                read.push(id);
            }
        }
        let to = if of_each { from } else { self.span.last_of(from, told.head.number) };
        if !of_each {
            self.span.was_read(from, to);
        }
        let from = to.saturating_add(1);
        self.read_on(told, Stage::Reading { from, requests, of_each: false, drops, read })
    }

    /// The node finds that too many logs were asked for at once.
    pub(super) fn too_large(&mut self) -> Step {
        let Some(Poll { told, stage: Stage::Reading { from, requests, of_each, mut drops, read } }) =
            self.poll.take()
        else {
            return Step::Done(Outcome::Behind);
        };
        if !of_each {
            let is_one = !self.span.shrink(from, told.head.number);
            // What is asked for once more need not be had at any price.
            let first = self.first_of(told.head);
            let (from, of_each) = if first > from { (first, false) } else { (from, is_one) };
            return self.read_on(told, Stage::Reading { from, requests, of_each, drops, read });
        }
        if self.unread != Some(from) {
            self.unread = Some(from);
            return Step::Done(Outcome::Unread { block: from });
        }
        // What stands in this one block can't be read, and could not be before: it may be anything.
        drops.concern_everybody(Culprit::Block(from));
        let from = from.saturating_add(1);
        self.read_on(told, Stage::Reading { from, requests, of_each: false, drops, read })
    }

    /// Forgets everything: the next head is a beginning.
    pub(super) fn forget(&mut self) {
        self.marks.clear();
        self.seen.clear();
        self.poll = None;
    }

    fn begin_reading(&mut self, told: Told) -> Step {
        let Some(last) = self.marks.back() else { return self.restart(told, Why::Start) };
        if told.head.hash == last.hash && !self.overlap.is_due(told.asked_micros) {
            return self.confirm(told, Drops::default());
        }
        let from = self.first_of(told.head);
        let (drops, read) = (Drops::default(), Vec::new());
        self.read_on(told, Stage::Reading { from, requests: 0, of_each: false, drops, read })
    }

    /// The first block whose logs are asked for. What one request has room for costs no further one.
    fn first_of(&self, head: BlockMark) -> u64 {
        let again = self.overlap.first(self.span.first_of(head.number));
        again.max(self.began_at.saturating_add(1))
    }

    fn read_on(&mut self, told: Told, stage: Stage) -> Step {
        let Stage::Reading { from, requests, of_each, drops, read } = stage else {
            return Step::Done(Outcome::Behind);
        };
        if from > told.head.number {
            return self.finish(told, drops, read);
        }
        if requests == LOG_REQUESTS_MAX {
            return self.restart(told, Why::Gap);
        }
        let to = self.span.last_of(from, told.head.number);
        let stage = Stage::Reading { from, requests: requests + 1, of_each, drops, read };
        self.poll = Some(Poll { told, stage });
        if of_each { Step::LogsOfEach { block: from } } else { Step::Logs { from, to } }
    }

    /// Only here does a poll leave a trace: what is given up half-way is read again as a whole.
    fn finish(&mut self, told: Told, drops: Drops, read: Vec<LogId>) -> Step {
        let head = told.head;
        if self.marks.back().is_none_or(|last| last.hash != head.hash) {
            self.marks.push_back(head);
            if self.marks.len() > MARKS_MAX {
                self.marks.pop_front();
            }
        }
        if drops.everybody.is_some() {
            // Whatever is cached from now on is read at this head or a later one.
            self.began_at = head.number;
        }
        self.overlap.was_read(head.number, told.asked_micros);
        let oldest = self.overlap.first(0);
        self.seen.retain(|(number, _, _)| *number >= oldest);
        let room = SEEN_MAX.saturating_sub(self.seen.len());
        self.seen.extend(read.into_iter().filter(|(number, _, _)| *number >= oldest).take(room));
        self.confirm(told, drops)
    }

    fn confirm(&mut self, told: Told, drops: Drops) -> Step {
        self.told_by = told.node;
        self.unknown_to = None;
        self.unread = None;
        Step::Done(Outcome::Followed { head: told.head, drops })
    }

    fn restart(&mut self, told: Told, why: Why) -> Step {
        let head = told.head;
        self.forget();
        self.marks.push_back(head);
        self.began_at = head.number;
        self.overlap = Overlap::new(head.number, told.asked_micros);
        self.told_by = told.node;
        self.unknown_to = None;
        self.unread = None;
        Step::Done(Outcome::Restarted { head, why })
    }

    /// The node does not know the last block. Another node than the one that told it may just be slower, and so may a
    /// part of the same. But when the same one says so twice, it has thrown the block away.
    fn not_known(&mut self, told: Told) -> Step {
        let again = self.unknown_to.as_ref() == Some(&told.node);
        if again && self.told_by == told.node {
            return self.restart(told, Why::RolledBack);
        }
        self.unknown_to = Some(told.node);
        Step::Done(Outcome::Behind)
    }

    /// True for a log from a block that stands where another of ours does.
    fn contradicts(&self, log: &LogMark, head: BlockMark) -> bool {
        let known = self.marks.iter().rev().take_while(|mark| mark.number >= log.block_number);
        let mut known = known.chain(std::iter::once(&head)).filter(|mark| mark.number == log.block_number);
        known.any(|mark| mark.hash != log.block_hash)
    }
}

#[cfg(test)]
mod tests;
