//! First step: who asks. 401 for keys; timestamp, owner and signer for signatures. 429 for unknown ones of a client that
//! has shown too many bad ones.

use alloy::primitives::Address;
use futures_util::future::Either;

use crate::domain::{AgentId, ClientNet, Denial, KeyDigest, WebOrigin};
use crate::error::Error;
use crate::pipeline::credential::{Ask, Credential};
use crate::pipeline::{Pipeline, failures::ReservedFailure, owner::Signed, read_time::ReadTime};
use crate::ports::{KeyOwner, Proof};

/// An agent that has shown a credential of its own. Whether the credential may still be spent is decided last.
#[derive(Debug)]
pub(super) struct Principal {
    agent: AgentId,
    pub(super) proof: Proof,
    /// The holder who signed, when a signature was the credential.
    pub(super) signer: Option<Address>,
    /// The account that signed for the key, when the key is good only while that account holds the agent.
    pub(super) key_signer: Option<Address>,
    /// The web origin declared for the key, when a key was the credential.
    pub(super) declared_origin: Option<WebOrigin>,
    /// Until when the chain may be read on its behalf.
    pub(super) read_time: ReadTime,
}

impl Principal {
    pub(super) const fn agent(&self) -> AgentId {
        self.agent
    }
}

impl Pipeline {
    /// Proves who asks. Leaves the failure reserved for a signature in `reserved`.
    pub(super) async fn authenticate(
        &self,
        ask: &Ask<'_>,
        reserved: &mut Option<Box<ReservedFailure>>,
    ) -> Result<Principal, Error> {
        match &ask.credential {
            Credential::Key { digest, named } => {
                let found = self.look_up(ask.client, digest).await?;
                let ends = self.rules.keys_end_with_signer;
                let may_count = |found: &KeyOwner| {
                    named.is_none_or(|named| named == found.agent)
                        && (!ends || found.signer.is_some())
                        && found.is_for(&ask.access.scope)
                };
                let Some(found) = found.filter(may_count) else {
                    self.failures.check(ask.client, *named)?;
                    return Err(Denial::InvalidApiKey { agent: *named }.into());
                };
                Ok(Principal {
                    agent: found.agent,
                    proof: Proof::Key(*digest),
                    signer: None,
                    key_signer: found.signer.filter(|_| ends),
                    declared_origin: found.declared_origin,
                    read_time: ReadTime::OF_ONE_READ,
                })
            }
            Credential::Signature(signed) => {
                let message = self.verification(signed);
                *reserved = self.check_budget(ask.client, &message)?;
                let read_time = ReadTime::begin(&self.ports);
                let proof = self.prove(&message).await?;
                Ok(Principal {
                    agent: proof.agent(),
                    proof: Proof::Nonce(signed.claim()),
                    signer: Some(proof.by.signer),
                    key_signer: None,
                    declared_origin: None,
                    read_time,
                })
            }
            Credential::Messages(signed) => {
                let read_time = ReadTime::begin(&self.ports);
                // Boxed: no other credential carries the room for it along.
                let proof = Box::pin(self.prove_message(ask, signed, (reserved, read_time))).await?;
                Ok(Principal {
                    agent: signed.agent,
                    proof: Proof::Nonce(proof.claim),
                    signer: Some(proof.account),
                    key_signer: None,
                    declared_origin: None,
                    read_time,
                })
            }
        }
    }

    /// The owner of a key. Memory answers at once; where the store has to ask a server, clients over budget take turns.
    async fn look_up(&self, client: ClientNet, digest: &KeyDigest) -> Result<Option<KeyOwner>, Error> {
        match self.ports.store.find(digest) {
            Either::Left(found) => Ok(found.into_inner()?),
            // Boxed: a key that is known here carries no room for the wait along.
            Either::Right(found) => {
                Box::pin(async {
                    let _place = self.failures.look_up_slot(client).await?;
                    Ok(found.await?)
                })
                .await
            }
        }
    }

    /// Denies a signature of a client over budget, unless it is by an address that has been seen as the agent's holder.
    /// If contracts may be asked, any other signature needs a reserved failure.
    pub(super) fn check_budget(
        &self,
        client: ClientNet,
        signed: &Signed<'_>,
    ) -> Result<Option<Box<ReservedFailure>>, Denial> {
        let is_vouched = || self.is_vouched(signed);
        if self.rules.signature_format.has_contracts() {
            return if is_vouched() { Ok(None) } else { self.failures.reserve(client, signed.agent) };
        }
        let checked = self.failures.check(client, Some(signed.agent));
        checked.or_else(|denial| is_vouched().then_some(()).ok_or(denial)).map(|()| None)
    }
}
