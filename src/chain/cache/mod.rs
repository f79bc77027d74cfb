//! Profiles that were read before. Only agents that exist are kept: what a stranger names allocates nothing.
//!
//! `status` has the rules: what is kept, and for how long it serves. Here they are applied to `entries`, with one change
//! at a time; hits take no lock of ours.

mod entries;
pub(super) mod status;

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::chain::block::{Block, ReadAt};
use crate::chain::cache::entries::{Entries, Group};
use crate::chain::cache::status::{Details, Entry, Shown, Status, Ticket, micros};
use crate::chain::registries::logs::Drops;
use crate::domain::agent_id::AgentId;
use crate::domain::chain_settings::Lifetimes;
use crate::domain::holders::Holders;
use crate::domain::profile::TrustProfile;
use crate::ports::chain::{ChainFault, Parts};

/// A profile. Without details that were asked for, why they can't be read.
pub(super) type CachedProfile = (Arc<TrustProfile>, Option<Arc<ChainFault>>);

type CachedEntry = Entry<CachedProfile>;

/// Profiles by agent.
pub(super) struct ProfileCache {
    entries: Entries,
    status: Mutex<Status>,
    /// The status as hits see it.
    published: ArcSwap<Status>,
    lifetimes: Lifetimes,
}

/// How many of the known agents some logs dropped: by name, as members of organizations, by who holds them, or all of them.
pub(super) struct Dropped {
    pub(super) agents: u64,
    pub(super) members: u64,
    pub(super) held: u64,
    pub(super) everybody: bool,
    /// The details of all of them.
    pub(super) details: bool,
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
    pub(super) fn lacking(&self, agent: AgentId, now_micros: u64) -> Option<Arc<ChainFault>> {
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

    /// True while the chain is followed.
    pub(super) fn is_in_touch(&self, now_micros: u64) -> bool {
        self.published.load().is_in_touch(now_micros)
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

    /// The follower has accounted for the logs up to a block.
    pub(super) fn advance(&self, block: Block, drops: &Drops) -> Dropped {
        let mut status = self.status.lock();
        let everybody = status.advance(block, drops.floors());
        let drop = |agent: AgentId, at: u64| {
            // An agent without an entry gets none: logs name many agents that nobody asks about.
            let dropped =
                self.entries.peek(agent).and_then(|entry| status.dropped(&entry, holders_of(&entry), at));
            dropped.map(|dropped| self.entries.insert(agent, dropped)).is_some()
        };
        let members = drops.organizations.iter().map(|(id, at)| (Group::Members(*id), *at));
        let members = self.entries.of_groups(members);
        let held = drops.holders.iter().map(|(holder, at)| (Group::Held(*holder), *at));
        let held = self.entries.of_groups(held);
        let agents = drops.agents.iter().map(|(agent, at)| (*agent, *at)).collect();
        let count =
            |of: Vec<(AgentId, u64)>| of.into_iter().filter(|(agent, at)| drop(*agent, *at)).count() as u64;
        let [agents, members, held] = [agents, members, held].map(count);
        self.published.store(Arc::new(status.clone()));
        Dropped { agents, members, held, everybody, details: drops.details > 0 }
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

#[cfg(test)]
mod tests;
