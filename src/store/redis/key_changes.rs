//! Changing an agent's keys: one script in the slot where the agent is, and all that its key needs.
//!
//! The record decides which key is current; the entry of a digest says whose it is, and beside it stands who signed for it.
//! `RedisStore::fits` sees to it that all are in one slot, so a change is made as a whole or not at all, on a server and on what replicates it.
//!
//! A change that timed out may have been made: the caller gets a fault and no key. One that comes to Redis only later does
//! nothing there, since its owner may have made another one meanwhile. With too few replicas a
//! key is not made. A revocation does not ask for them first: that an old key is dead is worth more than knowing how many
//! replicas know it, so it takes effect, and its owner gets a fault and may repeat it.

use crate::domain::agent_id::AgentId;
use crate::domain::held_key::word;
use crate::domain::nonce::NonceClaim;
use crate::ports::store::{KeyChange, KeyChanged, MadeKey, NewKey};
use crate::store::held_keys::REPLACED_MAX;
use crate::store::redis::RedisStore;
use crate::store::redis::answers::key_change;
use crate::store::redis::error::RedisError;
use crate::store::redis::names::{self, Name, Shard};
use crate::store::redis::scripts::Request;

impl RedisStore {
    pub(super) async fn swap_key(
        &self,
        agent: AgentId,
        claim: NonceClaim,
        change: &KeyChange,
    ) -> Result<(KeyChanged, Option<MadeKey>), RedisError> {
        let (verb, new) = match change {
            KeyChange::Issue(new) => ("issue", Some(new)),
            KeyChange::Rotate(new) => ("rotate", Some(new)),
            KeyChange::Revoke(_) => ("revoke", None),
        };
        let shard = Shard::of_agent(agent);
        let mut keys = vec![Name::Epoch(shard), Name::Nonces(shard), Name::Record(agent)];
        if let Some(NewKey { digest, .. }) = new {
            keys.extend([Name::Entry(digest), Name::Signer(digest), Name::Days(digest)]);
        }
        let swap = self.shared.with_nonce_limits(self.shared.scripts.change_key.on(&keys));
        let mut swap = swap
            .arg(claim.signed_at.0)
            .arg(names::nonce(agent, claim.nonce))
            .arg(verb)
            .arg(word(change.name()));
        if let Some(new) = new {
            if self.shared.options.wait_replicas > 0 {
                // The probe finds out whether replicas have what is written where the agent is.
                let probe = Request { is_write: Some(|_| true), ..self.shared.probe(shard) };
                self.servers.ask(probe).await?;
            }
            swap = swap.arg(new.digest.to_bytes().as_slice()).arg(entry_of(agent, new));
            swap = swap.arg(new.signer.as_slice()).arg(new.per_agent_max);
            swap = swap.arg(new.terms.expires_in_secs.unwrap_or(0)).arg(word(new.terms.tenants.as_ref()));
            swap = swap.arg(new.terms.grace_secs).arg(REPLACED_MAX);
        }
        swap.is_write = Some(|value| matches!(key_change(value), Ok((KeyChanged::Done, ..))));
        let (changed, made, gone) = key_change(&self.servers.ask(swap).await?)?;
        for digest in gone {
            self.known.remove(&digest);
        }
        Ok((changed, new.filter(|_| changed == KeyChanged::Done).map(|_| made)))
    }
}

/// The value of a digest's entry: the agent, then the declared origin, if there is one, and behind a blank the tenants, which makes
/// an origin that former releases refuse.
fn entry_of(agent: AgentId, new: &NewKey) -> Vec<u8> {
    let origin = new.declared_endpoint.as_ref().map_or("", |endpoint| endpoint.origin().as_str());
    let tenants = new.terms.tenants.as_ref().map(|tenants| format!(" {tenants}")).unwrap_or_default();
    [agent.to_bytes().as_slice(), origin.as_bytes(), tenants.as_bytes()].concat()
}
