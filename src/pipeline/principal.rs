//! First step: who asks. 401 for keys; timestamp, owner and signer for signatures. 429 for unknown ones of a client that
//! has shown too many bad ones.
//!
//! A request that is signed itself (ERC-8128, section 4) is proven here too. Its account decides how: one with code, also by
//! EIP-7702, is asked whether it accepts the signature (ERC-1271), and a key counts for one without.

use std::cell::LazyCell;

use alloy::primitives::Address;
use futures_util::future::{BoxFuture, Either};

use crate::domain::{AgentId, ClientNet, Denial, KeyDigest, MessageRefusal, SignedMessage, WebOrigin};
use crate::error::Error;
use crate::pipeline::owner::{ReadTime, Signed};
use crate::pipeline::{Ask, Credential, Pipeline, SignedMessages, failures::ReservedFailure};
use crate::ports::{AskedHolders, Asker, ChainFault, KeyOwner, NonceRefused, Proof};

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
                let message = self.message(signed, None);
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

    /// The first of a request's signatures that counts. Each question to a contract after the first costs the client one of
    /// its refused credentials, whatever the answer is.
    pub(super) async fn prove_message<'a>(
        &self,
        ask: &Ask<'_>,
        signed: &'a SignedMessages,
        (reserved, time): (&mut Option<Box<ReservedFailure>>, ReadTime),
    ) -> Result<&'a SignedMessage, Error> {
        let SignedMessages { agent, ref messages, first_refusal } = *signed;
        let chain = &self.ports.chain;
        if chain.reserves(agent) {
            return Err(Denial::AgentNotFound { agent }.into());
        }
        let asks_contracts = self.rules.signature_format.has_contracts();
        let (mut first, mut seen): (_, Option<AskedHolders>) = (first_refusal, None);
        for message in messages {
            let account = message.account;
            let is_by_key = LazyCell::new(|| message.signature.recover(&message.digest) == Some(account));
            let is_vouched = self.was_heard(agent, account) && *is_by_key;
            if seen.is_none() && (is_vouched || !asks_contracts) {
                let asker = if is_vouched { Asker::Vouched } else { Asker::Stranger };
                if !is_vouched {
                    self.failures.check(ask.client, Some(agent))?;
                }
                seen = Some(self.read_holders(agent, time, chain.inspect_holders(agent, asker)).await?);
            }
            if asks_contracts && seen.as_ref().is_none_or(|seen| seen.has_code(account)) {
                // Also where its key has signed: that counts for nothing.
                *reserved = self.failures.reserve(ask.client, agent)?;
                let read = chain.ask_holders(agent, message.digest, message.signature.as_bytes());
                seen = Some(self.read_holders(agent, time, read).await?);
            }
            match seen.as_ref().map(|seen| self.judge_message(message, seen, || *is_by_key)) {
                Some(Ok(())) => return Ok(message),
                Some(Err(refusal)) => drop(first.get_or_insert(refusal)),
                None => {}
            }
        }
        let refusal = first.unwrap_or(MessageRefusal::NoAcceptableSignature);
        Err(Denial::of_message(Some(agent), refusal).into())
    }

    /// The holders from a read. While the chain can't be read nobody knows who signed.
    async fn read_holders(
        &self,
        agent: AgentId,
        time: ReadTime,
        read: BoxFuture<'_, Result<Option<AskedHolders>, ChainFault>>,
    ) -> Result<AskedHolders, Error> {
        let holders = time.bound(&self.ports, read).await.map_err(Error::Unverified)?;
        holders.ok_or_else(|| Denial::AgentNotFound { agent }.into())
    }

    fn judge_message(
        &self,
        message: &SignedMessage,
        seen: &AskedHolders,
        is_by_key: impl FnOnce() -> bool,
    ) -> Result<(), MessageRefusal> {
        let account = message.account;
        let may_act = self.may_act(&seen.holders(), account);
        let holder = seen.iter().find(|one| may_act && one.address == account);
        let holder = holder.ok_or(MessageRefusal::PrincipalNotAllowed)?;
        let is_signed = if holder.has_code {
            if !self.rules.signature_format.has_contracts() {
                return Err(MessageRefusal::UnsupportedAccount);
            }
            holder.accepts
        } else if message.signature.deploys_account() {
            return Err(MessageRefusal::UnsupportedAccount);
        } else {
            is_by_key()
        };
        if is_signed { Ok(()) } else { Err(MessageRefusal::BadSignature) }
    }
}

/// The denial of a signed request whose nonce can't be used.
pub(super) const fn message_nonce_denial(agent: AgentId, refused: NonceRefused) -> Denial {
    match refused {
        NonceRefused::Used => Denial::of_message(Some(agent), MessageRefusal::NonceReused),
        NonceRefused::Forgotten { retry_after, .. } => Denial::MessageRefused {
            agent: Some(agent),
            refusal: MessageRefusal::VerificationUnavailable,
            retry_after: Some(retry_after),
        },
    }
}

/// The refusal of a request in the words of its credential: its account no longer holds the agent.
pub(super) fn for_credential(ask: &Ask<'_>, refusal: Error) -> Error {
    match (&ask.credential, refusal) {
        (Credential::Messages(_), Error::Denied(Denial::SignatureInvalid { agent, .. })) => {
            Denial::of_message(Some(agent), MessageRefusal::PrincipalNotAllowed).into()
        }
        (_, refusal) => refusal,
    }
}
