//! Proves that a message is signed by the agent's current owner (contract, "Authentication", rule 1) or by whoever else may
//! act for the agent. Verification by signature, key management and the owner's read of the profile need it; the last stands
//! here too: of any tier, and without a key.
//!
//! Reads of a profile are limited per client and agent. The limit protects the nodes, so each process has its own, in bounded
//! memory. It is checked before a node is asked, and counted once the owner is proven: strangers can't use it up.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use alloy::primitives::{Address, B256};
use futures_util::future::BoxFuture;
use tokio::time::timeout;

use crate::domain::{
    AgentId, Allowance, ClientNet, Denial, Freshness, Grade, HeldKey, Holders, KeyOperation, Nonce, OwnType,
    Quota, SignatureBytes, Tiers, TrustProfile, UnixSeconds,
};
use crate::error::Error;
use crate::pipeline::{Pipeline, Ports, ProfileRead, SignedRequest, failures::allowance};
use crate::ports::{Asker, ChainFault, Parts};

/// As long as one read may take by itself (`chain::reader`), in microseconds.
const READS_MICROS_MAX: u64 = 6_000_000;

/// How often a client may read one agent's profile.
pub(super) const READS: Quota = Quota::per_minute(60);

/// How many pairs of client and agent are remembered at most.
pub(super) const READERS_MAX: usize = 16_384;

/// A message that claims to be signed by one of the agent's holders.
#[derive(Debug)]
pub(super) struct Signed<'a> {
    pub(super) agent: AgentId,
    /// The nonce, where the message has one.
    pub(super) nonce: Option<Nonce>,
    pub(super) signed_at: UnixSeconds,
    pub(super) digest: B256,
    /// The own type of a change of a key.
    own_type: Option<OwnType>,
    pub(super) signature: &'a SignatureBytes,
    /// Recovered when it is first asked for: the dearest step of all.
    signer: OnceLock<Option<Address>>,
}

/// The message was signed by an account that may act for the agent at the latest block. Its nonce is not claimed yet.
#[derive(Debug)]
pub(super) struct HolderProof {
    agent: AgentId,
    pub(super) by: Signatory,
}

/// The account that signed, as owner or as wallet, and the agent's owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signatory {
    /// The agent's owner.
    pub owner: Address,
    /// The account that signed: the owner or the agent's wallet.
    pub signer: Address,
}

/// An agent as its owner may see it. Made from a proof that the owner signed, and in no other way.
#[derive(Debug)]
pub struct OwnerProfile {
    agent: AgentId,
    /// The values of the registries.
    pub profile: Arc<TrustProfile>,
    /// The agent's tier, and what gave it.
    pub grade: Grade,
    /// The agent's keys that have not ended, the oldest first.
    pub keys: Vec<HeldKey>,
    /// The rest of the client's reads of this agent.
    pub allowance: Allowance,
}

impl OwnerProfile {
    /// The agent.
    pub const fn agent(&self) -> AgentId {
        self.agent
    }
}

/// Until when a request may read the chain, in monotonic microseconds: one that makes several reads must not wait for as long as
/// all of them together. `None`: it makes one, whose time begins when it waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadTime(Option<u64>);

impl ReadTime {
    /// For one read.
    pub(super) const OF_ONE_READ: Self = Self(None);

    /// Begins now.
    pub(super) fn begin(ports: &Ports) -> Self {
        Self(Some(ports.clock.monotonic_micros().saturating_add(READS_MICROS_MAX)))
    }

    /// The read's answer, or a fault when the time is over first.
    pub(super) async fn bound<T>(
        self,
        ports: &Ports,
        read: BoxFuture<'_, Result<T, ChainFault>>,
    ) -> Result<T, ChainFault> {
        let now = ports.clock.monotonic_micros();
        let left_micros = self.0.map_or(READS_MICROS_MAX, |until_micros| until_micros.saturating_sub(now));
        timeout(Duration::from_micros(left_micros), read)
            .await
            .unwrap_or_else(|_| Err(ports.chain.out_of_time()))
    }
}

