//! How many bad credentials one client may try (design: abuse limit). Protects RPC calls and look-ups in a server from
//! clients without a good one. A good credential passes, however many bad ones its client has sent: clients behind
//! one address can't lock each other out.
//!
//! Counted per process, not in the shared store: it protects this process's own work, and must cost no round trip.
//! Memory is bounded; when it is full the least used counts are forgotten.
//! A request counts when it has been refused: those under way at once may exceed the budget by their number.

use std::sync::Arc;

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::domain::agent_id::AgentId;
use crate::domain::client::ClientNet;
use crate::domain::denial::Denial;
use crate::domain::quota::{Quota, RetryAfter};
use crate::domain::window::Verdict;
use crate::pipeline::refusal::Refusal;
use crate::ports::clock::Clock;
use crate::sharded::meters::Meters;

/// The most clients that are remembered.
const CLIENTS_MAX: usize = 65_536;

/// How many keys of clients over budget are looked up at once. Others wait in the order in which they came.
pub(super) const LOOK_UPS_MAX: usize = 32;

/// The budget of refused credentials per client.
pub struct FailureBudget {
    limit: Option<Quota>,
    clients: Meters<ClientNet>,
    look_ups: Semaphore,
    clock: Arc<dyn Clock>,
}

impl FailureBudget {
    /// So many refused credentials per client; nothing: no limit.
    #[must_use]
    pub fn new(limit: Option<Quota>, clock: Arc<dyn Clock>) -> Self {
        let clients = Meters::new(CLIENTS_MAX);
        Self { limit, clients, look_ups: Semaphore::new(LOOK_UPS_MAX), clock }
    }

    /// Denies a client whose budget is used up.
    pub(super) fn check(&self, client: ClientNet, agent: Option<AgentId>) -> Result<(), Denial> {
        let Some(quota) = self.limit else { return Ok(()) };
        match self.clients.peek(&client, quota, || self.clock.monotonic_micros()) {
            Verdict::Admitted { .. } => Ok(()),
            Verdict::Limited { retry_after_micros } => Err(Denial::RateLimited {
                agent,
                tier: None,
                limit: quota.limit,
                retry_after: RetryAfter::from_micros(retry_after_micros),
            }),
        }
    }

    /// Waits for a place to look a key up, if the client's budget is used up.
    pub(super) async fn look_up_place(&self, client: ClientNet) -> Option<SemaphorePermit<'_>> {
        self.check(client, None).err()?;
        self.look_ups.acquire().await.ok()
    }

    /// Counts an outcome that was a refused credential.
    pub(super) fn note<T>(&self, client: ClientNet, outcome: &Result<T, Refusal>) {
        let (Some(quota), Err(Refusal::Denied(denial))) = (self.limit, outcome) else { return };
        if is_refused_credential(denial) {
            self.clients.hit(&client, quota, self.clock.monotonic_micros());
        }
    }

    /// How many clients are counted.
    pub(super) fn clients(&self) -> usize {
        self.clients.len()
    }

    pub(super) fn sweep(&self) {
        if let Some(quota) = self.limit {
            self.clients.sweep(quota.window_micros, self.clock.monotonic_micros());
        }
    }
}

const fn is_refused_credential(denial: &Denial) -> bool {
    match denial {
        Denial::SignatureInvalid { .. }
        | Denial::ReplayDetected { .. }
        | Denial::AgentNotFound { .. }
        | Denial::InvalidApiKey { .. } => true,
        Denial::KeyAlreadyExists { .. }
        | Denial::NonceForgotten { .. }
        | Denial::RateLimited { .. }
        | Denial::TierBlocked { .. }
        | Denial::EndpointMismatch { .. } => false,
    }
}
