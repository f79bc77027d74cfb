//! What may be cached and served, as values without IO: the followed block, entries with the block they were read at, and
//! the rules between them. Time is an argument.
//!
//! A profile that was read at the followed block is kept until a log drops it, and served while the follower is in touch.
//! A profile that was read at the latest block serves for one poll interval. In both cases a read is kept only if no log
//! can have been missed: its block is not below the agent's floor, which each drop raises to the followed block.

use alloy::primitives::Address;

use crate::chain::block::Block;

/// What the follower has accounted for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::chain) struct Status {
    /// All logs up to this block were applied. `None` before the first.
    followed: Option<Block>,
    /// Changes whenever everybody is dropped.
    generation: Generation,
    /// The followed block when the members of an organization were last dropped.
    organizations_floor: u64,
    /// When what was read at the followed block serves no more; zero while nothing does.
    in_touch_until_micros: u64,
}

/// Which profiles still serve.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(in crate::chain) struct Generation {
    /// Grows whenever the follower begins anew. Block numbers of different epochs do not compare.
    epoch: u32,
    /// How often a log dropped everybody.
    drops: u32,
}

impl Generation {
    /// As one number.
    pub(in crate::chain) const fn as_number(self) -> u64 {
        (self.epoch as u64) << 32 | self.drops as u64
    }

    const fn begin_anew(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.drops = 0;
    }
}

/// How a read is made, and on what it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::chain) struct Ticket {
    /// The block to read at; `None`: the latest.
    pub(in crate::chain) pinned: Option<Block>,
    pub(in crate::chain) generation: Generation,
}

/// How a profile was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::chain) struct Reading {
    /// At the followed block. Else at the latest.
    pub(super) is_pinned: bool,
    pub(super) generation: Generation,
    pub(super) began_micros: u64,
}

impl Reading {
    #[cfg(test)]
    pub(in crate::chain) const fn is_pinned(&self) -> bool {
        self.is_pinned
    }
}

/// What is known of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::chain) enum Entry<P> {
    /// Its profile at a block.
    Read { profile: P, block: u64, reading: Reading },
    /// It exists, or did. A read is kept from this block on, in this generation's epoch.
    Dropped { owner: Address, floor: u64, generation: Generation },
}

impl<P> Entry<P> {
    /// From which block on a read is kept, if something is known of this epoch.
    fn floor(&self, generation: Generation) -> Option<u64> {
        let (floor, of) = match self {
            Self::Read { block, reading, .. } => (*block, reading.generation),
            Self::Dropped { floor, generation, .. } => (*floor, *generation),
        };
        (of.epoch == generation.epoch).then_some(floor)
    }
}

impl Status {
    pub(in crate::chain) const fn new() -> Self {
        Self {
            followed: None,
            generation: Generation { epoch: 0, drops: 0 },
            organizations_floor: 0,
            in_touch_until_micros: 0,
        }
    }

    pub(in crate::chain) const fn generation(&self) -> Generation {
        self.generation
    }

    pub(in crate::chain) const fn in_touch_until(&self) -> u64 {
        self.in_touch_until_micros
    }

    /// How to read an agent of which this is known. An agent that is not known is read at the latest block: what it did
    /// just before it first asked shall be seen. So is one that was shown at a later block than the followed one.
    pub(in crate::chain) fn begin<P>(&self, entry: Option<&Entry<P>>, now_micros: u64) -> Ticket {
        let shown = entry.map(|entry| entry.floor(self.generation).unwrap_or(0));
        let is_in_touch = now_micros < self.in_touch_until_micros;
        let pinned =
            self.followed.filter(|block| is_in_touch && shown.is_some_and(|shown| block.number >= shown));
        Ticket { pinned, generation: self.generation }
    }

    /// True when a read of this block may be kept: nothing was dropped since that it lacks, and nothing newer is there.
    pub(in crate::chain) fn may_keep<P>(
        &self,
        ticket: &Ticket,
        block: u64,
        has_organizations: bool,
        entry: Option<&Entry<P>>,
    ) -> bool {
        let followed = self.followed.map_or(0, |followed| followed.number);
        let floor = entry.and_then(|entry| entry.floor(self.generation)).unwrap_or(followed);
        ticket.generation == self.generation
            && block >= floor
            && (!has_organizations || block >= self.organizations_floor)
    }

    /// How it was read, for the entry that is kept.
    pub(in crate::chain) const fn reading(&self, ticket: &Ticket, began_micros: u64) -> Reading {
        Reading { is_pinned: ticket.pinned.is_some(), generation: ticket.generation, began_micros }
    }

    /// What is left of an agent's entry when a log names it.
    pub(in crate::chain) fn dropped<P>(&self, entry: &Entry<P>, owner: Address) -> Entry<P> {
        let followed = self.followed.map_or(0, |followed| followed.number);
        let floor = followed.max(entry.floor(self.generation).unwrap_or(0));
        Entry::Dropped { owner, floor, generation: self.generation }
    }

    /// The logs up to this block were applied, or are about to be under the same lock.
    pub(in crate::chain) const fn advance(&mut self, block: Block, drops_members: bool, drops_all: bool) {
        self.followed = Some(block);
        if drops_members {
            self.organizations_floor = block.number;
        }
        if drops_all {
            self.generation.drops = self.generation.drops.wrapping_add(1);
        }
    }

    /// The followed block was the head at a poll that began then.
    pub(in crate::chain) const fn confirm(&mut self, asked_micros: u64, staleness_micros: u64) {
        self.in_touch_until_micros = asked_micros.saturating_add(staleness_micros);
    }

    /// The follower begins anew at this block: nothing kept before serves, and no block number of before means anything.
    pub(in crate::chain) const fn restart(&mut self, block: Block) {
        self.followed = Some(block);
        self.organizations_floor = 0;
        self.generation.begin_anew();
    }

    /// The follower has lost touch: nothing is served on its word until it begins anew.
    pub(in crate::chain) const fn lose_touch(&mut self) {
        self.followed = None;
        self.in_touch_until_micros = 0;
        self.organizations_floor = 0;
        self.generation.begin_anew();
    }
}

/// For how long entries serve, in microseconds.
#[derive(Debug, Clone, Copy)]
pub(in crate::chain) struct Serving {
    /// Those that were read at the latest block.
    pub(in crate::chain) interval_micros: u64,
    /// Those that no log ever dropped, if that is bounded.
    pub(in crate::chain) reread_micros: Option<u64>,
}

impl Serving {
    /// True when what was read like this may be served.
    pub(in crate::chain) fn serves(
        &self,
        reading: &Reading,
        generation: u64,
        in_touch_until_micros: u64,
        now_micros: u64,
    ) -> bool {
        let age = now_micros.saturating_sub(reading.began_micros);
        let is_fresh = if reading.is_pinned {
            now_micros < in_touch_until_micros
                && self.reread_micros.is_none_or(|reread| age < spread(reread, reading.began_micros))
        } else {
            age < self.interval_micros
        };
        is_fresh && reading.generation.as_number() == generation
    }
}

/// Up to a quarter less, so that what was read within one moment is not read anew within one.
const fn spread(whole: u64, grain: u64) -> u64 {
    let grain = grain.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    whole - grain % (whole / 4 + 1)
}
