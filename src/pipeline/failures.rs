//! How many bad credentials one client may try (design: abuse limit). Protects signature checks, RPC calls and look-ups
//! from whoever has nothing to show.
//!
//! Counted per process, not in the shared store: it protects this process's own work, and must cost no round trip.
//! Memory is bounded; when it is full the least used counts are forgotten.
//! A request counts when it has been refused: those under way at once may exceed the budget by their number.

use std::sync::Arc;

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

/// The budget of refused credentials per client.
pub struct FailureBudget {
    limit: Option<Quota>,
    clients: Meters<ClientNet>,
    clock: Arc<dyn Clock>,
}

impl FailureBudget {
    /// So many refused credentials per client; nothing: no limit.
    #[must_use]
    pub fn new(limit: Option<Quota>, clock: Arc<dyn Clock>) -> Self {
        let clients = Meters::new(CLIENTS_MAX);
        Self { limit, clients, clock }
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
