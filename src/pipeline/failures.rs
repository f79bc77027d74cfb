//! How many bad credentials one client may try (design: abuse limit). Protects RPC calls and look-ups in a server from
//! clients without a good one. A good credential passes, however many bad ones its client has sent: clients behind
//! one address can't lock each other out. One exception: a key that this process has not seen waits for its look-up beside the
//! bad ones of its client, and gets 429 where a slow store makes that line too long.
//!
//! Counted per process, not in the shared store: it protects this process's own work, and must cost no round trip.
//! Memory is bounded; when it is full the least used counts are forgotten.
//! A request counts when it has been refused: those under way at once may exceed the budget by their number. Signatures
//! that may cost a contract's answer are counted more strictly: see [`ReservedFailure`].

use std::fmt::{self, Formatter};
use std::{sync::Arc, time::Duration};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::domain::{AgentId, Allowance, ClientNet, Denial, Quota, RetryAfter, Verdict};
use crate::error::Error;
use crate::ports::Clock;
use crate::sharded::{Counted, Counts, Meters, SHARE};

/// The most clients that are remembered.
pub(super) const CLIENTS_MAX: usize = 65_536;

/// How many keys of clients over budget are looked up at once. Others wait in the order in which they came.
pub(super) const LOOK_UPS_MAX: usize = 32;

/// How many revocations of clients over budget have the agent's owner read at once: half of what strangers have.
pub(super) const OWNERS_MAX: usize = 16;

/// How many of both wait at most, of one network a share.
pub(super) const WAITING_MAX: usize = 4_096;

/// How long they wait.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(5);

/// The budget of refused credentials per client.
pub(crate) struct FailureBudget {
    limit: Option<Quota>,
    pub(super) clients: Meters<ClientNet>,
    reservations: Arc<Counts<ClientNet>>,
    look_ups: Semaphore,
    pub(super) owners: Semaphore,
    waiting: Semaphore,
    waiters: Arc<Counts<ClientNet>>,
    clock: Arc<dyn Clock>,
}

/// One of a client's refused credentials, taken in advance. It is given back if the request is admitted or a fault of ours
/// ends it, and counts otherwise: a contract that accepts everything costs calls without end if its agent is then refused
/// for its tier. No contract brings a fault about to be asked for nothing: it has less gas than a node's time limit is worth, and
/// one that burns it all has refused.
pub(super) struct ReservedFailure {
    budget: Arc<FailureBudget>,
    client: ClientNet,
    quota: Quota,
    is_given_back: bool,
    /// Free only after the failure has been counted.
    _place: Counted<ClientNet>,
}

impl FailureBudget {
    /// So many refused credentials per client; nothing: no limit.
    pub(crate) fn new(limit: Option<Quota>, clock: Arc<dyn Clock>) -> Self {
        Self {
            limit,
            clients: Meters::new(CLIENTS_MAX),
            reservations: Arc::default(),
            look_ups: Semaphore::new(LOOK_UPS_MAX),
            owners: Semaphore::new(OWNERS_MAX),
            waiting: Semaphore::new(WAITING_MAX),
            waiters: Arc::default(),
            clock,
        }
    }

    /// Denies a client whose budget is used up.
    pub(super) fn check(&self, client: ClientNet, agent: Option<AgentId>) -> Result<(), Denial> {
        let Some(quota) = self.limit else { return Ok(()) };
        self.left(client, agent, quota).map(drop)
    }

    /// How many more refused credentials the client may send; those under way are not counted.
    fn left(&self, client: ClientNet, agent: Option<AgentId>, quota: Quota) -> Result<u32, Denial> {
        let verdict = self.clients.peek(&client, quota, || self.clock.monotonic_micros());
        allowance(quota, agent, verdict).map(|allowance| allowance.remaining.saturating_add(1))
    }

