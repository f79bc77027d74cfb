//! Changing an agent's key: one atomic script in the agent's slot, and the entry of the key's digest in another.
//!
//! The record in the agent's slot decides which key is current. The entry only says whose a digest is; without it a key
//! is not found and so refused. No step can be made in both slots at once, so their order sees to it that whatever is
//! left undone refuses a key and does not stay:
//!
//! | step | crash after it leaves | which goes |
//! | --- | --- | --- |
//! | 1 `note`: what is about to happen, into the journal | a note | when it is overdue |
//! | 2 `announce`: the new digest's entry, with an expiry; replicas have it | an entry that `admit` refuses, because no record names it | by its expiry |
//! | 3 `sound`: replicas have what the agent's server writes | the same | the same |
//! | 4 `swap`: nonce, record, and the replaced digest among the replaced ones, in one script; replicas have it | a record with a key that nobody was told; its entry expires. The entry of the replaced digest, which `admit` refuses | with the overdue note |
//! | 5 `confirm`: takes the expiry off the entry; replicas have it | the same, with an entry that stays: a key of the agent's that nobody knows, until the next change | with the next change |
//! | 6 `tidy`: the entries of replaced digests, then their note in the agent's slot | a note | when it is overdue |
//! | 7 `strike`: the note | nothing | |
//!
//! Where replicas must have what is written and too few do, 2 and 3 end the change before it has cost anything. A
//! revocation goes without them: that an old key is dead is worth more than knowing how many replicas know it, so it
//! takes effect, and its owner gets a fault and may repeat it.
//!
//! No step is taken twice but those that may be (5 to 7). A step that timed out may have been taken, or may yet be: the
//! caller gets a fault and no key, as after a crash. The key is shown only after step 5. When step 4 refuses, the entry
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

/// How long what `sound` writes lives, in seconds.
const PROBE_SECS: u64 = 60;

/// After how long a note is overdue, in microseconds: longer than a change can take.
const OVERDUE_MICROS: u64 = 300_000_000;

/// How many overdue notes are asked for at once.
const OVERDUE_NOTES_MAX: usize = 100;

/// After how many notes that could not be dealt with the others wait for the next time.
const FAILED_NOTES_MAX: usize = 100;

impl RedisStore {
    /// All steps in their order.
    pub(super) async fn swap_key(
        &self,
        agent: AgentId,
        claim: NonceClaim,
        change: &KeyChange,
    ) -> Result<KeyChanged, Trouble> {
        let new = new_key(change);
        let note = self.note(agent, &claim).await?;
        if let Some(new) = new {
            self.announce(agent, new).await?;
            self.sound(agent).await?;
        }
        match self.swap(agent, &claim, change).await? {
            Answer::Done(replaced) => {
                if let Some(new) = new {
                    self.confirm(agent, new).await?;
                }
                // The change stands. What fails from here on is made up for by whoever finds the note.
                if self.tidy(agent, &replaced).await.is_ok() {
                    let _ = self.strike(&note).await;
                }
                Ok(KeyChanged::Done)
            }
            Answer::KeyExists => self.withdraw(new, &note, KeyChanged::KeyExists).await,
            Answer::NonceUsed => self.withdraw(new, &note, KeyChanged::NonceUsed).await,
            Answer::Admitted { .. } | Answer::Limited { .. } | Answer::KeyRevoked | Answer::Strange => {
                Err(Trouble::Unreadable)
            }
        }
    }

    /// The note's name, which is this attempt's alone.
    pub(super) async fn note(&self, agent: AgentId, claim: &NonceClaim) -> Result<Vec<u8>, Trouble> {
        let note = self.shared.scripts.note.on(&[names::journal()]).arg(note_of(agent, claim));
        let value = self.servers.ask(Shard::of_journal(), note).await?;
        match Answer::read(&value)? {
            Answer::Done(notes) => notes.into_iter().next().ok_or(Trouble::Unreadable),
            Answer::Admitted { .. }
            | Answer::Limited { .. }
            | Answer::KeyRevoked
            | Answer::NonceUsed
            | Answer::Strange
            | Answer::KeyExists => Err(Trouble::Unreadable),
        }
    }

    pub(super) async fn announce(&self, agent: AgentId, new: &NewKey) -> Result<(), Trouble> {
        let set = Request::command("SET").arg(names::entry(&new.digest)).arg(entry_of(agent, new));
        let set = set.arg("EX").arg(ANNOUNCED_SECS);
        self.servers.write(Shard::of_digest(&new.digest), set).await.map(drop)
    }

