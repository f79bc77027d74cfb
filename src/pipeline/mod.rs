//! The pipeline: authenticates a request, checks the agent's tier, and charges its window. API and gateway both call it; no
//! other code admits an agent.
//!
//! Must not know HTTP, JSON, configuration files, or the implementations of the ports. The order of checks is the order of
//! the steps: `Credential → Principal → Standing → Permit`, each type made in one file, from the one before it.

mod custody;
mod failures;
mod owner;
pub mod permit;
mod principal;
mod readiness;
pub mod standing;

use std::{convert::Infallible, sync::Arc, time::Duration};

use tokio::time::error::Elapsed;
use tokio::time::timeout;

use crate::domain::{
    AgentId, ApiKeyFormat, ClientNet, Denial, Freshness, KeyDigest, MessageRefusal, Nonce, NonceClaim,
    PerTier, Quota, SignatureBytes, SignatureFormat, SignedMessage, SigningDomain, Tier, Tiers, UnixSeconds,
    WebOrigin,
};
use crate::error::Error;
use crate::pipeline::failures::{CLIENTS_MAX, FailureBudget, ReservedFailure};
use crate::pipeline::owner::{READERS_MAX, READS};
use crate::pipeline::standing::{REREAD_KEYS_MAX, REREADS, Standing};
use crate::pipeline::{custody::REPLAYS, permit::Permit, principal::Principal};
use crate::ports::{Chain, Clock, Entropy, Parts, Proof, Scope, Store};
use crate::sharded::Meters;

/// The ports that the pipeline uses.
pub struct Ports {
    /// Reads agents.
    pub chain: Arc<dyn Chain>,
    /// Keeps keys, nonces and windows.
    pub store: Arc<dyn Store>,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// The randomness of new keys.
    pub entropy: Arc<dyn Entropy>,
}

/// The rules that the whole service shares.
#[derive(Debug, Clone)]
pub struct Rules {
    /// The EIP-712 domain of owners' signatures.
    pub signing_domain: SigningDomain,
    /// The form of owners' signatures.
    pub signature_format: SignatureFormat,
    /// True if an agent's wallet may sign as its owner does.
    pub agent_wallet: bool,
    /// How old or how far ahead a signature may be.
    pub freshness: Freshness,
    /// How many seconds old a change of a key may be that is signed as an own type and that a contract accepts.
    pub contract_max_age_secs: u64,
    /// The form of API keys.
    pub key_format: ApiKeyFormat,
    /// True if a key is good only while the account that signed for it holds the agent.
    pub keys_end_with_signer: bool,
    /// How many keys an agent may have, those in their grace not counted; at least 1.
    pub keys_per_agent_max: u32,
    /// How many seconds the life of a key may have that has an end.
    pub key_expires_secs_max: u64,
    /// How often a client may manage an agent's key.
    pub key_management: Quota,
    /// How many refused credentials a client may send, and how often it may ask whether agents have keys; `None`: no
    /// limit.
    pub failures: Option<Quota>,
}

/// The tier that the API or a route asks for, and the quotas there.
#[derive(Debug, Clone)]
pub struct Access {
    /// The scope whose windows are charged.
    pub scope: Scope,
    /// The lowest tier that is admitted. Tier 0 never is.
    pub min_tier: Tier,
    /// The sources of tiers.
    pub tiers: Tiers,
    /// The quota of each tier.
    pub quotas: PerTier<Quota>,
    /// True if an agent is refused whose origin is not the one declared for its key.
    pub denies_endpoint_mismatch: bool,
    /// How much of the agent's profile the answer shows.
    pub parts: Parts,
}

/// One request for admission: what it brings to be let in, in well-formed types, which listeners make.
#[derive(Debug)]
pub struct Ask<'a> {
    /// The proof of who asks.
    pub credential: Credential,
    /// Where the request comes from, for limits on refused credentials.
    pub client: ClientNet,
    /// The application's origin, to be compared with the endpoint declared for the key.
    pub origin: Option<WebOrigin>,
    /// The rules of the listener or route.
    pub access: &'a Access,
}

