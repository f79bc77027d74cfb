//! What may be cached and served, as values without IO: the followed block, entries with the block they were read at, and
//! the rules between them. Time is an argument.
//!
//! A profile of the followed chain is kept until a log of a later block drops it, and served while the follower is in touch: it was
//! read at the block that was followed then, or above it where its answer showed that block and the follower looks, when it gets
//! there, if the block is still of its chain. Any other serves for one poll interval.
//! A read is kept only if its block is not below the agent's floor: the block of the last log that concerned it.

use std::time::Duration;

use alloy::primitives::B256;

use crate::chain::block::{Block, Date, ReadAt};
use crate::chain::spread;
use crate::domain::chain_settings::Lifetimes;
use crate::domain::holders::Holders;
use crate::ports::chain::Parts;

/// What the follower has accounted for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(in crate::chain) struct Status {
    /// All logs up to this block were applied. `None` before the first.
    followed: Option<Block>,
    /// Grows whenever the follower begins anew. Blocks of different epochs do not compare.
    epoch: u32,
    /// The block of the last log that concerned everybody. What was read before it serves no more.
    everybody_floor: u64,
    /// The last block whose logs of details could not be had. Details of before serve no more.
    details_floor: u64,
    /// The block of the last log that concerned members of an organization, or those whom somebody holds.
    groups_floor: u64,
    /// When what is of the followed chain serves no more; zero while nothing does.
    in_touch_until_micros: u64,
    /// The blocks above the followed one that kept reads are of: the follower looks if they are of its chain when it gets there.
    shown: Vec<Shown>,
}

/// A block by its date and the hash of the one before.
pub(in crate::chain) type Shown = (Date, B256);

/// No reads of more blocks above the followed one are kept.
const SHOWN_MAX: usize = 16;

/// The block that was accounted for when a read began, and the time. It is taken before the read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::chain) struct Ticket {
    pub(in crate::chain) followed: Option<Block>,
    pub(in crate::chain) epoch: u32,
    pub(in crate::chain) began_micros: u64,
}

/// What is known of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::chain) enum Entry<P> {
    /// Its profile at a block, which is of the followed chain or not known to be.
    Read { profile: P, details: Details, block: u64, is_followed: bool, epoch: u32, began_micros: u64 },
    /// It exists, or did. A read is kept from this block on.
    Dropped { holders: Holders, floor: u64, epoch: u32 },
}

/// How much a read has of the details, least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::chain) enum Details {
    /// They were not asked for.
    Unasked,
    /// They could not be had. That serves for one poll interval.
    Lacking,
    Read,
}

impl Status {
    pub(in crate::chain) const fn begin(&self, began_micros: u64) -> Ticket {
        Ticket { followed: self.followed, epoch: self.epoch, began_micros }
    }

    /// True if a read is of the followed chain, or will be found out if it is not.
    pub(in crate::chain) fn confirms(&mut self, ticket: &Ticket, read: &ReadAt) -> bool {
        let (Some(then), Some(now)) = (ticket.followed, self.followed) else { return false };
        if ticket.epoch != self.epoch {
            return false;
        }
        let (Date { timestamp, number }, Some(before)) = (read.date, read.before) else {
            return read.is_followed;
        };
        if !read.is_followed || number == then.number || number < now.number {
            return read.is_followed && number == then.number;
        }
        if number == now.number {
            return timestamp == now.timestamp && before == now.parent;
        }
        let shown = (read.date, before);
        let is_noted = self.shown.contains(&shown);
        if !is_noted && self.shown.len() < SHOWN_MAX {
            self.shown.push(shown);
        }
        is_noted || self.shown.last() == Some(&shown)
    }

    /// The blocks that were shown above the followed one, up to this height.
    pub(in crate::chain) fn shown(&self, number: u64) -> Vec<Shown> {
        self.shown.iter().filter(|(date, _)| date.number <= number).copied().collect()
    }

