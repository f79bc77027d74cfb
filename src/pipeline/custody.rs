//! Key custody: generate, rotate, revoke, status (contract, "API key of an agent").
//!
//! Requests that the owner signed have hourly budgets that nobody else can spend, counted over all processes that share the
//! store: generate and rotate one that counts revocations too, revocations one of their own, so that no other request keeps
//! an owner from revoking; a fault of ours spends none of them. Others are counted apart, within this process, once their
//! proof has failed or is a replay, which anybody can send; a second replay gets no further than the budget. The nonce is used in
//! the same atomic step that changes the key, so a request that comes to nothing burns none.

use std::sync::OnceLock;

use alloy::primitives::Address;
use async_trait::async_trait;

use crate::domain::{
    AgentId, Allowance, ApiKey, ClientNet, Denial, KeyName, KeyOperation, KeyTerms, Quota, TenantList,
    Verdict, WebOrigin,
};
use crate::error::Error;
use crate::pipeline::owner::{HolderProof, Signatory, Signed};
use crate::pipeline::{Pipeline, SignedRequest, failures::allowance, permit::nonce_denial};
use crate::ports::{Budget, KeyBudget, KeyChange, KeyChanged, KeySeen, MadeKey, NewKey, NoEntropy};

/// How many replays of one signature get to the store and the audit. Its nonce stays used for longer than it is accepted.
pub(super) const REPLAYS: Quota = Quota::per_hour(1);

/// How many keys are made until one fits into the store. A store takes one in a thousand or more: that none of so many fits
/// happens once in 10^27 times, or where the randomness is none.
const MINTS_MAX: u32 = 65_536;

/// Takes note of an operation that is about to be done.
#[async_trait]
pub trait Recorder: Send + Sync {
    /// The agent's key, of this name if the request names one, is about to be changed as one of its holders has signed.
    /// Error: it must not be, for this reason.
    async fn begin(&self, agent: AgentId, by: Signatory, key: Option<&KeyName>) -> Result<(), String>;
}

/// A signed request to change an agent's key.
#[derive(Clone)]
pub struct KeyOrder<'a> {
    /// Where it comes from.
    pub client: ClientNet,
    /// The request that the owner signed.
    pub signed: SignedRequest,
    /// Takes who signed, once that is known.
    pub by: &'a OnceLock<Signatory>,
    /// Asked before the key is changed; `None`: nobody needs to know before.
    pub recorder: Option<&'a dyn Recorder>,
}

/// The origin and terms that are asked of a key that is to be made.
#[derive(Debug, Clone, Default)]
pub struct KeyWish {
    /// The web origin of the application endpoint that it is for.
    pub origin: Option<WebOrigin>,
    /// The other terms.
    pub terms: KeyTerms,
}

/// A key that was made for an agent. This is the one moment at which it can be shown.
#[derive(Debug)]
pub struct IssuedKey {
    /// The key.
    pub key: ApiKey,
    /// The agent that it is for.
    pub agent: AgentId,
    /// The name and end of the key, as the store keeps them.
    pub made: MadeKey,
    /// The tenants that it is for; `None`: all, and the API.
    pub tenants: Option<TenantList>,
    /// The rest of the client's hourly budget.
    pub allowance: Allowance,
}

/// The answer to whether an agent has a key.
#[derive(Debug)]
pub struct KeyStatus {
    /// True when it has an active one.
    pub has_key: bool,
    /// The rest of the client's hourly budget for this agent.
    pub allowance: Allowance,
}

