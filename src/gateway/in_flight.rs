//! Requests under way are bounded: in the process, of a tenant, of each agent, and of clients without a credential on public
//! routes.
//!
//! One law holds at each level: a newcomer gets a slot only while its owner holds fewer than [`SHARE`] times as many as are
//! free. A tenant owns slots of the process; an agent, or the network of a client without a credential, slots of a tenant. So one
//! greedy owner ends at three quarters, whatever the caps are, and slots are always left for others.
//!
//! A request that finds its tenant at its cap waits for a short time in a queue of bounded length, clients without a credential
//! in one of their own. It counts as its owner's meanwhile, so a greedy owner does not fill the queue either.

use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, atomic::Ordering::SeqCst};
use std::time::Duration;

use tokio::sync::{Mutex, Notify};
use tokio::time::timeout;

use crate::domain::{AgentId, ClientNet, InFlight};
use crate::sharded::{Counted, Counts, SHARE};

/// The slots of the process.
pub(crate) struct InFlightLimits {
    max: u32,
    taken: Arc<AtomicU32>,
    /// Requests with a signature that is being looked at. They have no slot yet.
    verifying: Arc<AtomicU32>,
    owners: Arc<Counts<Owner>>,
}

/// The slots of one tenant that are taken. Outlives reloads.
#[derive(Default)]
pub(super) struct TenantInFlight {
    /// The lower half counts all, the upper half clients without a credential: one of them takes both in one step, or neither.
    taken: AtomicU64,
    agents: WaitQueue,
    clients: WaitQueue,
}

/// The caller of a request, as slots are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Caller {
    /// An agent's request.
    Agent(AgentId),
    /// An agent's request for a stream: its answer lasts.
    Stream(AgentId),
    /// A request to a public route.
    Client(ClientNet),
}

/// A slot for one request, given back when it is dropped.
pub(super) struct RequestSlot {
    // Dropped in this order: a request that waits for the tenant's slot finds the process's free.
    _process: Place,
    _owner: Counted<Owner>,
    _tenant: TenantSlot,
}

/// The limit that left no slot. Metrics name it by its variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(super) enum AtLimit {
    /// The agent's own cap.
    Agent { max: u32 },
    /// The agent's own cap on streams.
    Streams { max: u32 },
    /// The share of an agent or a network, in a tenant that is almost full.
    Share,
    /// The tenant's cap on clients without a credential.
    Public,
    /// The tenant's cap.
    Tenant,
    /// The process's cap, or the tenant's share of it.
    Process,
}

/// A caller of one tenant. The address of its counts tells tenants apart: a slot keeps it in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Owner {
    tenant: usize,
    caller: Caller,
}

/// One that is counted until it is dropped.
pub(crate) struct Place(Arc<AtomicU32>);

struct TenantSlot {
    tenant: Arc<TenantInFlight>,
    /// The part that it adds to the slots that are taken.
    part: u64,
}

/// A request that both halves of a count have, and one that the lower half alone has.
const BOTH: u64 = (1 << 32) | ONE;
const ONE: u64 = 1;

impl InFlightLimits {
    /// Limits of a process with so many slots.
    pub(crate) fn new(max: u32) -> Self {
        Self { max, taken: Arc::default(), verifying: Arc::default(), owners: Arc::default() }
    }

    /// Leave for a request of this network to wait for what a node says of its signature. As many may wait as there are slots, by
    /// the same law.
    pub(super) fn begin_verification(&self, network: ClientNet) -> Result<(Place, Counted<Owner>), AtLimit> {
        let free = self.max.saturating_sub(self.verifying.load(SeqCst));
        // No tenant's: nothing is at this address.
        let owner = Owner { tenant: 0, caller: Caller::Client(network) };
        let owner = self.owners.take(owner, share_of(free)).ok_or(AtLimit::Share)?;
        let place = Place::take(&self.verifying, self.max).ok_or(AtLimit::Process)?;
        Ok((place, owner))
    }

    /// A slot for a request of this caller at a tenant, with its limits.
    pub(super) async fn acquire(
        &self,
        tenant: &Arc<TenantInFlight>,
        limits: &InFlight,
        caller: Caller,
    ) -> Result<RequestSlot, AtLimit> {
        let owner = self.count(tenant, limits, caller)?;
        let is_public = matches!(caller, Caller::Client(_));
        let queue = if is_public { &tenant.clients } else { &tenant.agents };
        let take = || tenant.take_any(limits, is_public);
        let tenant_slot = queue.take(limits.queue_max, limits.queue_time, take).await.ok_or_else(|| {
            let (_, public) = halves(tenant.taken.load(SeqCst));
            if is_public && public >= limits.public { AtLimit::Public } else { AtLimit::Tenant }
        })?;
        let tenant_taken = tenant.taken();
        let free = self.max.saturating_sub(self.taken.load(SeqCst));
        // The tenant's own slot is counted already.
        if tenant_taken > share_of(free) {
            return Err(AtLimit::Process);
        }
        let process = Place::take(&self.taken, self.max).ok_or(AtLimit::Process)?;
        Ok(RequestSlot { _process: process, _tenant: tenant_slot, _owner: owner })
    }

