//! Profiles that were read before, for as long as the follower vouches for them. Only agents that exist are kept: what a
//! stranger names allocates nothing.
//!
//! A profile is kept in one of two ways. Read at the followed block, it serves until a log drops it, and only while the
//! follower is in touch. Read at the latest block, it serves for one poll interval, and only until a poll that began
//! after it has ended: from then on the followed block says as much, and is read.

mod entries;
mod faults;
mod ground;
mod weight;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use alloy::primitives::Address;

pub(super) use crate::chain::cache::ground::Ticket;

use crate::chain::cache::entries::Entries;
use crate::chain::cache::faults::Faults;
use crate::chain::cache::ground::Ground;
use crate::chain::follower::events::Drops;
use crate::chain::rpc::lead::BlockMark;
use crate::domain::agent_id::AgentId;
use crate::domain::profile::TrustProfile;
use crate::ports::chain::ChainFault;

/// For how long a profile serves that no log ever dropped, in microseconds: what a registry changes without a log shows
/// after this at the latest.
const BACKSTOP_MICROS: u64 = 600_000_000;

/// How long profiles serve.
#[derive(Debug, Clone, Copy)]
pub struct Lifetimes {
    /// One that was read at the latest block.
    pub poll_interval: Duration,
    /// How long the follower may be silent before nothing is served on its word.
    pub max_staleness: Duration,
}

/// Profiles by agent.
pub(super) struct ProfileCache {
    entries: Entries,
    faults: Faults,
    ground: Ground,
    interval_micros: u64,
    staleness_micros: u64,
    /// When what the follower knows becomes too old; zero while it knows nothing.
    in_touch_until: AtomicU64,
    /// One more than when the last poll that confirmed a head began; zero before the first.
    confirmed_at: AtomicU64,
}

/// What is known of an agent.
#[derive(Clone)]
enum Entry {
    /// A profile. Boxed away, so that what was dropped weighs little.
    Read(Arc<TrustProfile>, Reading),
    /// It exists, or did: its profile is no longer to be trusted. Whose it was, and when the last read at the latest
    /// block ended, in microseconds; zero when there was none.
    Dropped { owner: Address, latest_micros: u64 },
}

impl Entry {
    /// When the last read at the latest block ended, in microseconds; zero when there was none.
    const fn latest(&self) -> u64 {
        match self {
            Self::Read(_, Reading { from: Source::Latest, ended_micros, .. }) => *ended_micros,
            Self::Read(_, Reading { from: Source::Followed, .. }) => 0,
            Self::Dropped { latest_micros, .. } => *latest_micros,
        }
    }

    /// Who owned the agent when it was read last.
    fn owner(&self) -> Address {
        match self {
            Self::Read(profile, _) => profile.owner,
            Self::Dropped { owner, .. } => *owner,
        }
    }
}

/// How a profile was read.
#[derive(Clone, Copy)]
struct Reading {
    from: Source,
    generation: u64,
    began_micros: u64,
    ended_micros: u64,
}

/// Which block a profile was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// The block that the follower had accounted for.
    Followed,
    /// The newest one, whichever that was.
    Latest,
}

/// How the agent's profile is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plan {
    /// At this block.
    Pinned(BlockMark),
    /// At the latest block.
    Latest,
}

impl ProfileCache {
    /// An empty cache.
    pub(super) fn new(lifetimes: Lifetimes) -> Self {
        Self {
            entries: Entries::new(),
            faults: Faults::new(micros(lifetimes.poll_interval)),
            ground: Ground::new(),
            interval_micros: micros(lifetimes.poll_interval),
            staleness_micros: micros(lifetimes.max_staleness),
            in_touch_until: AtomicU64::new(0),
            confirmed_at: AtomicU64::new(0),
        }
    }

    /// The agent's profile, if it may still be used.
    pub(super) fn get(&self, agent: AgentId, now_micros: u64) -> Option<Arc<TrustProfile>> {
        let Entry::Read(profile, reading) = self.entries.get(agent)? else { return None };
        self.serves(&reading, now_micros).then_some(profile)
    }

    /// Who owned the agent when it was read last, if it was seen not long ago. Says who waits, not who may pass.
    pub(super) fn last_owner(&self, agent: AgentId) -> Option<Address> {
        // Strangers ask too: what they ask for does not become worth keeping by it.
        self.entries.peek(agent).map(|entry| entry.owner())
    }

    /// True while the follower vouches for what was read at its block.
    pub(super) fn is_in_touch(&self, now_micros: u64) -> bool {
        now_micros < self.in_touch_until.load(Ordering::Acquire)
    }

    /// How to read an agent's profile now, and the ticket with which it may be kept. Taken before the read begins.
    pub(super) fn begin(&self, agent: AgentId, now_micros: u64) -> (Plan, Ticket) {
        // What was served last may have been read at the latest block, or nothing was: the followed one may be older
        // still. Looked at before the followed block is, which then is no older than what confirms it.
        let is_due = self.entries.peek(agent).is_some_and(|entry| self.is_confirmed_since(entry.latest()));
        let (followed, ticket) = self.ground.begin(agent);
        let plan = match followed {
            Some(block) if is_due && self.is_in_touch(now_micros) => Plan::Pinned(block),
            Some(_) | None => Plan::Latest,
        };
        (plan, ticket)
    }

