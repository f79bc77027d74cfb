//! Profiles that were read before. Only agents that exist are kept: what a stranger names allocates nothing.
//!
//! [`Status`] has the rules, as a value without IO: what may be cached and served, by the followed block, and entries with the block
//! they were read at. Time is an argument. A profile of the followed chain is kept until a log of a later block drops it, and served
//! while the follower is in touch: it was read at the block that was followed then, or above it where its answer showed that block
//! and the follower compares, when it gets there, if the block is still of its chain. Any other serves for one poll interval. A read
//! is kept only if its block is not below the agent's floor: the block of the last log that concerned it.
//!
//! [`ProfileCache`] applies them to `entries`, with one change at a time; hits take no lock of ours.

mod entries;

use std::sync::Arc;

use alloy::primitives::B256;
use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::chain::block::{Block, Date, ReadAt};
use crate::chain::cache::entries::{Entries, Group};
use crate::chain::{fault::ReadFault, registries::logs::Drops, spread};
use crate::domain::{AgentId, Holders, Lifetimes, TrustProfile};
use crate::ports::{Parts, micros};

/// A profile. Without details that were asked for, why they can't be read.
pub(super) type CachedProfile = (Arc<TrustProfile>, Option<Arc<ReadFault>>);

type CachedEntry = Entry<CachedProfile>;

/// Profiles by agent.
pub(super) struct ProfileCache {
    entries: Entries,
    status: Mutex<Status>,
    /// The status as hits see it.
    published: ArcSwap<Status>,
    pub(super) lifetimes: Lifetimes,
}

impl ProfileCache {
    /// With an index of holders if logs concern agents by them.
    pub(super) fn new(lifetimes: Lifetimes, by_holder: bool) -> Self {
        Self {
            entries: Entries::new(by_holder),
            status: Mutex::default(),
            published: ArcSwap::default(),
            lifetimes,
        }
    }

    /// The agent's profile, if as much of it may still be used.
    pub(super) fn get(&self, agent: AgentId, parts: Parts, now_micros: u64) -> Option<Arc<TrustProfile>> {
        // Read before the entry: what a drop removes after this was right when the request came.
        let status = self.published.load();
        let entry = self.entries.get(agent)?;
        let serves = status.serves(&entry, parts, &self.lifetimes, now_micros);
        if let Entry::Read { profile, .. } = entry { serves.then_some(profile.0) } else { None }
    }

    /// Why the agent has no details, if that was found out just now.
    pub(super) fn lacking(&self, agent: AgentId, now_micros: u64) -> Option<Arc<ReadFault>> {
        let entry = self.entries.peek(agent)?;
        let serves = self.published.load().serves(&entry, Parts::Whole, &self.lifetimes, now_micros);
        if let Entry::Read { profile, .. } = entry { profile.1.filter(|_| serves) } else { None }
    }

    /// The agent's holders at its last read. They decide who waits, and never who passes.
    pub(super) fn last_holders(&self, agent: AgentId) -> Option<Holders> {
        // Strangers ask too: that does not make an entry worth keeping.
        self.entries.peek(agent).map(|entry| holders_of(&entry))
    }

    /// The ticket of a read that begins now.
    pub(super) fn begin(&self, now_micros: u64) -> Ticket {
        self.status.lock().begin(now_micros)
    }

    /// Keeps what was read with this ticket, unless a log since concerns it or newer is there. A profile that says the same stays if
    /// it has details beside, or serves for longer.
    pub(super) fn keep(&self, agent: AgentId, ticket: &Ticket, known: &CachedProfile, read: ReadAt) {
        let (profile, lacking) = known;
        let details = match lacking {
            _ if profile.details.is_some() => Details::Read,
            Some(_) => Details::Lacking,
            None => Details::Unasked,
        };
        let mut status = self.status.lock();
        let is_followed = status.confirms(ticket, &read);
        let read = ReadAt { is_followed, ..read };
        let cached = self.entries.peek(agent);
        let has_more = |entry: &CachedEntry| match entry {
            Entry::Read { profile: (cached, _), details: had, is_followed, .. } => {
                let has_details = *had > details;
                let parts = if has_details { Parts::Whole } else { Parts::Gate };
                let is_same = (cached.holders, cached.stake, cached.measured)
                    == (profile.holders, profile.stake, profile.measured);
                let is_longer = *is_followed && !read.is_followed && cached.details == profile.details;
                is_same
                    && (has_details || is_longer)
                    && status.serves(entry, parts, &self.lifetimes, ticket.began_micros)
            }
            Entry::Dropped { .. } => false,
        };
        if cached.as_ref().is_some_and(has_more) {
            return;
        }
        let is_member = profile.details.as_ref().is_some_and(|details| !details.organizations.is_empty());
        let is_held_anew = cached.as_ref().is_none_or(|entry| holders_of(entry) != profile.holders);
        let kept = (known.clone(), details, profile.holders);
        if let Some(entry) = status.keep(ticket, kept, read, is_member || is_held_anew, cached.as_ref()) {
            self.entries.insert(agent, entry);
        }
    }

    /// The blocks that kept reads are of, above the followed one and up to this height.
    pub(super) fn shown(&self, number: u64) -> Vec<Shown> {
        self.status.lock().shown(number)
    }

    /// Forgets an agent that does not exist.
    pub(super) fn forget(&self, agent: AgentId) {
        let _status = self.status.lock();
        self.entries.remove(agent);
    }

