//! Proves that a request is signed by an account that may act for its agent (ERC-8128, section 4).
//!
//! The account decides how: one with code, also by EIP-7702, is asked whether it accepts the signature (ERC-1271), and a key
//! counts for one without.

use std::cell::LazyCell;

use futures_util::future::BoxFuture;

use crate::domain::{AgentId, Denial, MessageRefusal, SignedMessage};
use crate::error::Error;
use crate::pipeline::credential::{Ask, Credential, SignedMessages};
use crate::pipeline::{Pipeline, failures::ReservedFailure, read_time::ReadTime};
use crate::ports::{AskedHolders, Asker, ChainFault, NonceRefused};

impl Pipeline {
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
pub(super) const fn nonce_denial(agent: AgentId, refused: NonceRefused) -> Denial {
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