    /// The entry for a read of this block, if it may be kept: no log since is missing in it, and it is not older than what
    /// is there. Logs concern an agent by what was known of it, so a read that finds it `in_other_groups` needs more. Where the
    /// follower went on or began anew meanwhile, it stays known that the agent exists, who held it, and that the block was shown.
    pub(in crate::chain) fn keep<P>(
        &self,
        ticket: &Ticket,
        (profile, details, holders): (P, Details, Holders),
        read: ReadAt,
        in_other_groups: bool,
        entry: Option<&Entry<P>>,
    ) -> Option<Entry<P>> {
        let ReadAt { date: Date { number: block, .. }, is_followed, .. } = read;
        let known = entry.and_then(|entry| self.block_of(entry)).unwrap_or(self.followed_number());
        // Blocks of before a beginning do not compare.
        let is_comparable = ticket.epoch == self.epoch;
        let floor = if is_comparable { block.max(known) } else { known };
        let shown = Entry::Dropped { holders, floor, epoch: self.epoch };
        let of_groups = if in_other_groups { self.groups_floor } else { 0 };
        if !is_comparable || block < known.max(of_groups).max(self.everybody_floor) {
            return entry.is_none().then_some(shown);
        }
        let (epoch, began_micros) = (self.epoch, ticket.began_micros);
        Some(Entry::Read { profile, details, block, is_followed, epoch, began_micros })
    }

    /// What is left of an entry when a log of block `at` names the agent, if it changes.
    pub(in crate::chain) fn dropped<P>(
        &self,
        entry: &Entry<P>,
        holders: Holders,
        at: u64,
    ) -> Option<Entry<P>> {
        let is_older = self.block_of(entry).is_none_or(|block| block < at);
        is_older.then_some(Entry::Dropped { holders, floor: at, epoch: self.epoch })
    }

    /// True when as much of the entry may be served.
    pub(in crate::chain) fn serves<P>(
        &self,
        entry: &Entry<P>,
        parts: Parts,
        lifetimes: &Lifetimes,
        now_micros: u64,
    ) -> bool {
        let &Entry::Read { details, block, is_followed, epoch, began_micros, .. } = entry else {
            return false;
        };
        let age = now_micros.saturating_sub(began_micros);
        let is_new = age < micros(lifetimes.poll_interval);
        let is_kept = || {
            self.is_in_touch(now_micros)
                && lifetimes.reread_after.is_none_or(|reread| age < spread(micros(reread), began_micros))
        };
        let has_details = || match details {
            Details::Unasked => false,
            Details::Lacking => is_new,
            Details::Read => block >= self.details_floor,
        };
        let is_fresh = is_new || (is_followed && is_kept());
        is_fresh
            && epoch == self.epoch
            && block >= self.everybody_floor
            && (parts == Parts::Gate || has_details())
    }

    pub(super) const fn is_in_touch(&self, now_micros: u64) -> bool {
        now_micros < self.in_touch_until_micros
    }

    /// The logs up to this block were applied, or are about to be under the same lock. Those of which the last, if any,
    /// concerned groups, everybody's details, and everybody, were of these blocks. True when everybody is dropped.
    pub(in crate::chain) fn advance(&mut self, block: Block, [groups, details, everybody]: [u64; 3]) -> bool {
        let is_news = everybody > self.everybody_floor;
        self.followed = Some(block);
        self.shown.retain(|(date, _)| date.number > block.number);
        self.groups_floor = self.groups_floor.max(groups);
        self.details_floor = self.details_floor.max(details);
        self.everybody_floor = self.everybody_floor.max(everybody);
        is_news
    }

    /// The followed block was the head at a poll that began then.
    pub(in crate::chain) const fn confirm(&mut self, asked_micros: u64, staleness_micros: u64) {
        self.in_touch_until_micros = asked_micros.saturating_add(staleness_micros);
    }

    /// The follower begins anew at this block: what was kept before serves no more, and no block number of before means
    /// anything. `None`: it has lost touch.
    pub(in crate::chain) fn restart(&mut self, block: Option<Block>) {
        let in_touch_until_micros = if block.is_some() { self.in_touch_until_micros } else { 0 };
        let everybody_floor = block.map_or(0, |block| block.number);
        let epoch = self.epoch.wrapping_add(1);
        *self = Self { followed: block, epoch, everybody_floor, in_touch_until_micros, ..Self::default() };
    }

    fn followed_number(&self) -> u64 {
        self.followed.map_or(0, |followed| followed.number)
    }

    /// The block that an agent is known at, in this epoch.
    fn block_of<P>(&self, entry: &Entry<P>) -> Option<u64> {
        let (Entry::Read { block, epoch, .. } | Entry::Dropped { floor: block, epoch, .. }) = *entry;
        (epoch == self.epoch).then_some(block)
    }
}

/// In microseconds.
pub(in crate::chain) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
