//! Changing an agent's key: one atomic script in the agent's slot, and the entry of the key's digest in another.
//!
//! The record in the agent's slot decides which key is current. The entry only says whose a digest is; without it a key
//! is not found and so refused. No step can be made in both slots at once, so their order makes sure that a change that
//! dies half-way leaves only what refuses a key and does not stay:
//!
//! | step | a crash after it leaves | removed |
//! | --- | --- | --- |
//! | 1 `note`: the agent, into the journal | a note | when it is overdue |
//! | 2 `announce`: the new digest's entry, with an expiry; replicas have it | an entry that `admit` refuses, because no record names it | by its expiry |
//! | 3 `check_replicas`: replicas have what the agent's server writes | the same | the same |
//! | 4 `swap`: nonce, record, and the replaced digest among the replaced ones, in one script; replicas have it | a record with a key that was never shown; its entry expires. The entry of the replaced digest, which `admit` refuses | with the overdue note |
//! | 5 `confirm`: takes the expiry off the entry; replicas have it | the same, with an entry that stays: a key of the agent's that nobody knows, until the next change | with the next change |
//! | 6 `tidy`: the entries of replaced digests, then their note in the agent's slot | a note | when it is overdue |
//! | 7 `strike`: the note | nothing | |
//!
//! With too few replicas 2 and 3 end the change before it has cost anything. A revocation skips them: that
//! an old key is dead is worth more than knowing how many replicas know it, so it takes effect, and its owner gets a
//! fault and may repeat it.
//!
//! No step is taken twice but 6 and 7, which may be. A step that timed out may have been taken, or may yet be: the
//! caller gets a fault and no key, as after a crash. The key is shown only after step 5. When step 4 refuses, the entry
//! is deleted at once, or expires.

use alloy::primitives::{U256, hex};
use redis::Value;

use crate::domain::agent_id::AgentId;
use crate::domain::api_key::KeyDigest;
use crate::domain::nonce::NonceClaim;
use crate::ports::store::{KeyChange, KeyChanged, NewKey};
use crate::store::redis::RedisStore;
use crate::store::redis::answers::{bytes, key_change, texts};
use crate::store::redis::error::RedisError;
use crate::store::redis::names::{self, Shard};

/// How long an announced entry lives, in seconds: far longer than a change takes.
const ANNOUNCED_SECS: u64 = 900;

/// How long the key of `check_replicas` lives, in seconds.
const PROBE_SECS: u64 = 60;

/// After how long a note is overdue, in microseconds: longer than a change can take.
const OVERDUE_MICROS: u64 = 300_000_000;

/// How many overdue notes are asked for at once.
const OVERDUE_NOTES_MAX: usize = 100;

/// After so many notes that could not be dealt with the others wait for the next time.
const FAILED_NOTES_MAX: usize = 100;

impl RedisStore {
    /// All steps in their order.
    pub(super) async fn swap_key(
        &self,
        agent: AgentId,
        claim: NonceClaim,
        change: &KeyChange,
    ) -> Result<KeyChanged, RedisError> {
        let new = new_key(change);
        let note = self.note(agent, &claim).await?;
        if let Some(new) = new {
            self.announce(agent, new).await?;
            self.check_replicas(agent).await?;
        }
        let (changed, replaced) = self.swap(agent, &claim, change).await?;
        if changed != KeyChanged::Done {
            if let Some(new) = new {
                let delete = self.shared.command("DEL", names::entry(&new.digest));
                let _ = self.servers.ask(Shard::of_digest(&new.digest), delete).await;
            }
            let _ = self.strike(&note).await;
            return Ok(changed);
        }
        if let Some(new) = new {
            self.confirm(agent, new).await?;
        }
        // The change stands. What fails from here on is done by the replica that finds the note.
        if self.tidy(agent, &replaced).await.is_ok() {
            let _ = self.strike(&note).await;
        }
        Ok(KeyChanged::Done)
    }

    /// The note, which is this attempt's alone.
    pub(super) async fn note(&self, agent: AgentId, claim: &NonceClaim) -> Result<Vec<u8>, RedisError> {
        let note = self.shared.scripts.note.on(&[names::journal()]).arg(note_of(agent, claim));
        let note = self.servers.ask(Shard::of_journal(), note).await?;
        bytes(&note).map(<[u8]>::to_vec)
    }

    pub(super) async fn announce(&self, agent: AgentId, new: &NewKey) -> Result<(), RedisError> {
        let set = self.shared.command("SET", names::entry(&new.digest)).arg(entry_of(agent, new));
        let set = set.arg("EX").arg(ANNOUNCED_SECS);
        self.servers.ask_acknowledged(Shard::of_digest(&new.digest), set, always).await.map(drop)
    }

    /// Finds out whether replicas have what is written where the agent's record is, with a key that means nothing.
    pub(super) async fn check_replicas(&self, agent: AgentId) -> Result<(), RedisError> {
        if self.shared.options.wait_replicas == 0 {
            return Ok(());
        }
        let shard = Shard::of_agent(agent);
        let set = self.shared.command("SET", names::probe(shard)).arg("").arg("EX").arg(PROBE_SECS);
        self.servers.ask_acknowledged(shard, set, always).await.map(drop)
    }

