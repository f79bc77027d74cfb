//! Changing an agent's key: one atomic script in the agent's slot, and the entry of the key's digest in another.
//!
//! The record in the agent's slot decides which key is current. The entry only says whose a digest is; without it a key
//! is not found and so refused. No step can be made in both slots at once, so their order sees to it that whatever is
//! left undone refuses a key and does not stay:
//!
//! | step | crash after it leaves | which goes |
//! | --- | --- | --- |
//! | 1 `note`: what is about to happen, into the journal | a note | when it is overdue |
//! | 2 `announce`: the new digest's entry, with an expiry | an entry that `admit` refuses, because no record names it | by its expiry |
//! | 3 `swap`: nonce, record, and the replaced digest among the replaced ones, in one script | a record with a key that nobody was told; its entry expires. The entry of the replaced digest, which `admit` refuses | with the overdue note |
//! | 4 `confirm`: takes the expiry off the entry | the same, with an entry that stays: a key of the agent's that nobody knows, until the next change | with the next change |
//! | 5 `tidy`: the entries of replaced digests, then their note in the agent's slot | a note | when it is overdue |
//! | 6 `strike`: the note | nothing | |
//!
//! No step is taken twice but those that may be (4 to 6). A step that timed out may have been taken, or may yet be: the
//! caller gets a fault and no key, as after a crash. The key is shown only after step 4. When step 3 refuses, the entry
//! is taken back at once, or expires.

use alloy::primitives::{U256, hex};
use redis::Value;

use crate::domain::agent_id::AgentId;
use crate::domain::api_key::KeyDigest;
use crate::domain::nonce::NonceClaim;
use crate::ports::store::{KeyChange, KeyChanged, NewKey};
use crate::store::redis::RedisStore;
use crate::store::redis::answers::{Answer, texts};
use crate::store::redis::names::{self, Shard};
use crate::store::redis::scripts::Request;
use crate::store::redis::trouble::Trouble;

/// How long an announced entry lives, in seconds: far longer than a change takes.
const ANNOUNCED_SECS: u64 = 900;

/// After how long a note is overdue, in microseconds: longer than a change can take.
const OVERDUE_MICROS: u64 = 300_000_000;

/// How many overdue notes are looked at in one go.
const OVERDUE_NOTES_MAX: usize = 100;

impl RedisStore {
    /// All steps in their order.
    pub(super) async fn swap_key(
        &self,
        agent: AgentId,
        claim: NonceClaim,
        change: &KeyChange,
    ) -> Result<KeyChanged, Trouble> {
        let new = new_key(change);
        self.note(agent, &claim).await?;
        if let Some(new) = new {
            self.announce(agent, new).await?;
        }
        match self.swap(agent, &claim, change).await? {
            Answer::Done(replaced) => {
                if let Some(new) = new {
                    self.confirm(agent, new).await?;
                }
                // The change stands. What fails from here on is made up for by whoever finds the note.
                if self.tidy(agent, &replaced).await.is_ok() {
                    let _ = self.strike(&note_of(agent, &claim)).await;
                }
                Ok(KeyChanged::Done)
            }
            Answer::KeyExists => self.withdraw(new, KeyChanged::KeyExists).await,
            Answer::NonceUsed => self.withdraw(new, KeyChanged::NonceUsed).await,
            Answer::Admitted { .. } | Answer::Limited { .. } | Answer::KeyRevoked | Answer::Strange => {
                Err(Trouble::Unreadable)
            }
        }
    }

    pub(super) async fn note(&self, agent: AgentId, claim: &NonceClaim) -> Result<(), Trouble> {
        let note = self.shared.scripts.note.on(&[names::journal()]).arg(note_of(agent, claim));
        self.servers.ask(Shard::of_journal(), note).await.map(drop)
    }

    pub(super) async fn announce(&self, agent: AgentId, new: &NewKey) -> Result<(), Trouble> {
        let origin = new.declared_endpoint.as_ref().map_or("", |endpoint| endpoint.origin().as_str());
        let value = [agent.to_bytes().as_slice(), origin.as_bytes()].concat();
        let set = Request::command("SET").arg(names::entry(&new.digest)).arg(value);
        let set = set.arg("EX").arg(ANNOUNCED_SECS);
        self.servers.ask(Shard::of_digest(&new.digest), set).await.map(drop)
    }

    pub(super) async fn swap(
        &self,
        agent: AgentId,
        claim: &NonceClaim,
        change: &KeyChange,
    ) -> Result<Answer, Trouble> {
        let shard = Shard::of_agent(agent);
        let keys = [
            names::epoch(shard),
            names::nonce(agent, claim.nonce),
            names::record(agent),
            names::replaced(agent),
        ];
        let what = match change {
            KeyChange::Issue(_) => "issue",
            KeyChange::Rotate(_) => "rotate",
            KeyChange::Revoke => "revoke",
        };
        let digest = new_key(change).map_or(Vec::new(), |key| key.digest.to_bytes().to_vec());
        self.servers
            .spend(shard, |identity| {
                let swap = self.with_claim(self.shared.scripts.change_key.on(&keys).arg(identity), claim);
                swap.arg(what).arg(&digest)
            })
            .await
    }