/// The proof of who asks.
#[derive(Debug, Clone)]
pub enum Credential {
    /// An API key.
    Key {
        /// The digest of the key; the key itself stays at the listener.
        digest: KeyDigest,
        /// The agent that the request names, if it does: then the key must be that agent's.
        named: Option<AgentId>,
    },
    /// A signature of the agent's owner.
    Signature(SignedRequest),
    /// Signatures over the request itself.
    Messages(SignedMessages),
}

/// A request that claims to be signed itself by who may act for the agent (ERC-8128). One of its signatures is enough.
#[derive(Debug, Clone)]
pub struct SignedMessages {
    /// The agent, whose name is a part of what is signed.
    pub agent: AgentId,
    /// The signatures, in the order in which they are judged.
    pub messages: Vec<SignedMessage>,
    /// The refusal of an earlier signature, which stands for all if none counts.
    pub first_refusal: Option<MessageRefusal>,
}

/// A request that claims to be signed by the agent's owner (contract, "Signed request").
#[derive(Debug, Clone)]
pub struct SignedRequest {
    /// The agent.
    pub agent: AgentId,
    /// The nonce.
    pub nonce: Nonce,
    /// The timestamp.
    pub signed_at: UnixSeconds,
    /// The signature over the three above.
    pub signature: SignatureBytes,
}

/// A request to read a profile that claims to be signed by the agent's owner. It has no nonce: it changes nothing, and may
/// be repeated.
#[derive(Debug, Clone)]
pub struct ProfileRead {
    /// The agent.
    pub agent: AgentId,
    /// The timestamp.
    pub signed_at: UnixSeconds,
    /// The signature over the two above.
    pub signature: SignatureBytes,
}

impl Credential {
    /// The kind, as the configuration names it.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Key { .. } => "api_key",
            Self::Signature(_) => "signature",
            Self::Messages(_) => "erc8128",
        }
    }

    /// The agent that the request names, for the details of a denial.
    pub const fn named_agent(&self) -> Option<AgentId> {
        match self {
            Self::Key { named, .. } => *named,
            Self::Signature(signed) => Some(signed.agent),
            Self::Messages(signed) => Some(signed.agent),
        }
    }
}

impl SignedRequest {
    /// The nonce that has to be claimed before the signature may count.
    pub(crate) const fn claim(&self) -> NonceClaim {
        NonceClaim { nonce: self.nonce, signed_at: self.signed_at }
    }
}

/// Admits requests and manages keys.
pub struct Pipeline {
    ports: Ports,
    rules: Rules,
    failures: Arc<FailureBudget>,
    /// Reads of the chain for keys whose signer was no holder.
    rereads: Meters<KeyDigest>,
    /// Requests to manage an agent's key that its owner has not signed.
    unproven: Meters<(ClientNet, AgentId)>,
    /// Changes of keys that were sent again.
    replays: Meters<(AgentId, Nonce)>,
    profile_reads: Meters<(ClientNet, AgentId)>,
    status_reads: Meters<ClientNet>,
}

impl Pipeline {
    /// The pipeline over these ports, under these rules.
    pub fn new(ports: Ports, rules: Rules) -> Self {
        Self {
            failures: Arc::new(FailureBudget::new(rules.failures, Arc::clone(&ports.clock))),
            rereads: Meters::new(REREAD_KEYS_MAX),
            unproven: Meters::new(CLIENTS_MAX),
            replays: Meters::new(CLIENTS_MAX),
            profile_reads: Meters::new(READERS_MAX),
            status_reads: Meters::new(CLIENTS_MAX),
            rules,
            ports,
        }
    }

    /// Admits one request: authenticates it, checks the agent's tier, charges its window.
    /// Error: a denial that the client can act on, or a fault of ours. A refused request leaves nonce
    /// and window as they were.
    pub async fn admit(&self, ask: &Ask<'_>) -> Result<Permit, Error> {
        let standing = self.verify(ask).await?;
        self.spend(standing, ask).await
    }

