//! The store port. Every verb is a whole, atomic step: all of it happens or none.
//!
//! Windows are counted by the store's own clock, because replicas that share a store must share its time.

use std::{future::Ready, sync::Arc};

use alloy::primitives::Address;
use async_trait::async_trait;
use futures_util::future::{BoxFuture, Either};

use crate::domain::{
    AgentId, ClientNet, HeldKey, KeyDigest, KeyName, KeyTerms, NonceClaim, Quota, RetryAfter, TenantList,
    UnixSeconds, Verdict, WebOrigin,
};

/// An answer that is there at once, or one to wait for. Memory answers without an allocation.
pub type Reply<'a, T> = Either<Ready<Result<T, StoreFault>>, BoxFuture<'a, Result<T, StoreFault>>>;

/// The traffic that a verification window counts: the API's own, or one tenant's. One never spends another's budget.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The verification API itself.
    Api,
    /// The tenant with this id.
    Tenant(Arc<str>),
}

/// A public route with a limit: its tenant, path and methods, as one text. Its place among the tenant's routes may change.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RouteScope(pub Arc<str>);

/// The proof of an admission, checked in the same step as the window.
#[derive(Debug, Clone, Copy)]
pub enum Proof {
    /// The key must still be the agent's current one.
    Key(KeyDigest),
    /// The nonce must be unused, and is used up by the admission.
    Nonce(NonceClaim),
}

/// The answer of [`Store::admit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Admitted and recorded; so many more would be admitted now.
    Admitted {
        /// How many more.
        remaining: u32,
    },
    /// The window is full. Nothing was recorded and no nonce used.
    Limited {
        /// When to come back.
        retry_after: RetryAfter,
    },
    /// The key is not the agent's current one.
    KeyRevoked,
    /// The nonce can't be used. Nothing was recorded.
    NonceRefused(NonceRefused),
}

/// Why a nonce can't be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NonceRefused {
    /// It was used before.
    Used,
    /// One that was used with a signature of this age may have been lost or forgotten.
    Forgotten {
        /// Signatures made before this are refused.
        accepted_from: UnixSeconds,
        /// When the owner may sign again.
        retry_after: RetryAfter,
    },
}

impl From<Verdict> for Admission {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Admitted { remaining } => Self::Admitted { remaining },
            Verdict::Limited { retry_after_micros } => {
                Self::Limited { retry_after: RetryAfter::from_micros(retry_after_micros) }
            }
        }
    }
}

/// A budget of a client for an agent's key. Requests that the agent's owner signed alone count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyBudget {
    /// All of them.
    Changes,
    /// Revocations.
    Revocations,
}

/// A client's budget, which all processes that share the store count together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Budget {
    /// For a public route, whoever the client may be.
    Route((ClientNet, RouteScope)),
    /// For an agent's key.
    Key(ClientNet, AgentId, KeyBudget),
}

/// The answer of [`Store::status`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeySeen {
    /// True if the agent has an active key.
    pub has_key: bool,
    /// How much of [`KeyBudget::Changes`] the client has left for the agent.
    pub left: u32,
}

/// The owner of a key. This never changes while the key lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyOwner {
    /// The agent that the key belongs to.
    pub agent: AgentId,
    /// The web origin of the endpoint that was declared with it.
    pub declared_origin: Option<WebOrigin>,
    /// The account that signed for it; `None` where a release made it that did not keep that.
    pub signer: Option<Address>,
    /// The tenants that it is for; `None`: all, and the API.
    pub tenants: Option<TenantList>,
}

impl KeyOwner {
    /// True if the key may be used there.
    pub fn is_for(&self, scope: &Scope) -> bool {
        match (&self.tenants, scope) {
            (None, _) => true,
            (Some(_), Scope::Api) => false,
            (Some(tenants), Scope::Tenant(tenant)) => tenants.ids().any(|id| *id == **tenant),
        }
    }
}

/// A key to be stored for an agent: its digest and what was declared with it.
#[derive(Debug, Clone)]
pub struct NewKey {
    /// The digest of the key.
    pub digest: KeyDigest,
    /// The web origin of the endpoint that the owner declared.
    pub origin: Option<WebOrigin>,
    /// The account that signed for it.
    pub signer: Address,
    /// The terms that the owner asked for.
    pub terms: KeyTerms,
    /// How many keys its agent may have, those in their grace not counted; at least 1.
    pub per_agent_max: u32,
}

/// A change of an agent's key (contract, "API key of an agent").
#[derive(Debug, Clone)]
pub enum KeyChange {
    /// Makes a key; refused when the agent has one of its name, or as many as it may have.
    Issue(NewKey),
    /// Makes a key in place of the one of its name, without a name of the agent's only one; refused where it has others alone.
    /// Where an agent may have one key, in place of all.
    Rotate(NewKey),
    /// Ends the key of this name, and those that it replaced, and is refused where the agent has others alone; without a name all.
    Revoke(Option<KeyName>),
}

