//! Changing an agent's keys: one script in the slot where the agent is, and all that its key needs.
//!
//! The record decides which key is current; the entry of a digest says whose it is, and beside it stands who signed for it.
//! `RedisStore::fits` sees to it that all are in one slot, so a change is made as a whole or not at all, on a server and on what replicates it.
//! `held_keys.rs` works it out from the record as it was read, and it is made if the record is still that one.
//!
//! A change that timed out may have been made: the caller gets a fault and no key. One that comes to Redis only later does
//! nothing there, since its owner may have made another one meanwhile. With too few replicas a
//! key is not made. A revocation does not ask for them first: that an old key is dead is worth more than knowing how many
//! replicas know it, so it takes effect, and its owner gets a fault and may repeat it.

use crate::domain::held_key::{self, day_of};
use crate::domain::{AgentId, HeldKey, KeyDigest, NonceClaim, WebOrigin};
use crate::ports::{KeyChange, KeyChanged, MadeKey, NewKey};
use crate::store::redis::answers::{Record, Written, record, written};
use crate::store::redis::names::{self, Name, Shard};
use crate::store::{held_keys, redis::RedisStore, redis::error::RedisError, redis::scripts::Request};

impl RedisStore {
    pub(super) async fn swap_key(
        &self,
        agent: AgentId,
        claim: NonceClaim,
        change: &KeyChange,
    ) -> Result<(KeyChanged, Option<MadeKey>), RedisError> {
        let new = match change {
            KeyChange::Issue(new) | KeyChange::Rotate(new) => Some(new),
            KeyChange::Revoke(_) => None,
        };
        if new.is_some() && self.shared.options.wait_replicas > 0 {
            // The probe finds out whether replicas have what is written where the agent is.
            let probe = self.shared.probe(Shard::of_agent(agent));
            self.servers.ask(Request { is_write: Some(|_| true), ..probe }).await?;
        }
        // Each turn more is one that another change of the same agent has won.
        loop {
            let Record { bytes, keys: before, now_secs } = self.record(agent).await?;
            let mut keys = before.clone();
            let (changed, made) = held_keys::change(&mut keys, change, now_secs);
            let is_done = changed == KeyChanged::Done;
            let gone = before.iter().filter(|key| !keys.iter().any(|kept| kept.digest == key.digest));
            let gone: Vec<&KeyDigest> = gone.map(|key| &key.digest).collect();
            let effects = if is_done { self.effects(agent, new, &gone, &keys, now_secs) } else { Vec::new() };
            let shard = Shard::of_agent(agent);
            let mut names = vec![Name::Epoch(shard), Name::Nonces(shard), Name::Record(agent)];
            names.extend(effects.iter().map(|(name, _)| *name));
            let swap = self.shared.with_nonce_limits(self.shared.scripts.change_key.on(&names));
            let swap = swap.arg(claim.signed_at.0).arg(names::nonce(agent, claim.nonce)).arg(bytes);
            let swap = swap.arg(if is_done { record_of(&keys) } else { REFUSED.to_vec() });
            let mut swap = effects.into_iter().fold(swap, |swap, (_, effect)| swap.arg(effect));
            swap.is_write = Some(|value| written(value).is_ok_and(|written| written == Written::Done));
            match written(&self.servers.ask(swap).await?)? {
                Written::Changed => {}
                Written::Unused => return Ok((changed, None)),
                Written::NonceRefused(refused) => return Ok((KeyChanged::NonceRefused(refused), None)),
                Written::Done => {
                    gone.into_iter().for_each(|digest| drop(self.known.remove(digest)));
                    return Ok((changed, made));
                }
            }
        }
    }

    /// Effects on all that belongs to keys beside the record, as `change_key.lua` reads it.
    fn effects<'a>(
        &self,
        agent: AgentId,
        new: Option<&'a NewKey>,
        gone: &[&'a KeyDigest],
        keys: &'a [HeldKey],
        now_secs: u64,
    ) -> Vec<(Name<'a>, Vec<u8>)> {
        // A key that was made before keys had to fit has its entry in another slot of a cluster. Left behind, it opens nothing.
        let is_here = |digest: &KeyDigest| {
            !self.shared.is_cluster() || Shard::of_digest(digest) == Shard::of_agent(agent)
        };
        let beside = |digest| [Name::Entry(digest), Name::Signer(digest), Name::Days(digest)];
        let gone = gone.iter().filter(|digest| is_here(digest)).flat_map(|digest| beside(digest));
        let mut effects: Vec<_> = gone.map(|name| (name, b"d".to_vec())).collect();
        if let Some(new) = new {
            let values = [entry_of(agent, new), new.signer.to_vec(), day_of(now_secs).to_string().into()];
            let set = beside(&new.digest).into_iter().zip(values);
            effects.extend(set.map(|(name, value)| (name, [b"s", value.as_slice()].concat())));
        }
        for key in keys.iter().filter(|key| is_here(&key.digest)) {
            let Some(ends) = key.ends else { continue };
            // A second later than the record has it end.
            let expires = format!("e{}", 1_000 * (ends.saturating_sub(now_secs) + 1)).into_bytes();
            effects.extend(beside(&key.digest).map(|name| (name, expires.clone())));
        }
        effects
    }

    /// The agent's record by the clock of its server.
    pub(super) async fn record(&self, agent: AgentId) -> Result<Record, RedisError> {
        record(&self.servers.ask(self.shared.scripts.list.on(&[Name::Record(agent)])).await?)
    }
}

/// Stands for the new record where the rules refuse the change, which needs its nonce inspected at all the same.
const REFUSED: &[u8] = b"refused";

/// The record that holds these keys: none, version 1, or version 2. Entries have signers and origins.
fn record_of(keys: &[HeldKey]) -> Vec<u8> {
    match keys {
        [] => Vec::new(),
        [key] if key.is_plain() => key.digest.to_bytes().to_vec(),
        keys => {
            let bare = |key: &HeldKey| HeldKey { signer: None, origin: None, ..key.clone() };
            held_key::write(&keys.iter().map(bare).collect::<Vec<_>>()).into_bytes()
        }
    }
}

/// The value of a digest's entry: the agent, then the declared origin, if there is one, and behind a blank the tenants, which makes
/// an origin that former releases refuse.
fn entry_of(agent: AgentId, new: &NewKey) -> Vec<u8> {
    let origin = new.origin.as_ref().map_or("", WebOrigin::as_str);
    let tenants = new.terms.tenants.as_ref().map(|tenants| format!(" {tenants}")).unwrap_or_default();
    [agent.to_bytes().as_slice(), origin.as_bytes(), tenants.as_bytes()].concat()
}