    /// The first half of [`Self::admit`]: authenticates, and checks the tier. Uses up neither nonce nor window, so that a
    /// caller may still refuse the request for reasons of its own.
    pub async fn verify(&self, ask: &Ask<'_>) -> Result<Standing, Error> {
        self.verify_with(ask, &mut None).await
    }

    /// The same in so much time. If that runs out, no budget of the client's pays for it.
    pub async fn verify_within(
        &self,
        ask: &Ask<'_>,
        max: Duration,
    ) -> Result<Result<Standing, Error>, Elapsed> {
        let mut reserved = None;
        let outcome = timeout(max, self.verify_with(ask, &mut reserved)).await;
        outcome.inspect_err(|_| self.failures.note::<()>(ask.client, reserved.take(), &Ok(())))
    }

    async fn verify_with(
        &self,
        ask: &Ask<'_>,
        reserved: &mut Option<Box<ReservedFailure>>,
    ) -> Result<Standing, Error> {
        let outcome = match self.authenticate(ask, reserved).await {
            Ok(principal) => self.stand(principal, ask).await, // 403, 404, 503
            Err(refusal) => Err(refusal),                      // 400 timestamp, 401, 404, 429, 503
        };
        match outcome {
            Ok(mut standing) => {
                standing.reserved = reserved.take();
                Ok(standing)
            }
            refused => {
                self.failures.note(ask.client, reserved.take(), &refused);
                refused
            }
        }
    }

    /// The second half of [`Self::admit`]: charges the agent's window. Key and nonce are judged at this moment.
    pub async fn spend(&self, mut standing: Standing, ask: &Ask<'_>) -> Result<Permit, Error> {
        let reserved = standing.reserved.take();
        let outcome = self.meter(standing, ask).await; // 401 revoked, 400 nonce, 429
        self.failures.note(ask.client, reserved, &outcome);
        outcome
    }

    /// Ends a request that stands and gets no further, and counts against nobody but where its key was revoked meanwhile.
    pub async fn refuse(&self, mut standing: Standing, ask: &Ask<'_>, refusal: Error) -> Error {
        let reserved = standing.reserved.take();
        let tells_of_agent = matches!(refusal, Error::TooManyInFlight { .. });
        let refusal = if tells_of_agent {
            self.unless_revoked(&standing.principal, ask, refusal).await
        } else {
            refusal
        };
        let outcome = Err::<Infallible, _>(refusal);
        self.failures.note(ask.client, reserved, &outcome);
        let Err(refusal) = outcome;
        refusal
    }

    /// A key that was replaced through another process may still have been found here. Its holder is told only that the key
    /// is invalid, and learns nothing of the agent.
    async fn unless_revoked(&self, principal: &Principal, ask: &Ask<'_>, refusal: Error) -> Error {
        let Proof::Key(digest) = &principal.proof else { return principal::for_credential(ask, refusal) };
        match self.ports.store.is_current(principal.agent(), digest).await {
            Ok(true) => refusal,
            Ok(false) => Denial::InvalidApiKey { agent: ask.credential.named_agent() }.into(),
            Err(fault) => fault.into(),
        }
    }

    /// Drops windows of clients that are idle. To be called now and then.
    pub fn sweep(&self) {
        let now_micros = self.now();
        self.unproven.sweep(self.rules.key_management.window_micros, now_micros);
        self.replays.sweep(REPLAYS.window_micros, now_micros);
        self.profile_reads.sweep(READS.window_micros, now_micros);
        self.rereads.sweep(REREADS.window_micros, now_micros);
        if let Some(quota) = self.rules.failures {
            self.failures.clients.sweep(quota.window_micros, now_micros);
            self.status_reads.sweep(quota.window_micros, now_micros);
        }
    }

    fn now(&self) -> u64 {
        self.ports.clock.monotonic_micros()
    }

    /// How many clients are counted for bad credentials.
    pub fn failing_clients(&self) -> usize {
        self.failures.clients.len()
    }

    /// The rules of the whole service.
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }
}

#[cfg(test)]
mod tests;

pub use custody::{IssuedKey, KeyOrder, KeyStatus, KeyWish, Recorder};
pub use owner::{OwnerProfile, Signatory};
pub(crate) use readiness::{Health, Readiness, Report};