impl Signed<'_> {
    /// The address that signed; `None` if none can be recovered.
    fn signer(&self) -> Option<Address> {
        *self.signer.get_or_init(|| self.signature.recover(&self.digest))
    }
}

impl HolderProof {
    pub(super) const fn agent(&self) -> AgentId {
        self.agent
    }
}

impl Pipeline {
    /// True if this account may act for an agent of these holders.
    pub(super) fn may_act(&self, holders: &Holders, account: Address) -> bool {
        holders.may_act(account, self.rules.agent_wallet)
    }

    /// The message of a request: of a change of a key, which may be of a type of its own, or of a verification.
    pub(super) fn message<'a>(
        &self,
        request: &'a SignedRequest,
        operation: Option<KeyOperation>,
    ) -> Signed<'a> {
        let SignedRequest { agent, nonce, signed_at, ref signature } = *request;
        let domain = &self.rules.signing_domain;
        let own_type = operation.and_then(|operation| domain.own_type(operation));
        let digest = match &own_type {
            Some(own_type) => domain.own_digest(own_type, agent, nonce, signed_at),
            None => domain.digest(agent, nonce, signed_at),
        };
        let nonce = Some(nonce);
        Signed { agent, nonce, signed_at, digest, own_type, signature, signer: OnceLock::new() }
    }

    /// True if the message may be accepted by its age and was signed by an address that has been seen as the agent's
    /// holder. Reads no node.
    pub(super) fn is_vouched(&self, signed: &Signed<'_>) -> bool {
        self.is_fresh(signed) && signed.signer().is_some_and(|signer| self.was_heard(signed.agent, signer))
    }

    /// True if this account is known to have been one that may act for the agent.
    pub(super) fn was_heard(&self, agent: AgentId, account: Address) -> bool {
        self.ports.chain.last_holders(agent).is_some_and(|holders| self.may_act(&holders, account))
    }

    /// True if the message may be accepted by its age, and its key holds the agent at the latest block. No contract is asked.
    pub(super) async fn is_holders(&self, signed: &Signed<'_>) -> Result<bool, Error> {
        let (chain, is_fresh) = (&self.ports.chain, self.is_fresh(signed));
        let Some(signer) = signed.signer().filter(|_| is_fresh && !chain.reserves(signed.agent)) else {
            return Ok(false);
        };
        let holders = chain.holders(signed.agent, Asker::Stranger).await?;
        Ok(holders.is_some_and(|holders| self.may_act(&holders, signer)))
    }

    /// Timestamp, then holders, then signer: the cheap check first, and nothing is used up by any of them.
    pub(super) async fn prove(&self, signed: &Signed<'_>) -> Result<HolderProof, Error> {
        let Signed { agent, nonce, digest, ref own_type, signature, .. } = *signed;
        let (ports, asks_contracts) = (&self.ports, self.rules.signature_format.has_contracts());
        let too_old = || Error::from(Denial::TimestampRefused { agent, nonce });
        let is_late = !self.is_fresh(signed);
        if is_late && !self.is_fresh_for_contracts(signed) {
            return Err(too_old());
        }
        if ports.chain.reserves(agent) {
            return Err(Denial::AgentNotFound { agent }.into());
        }
        // A signature of any shape costs a read, and this much of it is known before: whether it is worth a stranger's.
        let recovered_signer = signed.signer();
        let is_vouched = recovered_signer.is_some_and(|signer| self.was_heard(agent, signer));
        let asker = if is_vouched { Asker::Vouched } else { Asker::Stranger };
        let time = ReadTime::begin(ports);
        let not_found = Denial::AgentNotFound { agent };
        // Reads of the holders alone are shared by all who wait for them.
        if !is_late && (is_vouched || !asks_contracts) {
            let holders = ports.chain.holders(agent, asker).await?.ok_or_else(|| not_found.clone())?;
            if let Some(signer) = recovered_signer.filter(|signer| self.may_act(&holders, *signer)) {
                return Ok(HolderProof { agent, by: Signatory { owner: holders.owner, signer } });
            }
            if !asks_contracts {
                return Err(self.bad_signature(agent, holders.owner, recovered_signer, own_type.clone()));
            }
        }
        // The key of the holder seen last may be a key of the contract that holds the agent now.
        let read = ports.chain.ask_holders(agent, digest, signature.as_bytes());
        let asked = time.bound(ports, read).await?.ok_or(not_found)?;
        let (owner, holders) = (asked.owner.address, asked.holders());
        let mut heard = asked.iter().filter(|one| self.may_act(&holders, one.address));
        match heard.find(|one| one.accepts || (!is_late && recovered_signer == Some(one.address))) {
            Some(one) => Ok(HolderProof { agent, by: Signatory { owner, signer: one.address } }),
            None if recovered_signer.is_some_and(|signer| self.may_act(&holders, signer)) => Err(too_old()),
            None => Err(self.bad_signature(agent, owner, recovered_signer, own_type.clone())),
        }
    }

    /// The denial of a signature that is nobody's who may act for the agent.
    pub(super) fn bad_signature(
        &self,
        agent: AgentId,
        owner: Address,
        recovered_signer: Option<Address>,
        own_type: Option<OwnType>,
    ) -> Error {
        let domain = Arc::clone(self.rules.signing_domain.domain());
        Denial::SignatureInvalid { agent, owner, recovered_signer, domain, own_type }.into()
    }

    fn is_fresh(&self, signed: &Signed<'_>) -> bool {
        self.rules.freshness.accepts(signed.signed_at, UnixSeconds(self.ports.clock.unix_seconds()))
    }

    /// True if a contract may accept the message by its age: it names the service and the operation, and its owners sign one
    /// after the other.
    fn is_fresh_for_contracts(&self, signed: &Signed<'_>) -> bool {
        let max_age_secs = self.rules.contract_max_age_secs;
        let freshness = Freshness { max_age_secs, ..self.rules.freshness };
        self.rules.signature_format.has_contracts()
            && signed.own_type.is_some()
            && freshness.accepts(signed.signed_at, UnixSeconds(self.ports.clock.unix_seconds()))
    }

    /// Reads the agent's profile for its owner. Charges neither the agent's window nor key management.
    /// Error: the refusals of any signed request, but for those of nonces: there is none.
    pub async fn owner_profile(
        &self,
        client: ClientNet,
        read: &ProfileRead,
        tiers: &Tiers,
    ) -> Result<OwnerProfile, Error> {
        let ProfileRead { agent, signed_at, ref signature } = *read;
        let digest = self.rules.signing_domain.profile_digest(agent, signed_at);
        let (nonce, own_type, signer) = (None, None, OnceLock::new());
        let signed = Signed { agent, nonce, signed_at, digest, own_type, signature, signer };
        let reserved = self.check_budget(client, &signed)?; // 429
        let outcome = self.read_for_owner(client, &signed, tiers).await;
        self.failures.note(client, reserved, &outcome);
        outcome
    }

    async fn read_for_owner(
        &self,
        client: ClientNet,
        signed: &Signed<'_>,
        tiers: &Tiers,
    ) -> Result<OwnerProfile, Error> {
        let reader = (client, signed.agent);
        allowance(READS, Some(signed.agent), self.profile_reads.peek(&reader, READS, || self.now()))?; // 429
        let read_time = ReadTime::begin(&self.ports);
        let proof = self.prove(signed).await?; // 400 timestamp, 404, 401, 503
        let agent = proof.agent();
        let allowance = allowance(READS, Some(agent), self.profile_reads.hit(&reader, READS, self.now()))?;
        let signers = (Some(proof.by.signer), None);
        let profile = self.profile_of(agent, signers, (Parts::Whole, read_time)).await; // 404, 401, 503
        let read = match profile {
            Ok(profile) => {
                self.ports.store.keys(agent).await.map(|keys| (profile, keys)).map_err(Error::from)
            } // 500
            Err(refusal) => Err(refusal),
        };
        if matches!(&read, Err(fault) if !matches!(fault, Error::Denied(_))) {
            self.profile_reads.give_back(&reader);
        }
        let (profile, keys) = read?;
        let grade = tiers.grade(agent, &profile);
        Ok(OwnerProfile { agent, profile, grade, keys, allowance })
    }
}
