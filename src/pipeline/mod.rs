//! The corridor: who asks, how they stand, whether they may pass now. Both doors call it, and nothing else lets an
//! agent through.
//!
//! Must not know HTTP, JSON, configuration files, or what stands behind the ports. The order of checks is the order of
//! the steps: `Credential → Principal → Standing → Permit`, each type made in one file, from the one before it.

pub mod budget;
pub mod credential;
pub mod custody;
pub mod failures;
pub mod permit;
pub mod readiness;
pub mod refusal;
pub mod standing;

mod owner;
mod principal;
mod read_time;

use std::sync::Arc;

use crate::domain::api_key::ApiKeyFormat;
use crate::domain::denial::Denial;
use crate::domain::eip712::SigningDomain;
use crate::domain::freshness::Freshness;
use crate::domain::quota::Quota;
use crate::domain::tier::{PerTier, StakeThresholds, Tier};
use crate::pipeline::credential::Ask;
use crate::pipeline::failures::FailureBudget;
use crate::pipeline::owner::OwnerCheck;
use crate::pipeline::permit::Permit;
use crate::pipeline::principal::Principal;
use crate::pipeline::refusal::Refusal;
use crate::pipeline::standing::Standing;
use crate::ports::chain::Chain;
use crate::ports::clock::{Clock, Entropy};
use crate::ports::store::{Proof, Scope, Store};

/// What the pipeline stands on.
pub struct Ports {
    /// Where agents are read.
    pub chain: Arc<dyn Chain>,
    /// Where keys, nonces and windows are kept.
    pub store: Arc<dyn Store>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// What keys are minted from.
    pub entropy: Arc<dyn Entropy>,
}

/// The rules that the whole service shares.
#[derive(Debug, Clone)]
pub struct Rules {
    /// What owners sign.
    pub signing_domain: SigningDomain,
    /// How old or how far ahead a signature may be.
    pub freshness: Freshness,
    /// Which stake gives which tier.
    pub stakes: StakeThresholds,
    /// What API keys look like.
    pub key_format: ApiKeyFormat,
    /// How often a client may manage an agent's key.
    pub key_management: Quota,
    /// How many refused credentials a client may send; nothing: no limit.
    pub failures: Option<Quota>,
}

/// Who may pass one door or route, and how often.
#[derive(Debug, Clone)]
pub struct Access {
    /// Whose budget is spent.
    pub scope: Scope,
    /// The lowest tier that passes. Tier 0 never does.
    pub min_tier: Tier,
    /// How much each tier may ask for.
    pub quotas: PerTier<Quota>,
    /// Whether an agent is refused whose origin is not the one declared for its key.
    pub denies_endpoint_mismatch: bool,
}

/// Admits requests and keeps the keys.
pub struct Pipeline {
    ports: Ports,
    owners: OwnerCheck,
    stakes: StakeThresholds,
    failures: FailureBudget,
    key_format: ApiKeyFormat,
    key_management: Quota,
}

impl Pipeline {
    /// The pipeline over these ports, under these rules.
    #[must_use]
    pub fn new(ports: Ports, rules: Rules) -> Self {
        Self {
            owners: OwnerCheck::new(rules.signing_domain, rules.freshness),
            stakes: rules.stakes,
            failures: FailureBudget::new(rules.failures, Arc::clone(&ports.clock)),
            key_format: rules.key_format,
            key_management: rules.key_management,
            ports,
        }
    }

    /// Admits one request: who asks, how they stand, whether they may pass now.
    ///
    /// # Errors
    ///
    /// A [`Refusal`]: a denial that the client can act on, or a fault of ours. A refused request leaves nonce and
    /// window as they were.
    pub async fn admit(&self, ask: &Ask<'_>) -> Result<Permit, Refusal> {
        let standing = self.verify(ask).await?;
        self.spend(standing, ask).await
    }

    /// The first half of [`Self::admit`]: who asks, and how they stand. Uses up neither nonce nor window, so that a
    /// listener may still refuse the request for reasons of its own.
    ///
    /// # Errors
    ///
    /// As those of [`Self::admit`].
    pub async fn verify(&self, ask: &Ask<'_>) -> Result<Standing, Refusal> {
        let outcome = match self.authenticate(ask).await {
            Ok(principal) => self.stand(principal, ask).await, // 403, 404, 503
            Err(refusal) => Err(refusal),                      // 400 timestamp, 401, 404, 429, 503
        };
        self.failures.note(ask.client, &outcome);
        outcome
    }

    /// The second half of [`Self::admit`]: whether the agent may pass now. Key and nonce are judged at this moment.
    ///
    /// # Errors
    ///
    /// As those of [`Self::admit`].
    pub async fn spend(&self, standing: Standing, ask: &Ask<'_>) -> Result<Permit, Refusal> {
        let outcome = self.meter(standing, ask).await; // 401 revoked, 400 nonce, 429
        self.failures.note(ask.client, &outcome);
        outcome
    }

    /// Who asks comes before how they stand: a key that was replaced elsewhere learns nothing of the agent, though it may
    /// still have been found.
    async fn unless_revoked(&self, principal: &Principal, ask: &Ask<'_>, refusal: Refusal) -> Refusal {
        let Proof::Key(digest) = principal.proof() else { return refusal };
        match self.ports.store.is_current(principal.agent(), digest).await {
            Ok(true) => refusal,
            Ok(false) => Denial::InvalidApiKey { agent: ask.credential.named_agent() }.into(),
            Err(fault) => fault.into(),
        }
    }

    /// Forgets what no longer matters of clients that sent bad credentials. To be called now and then.
    pub fn sweep(&self) {
        self.failures.sweep();
    }

    /// How many clients are counted for bad credentials.
    #[must_use]
    pub fn failing_clients(&self) -> usize {
        self.failures.clients()
    }

    /// What API keys look like here.
    #[must_use]
    pub fn key_format(&self) -> &ApiKeyFormat {
        &self.key_format
    }
}

#[cfg(test)]
mod tests;
