//! Budgets of clients: what is left of one, and requests of strangers on public routes.

use crate::domain::agent_id::AgentId;
use crate::domain::client::ClientNet;
use crate::domain::denial::Denial;
use crate::domain::quota::{Allowance, Quota, RetryAfter};
use crate::domain::window::Verdict;
use crate::pipeline::Pipeline;
use crate::pipeline::refusal::Refusal;
use crate::ports::store::{Budget, RouteScope};

impl Pipeline {
    /// Counts a request of a client on a public route with this limit.
    /// Error: [`Denial::RateLimited`], which names no agent, or a fault of the store.
    pub async fn pass(
        &self,
        client: ClientNet,
        route: &RouteScope,
        quota: Quota,
    ) -> Result<Allowance, Refusal> {
        let budget = Budget::Route((client, route.clone()));
        allowance(quota, None, self.ports.store.count(&budget, quota).await?)
    }
}

/// The rest of a client's budget, which may be one for an agent.
pub(super) fn allowance(
    quota: Quota,
    agent: Option<AgentId>,
    verdict: Verdict,
) -> Result<Allowance, Refusal> {
    let limit = quota.limit;
    match verdict {
        Verdict::Admitted { remaining } => Ok(Allowance { limit, remaining }),
        Verdict::Limited { retry_after_micros } => {
            let retry_after = RetryAfter::from_micros(retry_after_micros);
            Err(Denial::RateLimited { agent, tier: None, limit, retry_after }.into())
        }
    }
}
