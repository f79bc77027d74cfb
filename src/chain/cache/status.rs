//! What may be cached and served, as values without IO: the followed block, entries with the block they were read at, and
//! the rules between them. Time is an argument.
//!
//! A profile that was read at the followed block is kept until a log of a later block drops it, and served while the
//! follower is in touch. A profile that was read at the latest block serves for one poll interval. A read is kept only if
//! its block is not below the agent's floor: the block of the last log that concerned it.

use std::time::Duration;

use crate::chain::block::Block;
use crate::chain::spread;
use crate::domain::chain_settings::Lifetimes;
use crate::domain::holders::Holders;

/// What the follower has accounted for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(in crate::chain) struct Status {
    /// All logs up to this block were applied. `None` before the first.
    followed: Option<Block>,
    /// Grows whenever the follower begins anew. Blocks of different epochs do not compare.
    epoch: u32,
    /// The block of the last log that concerned everybody. What was read before it serves no more.
    everybody_floor: u64,
    /// The block of the last log that concerned members of an organization.
    organizations_floor: u64,
    /// The block of the last log that concerned those whom somebody holds.
    holders_floor: u64,
    /// When what was read at the followed block serves no more; zero while nothing does.
    in_touch_until_micros: u64,
}

/// How a read is made, and on what it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::chain) struct Ticket {
    /// The block to read at; `None`: the latest.
    pub(in crate::chain) pinned: Option<Block>,
    /// The number of the followed block when the read began.
    pub(in crate::chain) followed: u64,
    pub(in crate::chain) epoch: u32,
}

/// What is known of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::chain) enum Entry<P> {
    /// Its profile at a block: the followed one, if it is pinned, and else the latest.
    Read { profile: P, block: u64, is_pinned: bool, epoch: u32, began_micros: u64 },
    /// It exists, or did. A read is kept from this block on.
    Dropped { holders: Holders, floor: u64, epoch: u32 },
}

impl Status {
    /// How to read an agent of which this is known. An agent that is not known is read at the latest block: what it did
    /// just before it first asked shall be seen. So is one that was shown at a later block than the followed one.
    pub(in crate::chain) fn begin<P>(&self, entry: Option<&Entry<P>>, now_micros: u64) -> Ticket {
        let is_in_touch = now_micros < self.in_touch_until_micros;
        let shown = entry.map(|entry| self.block_of(entry).unwrap_or(0));
        let pinned =
            self.followed.filter(|block| is_in_touch && shown.is_some_and(|shown| block.number >= shown));
        Ticket { pinned, ..self.begin_latest() }
    }

    /// The ticket of a read at the latest block.
    pub(in crate::chain) fn begin_latest(&self) -> Ticket {
        Ticket { pinned: None, followed: self.followed_number(), epoch: self.epoch }
    }

    /// The entry for a read of this block, if it may be kept: no log since is missing in it, and it is not older than what
    /// is there. Logs concern an agent by the holders that are known of it. Where the follower went on or began anew meanwhile, it stays known that the agent exists, who held it, and
    /// that the block was shown.
    pub(in crate::chain) fn keep<P>(
        &self,
        &Ticket { pinned, epoch, .. }: &Ticket,
        (profile, holders, block): (P, Holders, u64),
        (has_organizations, has_other_holders): (bool, bool),
        (entry, began_micros): (Option<&Entry<P>>, u64),
    ) -> Option<Entry<P>> {
        let is_pinned = pinned.is_some();
        let known = entry.and_then(|entry| self.block_of(entry)).unwrap_or(self.followed_number());
        let shown = Entry::Dropped { holders, floor: block.max(known), epoch: self.epoch };
        if epoch != self.epoch {
            return (!is_pinned).then_some(shown);
        }
        let of_organizations = if has_organizations { self.organizations_floor } else { 0 };
        let of_holders = if has_other_holders { self.holders_floor } else { 0 };
        let floor = known.max(of_organizations).max(of_holders).max(self.everybody_floor);
        if block < floor {
            return entry.is_none().then_some(shown);
        }
        Some(Entry::Read { profile, block, is_pinned, epoch, began_micros })
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

    /// True when the entry may be served.
    pub(in crate::chain) fn serves<P>(
        &self,
        entry: &Entry<P>,
        lifetimes: &Lifetimes,
        now_micros: u64,
    ) -> bool {
        let &Entry::Read { block, is_pinned, epoch, began_micros, .. } = entry else { return false };
        let age = now_micros.saturating_sub(began_micros);
        let is_fresh = if is_pinned {
            now_micros < self.in_touch_until_micros
                && lifetimes.reread_after.is_none_or(|reread| age < spread(micros(reread), began_micros))
        } else {
            age < micros(lifetimes.poll_interval)
        };
        is_fresh && epoch == self.epoch && block >= self.everybody_floor
    }

    /// True when no log concerned everybody, or members of organizations, since this ticket.
    pub(super) fn is_current(&self, ticket: &Ticket) -> bool {
        let floor = self.everybody_floor.max(self.organizations_floor);
        ticket.epoch == self.epoch && ticket.followed >= floor
    }

    /// The logs up to this block were applied, or are about to be under the same lock. Those of which the last, if any,
    /// concerned members of organizations, those whom somebody holds, and everybody, were of these blocks. True when everybody
    /// is dropped.
    pub(in crate::chain) fn advance(
        &mut self,
        block: Block,
        [organizations, holders, everybody]: [u64; 3],
    ) -> bool {
        let is_news = everybody > self.everybody_floor;
        self.followed = Some(block);
        self.holders_floor = self.holders_floor.max(holders);
        self.organizations_floor = self.organizations_floor.max(organizations);
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
