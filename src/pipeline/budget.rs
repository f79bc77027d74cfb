//! Budgets of clients: what is left of one, and requests of strangers on public routes.

use crate::domain::{AgentId, Allowance, ClientNet, Denial, Quota, RetryAfter, Verdict};
use crate::error::Error;
use crate::pipeline::Pipeline;
use crate::ports::{Budget, RouteScope};

impl Pipeline {
    /// Counts a request of a client on a public route with this limit.
    /// Error: [`Denial::RateLimited`], which names no agent, or a fault of the store.
    pub async fn pass(
        &self,
        client: ClientNet,
        route: &RouteScope,
        quota: Quota,
    ) -> Result<Allowance, Error> {
        let budget = Budget::Route((client, route.clone()));
        Ok(allowance(quota, None, self.ports.store.count(&budget, quota).await?)?)
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