impl Pipeline {
    /// Makes a key, or rotates: makes it in place of one, as [`KeyChange::Rotate`] says.
    ///
    /// Error: among the refusals of any signed request, [`Denial::KeyAlreadyExists`] if the agent has one of this name, or as many as
    /// it may have.
    pub async fn make_key(
        &self,
        order: KeyOrder<'_>,
        KeyWish { origin, terms }: KeyWish,
        rotates: bool,
    ) -> Result<IssuedKey, Error> {
        let (operation, change): (_, fn(NewKey) -> KeyChange) = if rotates {
            (KeyOperation::Rotate, KeyChange::Rotate)
        } else {
            (KeyOperation::Generate, KeyChange::Issue)
        };
        let tenants = terms.tenants.clone();
        let mint = |signer| {
            let key = self.mint_for(order.signed.agent).map_err(Error::Entropy)?;
            let (digest, per_agent_max) = (key.digest(), self.rules.keys_per_agent_max);
            Ok((key, change(NewKey { digest, origin, signer, terms, per_agent_max })))
        };
        let (key, made, allowance) = self.change_key(operation, &order, mint).await?;
        let made = made.unwrap_or(MadeKey { name: None, ends: None });
        Ok(IssuedKey { key, agent: order.signed.agent, made, tenants, allowance })
    }

    /// Revokes the agent's key of this name, or without one all that it has. Returns the rest of the client's hourly budget.
    pub async fn revoke_key(&self, order: KeyOrder<'_>, name: Option<KeyName>) -> Result<Allowance, Error> {
        let revoke = |_| Ok(((), KeyChange::Revoke(name)));
        self.change_key(KeyOperation::Revoke, &order, revoke).await.map(|((), _, allowance)| allowance)
    }

    /// Tells if the agent has a key. Public; a client may ask as often as it may send refused credentials, and no more often while the
    /// store fails: strangers would keep it from recovering.
    /// Error: [`Denial::RateLimited`], or a fault of the store.
    pub async fn key_status(&self, client: ClientNet, agent: AgentId) -> Result<KeyStatus, Error> {
        if let Some(quota) = self.rules.failures {
            let read = self.status_reads.hit(&client, quota, self.now());
            allowance(quota, Some(agent), read)?; // 429
        }
        let limit = self.rules.key_management.limit;
        let KeySeen { has_key, left: remaining } =
            self.ports.store.status(client, agent, self.rules.key_management).await?; // 500
        Ok(KeyStatus { has_key, allowance: Allowance { limit, remaining } })
    }

    /// Makes a key that the store can keep for the agent.
    fn mint_for(&self, agent: AgentId) -> Result<ApiKey, NoEntropy> {
        for _ in 0..MINTS_MAX {
            let key = self.rules.key_format.mint(self.ports.entropy.key_bytes()?);
            if self.ports.store.fits(agent, &key.digest()) {
                return Ok(key);
            }
        }
        Err(NoEntropy)
    }

    /// Changes the agent's key as `change` says; it is asked only once the request is known to be the owner's.
    async fn change_key<T: Send>(
        &self,
        operation: KeyOperation,
        order: &KeyOrder<'_>,
        change: impl FnOnce(Address) -> Result<(T, KeyChange), Error> + Send,
    ) -> Result<(T, Option<MadeKey>, Allowance), Error> {
        let client = order.client;
        let budget = match operation {
            KeyOperation::Generate | KeyOperation::Rotate => KeyBudget::Changes,
            KeyOperation::Revoke => KeyBudget::Revocations,
        };
        let signed = self.message(&order.signed, Some(operation));
        let reserved = match self.check_budget(client, &signed) {
            Ok(reserved) => reserved,
            Err(denial) if budget == KeyBudget::Revocations => {
                self.let_owner_pass(client, &signed, denial).await?; // 429, 503
                None
            }
            Err(denial) => return Err(denial.into()), // 429
        };
        let proof = self.prove(&signed).await; // 400 timestamp, 404, 401, 503
        let mut is_proven = proof.is_ok();
        let outcome = match proof {
            Ok(proof) => {
                let mut counted = Vec::new();
                let outcome = self.change_proven_key(order, &proof, budget, change, &mut counted).await;
                // Anybody who saw the signature before could have sent a replay.
                is_proven = !matches!(
                    outcome,
                    Err(Error::Denied(Denial::ReplayDetected { .. } | Denial::NonceForgotten { .. }))
                );
                if matches!(outcome, Err(Error::Denied(Denial::ReplayDetected { .. }))) {
                    self.replays.hit(&(signed.agent, order.signed.nonce), REPLAYS, self.now());
                }
                let is_fault = matches!(&outcome, Err(refusal) if !matches!(refusal, Error::Denied(_)));
                for budget in counted.into_iter().filter(|_| is_fault || !is_proven) {
                    self.ports.store.give_back(client, signed.agent, budget).await;
                }
                outcome
            }
            Err(refusal) => Err(refusal),
        };
        self.failures.note(client, reserved, &outcome);
        match outcome {
            // All signatures may be refused because the store has lost nonces: the owner who tries again is to pass then.
            Err(Error::Denied(Denial::NonceForgotten { .. }))
                if self.ports.store.signatures_accepted_from().is_some() =>
            {
                outcome
            }
            Err(Error::Denied(_)) if !is_proven => {
                let counted =
                    self.unproven.hit(&(client, signed.agent), self.rules.key_management, self.now());
                allowance(self.rules.key_management, Some(signed.agent), counted)?; // 429
                outcome
            }
            outcome => outcome,
        }
    }