    /// Counts one more request of its owner.
    fn count(
        &self,
        tenant: &Arc<TenantInFlight>,
        limits: &InFlight,
        caller: Caller,
    ) -> Result<Counted<Owner>, AtLimit> {
        let (all, public) = halves(tenant.taken.load(SeqCst));
        let free = limits.all.saturating_sub(all);
        let (caller, part, free, max) = match caller {
            Caller::Agent(_) => (caller, ONE, free, limits.per_agent),
            // Its agent's as any other request: two owners would have two shares.
            Caller::Stream(agent) => (Caller::Agent(agent), BOTH, free, limits.streams_per_agent),
            Caller::Client(_) => (caller, ONE, free.min(limits.public.saturating_sub(public)), u32::MAX),
        };
        let owner = Owner { tenant: Arc::as_ptr(tenant).addr(), caller };
        self.owners.take_part(owner, part, |held| match halves(held) {
            (_, streams) if part == BOTH && streams >= max => Err(AtLimit::Streams { max }),
            (held, streams) if part == ONE && held - streams >= max => Err(AtLimit::Agent { max }),
            (held, _) if held >= share_of(free) => Err(AtLimit::Share),
            _ => Ok(()),
        })
    }
}

impl TenantInFlight {
    /// How many requests have a slot.
    pub(super) fn taken(&self) -> u32 {
        halves(self.taken.load(SeqCst)).0
    }

    /// A slot, if there is one.
    fn take_any(self: &Arc<Self>, limits: &InFlight, is_public: bool) -> Option<TenantSlot> {
        let part = if is_public { BOTH } else { ONE };
        let with_one_more = |taken| {
            let (all, public) = halves(taken);
            let has_room = all < limits.all && (!is_public || public < limits.public);
            has_room.then_some(taken + part)
        };
        self.taken.fetch_update(SeqCst, SeqCst, with_one_more).ok()?;
        Some(TenantSlot { tenant: Arc::clone(self), part })
    }
}

impl Place {
    /// One more of this count, unless there are `max`.
    pub(super) fn take(count: &Arc<AtomicU32>, max: u32) -> Option<Self> {
        increment_below(count, max).then(|| Self(Arc::clone(count)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Drop for TenantSlot {
    fn drop(&mut self) {
        let tenant = &self.tenant;
        tenant.taken.fetch_sub(self.part, SeqCst);
        for queue in [&tenant.agents, &tenant.clients] {
            queue.freed();
        }
    }
}

/// The lower and the upper half.
const fn halves(number: u64) -> (u32, u32) {
    (number as u32, (number >> 32) as u32)
}

/// The most that one owner may hold for a newcomer to get a slot, where so many are free. Without any free one it may wait.
const fn share_of(free: u32) -> u32 {
    SHARE.saturating_mul(if free == 0 { 1 } else { free })
}

/// A queue for slots that are counted elsewhere.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    waiting: Arc<AtomicU32>,
    first: Mutex<()>,
    freed: Notify,
}

impl WaitQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.load(SeqCst) == 0
    }

    /// A slot was given back.
    pub(super) fn freed(&self) {
        if !self.is_empty() {
            self.freed.notify_one();
        }
    }

    /// A slot: at once if there is one and nobody waits, else the one that comes free when it is this request's turn; `None` if `most`
    /// wait already, or after so long. `take` must leave everything as it was when it finds no slot.
    pub(super) async fn take<T>(
        &self,
        most: u32,
        longest: Duration,
        take: impl Fn() -> Option<T>,
    ) -> Option<T> {
        if self.is_empty()
            && let Some(slot) = take()
        {
            return Some(slot);
        }
        // Boxed: a request that finds a slot carries none for the wait along.
        Box::pin(self.wait(most, longest, take)).await
    }

    /// `take` runs once for each slot that comes free.
    async fn wait<T>(&self, most: u32, longest: Duration, take: impl Fn() -> Option<T>) -> Option<T> {
        let _waiting = Place::take(&self.waiting, most)?;
        let slot = async {
            let _first = self.first.lock().await;
            loop {
                if let Some(slot) = take() {
                    return slot;
                }
                self.freed.notified().await;
            }
        };
        timeout(longest, slot).await.ok()
    }
}

/// Counts one more, unless there are `max`.
pub(super) fn increment_below(count: &AtomicU32, max: u32) -> bool {
    count.fetch_update(SeqCst, SeqCst, |taken| (taken < max).then_some(taken + 1)).is_ok()
}

#[cfg(test)]
mod tests;
