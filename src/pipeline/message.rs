//! Proves that a request is signed by an account that may act for its agent (ERC-8128, section 4).
//!
//! The account decides how: one with code, also by EIP-7702, is asked whether it accepts the signature (ERC-1271), and a key
//! counts for one without.

use crate::domain::agent_id::AgentId;
use crate::domain::denial::Denial;
use crate::domain::signed_message::{MessageRefusal, SignedMessage};
use crate::pipeline::Pipeline;
use crate::pipeline::credential::{Ask, Credential, SignedMessages};
use crate::pipeline::failures::Deposit;
use crate::pipeline::read_time::ReadTime;
use crate::pipeline::refusal::Refusal;
use crate::ports::chain::AskedHolders;
use crate::ports::store::NonceRefused;

impl Pipeline {
    /// The first of a request's signatures that counts. Each question to a contract after the first costs the client one of
    /// its refused credentials, whatever the answer is.
    pub(super) async fn prove_message<'a>(
        &self,
        ask: &Ask<'_>,
        signed: &'a SignedMessages,
        (deposit, time): (&mut Option<Box<Deposit>>, ReadTime),
    ) -> Result<&'a SignedMessage, Refusal> {
        let SignedMessages { agent, ref messages, first_refusal } = *signed;
        let not_found = Denial::AgentNotFound { agent };
        if self.ports.chain.reserves(agent) {
            return Err(not_found.into());
        }
        let (mut first, mut asked): (_, Option<AskedHolders>) = (first_refusal, None);
        for message in messages {
            let is_known = |asked: &AskedHolders| {
                asked.iter().all(|one| one.address != message.account || !one.has_code)
            };
            if message.signature.deploys_account() {
                first.get_or_insert(MessageRefusal::UnsupportedAccount);
                continue;
            }
            if !asked.as_ref().is_some_and(is_known) {
                if asked.is_some() || !self.is_vouched_message(agent, message) {
                    *deposit = self.failures.deposit(ask.client, agent)?;
                }
                let read = self.ports.chain.ask_holders(agent, message.digest, message.signature.as_bytes());
                asked = Some(time.bound(&self.ports, read).await?.ok_or_else(|| not_found.clone())?);
            }
            match asked.as_ref().map(|asked| self.judge_message(message, asked)) {
                Some(Ok(())) => return Ok(message),
                Some(Err(refusal)) => drop(first.get_or_insert(refusal)),
                None => {}
            }
        }
        let refusal = first.unwrap_or(MessageRefusal::NoAcceptableSignature);
        Err(Denial::of_message(Some(agent), refusal).into())
    }

    fn judge_message(&self, message: &SignedMessage, asked: &AskedHolders) -> Result<(), MessageRefusal> {
        let may_act = self.owners.may_act(&asked.holders(), message.account);
        let holder = asked.iter().find(|one| may_act && one.address == message.account);
        let holder = holder.ok_or(MessageRefusal::PrincipalNotAllowed)?;
        let is_signed = if holder.has_code {
            if !self.owners.format().has_contracts() {
                return Err(MessageRefusal::UnsupportedAccount);
            }
            holder.accepts
        } else {
            is_by_key(message)
        };
        if is_signed { Ok(()) } else { Err(MessageRefusal::BadSignature) }
    }

    /// True if the key of an account that has been seen as the agent's holder signed it. Reads no node.
    fn is_vouched_message(&self, agent: AgentId, message: &SignedMessage) -> bool {
        self.owners.was_heard(&self.ports, agent, message.account) && is_by_key(message)
    }
}

fn is_by_key(message: &SignedMessage) -> bool {
    message.signature.recover(&message.digest) == Some(message.account)
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
pub(super) fn of_credential(ask: &Ask<'_>, refusal: Refusal) -> Refusal {
    match (&ask.credential, refusal) {
        (Credential::Messages(_), Refusal::Denied(Denial::SignatureInvalid { agent, .. })) => {
            Denial::of_message(Some(agent), MessageRefusal::PrincipalNotAllowed).into()
        }
        (_, refusal) => refusal,
    }
}