    /// The follower has accounted for the logs up to a block, and compared these. How many of the known agents the logs dropped: by
    /// name, as members of organizations, by who holds them; and true if all of them.
    pub(super) fn advance(&self, block: Block, drops: &Drops, compared: &[Shown]) -> ([u64; 3], bool) {
        let mut status = self.status.lock();
        let everybody = status.advance(block, drops.floors(), compared);
        let drop = |agent: AgentId, at: u64| {
            // An agent without an entry gets none: logs name many agents that nobody asks about.
            let dropped =
                self.entries.peek(agent).and_then(|entry| status.dropped(&entry, holders_of(&entry), at));
            dropped.map(|dropped| self.entries.insert(agent, dropped)).is_some()
        };
        let members = drops.organizations.iter().map(|(id, at)| (Group::Members(*id), *at));
        let members = self.entries.in_groups(members);
        let held = drops.holders.iter().map(|(holder, at)| (Group::Held(*holder), *at));
        let held = self.entries.in_groups(held);
        let agents = drops.agents.iter().map(|(agent, at)| (*agent, *at)).collect();
        let count =
            |of: Vec<(AgentId, u64)>| of.into_iter().filter(|(agent, at)| drop(*agent, *at)).count() as u64;
        let counts = [agents, members, held].map(count);
        self.published.store(Arc::new(status.clone()));
        (counts, everybody)
    }

    /// The followed block was the head at a poll that began then.
    pub(super) fn confirm(&self, asked_micros: u64) {
        self.change(|status| status.confirm(asked_micros, micros(self.lifetimes.max_staleness)));
    }

    /// The follower begins anew at a block: what was kept before serves no more. `None`: it can't follow.
    pub(super) fn restart(&self, block: Option<Block>) {
        self.change(|status| status.restart(block));
    }

    fn change(&self, change: impl FnOnce(&mut Status)) {
        let mut status = self.status.lock();
        change(&mut status);
        self.published.store(Arc::new(status.clone()));
    }

    /// How many agents are known.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

fn holders_of(entry: &CachedEntry) -> Holders {
    match entry {
        Entry::Read { profile, .. } => profile.0.holders,
        Entry::Dropped { holders, .. } => *holders,
    }
}

/// State of the follower: what it has accounted for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(in crate::chain) struct Status {
    /// The block up to which all logs were applied. `None` before the first.
    followed: Option<Block>,
    /// Grows whenever the follower begins anew. Blocks of different epochs do not compare.
    epoch: u32,
    /// The block of the last log that concerned everybody. What was read before it serves no more.
    everybody_floor: u64,
    /// The block of the last log that concerned members of an organization, or those whom somebody holds.
    groups_floor: u64,
    /// When what is of the followed chain serves no more; zero while nothing does.
    in_touch_until_micros: u64,
    /// The blocks that kept reads are of, and that were above the followed one: the follower compares them when it gets there.
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

/// State of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::chain) enum Entry<P> {
    /// A profile at a block, which is of the followed chain or not known to be.
    Read { profile: P, details: Details, block: u64, is_followed: bool, epoch: u32, began_micros: u64 },
    /// An agent that exists, or did. A read is kept from this block on.
    Dropped { holders: Holders, floor: u64, epoch: u32 },
}

/// How much a read has of the details, least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::chain) enum Details {
    /// Not asked for.
    Unasked,
    /// Asked for, and not to be had. That serves for one poll interval.
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
        let known =
            entry.and_then(|entry| self.block_of(entry)).or(self.followed.map(|followed| followed.number));
        let known = known.unwrap_or(0);
        // Blocks of before a beginning do not compare.
        let is_comparable = ticket.epoch == self.epoch;
        let floor = if is_comparable { block.max(known) } else { known };
        let shown = Entry::Dropped { holders, floor, epoch: self.epoch };
        let in_groups = if in_other_groups { self.groups_floor } else { 0 };
        if !is_comparable || block < known.max(in_groups).max(self.everybody_floor) {
            return entry.is_none().then_some(shown);
        }
        let (epoch, began_micros) = (self.epoch, ticket.began_micros);
        Some(Entry::Read { profile, details, block, is_followed, epoch, began_micros })
    }

    /// The rest of an entry when a log of block `at` names the agent, if it changes.
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
            now_micros < self.in_touch_until_micros
                && lifetimes.reread_after.is_none_or(|reread| age < spread(micros(reread), began_micros))
        };
        let has_details = || match details {
            Details::Unasked => false,
            Details::Lacking => is_new,
            Details::Read => true,
        };
        let is_fresh = is_new || (is_followed && is_kept());
        is_fresh
            && epoch == self.epoch
            && block >= self.everybody_floor
            && (parts == Parts::Gate || has_details())
    }

    /// The logs up to this block were applied, or are about to be under the same lock, and these blocks are of its chain: others
    /// that were shown meanwhile are yet to be compared. The logs of which the last, if any, concerned groups, and everybody, were
    /// of these blocks. True when everybody is dropped.
    pub(in crate::chain) fn advance(
        &mut self,
        block: Block,
        [groups, everybody]: [u64; 2],
        compared: &[Shown],
    ) -> bool {
        let is_news = everybody > self.everybody_floor;
        self.followed = Some(block);
        self.shown.retain(|shown| !compared.contains(shown));
        self.groups_floor = self.groups_floor.max(groups);
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

    /// The block that an agent is known at, in this epoch.
    fn block_of<P>(&self, entry: &Entry<P>) -> Option<u64> {
        let (Entry::Read { block, epoch, .. } | Entry::Dropped { floor: block, epoch, .. }) = *entry;
        (epoch == self.epoch).then_some(block)
    }
}

#[cfg(test)]
mod tests;