impl KeyChange {
    /// The name that was given.
    pub const fn name(&self) -> Option<&KeyName> {
        match self {
            Self::Issue(new) | Self::Rotate(new) => new.terms.name.as_ref(),
            Self::Revoke(name) => name.as_ref(),
        }
    }
}

/// The terms of a key that was made, as the store keeps them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadeKey {
    /// Its name, which a rotation may have kept.
    pub name: Option<KeyName>,
    /// From which moment on it is refused, in Unix seconds of the store's clock; `None`: it does not end.
    pub ends: Option<u64>,
}

/// The outcome of [`Store::change_key`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyChanged {
    /// Done, and durable.
    Done,
    /// The agent has such a key already, or as many as it may have; nothing changed and the nonce is unused.
    KeyExists,
    /// The agent has keys, and none of that name; nothing changed and the nonce is unused.
    NoSuchKey,
    /// The nonce can't be used; nothing changed.
    NonceRefused(NonceRefused),
}

/// The store failed. Whether the step took effect is unknown to the caller; nobody is let through.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the store failed to {verb}: {cause}")]
pub struct StoreFault {
    /// The verb that failed.
    pub verb: &'static str,
    /// The cause, for the log. Never sent to a client.
    pub cause: Arc<str>,
}

/// Keys, nonces and windows.
#[async_trait]
pub trait Store: Send + Sync {
    /// The owner of the key with this digest; `None` when it is unknown, or known to be revoked or rotated out.
    /// A store that many processes share may not know that yet: whether a key is still current when it counts is
    /// decided by [`Self::admit`]. The key counts as used today, which is written later.
    fn find<'a>(&'a self, digest: &'a KeyDigest) -> Reply<'a, Option<KeyOwner>>;

    /// True if the key is the agent's current one at this moment, whoever changed it. For refusals, which a revoked key
    /// must not learn from; [`Self::admit`] looks for itself.
    async fn is_current(&self, agent: AgentId, digest: &KeyDigest) -> Result<bool, StoreFault> {
        Ok(self.find(digest).await?.is_some_and(|owner| owner.agent == agent))
    }

    /// Checks the proof and the agent's window, and records the admission: before this returns, or when the reply is
    /// awaited.
    fn admit<'a>(
        &'a self,
        agent: AgentId,
        scope: &'a Scope,
        quota: Quota,
        proof: &'a Proof,
    ) -> Reply<'a, Admission>;

    /// Counts a request of a client, exactly: before this returns, or when the reply is awaited.
    fn count<'a>(&'a self, budget: &'a Budget, quota: Quota) -> Reply<'a, Verdict>;

    /// Gives a client's newest counted request back, where that can be: a fault of ours kept it from what it was for.
    async fn give_back(&self, client: ClientNet, agent: AgentId, of: KeyBudget);

    /// True if the store can keep this key for the agent; otherwise another one is to be made. A store that is spread over
    /// servers keeps a key where its agent is.
    fn fits(&self, agent: AgentId, digest: &KeyDigest) -> bool;

    /// Uses up the nonce and changes the agent's key; also returns the key that was made, if one was. A replaced key is refused
    /// everywhere once this has answered.
    async fn change_key(
        &self,
        agent: AgentId,
        claim: NonceClaim,
        change: KeyChange,
    ) -> Result<(KeyChanged, Option<MadeKey>), StoreFault>;

    /// The outcome of the change alone.
    #[cfg(test)]
    async fn changed(
        &self,
        agent: AgentId,
        claim: NonceClaim,
        change: KeyChange,
    ) -> Result<KeyChanged, StoreFault> {
        Ok(self.change_key(agent, claim, change).await?.0)
    }

    /// What the client may see of the agent's key; counts nothing.
    async fn status(&self, client: ClientNet, agent: AgentId, quota: Quota) -> Result<KeySeen, StoreFault>;

    /// The agent's keys that have not ended by the store's clock, the oldest first.
    async fn keys(&self, agent: AgentId) -> Result<Vec<HeldKey>, StoreFault>;

    /// Writes uses of keys now that the store would write later.
    #[cfg(test)]
    async fn note_uses(&self) {}

    /// True if the agent has an active key.
    #[cfg(test)]
    async fn has_key(&self, agent: AgentId) -> Result<bool, StoreFault> {
        let anybody = ClientNet::of([192, 0, 2, 255].into());
        Ok(self.status(anybody, agent, Quota::per_hour(1)).await?.has_key)
    }

    /// Set while signatures that are made now are refused, because nonces may have been lost: from when on they are not.
    fn signatures_accepted_from(&self) -> Option<UnixSeconds> {
        None
    }

    /// How many replicas a server lacks of those that must have each change of a key; `None` where none must, or while it is
    /// not known.
    fn replicas_missing(&self) -> Option<u32> {
        None
    }

    /// Succeeds when the store can read and write.
    async fn probe(&self) -> Result<(), StoreFault>;
}
