//! Last step: whether the agent may pass now, and the proof that it may, which is made here and nowhere else; and clients of
//! public routes, who are charged without one.

use std::sync::Arc;

use crate::domain::{AgentId, Allowance, ClientNet, Denial, Grade, Nonce, Quota, Tier, TrustProfile};
use crate::error::Error;
use crate::pipeline::{Ask, Credential, Pipeline, failures::allowance, principal, standing::Standing};
use crate::ports::{Admission, Budget, NonceRefused, RouteScope};

/// The agent was verified and its budget charged: whoever holds this may answer or forward.
#[derive(Debug)]
pub struct Permit {
    agent: AgentId,
    profile: Arc<TrustProfile>,
    grade: Grade,
    allowance: Allowance,
    endpoint_mismatch: bool,
}

impl Permit {
    /// The verified agent.
    pub const fn agent(&self) -> AgentId {
        self.agent
    }

    /// The agent's profile in the registries.
    pub const fn profile(&self) -> &Arc<TrustProfile> {
        &self.profile
    }

    /// The agent's tier.
    pub const fn tier(&self) -> Tier {
        self.grade.tier
    }

    /// The agent's tier, and what gave it.
    pub const fn grade(&self) -> Grade {
        self.grade
    }

    /// The rest of the agent's window.
    pub const fn allowance(&self) -> Allowance {
        self.allowance
    }

    /// True when the request's origin is not the one declared for the key.
    pub const fn endpoint_mismatch(&self) -> bool {
        self.endpoint_mismatch
    }
}

impl Pipeline {
    /// One atomic step of the store: key still current or nonce unused, window, record.
    pub(super) async fn meter(&self, standing: Standing, ask: &Ask<'_>) -> Result<Permit, Error> {
        let (principal, quota) = (&standing.principal, standing.quota());
        let agent = principal.agent();
        let admission = self.ports.store.admit(agent, &ask.access.scope, quota, &principal.proof).await?;
        match admission {
            Admission::Admitted { remaining } => Ok(Permit {
                agent,
                grade: standing.grade,
                allowance: Allowance { limit: quota.limit, remaining },
                endpoint_mismatch: standing.endpoint_mismatch,
                profile: standing.profile,
            }),
            Admission::Limited { retry_after } => {
                let (tier, limit) = (Some(standing.tier()), quota.limit);
                Err(Denial::RateLimited { agent: Some(agent), tier, limit, retry_after }.into())
            }
            Admission::KeyRevoked => {
                Err(Denial::InvalidApiKey { agent: ask.credential.named_agent() }.into())
            }
            Admission::NonceRefused(refused) => Err(match &ask.credential {
                Credential::Signature(signed) => nonce_denial(agent, signed.nonce, refused),
                Credential::Messages(_) => principal::message_nonce_denial(agent, refused),
                // A store that refuses a nonce where none was claimed is not believed to have admitted anybody.
                Credential::Key { named, .. } => Denial::InvalidApiKey { agent: *named },
            }
            .into()),
        }
    }

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

/// The denial of a request whose nonce can't be used.
pub(super) const fn nonce_denial(agent: AgentId, nonce: Nonce, refused: NonceRefused) -> Denial {
    match refused {
        NonceRefused::Used => Denial::ReplayDetected { agent, nonce },
        NonceRefused::Forgotten { accepted_from, retry_after } => {
            Denial::NonceForgotten { agent, nonce, accepted_from, retry_after }
        }
    }
}
