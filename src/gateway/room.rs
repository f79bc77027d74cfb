//! Requests under way are bounded: in the process, of a tenant, and of each agent, and of strangers on public routes.
//!
//! One law holds at each level: a newcomer gets a place only while its owner holds fewer than [`SHARE`] times as many as are
//! free. A tenant owns places of the process; an agent, or a stranger's network, places of a tenant. So one greedy owner ends
//! at three quarters, whatever the caps are, and places are always left for others.
//!
//! A request that finds its tenant full waits for a short time in a line of bounded length, strangers in one of their own. It
//! counts as its owner's meanwhile, so a greedy owner does not fill the line either.

use std::sync::atomic::{AtomicU32, AtomicU64};
use std::{sync::Arc, sync::atomic::Ordering::SeqCst};

use crate::domain::{AgentId, ClientNet, InFlight};
use crate::gateway::line::{Line, take_one};
use crate::sharded::{Counted, Counts, SHARE};

/// The places of the process.
pub(crate) struct Room {
    max: u32,
    taken: AtomicU32,
    /// Requests with a signature that is being looked at. They have no place yet.
    asking: AtomicU32,
    owners: Arc<Counts<Owner>>,
}

/// The places of one tenant that are taken. Outlives reloads.
#[derive(Default)]
pub(super) struct TenantRoom {
    /// All of them in the lower half, those of strangers in the upper half: a stranger takes both in one step, or neither.
    taken: AtomicU64,
    agents: Line,
    strangers: Line,
}

/// The caller of a request, as places are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Guest {
    /// An agent's request.
    Agent(AgentId),
    /// An agent's request for a stream: its answer lasts.
    Stream(AgentId),
    /// A request to a public route.
    Stranger(ClientNet),
}

/// Leave for a request to wait for what a node says of its signature.
pub(super) struct Asking {
    room: Arc<Room>,
    _owner: Counted<Owner>,
}

/// A place for one request, given back when it is dropped.
pub(super) struct Place {
    // Dropped in this order: a request that waits for the tenant's place finds the process's free.
    _process: ProcessPlace,
    _owner: Counted<Owner>,
    _tenant: TenantPlace,
}

/// The limit that left no place. Metrics name it by its variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(super) enum Full {
    /// The agent's own cap.
    Agent { max: u32 },
    /// The agent's own cap on streams.
    Streams { max: u32 },
    /// The share of an agent or a network, in a tenant that is almost full.
    Share,
    /// The tenant's cap on strangers.
    Public,
    /// The tenant's cap.
    Tenant,
    /// The process's cap, or the tenant's share of it.
    Process,
}

/// A guest of one tenant. The address of its room tells tenants apart: a place keeps it in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Owner {
    room: usize,
    guest: Guest,
}

struct ProcessPlace(Arc<Room>);

struct TenantPlace {
    room: Arc<TenantRoom>,
    /// What it adds to the places that are taken.
    part: u64,
}

const OF_AGENT: u64 = 1;
const OF_STRANGER: u64 = (1 << 32) | OF_AGENT;

impl Room {
    /// Room for so many requests.
    pub(crate) fn new(max: u32) -> Self {
        Self { max, taken: AtomicU32::new(0), asking: AtomicU32::new(0), owners: Arc::default() }
    }

    /// Leave for a request of this network to wait until its signature has been looked at. As many may wait as there are
    /// places, by the same law.
    pub(super) fn ask(self: &Arc<Self>, network: ClientNet) -> Result<Asking, Full> {
        let free = self.max.saturating_sub(self.asking.load(SeqCst));
        // No tenant's: nothing is at this address.
        let owner = Owner { room: 0, guest: Guest::Stranger(network) };
        let owner = self.owners.take(owner, share_of(free)).ok_or(Full::Share)?;
        if !take_one(&self.asking, self.max) {
            return Err(Full::Process);
        }
        Ok(Asking { room: Arc::clone(self), _owner: owner })
    }