    /// Lets a revocation of a client over budget pass if the agent's owner signed it. Each costs a read, which those for
    /// one agent share, and few read at once.
    async fn let_owner_pass(
        &self,
        client: ClientNet,
        signed: &Signed<'_>,
        denial: Denial,
    ) -> Result<(), Error> {
        let _place = self.failures.wait_for_slot(client, &self.failures.owners, &denial).await?;
        if self.is_holders(signed).await? { Ok(()) } else { Err(denial.into()) }
    }

    async fn change_proven_key<T: Send>(
        &self,
        order: &KeyOrder<'_>,
        proof: &HolderProof,
        budget: KeyBudget,
        change: impl FnOnce(Address) -> Result<(T, KeyChange), Error> + Send,
        counted: &mut Vec<KeyBudget>,
    ) -> Result<(T, Option<MadeKey>, Allowance), Error> {
        let (client, agent, nonce) = (order.client, proof.agent(), order.signed.nonce);
        let replayed = self.replays.peek(&(agent, nonce), REPLAYS, || self.now());
        let is_replayed = matches!(replayed, Verdict::Limited { .. });
        if !is_replayed {
            order.by.get_or_init(|| proof.by);
        }
        let (store, quota) = (&self.ports.store, self.rules.key_management);
        if budget == KeyBudget::Revocations {
            let revocations = Budget::Key(client, agent, budget);
            allowance(quota, Some(agent), store.count(&revocations, quota).await?)?; // 429
            counted.push(budget);
        }
        let verdict = store.count(&Budget::Key(client, agent, KeyBudget::Changes), quota).await?;
        counted.extend(matches!(verdict, Verdict::Admitted { .. }).then_some(KeyBudget::Changes));
        let allowance = match (verdict, budget) {
            (Verdict::Limited { .. }, KeyBudget::Revocations) => {
                Allowance { limit: quota.limit, remaining: 0 }
            }
            (verdict, _) => allowance(quota, Some(agent), verdict)?, // 429
        };
        if is_replayed {
            return Err(Denial::ReplayDetected { agent, nonce }.into());
        }
        let (minted, change) = change(proof.by.signer)?;
        let name = change.name().cloned();
        if let Some(recorder) = order.recorder {
            recorder.begin(agent, proof.by, name.as_ref()).await.map_err(Error::Unrecorded)?; // 500
        }
        let (changed, made) = store.change_key(agent, order.signed.claim(), change).await?;
        match changed {
            KeyChanged::Done => Ok((minted, made, allowance)),
            KeyChanged::KeyExists => Err(Denial::KeyAlreadyExists { agent }.into()),
            KeyChanged::NoSuchKey => Err(Denial::NoSuchKey { agent, name }.into()),
            KeyChanged::NonceRefused(refused) => Err(nonce_denial(agent, nonce, refused).into()),
        }
    }
}
