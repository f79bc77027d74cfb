//! Keys that end with whoever signed for them (`keys.end_with_signer`): such a key is good while that account holds the agent.
//!
//! The profile that the verification reads anyway says who holds it.

use std::sync::Arc;

use alloy::primitives::Address;

use crate::domain::{Denial, Quota, TrustProfile, Verdict};
use crate::error::Error;
use crate::pipeline::{Pipeline, credential::Ask, principal::Principal};
use crate::ports::{Asker, Proof};

/// How often the chain is read for one key that has ended by the cached profile: its holder may go on to send it.
pub(super) const REREADS: Quota = Quota::per_minute(1);

/// How many such keys are remembered.
pub(super) const REREAD_KEYS_MAX: usize = 4_096;

impl Pipeline {
    /// True if the credential is a key that ends with this signer, who may not act for the agent by this profile.
    pub(super) fn has_ended(&self, key_signer: Option<Address>, profile: &TrustProfile) -> bool {
        key_signer.is_some_and(|signer| !self.may_act(&profile.holders, signer))
    }

    /// The profile of an agent whose key has ended by a cached one, which may be older than the key: a new owner has just made
    /// it. Looked at once a minute, and as a stranger's: whoever sold many agents has as many such keys. A fault says nothing
    /// of the key, and is no look.
    pub(super) async fn profile_of_holder(
        &self,
        principal: &Principal,
        ask: &Ask<'_>,
    ) -> Result<Arc<TrustProfile>, Error> {
        let ended = || Error::from(Denial::InvalidApiKey { agent: ask.credential.named_agent() });
        let (Proof::Key(digest), Some(signer)) = (&principal.proof, principal.key_signer) else {
            return Err(ended());
        };
        let is_due = matches!(self.rereads.peek(digest, REREADS, || self.now()), Verdict::Admitted { .. });
        if !is_due || self.failures.check(ask.client, None).is_err() {
            return Err(ended());
        }
        let holders = self.ports.chain.holders(principal.agent(), Asker::Stranger).await?;
        if !holders.is_some_and(|holders| self.may_act(&holders, signer)) {
            self.rereads.hit(digest, REREADS, self.now());
            return Err(ended());
        }
        let latest = self.ports.chain.latest_profile(principal.agent(), ask.access.parts);
        let latest = principal.read_time.bound(&self.ports, latest).await?;
        latest.filter(|profile| !self.has_ended(Some(signer), profile)).ok_or_else(ended)
    }
}