    /// The outcome, and the replaced digests whose entries are still there.
    pub(super) async fn swap(
        &self,
        agent: AgentId,
        claim: &NonceClaim,
        change: &KeyChange,
    ) -> Result<(KeyChanged, Vec<Vec<u8>>), RedisError> {
        let shard = Shard::of_agent(agent);
        let keys = [
            names::epoch(shard),
            names::nonce(agent, claim.nonce),
            names::record(agent),
            names::replaced(agent),
        ];
        let verb = match change {
            KeyChange::Issue(_) => "issue",
            KeyChange::Rotate(_) => "rotate",
            KeyChange::Revoke => "revoke",
        };
        let digest = new_key(change).map_or(Vec::new(), |key| key.digest.to_bytes().to_vec());
        let swap = self.shared.with_nonce_limits(self.shared.scripts.change_key.on(&keys));
        let swap = swap.arg(claim.signed_at.0).arg(verb).arg(digest);
        let is_done = |value: &Value| matches!(key_change(value), Ok((KeyChanged::Done, _)));
        key_change(&self.servers.ask_acknowledged(shard, swap, is_done).await?)
    }

    /// Takes the expiry off the entry, by writing it once more if it is there. When it is gone, the key may have been
    /// replaced since; otherwise it could never be used, and must not be shown.
    pub(super) async fn confirm(&self, agent: AgentId, new: &NewKey) -> Result<(), RedisError> {
        let set = self.shared.command("SET", names::entry(&new.digest)).arg(entry_of(agent, new)).arg("XX");
        let shard = Shard::of_digest(&new.digest);
        if self.servers.ask_acknowledged(shard, set, always).await? == Value::Okay {
            return Ok(());
        }
        let get = self.shared.command("GET", names::record(agent));
        let record = self.servers.ask(Shard::of_agent(agent), get).await?;
        if record != Value::BulkString(new.digest.to_bytes().to_vec()) {
            return Ok(());
        }
        Err(RedisError::Unconfirmed)
    }

    /// Removes the entries of digests that were replaced, then the memory of them.
    pub(super) async fn tidy(&self, agent: AgentId, replaced: &[Vec<u8>]) -> Result<(), RedisError> {
        for bytes in replaced {
            if let Ok(bytes) = <[u8; 32]>::try_from(bytes.as_slice()) {
                let digest = KeyDigest::from_bytes(bytes);
                self.known.remove(&digest);
                let delete = self.shared.command("DEL", names::entry(&digest));
                self.servers.ask(Shard::of_digest(&digest), delete).await?;
            }
            let forget = self.shared.command("SREM", names::replaced(agent)).arg(bytes);
            self.servers.ask(Shard::of_agent(agent), forget).await?;
        }
        Ok(())
    }

    async fn strike(&self, note: &[u8]) -> Result<(), RedisError> {
        let strike = self.shared.command("ZREM", names::journal()).arg(note);
        self.servers.ask(Shard::of_journal(), strike).await.map(drop)
    }

    /// Tidies up after changes that were begun and not finished. A note that can't be dealt with stays for another time
    /// and holds up no other.
    pub(super) async fn tidy_overdue(&self) -> Result<(), RedisError> {
        let mut failed = 0;
        let mut outcome = Ok(());
        loop {
            let notes = self.overdue(failed).await?;
            for note in &notes {
                if let Err(error) = self.tidy_note(note).await {
                    failed += 1;
                    outcome = Err(error);
                }
            }
            if notes.len() < OVERDUE_NOTES_MAX || failed >= FAILED_NOTES_MAX {
                return outcome;
            }
        }
    }

    /// Overdue notes, the oldest first, without the first `skipped`.
    async fn overdue(&self, skipped: usize) -> Result<Vec<Vec<u8>>, RedisError> {
        let overdue = self.shared.scripts.overdue.on(&[names::journal()]);
        let overdue = overdue.arg(OVERDUE_MICROS).arg(skipped).arg(OVERDUE_NOTES_MAX);
        texts(&self.servers.ask(Shard::of_journal(), overdue).await?)
    }

    async fn tidy_note(&self, note: &[u8]) -> Result<(), RedisError> {
        if let Some(agent) = agent_of(&String::from_utf8_lossy(note)) {
            let members = self.shared.command("SMEMBERS", names::replaced(agent));
            let replaced = self.servers.ask(Shard::of_agent(agent), members).await?;
            self.tidy(agent, &texts(&replaced)?).await?;
        }
        self.strike(note).await
    }
}

/// Every answer tells of a write.
const fn always(_: &Value) -> bool {
    true
}

/// The value of a digest's entry: the agent, then the declared origin, if there is one.
fn entry_of(agent: AgentId, new: &NewKey) -> Vec<u8> {
    let origin = new.declared_endpoint.as_ref().map_or("", |endpoint| endpoint.origin().as_str());
    [agent.to_bytes().as_slice(), origin.as_bytes()].concat()
}

fn new_key(change: &KeyChange) -> Option<&NewKey> {
    match change {
        KeyChange::Issue(key) | KeyChange::Rotate(key) => Some(key),
        KeyChange::Revoke => None,
    }
}

/// How a note begins: the agent whose key is about to change, and the signed nonce.
fn note_of(agent: AgentId, claim: &NonceClaim) -> String {
    format!("{:x}:{}", agent.token_id(), hex::encode(claim.nonce.to_bytes()))
}

fn agent_of(note: &str) -> Option<AgentId> {
    let (agent, _) = note.split_once(':')?;
    U256::from_str_radix(agent, 16).ok().map(AgentId::new)
}
