//! Whether a signed request is the current owner's (contract, "Authentication", rule 1). Both verification by signature
//! and key management stand on it.

use std::sync::Arc;

use alloy::primitives::Address;

use crate::domain::agent_id::AgentId;
use crate::domain::denial::Denial;
use crate::domain::eip712::{Eip712Domain, SigningDomain};
use crate::domain::freshness::{Freshness, UnixSeconds};
use crate::domain::nonce::NonceClaim;
use crate::pipeline::Ports;
use crate::pipeline::credential::SignedRequest;
use crate::pipeline::refusal::Refusal;
use crate::ports::chain::Asker;

/// Checks signatures against owners.
pub(super) struct OwnerCheck {
    domain: SigningDomain,
    freshness: Freshness,
}

/// The request was signed by the agent's owner at the latest block. The nonce is not claimed yet.
#[derive(Debug)]
pub(super) struct OwnerProof {
    agent: AgentId,
    owner: Address,
    claim: NonceClaim,
}

impl OwnerProof {
    pub(super) const fn agent(&self) -> AgentId {
        self.agent
    }

    pub(super) const fn owner(&self) -> Address {
        self.owner
    }

    pub(super) const fn claim(&self) -> NonceClaim {
        self.claim
    }
}

impl OwnerCheck {
    pub(super) const fn new(domain: SigningDomain, freshness: Freshness) -> Self {
        Self { domain, freshness }
    }

    /// True if the request may be accepted by its age and was signed by an address that has been seen as the agent's
    /// owner. Reads no node.
    pub(super) fn is_vouched(&self, ports: &Ports, signed: &SignedRequest) -> bool {
        self.freshness.accepts(signed.signed_at, UnixSeconds(ports.clock.unix_seconds()))
            && self.signer(signed).is_some_and(|signer| ports.chain.was_owned_by(signed.agent, signer))
    }

    /// The address that signed; `None` if none can be recovered.
    fn signer(&self, signed: &SignedRequest) -> Option<Address> {
        let SignedRequest { agent, nonce, signed_at, signature } = *signed;
        signature.recover(&self.domain.digest(agent, nonce, signed_at))
    }

    /// Timestamp, then owner, then signer: the cheap check first, and nothing is used up by any of them.
    pub(super) async fn prove(&self, ports: &Ports, signed: &SignedRequest) -> Result<OwnerProof, Refusal> {
        let SignedRequest { agent, nonce, signed_at, .. } = *signed;
        if !self.freshness.accepts(signed_at, UnixSeconds(ports.clock.unix_seconds())) {
            return Err(Denial::ReplayDetected { agent, nonce }.into());
        }
        if agent.is_reserved() {
            return Err(Denial::AgentNotFound { agent }.into());
        }
        // A signature of any shape costs a read, and this much of it is known before: whether it is worth a stranger's.
        let recovered_signer = self.signer(signed);
        let is_vouched = recovered_signer.is_some_and(|signer| ports.chain.was_owned_by(agent, signer));
        let asker = if is_vouched { Asker::Vouched } else { Asker::Stranger };
        let owner = ports.chain.owner(agent, asker).await?.ok_or(Denial::AgentNotFound { agent })?;
        if recovered_signer != Some(owner) {
            return Err(self.denial(agent, owner, recovered_signer).into());
        }
        Ok(OwnerProof { agent, owner, claim: signed.claim() })
    }

    /// The denial of a signature that is not the owner's.
    pub(super) fn denial(&self, agent: AgentId, owner: Address, recovered_signer: Option<Address>) -> Denial {
        let domain = Arc::clone(self.domain.domain());
        Denial::SignatureInvalid { agent, owner, recovered_signer, domain }
    }

    /// The domain of signatures, and the window of their timestamps.
    pub(super) fn signing(&self) -> (&Eip712Domain, Freshness) {
        (self.domain.domain(), self.freshness)
    }
}
