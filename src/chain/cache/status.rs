//! What may be cached and served, as values without IO: the followed block, entries with the block they were read at, and
//! the rules between them. Time is an argument.
//!
//! A profile of the followed chain is kept until a log of a later block drops it, and served while the follower is in touch: it was
//! read at or above the block that was followed then, and its answer showed that block. Any other serves for one poll interval.
//! A read is kept only if its block is not below the agent's floor: the block of the last log that concerned it.

use std::time::Duration;

use crate::chain::block::Block;
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
}

/// What was accounted for when a read began. Taken before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::chain) struct Ticket {
    pub(in crate::chain) followed: Option<Block>,
    pub(in crate::chain) epoch: u32,
}

/// What is known of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::chain) enum Entry<P> {
    /// Its profile at a block, which is of the followed chain or not known to be.
    Read { profile: P, details: Details, block: u64, is_followed: bool, epoch: u32, began_micros: u64 },
    /// It exists, or did. A read is kept from this block on.
    Dropped { holders: Holders, floor: u64, epoch: u32 },
}

/// What a read has of the details, least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::chain) enum Details {
    /// They were not asked for.
    Unasked,
    /// They could not be had. That serves for one poll interval.
    Lacking,
    Read,
}

/// An answer about an agent.
#[derive(Debug, Clone, Copy)]
pub(in crate::chain) struct ReadAt {
    pub(in crate::chain) block: u64,
    /// It showed the block that was followed when the read began.
    pub(in crate::chain) is_followed: bool,
    pub(in crate::chain) details: Details,
    pub(in crate::chain) began_micros: u64,
}

impl Status {
    pub(in crate::chain) fn begin(&self) -> Ticket {
        Ticket { followed: self.followed, epoch: self.epoch }
    }

    /// The entry for a read of this block, if it may be kept: no log since is missing in it, and it is not older than what
    /// is there. Logs concern an agent by what was known of it, so a read that finds it `in_other_groups` needs more. Where the
    /// follower went on or began anew meanwhile, it stays known that the agent exists, who held it, and that the block was shown.
    pub(in crate::chain) fn keep<P>(
        &self,
        ticket: &Ticket,
        (profile, holders, read): (P, Holders, ReadAt),
        in_other_groups: bool,
        entry: Option<&Entry<P>>,
    ) -> Option<Entry<P>> {
        let ReadAt { block, is_followed, details, began_micros } = read;
        let known = entry.and_then(|entry| self.block_of(entry)).unwrap_or(self.followed_number());
        // Blocks of before a beginning do not compare.
        let is_comparable = ticket.epoch == self.epoch;
        let floor = if is_comparable { block.max(known) } else { known };
        let shown = Entry::Dropped { holders, floor, epoch: self.epoch };
        let of_groups = if in_other_groups { self.groups_floor } else { 0 };
        if !is_comparable || block < known.max(of_groups).max(self.everybody_floor) {
            return entry.is_none().then_some(shown);
        }
        Some(Entry::Read { profile, details, block, is_followed, epoch: self.epoch, began_micros })
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
        let is_fresh = if is_followed { is_kept() } else { is_new };
        is_fresh
            && epoch == self.epoch
            && block >= self.everybody_floor
            && (parts == Parts::Gate || has_details())
    }

    pub(super) const fn is_in_touch(&self, now_micros: u64) -> bool {
        now_micros < self.in_touch_until_micros
    }

    /// True when no log concerned everybody since this ticket.
    pub(super) fn is_current(&self, ticket: &Ticket) -> bool {
        ticket.epoch == self.epoch
            && ticket.followed.map_or(0, |followed| followed.number) >= self.everybody_floor
    }

    /// The logs up to this block were applied, or are about to be under the same lock. Those of which the last, if any,
    /// concerned groups, everybody's details, and everybody, were of these blocks. True when everybody is dropped.
    pub(in crate::chain) fn advance(&mut self, block: Block, [groups, details, everybody]: [u64; 3]) -> bool {
        let is_news = everybody > self.everybody_floor;
        self.followed = Some(block);
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
