//! Budgets of clients: what is left of one, and requests of strangers on public routes.

use crate::domain::agent_id::AgentId;
use crate::domain::client::ClientNet;
use crate::domain::denial::Denial;
use crate::domain::quota::{Allowance, Quota};
use crate::pipeline::Pipeline;
use crate::pipeline::refusal::Refusal;
use crate::ports::store::{Metered, RouteScope};

impl Pipeline {
    /// Counts a request of a client on a public route with this limit.
    ///
    /// # Errors
    ///
    /// [`Denial::RateLimited`], which names no agent, or a fault of the store.
    pub async fn pass(
        &self,
        client: ClientNet,
        route: &RouteScope,
        quota: Quota,
    ) -> Result<Allowance, Refusal> {
        allowance(quota, None, self.ports.store.pass(client, route, quota).await?)
    }
}

/// The rest of a client's budget, which may be one for an agent.
pub(super) fn allowance(
    quota: Quota,
    agent: Option<AgentId>,
    metered: Metered,
) -> Result<Allowance, Refusal> {
    let limit = quota.limit;
    match metered {
        Metered::Counted { remaining } => Ok(Allowance { limit, remaining }),
        Metered::Limited { retry_after } => {
            Err(Denial::RateLimited { agent, tier: None, limit, retry_after }.into())
        }
    }
}
