//! Key custody: generate, rotate, revoke, status (contract, "API key of an agent").
//!
//! Every well-formed request that its client's budgets let through counts against the hourly one, whatever becomes of it:
//! at once within this process, and once it is known to be the owner's over all that share the store. So strangers leave
//! nothing in a shared store. The nonce is used in the same atomic step that changes the key, so a request that comes to
//! nothing burns nothing.

use std::sync::OnceLock;

use alloy::primitives::Address;

use crate::domain::agent_id::AgentId;
use crate::domain::api_key::ApiKey;
use crate::domain::client::ClientNet;
use crate::domain::denial::Denial;
use crate::domain::endpoint::Endpoint;
use crate::domain::quota::Allowance;
use crate::pipeline::Pipeline;
use crate::pipeline::budget::allowance;
use crate::pipeline::credential::SignedRequest;
use crate::pipeline::owner::Signed;
use crate::pipeline::refusal::Refusal;
use crate::ports::clock::NoEntropy;
use crate::ports::store::{KeyChange, KeyChanged, KeySeen, NewKey};

/// How many keys are made until one fits into the store. A store takes one in a thousand or more: that none of so many fits
/// happens once in 10^27 times, or where the randomness is none.
const MINTS_MAX: u32 = 65_536;

/// A signed request to change an agent's key.
#[derive(Debug, Clone)]
pub struct KeyOrder<'a> {
    /// Where it comes from.
    pub client: ClientNet,
    /// What the owner signed.
    pub signed: SignedRequest,
    /// Takes the agent's owner, once they are known to have signed.
    pub owner: &'a OnceLock<Address>,
}

/// A key that was made for an agent. This is the one moment at which it can be shown.
#[derive(Debug)]
pub struct IssuedKey {
    /// The key.
    pub key: ApiKey,
    /// Whose it is.
    pub agent: AgentId,
    /// What is left of the client's hourly budget.
    pub allowance: Allowance,
}

/// An agent that has no key any more.
#[derive(Debug)]
pub struct RevokedKey {
    /// The agent.
    pub agent: AgentId,
    /// What is left of the client's hourly budget.
    pub allowance: Allowance,
}

/// Whether an agent has a key.
#[derive(Debug)]
pub struct KeyStatus {
    /// True when it has an active one.
    pub has_key: bool,
    /// What is left of the client's hourly budget for this agent.
    pub allowance: Allowance,
}

impl Pipeline {
    /// Makes the agent's key.
    ///
    /// # Errors
    ///
    /// Among the refusals of any signed request, [`Denial::KeyAlreadyExists`] when the agent has one.
    pub async fn generate_key(
        &self,
        order: KeyOrder<'_>,
        declared_endpoint: Option<Endpoint>,
    ) -> Result<IssuedKey, Refusal> {
        self.issue(order, declared_endpoint, KeyChange::Issue).await
    }

    /// Makes a new key the agent's one and only, whether it had one or not.
    ///
    /// # Errors
    ///
    /// The refusals of any signed request.
    pub async fn rotate_key(
        &self,
        order: KeyOrder<'_>,
        declared_endpoint: Option<Endpoint>,
    ) -> Result<IssuedKey, Refusal> {
        self.issue(order, declared_endpoint, KeyChange::Rotate).await
    }

    /// Revokes the agent's key, if it has one.
    ///
    /// # Errors
    ///
    /// The refusals of any signed request.
    pub async fn revoke_key(&self, order: KeyOrder<'_>) -> Result<RevokedKey, Refusal> {
        let ((), allowance) = self.change_key(&order, || Ok(((), KeyChange::Revoke))).await?;
        Ok(RevokedKey { agent: order.signed.agent, allowance })
    }

    /// Whether the agent has a key. Public; a client may ask as often as it may send refused credentials.
    ///
    /// # Errors
    ///
    /// [`Denial::RateLimited`], or a fault of the store.
    pub async fn key_status(&self, client: ClientNet, agent: AgentId) -> Result<KeyStatus, Refusal> {
        if let Some(quota) = self.status_reads_max {
            let read = self.status_reads.hit(&client, quota, self.ports.clock.monotonic_micros());
            allowance(quota, Some(agent), read.into())?; // 429
        }
        let limit = self.key_management.limit;
        let KeySeen { has_key, left: remaining } =
            self.ports.store.status(client, agent, self.key_management).await?; // 500
        Ok(KeyStatus { has_key, allowance: Allowance { limit, remaining } })
    }

    async fn issue(
        &self,
        order: KeyOrder<'_>,
        declared_endpoint: Option<Endpoint>,
        change: impl FnOnce(NewKey) -> KeyChange + Send,
    ) -> Result<IssuedKey, Refusal> {
        let mint = || {
            let key = self.mint_for(order.signed.agent)?;
            let change = change(NewKey { digest: key.digest(), declared_endpoint });
            Ok((key, change))
        };
        let (key, allowance) = self.change_key(&order, mint).await?;
        Ok(IssuedKey { key, agent: order.signed.agent, allowance })
    }

    /// Makes a key that the store can keep for the agent.
    fn mint_for(&self, agent: AgentId) -> Result<ApiKey, NoEntropy> {
        for _ in 0..MINTS_MAX {
            let key = self.key_format.mint(self.ports.entropy.key_bytes()?);
            if self.ports.store.fits(agent, &key.digest()) {
                return Ok(key);
            }
        }
        Err(NoEntropy)
    }

    /// Changes the agent's key as `change` says; it is asked only once the request is known to be the owner's.
    async fn change_key<T: Send>(
        &self,
        order: &KeyOrder<'_>,
        change: impl FnOnce() -> Result<(T, KeyChange), Refusal> + Send,
    ) -> Result<(T, Allowance), Refusal> {
        let signed = self.owners.verification(&order.signed);
        let deposit = self.check_budget(order.client, &signed)?;
        let outcome = self.walk_custody(order, &signed, change).await;
        self.failures.note(order.client, deposit, &outcome);
        outcome
    }

    async fn walk_custody<T: Send>(
        &self,
        order: &KeyOrder<'_>,
        signed: &Signed<'_>,
        change: impl FnOnce() -> Result<(T, KeyChange), Refusal> + Send,
    ) -> Result<(T, Allowance), Refusal> {
        let (client, nonce) = (order.client, order.signed.nonce);
        let store = &self.ports.store;
        let quota = self.key_management;
        allowance(quota, Some(signed.agent), store.hit(client, signed.agent, quota).await?)?; // 429
        let proof = self.owners.prove(&self.ports, signed).await?; // 400 timestamp, 404, 401, 503
        order.owner.get_or_init(|| proof.owner());
        let agent = proof.agent();
        let allowance = allowance(quota, Some(agent), store.charge(client, agent, quota).await?)?; // 429
        let (made, change) = change()?;
        match self.ports.store.change_key(agent, order.signed.claim(), change).await? {
            KeyChanged::Done => Ok((made, allowance)),
            KeyChanged::KeyExists => Err(Denial::KeyAlreadyExists { agent }.into()),
            KeyChanged::NonceUsed => Err(Denial::ReplayDetected { agent, nonce }.into()),
            KeyChanged::NonceForgotten { accepted_from, retry_after } => {
                Err(Denial::NonceForgotten { agent, nonce, accepted_from, retry_after }.into())
            }
        }
    }
}