    /// A place for a request of this guest at a tenant, with its limits.
    pub(super) async fn enter(
        self: &Arc<Self>,
        tenant: &Arc<TenantRoom>,
        limits: &InFlight,
        guest: Guest,
    ) -> Result<Place, Full> {
        let owner = self.count(tenant, limits, guest)?;
        let is_public = matches!(guest, Guest::Stranger(_));
        let is_first = tenant.line(is_public).is_empty();
        let of_tenant = match is_first.then(|| tenant.take_any(limits, is_public)).flatten() {
            Some(place) => place,
            // Boxed: a request that finds room carries none for the wait along.
            None => Box::pin(tenant.wait(limits, is_public)).await?,
        };
        let of_tenants = tenant.taken();
        let free = self.max.saturating_sub(self.taken.load(SeqCst));
        // The tenant's own place is counted already.
        if of_tenants > share_of(free) || !take_one(&self.taken, self.max) {
            return Err(Full::Process);
        }
        Ok(Place { _process: ProcessPlace(Arc::clone(self)), _tenant: of_tenant, _owner: owner })
    }

    /// Counts one more request of its owner.
    fn count(
        &self,
        tenant: &Arc<TenantRoom>,
        limits: &InFlight,
        guest: Guest,
    ) -> Result<Counted<Owner>, Full> {
        let (all, public) = halves(tenant.taken.load(SeqCst));
        let free = limits.all.saturating_sub(all);
        let (share, max, full) = match guest {
            Guest::Agent(_) => (share_of(free), limits.per_agent, Full::Agent { max: limits.per_agent }),
            Guest::Stream(_) => {
                let max = limits.streams_per_agent;
                (share_of(free), max, Full::Streams { max })
            }
            Guest::Stranger(_) => {
                (share_of(free.min(limits.public.saturating_sub(public))), u32::MAX, Full::Share)
            }
        };
        let owner = Owner { room: Arc::as_ptr(tenant).addr(), guest };
        self.owners.take(owner, max.min(share)).ok_or(if share < max { Full::Share } else { full })
    }
}

impl TenantRoom {
    /// How many requests have a place.
    pub(super) fn taken(&self) -> u32 {
        halves(self.taken.load(SeqCst)).0
    }

    fn line(&self, is_public: bool) -> &Line {
        if is_public { &self.strangers } else { &self.agents }
    }

    /// A place, if there is one.
    fn take_any(self: &Arc<Self>, limits: &InFlight, is_public: bool) -> Option<TenantPlace> {
        let part = if is_public { OF_STRANGER } else { OF_AGENT };
        let with_one_more = |taken| {
            let (all, public) = halves(taken);
            let has_room = all < limits.all && (!is_public || public < limits.public);
            has_room.then_some(taken + part)
        };
        self.taken.fetch_update(SeqCst, SeqCst, with_one_more).ok()?;
        Some(TenantPlace { room: Arc::clone(self), part })
    }

    /// The place that comes free when it is this request's turn.
    async fn wait(self: &Arc<Self>, limits: &InFlight, is_public: bool) -> Result<TenantPlace, Full> {
        let line = self.line(is_public);
        let (_, public) = halves(self.taken.load(SeqCst));
        let full = if is_public && public >= limits.public { Full::Public } else { Full::Tenant };
        let place = line.wait(limits.queue_max, limits.queue_time, || self.take_any(limits, is_public));
        place.await.ok_or(full)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.room.asking.fetch_sub(1, SeqCst);
    }
}

impl Drop for ProcessPlace {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, SeqCst);
    }
}

impl Drop for TenantPlace {
    fn drop(&mut self) {
        let room = &self.room;
        room.taken.fetch_sub(self.part, SeqCst);
        for line in [&room.agents, &room.strangers] {
            line.freed();
        }
    }
}

/// The lower and the upper half.
const fn halves(number: u64) -> (u32, u32) {
    (number as u32, (number >> 32) as u32)
}

/// The most that one owner may hold for a newcomer to get a place, where so many are free. Without any free one it may wait.
const fn share_of(free: u32) -> u32 {
    SHARE.saturating_mul(if free == 0 { 1 } else { free })
}

#[cfg(test)]
mod tests;