    /// Keeps what was read with a ticket, unless its agent was dropped meanwhile.
    pub(super) fn keep(
        &self,
        ticket: &Ticket,
        profile: &Arc<TrustProfile>,
        from: Source,
        (began_micros, ended_micros): (u64, u64),
    ) -> bool {
        self.ground.keep(ticket, profile, |generation| {
            let reading = Reading { from, generation, began_micros, ended_micros };
            self.entries.insert(ticket.agent, Entry::Read(Arc::clone(profile), reading));
        })
    }

    /// Remembers for one interval that the agent can't be read, by what the chain holds of it.
    pub(super) fn keep_fault(&self, ticket: &Ticket, fault: &ChainFault, now_micros: u64) {
        self.faults.keep(ticket, fault, now_micros);
    }

    /// Why the agent can't be read, if that was found out just now.
    pub(super) fn fault(&self, agent: AgentId, now_micros: u64) -> Option<ChainFault> {
        self.faults.get(agent, &self.ground, now_micros)
    }

    /// Forgets an agent that does not exist.
    pub(super) fn forget(&self, agent: AgentId) {
        self.entries.remove(agent);
    }

    /// The follower has accounted for everything up to a block, by a poll that began at `asked_micros`.
    pub(super) fn advance(&self, head: BlockMark, drops: &Drops, asked_micros: u64) {
        let remove = || {
            for agent in &drops.agents {
                self.drop_agent(*agent);
            }
            if !drops.organizations.is_empty() {
                self.drop_members(drops);
            }
        };
        self.ground.change(remove, |turn| {
            turn.follow(head);
            for agent in &drops.agents {
                turn.agent(*agent);
            }
            if !drops.organizations.is_empty() {
                turn.organizations();
            }
            if drops.everybody.is_some() {
                turn.everybody();
            }
        });
        self.confirm(asked_micros);
    }

    /// The follower begins anew at a block: nothing that was kept before serves.
    pub(super) fn restart(&self, head: BlockMark, asked_micros: u64) {
        self.ground.change(
            || (),
            |turn| {
                turn.follow(head);
                turn.everybody();
            },
        );
        self.confirm(asked_micros);
    }

    /// The follower can't follow: nothing serves on its word until it begins anew.
    pub(super) fn lose_touch(&self) {
        self.in_touch_until.store(0, Ordering::Release);
        self.ground.change(|| (), |turn| turn.everybody());
    }

    /// How many agents are known.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Comes after what is dropped: until then the word of the poll before counts.
    fn confirm(&self, asked_micros: u64) {
        self.confirmed_at.store(asked_micros.saturating_add(1), Ordering::Release);
        self.in_touch_until.store(asked_micros.saturating_add(self.staleness_micros), Ordering::Release);
    }

    fn serves(&self, reading: &Reading, now_micros: u64) -> bool {
        let age = now_micros.saturating_sub(reading.began_micros);
        let serves = match reading.from {
            Source::Followed => age < backstop_micros(reading) && self.is_in_touch(now_micros),
            Source::Latest => age < self.interval_micros && !self.is_confirmed_since(reading.ended_micros),
        };
        serves && reading.generation == self.ground.generation()
    }

    /// True when a poll confirmed a head that is no older than what a read saw that ended then.
    fn is_confirmed_since(&self, ended_micros: u64) -> bool {
        self.confirmed_at.load(Ordering::Acquire) > ended_micros
    }

    /// The agent stays known.
    fn drop_agent(&self, agent: AgentId) {
        // Nothing is put where nothing was: logs name many agents that nobody asks about.
        if let Some(entry) = self.entries.peek(agent) {
            let dropped = Entry::Dropped { owner: entry.owner(), latest_micros: entry.latest() };
            self.entries.replace(agent, dropped);
        }
    }

    /// One walk over everything that is cached, whatever the number of organizations.
    fn drop_members(&self, drops: &Drops) {
        let is_member = |profile: &TrustProfile| {
            profile.organizations.iter().any(|of| drops.organizations.contains(&of.org_id))
        };
        let members: Vec<AgentId> = self
            .entries
            .iter()
            .filter(|(_, entry)| match entry {
                Entry::Read(profile, _) => is_member(profile),
                Entry::Dropped { .. } => false,
            })
            .map(|(agent, _)| agent)
            .collect();
        for agent in members {
            self.drop_agent(agent);
        }
    }
}

/// What was read within one moment does not have to be read anew within one.
const fn backstop_micros(reading: &Reading) -> u64 {
    let spread = reading.began_micros.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    BACKSTOP_MICROS - spread % (BACKSTOP_MICROS / 4)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
