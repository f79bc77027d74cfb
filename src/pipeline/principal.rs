//! First step: who asks. 401 for keys; timestamp, owner and signer for signatures.

use alloy::primitives::Address;

use crate::domain::agent_id::AgentId;
use crate::domain::denial::Denial;
use crate::domain::endpoint::WebOrigin;
use crate::pipeline::Pipeline;
use crate::pipeline::credential::Credential;
use crate::pipeline::read_time::{READS_TIME_MAX, ReadTime};
use crate::pipeline::refusal::Refusal;
use crate::ports::store::Proof;

/// An agent that has shown a credential of its own. Whether the credential may still be spent is decided last.
#[derive(Debug)]
pub(super) struct Principal {
    agent: AgentId,
    proof: Proof,
    signer: Option<Address>,
    declared_origin: Option<WebOrigin>,
    read_time: ReadTime,
}

impl Principal {
    pub(super) const fn agent(&self) -> AgentId {
        self.agent
    }

    pub(super) const fn proof(&self) -> &Proof {
        &self.proof
    }

    /// The owner who signed, when a signature was the credential.
    pub(super) const fn signer(&self) -> Option<Address> {
        self.signer
    }

    /// Until when the chain may be read on its behalf.
    pub(super) const fn read_time(&self) -> ReadTime {
        self.read_time
    }

    /// The web origin declared for the key, when a key was the credential.
    pub(super) const fn declared_origin(&self) -> Option<&WebOrigin> {
        self.declared_origin.as_ref()
    }
}

impl Pipeline {
    pub(super) async fn authenticate(&self, credential: &Credential) -> Result<Principal, Refusal> {
        match credential {
            Credential::Key { digest, named } => {
                let denied = Denial::InvalidApiKey { agent: *named };
                let found = self.ports.store.find(digest).await?.ok_or_else(|| denied.clone())?;
                if named.is_some_and(|named| named != found.agent) {
                    return Err(denied.into());
                }
                Ok(Principal {
                    agent: found.agent,
                    proof: Proof::Key(*digest),
                    signer: None,
                    declared_origin: found.declared_origin,
                    read_time: ReadTime::OF_ONE_READ,
                })
            }
            Credential::Signature(signed) => {
                let read_time = ReadTime::of(&*self.ports.clock, READS_TIME_MAX);
                let proof = self.owners.prove(&self.ports, signed).await?;
                Ok(Principal {
                    agent: proof.agent(),
                    proof: Proof::Nonce(proof.claim()),
                    signer: Some(proof.owner()),
                    declared_origin: None,
                    read_time,
                })
            }
        }
    }
}
