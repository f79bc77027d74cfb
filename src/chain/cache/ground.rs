//! What a read stands on: the followed block, and how often its agent was dropped. A read that lost its ground while it
//! was under way is not kept.
//!
//! Whoever drops holds the lock for itself, whoever begins or keeps a read shares it: so of each pair one is wholly
//! before the other. Hits do not come here.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::chain::rpc::lead::BlockMark;
use crate::domain::agent_id::AgentId;
use crate::domain::profile::TrustProfile;

/// Agents that share a counter are dropped together, as far as reads under way are concerned. Which do can't be foreseen
/// from outside.
const COUNTERS: usize = 1_024;

pub(super) struct Ground {
    state: RwLock<State>,
    /// How often everything was dropped. Beside the lock, so that a hit needs none.
    generation: AtomicU64,
    hasher: RandomState,
}

struct State {
    followed: Option<BlockMark>,
    /// How often agents were dropped, by a hash of theirs.
    agents: Vec<u64>,
    /// How often the members of some organization were dropped.
    organizations: u64,
}

/// What a read stood on when it began.
#[derive(Debug, Clone, Copy)]
pub(in crate::chain) struct Ticket {
    pub(super) agent: AgentId,
    generation: u64,
    dropped: u64,
    organizations: u64,
}

impl Ticket {
    pub(in crate::chain) const fn agent(&self) -> AgentId {
        self.agent
    }
}

/// The ground while it changes.
pub(super) struct Turn<'a> {
    ground: &'a Ground,
    state: &'a mut State,
}

impl Ground {
    pub(super) fn new() -> Self {
        let state = State { followed: None, agents: vec![0; COUNTERS], organizations: 0 };
        Self { state: RwLock::new(state), generation: AtomicU64::new(0), hasher: RandomState::new() }
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The followed block, and the ticket of a read that begins now.
    pub(super) fn begin(&self, agent: AgentId) -> (Option<BlockMark>, Ticket) {
        let state = self.state.read();
        let ticket = Ticket {
            agent,
            generation: self.generation(),
            dropped: self.count(&state, agent),
            organizations: state.organizations,
        };
        (state.followed, ticket)
    }

    /// True while nothing was dropped since that may concern a read of which nothing more is known than its ticket.
    pub(super) fn stands(&self, ticket: &Ticket) -> bool {
        let state = self.state.read();
        self.is_same(&state, ticket) && ticket.organizations == state.organizations
    }

    /// Calls `insert` with the generation of what is kept, unless a drop came after the ticket was taken.
    pub(super) fn keep(&self, ticket: &Ticket, profile: &TrustProfile, insert: impl FnOnce(u64)) -> bool {
        let state = self.state.read();
        let stands = self.is_same(&state, ticket)
            // Which organizations a profile lists is known only once it was read.
            && (profile.organizations.is_empty() || ticket.organizations == state.organizations);
        if stands {
            insert(ticket.generation);
        }
        stands
    }

    /// Changes the ground and calls `remove`, with no read beginning or being kept in between.
    pub(super) fn change(&self, remove: impl FnOnce(), change: impl FnOnce(&mut Turn<'_>)) {
        let mut state = self.state.write();
        change(&mut Turn { ground: self, state: &mut state });
        remove();
    }

    fn is_same(&self, state: &State, ticket: &Ticket) -> bool {
        ticket.generation == self.generation() && ticket.dropped == self.count(state, ticket.agent)
    }

    /// Which counter is the agent's.
    pub(super) fn place(&self, agent: AgentId) -> usize {
        (self.hasher.hash_one(agent) as usize) % COUNTERS
    }

    fn count(&self, state: &State, agent: AgentId) -> u64 {
        state.agents.get(self.place(agent)).copied().unwrap_or_default()
    }
}

impl Turn<'_> {
    pub(super) const fn follow(&mut self, block: BlockMark) {
        self.state.followed = Some(block);
    }

    pub(super) fn agent(&mut self, agent: AgentId) {
        if let Some(count) = self.state.agents.get_mut(self.ground.place(agent)) {
            *count += 1;
        }
    }

    pub(super) const fn organizations(&mut self) {
        self.state.organizations += 1;
    }

    pub(super) fn everybody(&mut self) {
        self.ground.generation.fetch_add(1, Ordering::AcqRel);
    }
}