    /// Reserves a failure, if there is a limit. Denies a client that has as many under way as its budget has left: looked up
    /// and taken in one step, so that none is counted in between.
    pub(super) fn reserve(
        self: &Arc<Self>,
        client: ClientNet,
        agent: AgentId,
    ) -> Result<Option<Box<ReservedFailure>>, Denial> {
        let Some(quota) = self.limit else { return Ok(None) };
        let mut spent = None;
        let left =
            || self.left(client, Some(agent), quota).map_err(|denial| spent = Some(denial)).unwrap_or(0);
        let place = self.reservations.take_below(client, left);
        let place = place.ok_or_else(|| spent.unwrap_or_else(|| limited(Some(agent), quota, 0)))?;
        let budget = Arc::clone(self);
        Ok(Some(Box::new(ReservedFailure { budget, client, quota, is_given_back: false, _place: place })))
    }

    /// Waits for a place to look a key up, if the client's budget is used up. Denies it if too many wait, or for too long.
    pub(super) async fn look_up_slot(
        &self,
        client: ClientNet,
    ) -> Result<Option<SemaphorePermit<'_>>, Denial> {
        let Err(denial) = self.check(client, None) else { return Ok(None) };
        self.wait_for_slot(client, &self.look_ups, &denial).await.map(Some)
    }

    /// Waits for one of these places. Denies a client if too many wait, or for too long.
    pub(super) async fn wait_for_slot<'a>(
        &self,
        client: ClientNet,
        places: &'a Semaphore,
        denial: &Denial,
    ) -> Result<SemaphorePermit<'a>, Denial> {
        let free = u32::try_from(self.waiting.available_permits()).unwrap_or(u32::MAX);
        let Some(_share) = self.waiters.take(client, SHARE.saturating_mul(free)) else {
            return Err(denial.clone());
        };
        let Ok(_waiting) = self.waiting.try_acquire() else { return Err(denial.clone()) };
        let place = timeout(WAIT_MAX, places.acquire()).await.ok().and_then(Result::ok);
        place.ok_or_else(|| denial.clone())
    }

    /// Counts an outcome that was a refused credential. A reserved failure counts whatever the denial is.
    pub(super) fn note<T>(
        &self,
        client: ClientNet,
        reserved: Option<Box<ReservedFailure>>,
        outcome: &Result<T, Error>,
    ) {
        match (reserved, outcome, self.limit) {
            (Some(_), Err(Error::Denied(_)), _) => {}
            (Some(mut reserved), _, _) => reserved.is_given_back = true,
            (None, Err(Error::Denied(denial)), Some(quota)) if is_refused_credential(denial) => {
                self.clients.hit(&client, quota, self.clock.monotonic_micros());
            }
            _ => {}
        }
    }
}

impl Drop for ReservedFailure {
    fn drop(&mut self) {
        if !self.is_given_back {
            self.budget.clients.hit(&self.client, self.quota, self.budget.clock.monotonic_micros());
        }
    }
}

impl fmt::Debug for ReservedFailure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReservedFailure").field("client", &self.client).finish_non_exhaustive()
    }
}

const fn is_refused_credential(denial: &Denial) -> bool {
    match denial {
        Denial::SignatureInvalid { .. }
        | Denial::ReplayDetected { .. }
        | Denial::TimestampRefused { .. }
        | Denial::AgentNotFound { .. }
        | Denial::InvalidApiKey { .. }
        | Denial::MessageRefused { retry_after: None, .. } => true,
        Denial::KeyAlreadyExists { .. }
        | Denial::NoSuchKey { .. }
        | Denial::NonceForgotten { .. }
        | Denial::MessageRefused { retry_after: Some(_), .. }
        | Denial::RateLimited { .. }
        | Denial::TierBlocked { .. }
        | Denial::EndpointMismatch { .. } => false,
    }
}

/// The rest of a client's budget, which may be one for an agent.
pub(super) fn allowance(quota: Quota, agent: Option<AgentId>, verdict: Verdict) -> Result<Allowance, Denial> {
    match verdict {
        Verdict::Admitted { remaining } => Ok(Allowance { limit: quota.limit, remaining }),
        Verdict::Limited { retry_after_micros } => Err(limited(agent, quota, retry_after_micros)),
    }
}

pub(super) fn limited(agent: Option<AgentId>, quota: Quota, retry_after_micros: u64) -> Denial {
    let retry_after = RetryAfter::from_micros(retry_after_micros);
    Denial::RateLimited { agent, tier: None, limit: quota.limit, retry_after }
}