    /// Takes the expiry off the entry. When the entry is gone, the key may have been replaced since; otherwise it could
    /// never be used, and nobody must be told of it.
    pub(super) async fn confirm(&self, agent: AgentId, new: &NewKey) -> Result<(), Trouble> {
        let persist = || Request::command("PERSIST").arg(names::entry(&new.digest));
        let shard = Shard::of_digest(&new.digest);
        // May be sent twice: it does nothing the second time, and then the record says what happened.
        let value = match self.servers.ask(shard, persist()).await {
            Err(Trouble::Silent(_) | Trouble::Broken(_)) => self.servers.ask(shard, persist()).await?,
            other => other?,
        };
        if value == Value::Int(1) {
            return Ok(());
        }
        let get = Request::command("GET").arg(names::record(agent));
        let record = self.servers.ask(Shard::of_agent(agent), get).await?;
        if record != Value::BulkString(new.digest.to_bytes().to_vec()) {
            return Ok(());
        }
        let exists = Request::command("TTL").arg(names::entry(&new.digest));
        if self.servers.ask(shard, exists).await? == Value::Int(-1) {
            return Ok(());
        }
        Err(Trouble::Refused("the entry of a key is gone before it was confirmed".to_owned()))
    }

    /// Removes the entries of digests that were replaced, then the memory of them.
    pub(super) async fn tidy(&self, agent: AgentId, replaced: &[Vec<u8>]) -> Result<(), Trouble> {
        for bytes in replaced {
            if let Ok(bytes) = <[u8; 32]>::try_from(bytes.as_slice()) {
                let digest = KeyDigest::from_bytes(bytes);
                self.known.remove(&digest);
                let delete = Request::command("DEL").arg(names::entry(&digest));
                self.servers.ask(Shard::of_digest(&digest), delete).await?;
            }
            let forget = Request::command("SREM").arg(names::replaced(agent)).arg(bytes);
            self.servers.ask(Shard::of_agent(agent), forget).await?;
        }
        Ok(())
    }

    async fn strike(&self, note: &str) -> Result<(), Trouble> {
        let strike = Request::command("ZREM").arg(names::journal()).arg(note);
        self.servers.ask(Shard::of_journal(), strike).await.map(drop)
    }

    /// Takes back the entry of a key that was not made. Its expiry sees to it otherwise; so does the journal to the note,
    /// which may be the one of a twin of this request that is not done yet.
    async fn withdraw(&self, new: Option<&NewKey>, answer: KeyChanged) -> Result<KeyChanged, Trouble> {
        if let Some(new) = new {
            let delete = Request::command("DEL").arg(names::entry(&new.digest));
            let _ = self.servers.ask(Shard::of_digest(&new.digest), delete).await;
        }
        Ok(answer)
    }

    /// Tidies up after changes that somebody began and did not end.
    pub(super) async fn tidy_overdue(&self) -> Result<(), Trouble> {
        let overdue = self.shared.scripts.overdue.on(&[names::journal()]);
        let overdue = overdue.arg(OVERDUE_MICROS).arg(OVERDUE_NOTES_MAX);
        let value = self.servers.ask(Shard::of_journal(), overdue).await?;
        let Answer::Done(notes) = Answer::read(&value)? else { return Err(Trouble::Unreadable) };
        for note in notes {
            let note = String::from_utf8_lossy(&note);
            if let Some(agent) = agent_of(&note) {
                let members = Request::command("SMEMBERS").arg(names::replaced(agent));
                let replaced = self.servers.ask(Shard::of_agent(agent), members).await?;
                self.tidy(agent, &texts(&replaced).ok_or(Trouble::Unreadable)?).await?;
            }
            self.strike(&note).await?;
        }
        Ok(())
    }
}

fn new_key(change: &KeyChange) -> Option<&NewKey> {
    match change {
        KeyChange::Issue(key) | KeyChange::Rotate(key) => Some(key),
        KeyChange::Revoke => None,
    }
}

/// Names one change: an agent's nonce changes one key.
fn note_of(agent: AgentId, claim: &NonceClaim) -> String {
    format!("{:x}:{}", agent.token_id(), hex::encode(claim.nonce.to_bytes()))
}

fn agent_of(note: &str) -> Option<AgentId> {
    let (agent, _) = note.split_once(':')?;
    U256::from_str_radix(agent, 16).ok().map(AgentId::new)
}
