//! Profiles that were read before. Only agents that exist are kept: what a stranger names allocates nothing.
//!
//! `status` has the rules: what is kept, and for how long it serves. Here they are applied to `entries`, with one change
//! at a time; hits take no lock of ours.

mod entries;
mod faults;
mod members;
pub(super) mod status;
mod weight;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use alloy::primitives::Address;
use parking_lot::Mutex;

use crate::chain::block::Block;
use crate::chain::cache::entries::Entries;
use crate::chain::cache::faults::Faults;
use crate::chain::cache::status::{Entry, Serving, Status, Ticket};
use crate::chain::registries::logs::Drops;
use crate::domain::agent_id::AgentId;
use crate::domain::profile::TrustProfile;
use crate::ports::chain::ChainFault;

/// For how long profiles serve.
#[derive(Debug, Clone, Copy)]
pub struct Lifetimes {
    /// One that was read at the latest block.
    pub poll_interval: Duration,
    /// How long the follower may be silent before nothing is served on its word.
    pub max_staleness: Duration,
    /// One that no log ever dropped, if that is bounded.
    pub reread_after: Option<Duration>,
}

type CachedEntry = Entry<Arc<TrustProfile>>;

/// Profiles by agent.
pub(super) struct ProfileCache {
    entries: Entries,
    faults: Faults,
    status: Mutex<Status>,
    serving: Serving,
    staleness_micros: u64,
    /// What a hit needs of the status.
    generation: AtomicU64,
    in_touch_until: AtomicU64,
}

impl ProfileCache {
    pub(super) fn new(lifetimes: Lifetimes) -> Self {
        let serving = Serving {
            interval_micros: micros(lifetimes.poll_interval),
            reread_micros: lifetimes.reread_after.map(micros),
        };
        Self {
            entries: Entries::new(),
            faults: Faults::new(serving.interval_micros),
            status: Mutex::new(Status::new()),
            serving,
            staleness_micros: micros(lifetimes.max_staleness),
            generation: AtomicU64::new(Status::new().generation().as_number()),
            in_touch_until: AtomicU64::new(0),
        }
    }

    /// The agent's profile, if it may still be used.
    pub(super) fn get(&self, agent: AgentId, now_micros: u64) -> Option<Arc<TrustProfile>> {
        // Read before the entry: what a drop removes after this was right when the request came.
        let (generation, in_touch_until) =
            (self.generation.load(Ordering::Acquire), self.in_touch_until.load(Ordering::Acquire));
        let Entry::Read { profile, reading, .. } = self.entries.get(agent)? else { return None };
        self.serving.serves(&reading, generation, in_touch_until, now_micros).then_some(profile)
    }

    /// Who owned the agent when it was last read. Says who waits, not who may pass.
    pub(super) fn last_owner(&self, agent: AgentId) -> Option<Address> {
        // Strangers ask too: that does not make an entry worth keeping.
        self.entries.peek(agent).map(|entry| owner_of(&entry))
    }

    /// How to read an agent now. Taken before the read begins.
    pub(super) fn begin(&self, agent: AgentId, now_micros: u64) -> Ticket {
        let status = self.status.lock();
        status.begin(self.entries.peek(agent).as_ref(), now_micros)
    }

    /// The ticket of a read at the latest block.
    pub(super) fn begin_latest(&self) -> Ticket {
        self.status.lock().begin::<()>(None, 0)
    }

    /// Keeps what was read at this block with this ticket, unless something was dropped meanwhile or newer is there.
    pub(super) fn keep(
        &self,
        agent: AgentId,
        ticket: &Ticket,
        (profile, block): (&Arc<TrustProfile>, u64),
        began_micros: u64,
    ) {
        let status = self.status.lock();
        let entry = self.entries.peek(agent);
        if status.may_keep(ticket, block, !profile.organizations.is_empty(), entry.as_ref()) {
            let reading = status.reading(ticket, began_micros);
            self.entries.insert(agent, Entry::Read { profile: Arc::clone(profile), block, reading });
        }
    }

    /// Remembers for one interval that the agent can't be read because of what the chain holds of it.
    pub(super) fn keep_fault(&self, agent: AgentId, fault: &ChainFault, now_micros: u64) {
        self.faults.keep(agent, fault, self.generation.load(Ordering::Acquire), now_micros);
    }

    /// Why the agent can't be read, if that was found out just now.
    pub(super) fn fault(&self, agent: AgentId, now_micros: u64) -> Option<ChainFault> {
        self.faults.get(agent, self.generation.load(Ordering::Acquire), now_micros)
    }

    /// Forgets an agent that does not exist.
    pub(super) fn forget(&self, agent: AgentId) {
        let _status = self.status.lock();
        self.entries.remove(agent);
    }

    /// The follower has accounted for the logs up to a block.
    pub(super) fn advance(&self, block: Block, drops: &Drops) {
        let mut status = self.status.lock();
        status.advance(block, !drops.organizations.is_empty(), drops.everybody.is_some());
        let members = self.entries.members(drops.organizations.iter());
        for agent in drops.agents.iter().chain(&members) {
            self.faults.forget(*agent);
            // Nothing is put where nothing was: logs name many agents that nobody asks about.
            if let Some(entry) = self.entries.peek(*agent) {
                self.entries.insert(*agent, status.dropped(&entry, owner_of(&entry)));
            }
        }
        if !drops.organizations.is_empty() {
            self.faults.clear();
        }
        self.publish(&status);
    }

    /// The followed block was the head at a poll that began then.
    pub(super) fn confirm(&self, asked_micros: u64) {
        self.change(|status| status.confirm(asked_micros, self.staleness_micros));
    }

    /// The follower begins anew at a block: nothing that was kept before serves.
    pub(super) fn restart(&self, block: Block) {
        self.change(|status| status.restart(block));
    }

    /// The follower can't follow: nothing serves on its word until it begins anew.
    pub(super) fn lose_touch(&self) {
        self.change(Status::lose_touch);
    }

    fn change(&self, change: impl FnOnce(&mut Status)) {
        let mut status = self.status.lock();
        change(&mut status);
        self.publish(&status);
    }

    fn publish(&self, status: &Status) {
        self.generation.store(status.generation().as_number(), Ordering::Release);
        self.in_touch_until.store(status.in_touch_until(), Ordering::Release);
    }

    /// How many agents are known.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

fn owner_of(entry: &CachedEntry) -> Address {
    match entry {
        Entry::Read { profile, .. } => profile.owner,
        Entry::Dropped { owner, .. } => *owner,
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
