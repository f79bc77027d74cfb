//! Profiles that were read before. Only agents that exist are kept: what a stranger names allocates nothing.
//!
//! `status` has the rules: what is kept, and for how long it serves. Here they are applied to `entries`, with one change
//! at a time; hits take no lock of ours.

mod entries;
pub(super) mod status;

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use quick_cache::sync::Cache;

use crate::chain::block::Block;
use crate::chain::cache::entries::{Entries, Group};
use crate::chain::cache::status::{Entry, Status, Ticket, micros};
use crate::chain::registries::logs::Drops;
use crate::domain::agent_id::AgentId;
use crate::domain::chain_settings::Lifetimes;
use crate::domain::holders::Holders;
use crate::domain::profile::TrustProfile;
use crate::ports::chain::ChainFault;

/// How many agents are remembered whose profiles can't be read. Who is pushed out costs a read.
const FAULTS_MAX: usize = 1_024;

type CachedEntry = Entry<Arc<TrustProfile>>;

/// Profiles by agent.
pub(super) struct ProfileCache {
    entries: Entries,
    /// Why agents can't be read because of what the chain holds of them; until when that serves.
    faults: Cache<AgentId, (Ticket, u64, ChainFault)>,
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
}

impl ProfileCache {
    /// With an index of holders if logs concern agents by them.
    pub(super) fn new(lifetimes: Lifetimes, by_holder: bool) -> Self {
        Self {
            entries: Entries::new(by_holder),
            faults: Cache::new(FAULTS_MAX),
            status: Mutex::default(),
            published: ArcSwap::default(),
            lifetimes,
        }
    }

    /// The agent's profile, if it may still be used.
    pub(super) fn get(&self, agent: AgentId, now_micros: u64) -> Option<Arc<TrustProfile>> {
        // Read before the entry: what a drop removes after this was right when the request came.
        let status = self.published.load();
        let entry = self.entries.get(agent)?;
        let serves = status.serves(&entry, &self.lifetimes, now_micros);
        if let Entry::Read { profile, .. } = entry { serves.then_some(profile) } else { None }
    }

    /// The agent's holders at its last read. They decide who waits, and never who passes.
    pub(super) fn last_holders(&self, agent: AgentId) -> Option<Holders> {
        // Strangers ask too: that does not make an entry worth keeping.
        self.entries.peek(agent).map(|entry| holders_of(&entry))
    }

    /// How to read an agent now. Taken before the read begins.
    pub(super) fn begin(&self, agent: AgentId, now_micros: u64) -> Ticket {
        let status = self.status.lock();
        status.begin(self.entries.peek(agent).as_ref(), now_micros)
    }

    pub(super) fn begin_latest(&self) -> Ticket {
        self.status.lock().begin_latest()
    }

    /// Keeps what was read at this block with this ticket, unless a log since concerns it or newer is there.
    pub(super) fn keep(
        &self,
        agent: AgentId,
        ticket: &Ticket,
        (profile, block): (&Arc<TrustProfile>, u64),
        began_micros: u64,
    ) {
        let status = self.status.lock();
        let known = self.entries.peek(agent);
        let has_organizations =
            profile.details.as_ref().is_some_and(|details| !details.organizations.is_empty());
        let read = (Arc::clone(profile), profile.holders, block);
        let has_other_holders = known.as_ref().is_none_or(|known| holders_of(known) != profile.holders);
        let floors = (has_organizations, has_other_holders);
        if let Some(entry) = status.keep(ticket, read, floors, (known.as_ref(), began_micros)) {
            self.entries.insert(agent, entry);
        }
    }

    /// Remembers for one interval that the agent can't be read because of what the chain holds of it, unless a log since may
    /// concern it.
    pub(super) fn keep_fault(&self, agent: AgentId, ticket: &Ticket, fault: &ChainFault, now_micros: u64) {
        let until_micros = now_micros.saturating_add(micros(self.lifetimes.poll_interval));
        let status = self.status.lock();
        if status.begin_latest() == (Ticket { pinned: None, ..*ticket }) {
            self.faults.insert(agent, (*ticket, until_micros, fault.clone()));
        }
    }

    /// Why the agent can't be read, if that was found out just now and no log since concerns it.
    pub(super) fn fault(&self, agent: AgentId, now_micros: u64) -> Option<ChainFault> {
        let (ticket, until_micros, fault) = self.faults.get(&agent)?;
        (self.published.load().is_current(&ticket) && now_micros < until_micros).then_some(fault)
    }

    /// True when no log concerned everybody since this ticket.
    pub(super) fn is_current(&self, ticket: &Ticket) -> bool {
        self.published.load().is_current(ticket)
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
            self.faults.remove_if(&agent, |(ticket, ..)| ticket.followed < at);
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
        Dropped { agents, members, held, everybody }
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
        Entry::Read { profile, .. } => profile.holders,
        Entry::Dropped { holders, .. } => *holders,
    }
}

#[cfg(test)]
mod tests;