    /// Finds out whether replicas have what is written where the agent's record is, with something that harms nobody.
    pub(super) async fn sound(&self, agent: AgentId) -> Result<(), Trouble> {
        if self.shared.options.wait_replicas == 0 {
            return Ok(());
        }
        let shard = Shard::of_agent(agent);
        let set = Request::command("SET").arg(names::probe(shard)).arg("").arg("EX").arg(PROBE_SECS);
        self.servers.write(shard, set).await.map(drop)
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

    /// Takes the expiry off the entry, by writing it once more if it is there. When it is gone, the key may have been
    /// replaced since; otherwise it could never be used, and nobody must be told of it.
    pub(super) async fn confirm(&self, agent: AgentId, new: &NewKey) -> Result<(), Trouble> {
        let set = || {
            let set = Request::command("SET").arg(names::entry(&new.digest)).arg(entry_of(agent, new));
            set.arg("XX")
        };
        let shard = Shard::of_digest(&new.digest);
        // May be sent twice: it says the same the second time.
        let value = match self.servers.write(shard, set()).await {
            Err(Trouble::Silent(_) | Trouble::Broken(_)) => self.servers.write(shard, set()).await?,
            other => other?,
        };
        if value == Value::Okay {
            return Ok(());
        }
        let get = Request::command("GET").arg(names::record(agent));
        let record = self.servers.ask(Shard::of_agent(agent), get).await?;
        if record != Value::BulkString(new.digest.to_bytes().to_vec()) {
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

    async fn strike(&self, note: &[u8]) -> Result<(), Trouble> {
        let strike = Request::command("ZREM").arg(names::journal()).arg(note);
        self.servers.ask(Shard::of_journal(), strike).await.map(drop)
    }

    /// Takes back what a change wrote that was not made: the entry of the key, which expires otherwise, and the note,
    /// which the journal sees to.
    async fn withdraw(
        &self,
        new: Option<&NewKey>,
        note: &[u8],
        answer: KeyChanged,
    ) -> Result<KeyChanged, Trouble> {
        if let Some(new) = new {
            let delete = Request::command("DEL").arg(names::entry(&new.digest));
            let _ = self.servers.ask(Shard::of_digest(&new.digest), delete).await;
        }
        let _ = self.strike(note).await;
        Ok(answer)
    }

    /// Tidies up after changes that somebody began and did not end. What can't be dealt with stays for another time and
    /// holds up no other.
    pub(super) async fn tidy_overdue(&self) -> Result<(), Trouble> {
        let mut failed = 0;
        let mut outcome = Ok(());
        loop {
            let notes = self.overdue(failed).await?;
            for note in &notes {
                if let Err(trouble) = self.tidy_note(note).await {
                    failed += 1;
                    outcome = Err(trouble);
                }
            }
            if notes.len() < OVERDUE_NOTES_MAX || failed >= FAILED_NOTES_MAX {
                return outcome;
            }
        }
    }

    /// Overdue notes, the oldest first, after so many.
    async fn overdue(&self, after: usize) -> Result<Vec<Vec<u8>>, Trouble> {
        let overdue = self.shared.scripts.overdue.on(&[names::journal()]);
        let overdue = overdue.arg(OVERDUE_MICROS).arg(after).arg(OVERDUE_NOTES_MAX);
        let value = self.servers.ask(Shard::of_journal(), overdue).await?;
        let Answer::Done(notes) = Answer::read(&value)? else { return Err(Trouble::Unreadable) };
        Ok(notes)
    }

    async fn tidy_note(&self, note: &[u8]) -> Result<(), Trouble> {
        if let Some(agent) = agent_of(&String::from_utf8_lossy(note)) {
            let members = Request::command("SMEMBERS").arg(names::replaced(agent));
            let replaced = self.servers.ask(Shard::of_agent(agent), members).await?;
            self.tidy(agent, &texts(&replaced).ok_or(Trouble::Unreadable)?).await?;
        }
        self.strike(note).await
    }
}

/// What is said of a digest: whose it is, then the origin that was declared, or nothing.
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

/// What a note begins with: whose key is about to change, and what was signed.
fn note_of(agent: AgentId, claim: &NonceClaim) -> String {
    format!("{:x}:{}", agent.token_id(), hex::encode(claim.nonce.to_bytes()))
}

fn agent_of(note: &str) -> Option<AgentId> {
    let (agent, _) = note.split_once(':')?;
    U256::from_str_radix(agent, 16).ok().map(AgentId::new)
}
