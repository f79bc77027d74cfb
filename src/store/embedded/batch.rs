//! One transaction of the writer and the steps that it holds: each is written as a whole or refused, and is answered
//! only after the commit.

use std::sync::atomic::Ordering;

use tokio::sync::oneshot;

use crate::domain::agent_id::AgentId;
use crate::domain::api_key::KeyDigest;
use crate::domain::held_key::{HeldKey, day_of};
use crate::domain::nonce::NonceClaim;
use crate::domain::quota::Quota;
use crate::domain::window::Verdict;
use crate::ports::store::{Admission, KeyChange, KeyChanged, MadeKey, NonceRefused, Scope};
use crate::store::embedded::book::Book;
use crate::store::embedded::keys::Keys;
use crate::store::embedded::shared::Shared;
use crate::store::embedded::tables::Tables;
use crate::store::held_keys;

/// One request to the writer.
pub(super) enum Step {
    /// Admits by nonce: uses up the nonce and takes a place in the agent's window.
    Admit {
        agent: AgentId,
        scope: Scope,
        quota: Quota,
        claim: NonceClaim,
        /// When the place in the window was taken, in microseconds of the monotonic clock.
        placed_at_micros: Option<u64>,
        answer: Answer<Admission>,
    },
    /// Uses up the nonce and changes the key.
    ChangeKey {
        agent: AgentId,
        claim: NonceClaim,
        change: KeyChange,
        /// The agent's keys after the change, once it is written.
        keys: Vec<HeldKey>,
        answer: Answer<(KeyChanged, Option<MadeKey>)>,
    },
    /// Reads the agent's keys.
    Keys { agent: AgentId, answer: Answer<Vec<HeldKey>> },
    /// Finds out if the file can be written.
    Probe { answer: Answer<()> },
}

/// The answer to a step and where it goes. The caller of a step that is dropped unanswered gets a fault.
pub(super) struct Answer<T> {
    sender: oneshot::Sender<T>,
    value: Option<T>,
}

impl<T> Answer<T> {
    pub(super) fn new() -> (Self, oneshot::Receiver<T>) {
        let (sender, receiver) = oneshot::channel();
        (Self { sender, value: None }, receiver)
    }

    /// Sends the value. The caller may have gone.
    fn send(self) {
        if let Some(value) = self.value {
            let _ = self.sender.send(value);
        }
    }
}

/// One transaction being written.
pub(super) struct Batch<'a> {
    pub(super) tables: Tables<'a>,
    pub(super) shared: &'a Shared,
    /// The wall clock when the batch was begun, in Unix seconds.
    pub(super) now_secs: u64,
    /// How many nonces were inserted.
    pub(super) nonces: usize,
    /// True when there is something to commit.
    pub(super) changed: bool,
}

impl Batch<'_> {
    fn admit(
        &mut self,
        agent: AgentId,
        scope: &Scope,
        quota: Quota,
        claim: &NonceClaim,
        placed_at_micros: &mut Option<u64>,
    ) -> Result<Admission, redb::Error> {
        if let Some(refused) = self.refuse(agent, claim)? {
            return Ok(Admission::NonceRefused(refused));
        }
        let now_micros = self.shared.clock.monotonic_micros();
        let (verdict, at_micros) = self.shared.book.take_place(agent, scope, quota, now_micros);
        if let Verdict::Admitted { .. } = verdict {
            *placed_at_micros = Some(at_micros);
            self.use_nonce(agent, claim)?;
        }
        Ok(verdict.into())
    }

    fn change_key(
        &mut self,
        agent: AgentId,
        claim: &NonceClaim,
        change: &KeyChange,
        keys: &mut Vec<HeldKey>,
    ) -> Result<(KeyChanged, Option<MadeKey>), redb::Error> {
        if let Some(refused) = self.refuse(agent, claim)? {
            return Ok((KeyChanged::NonceRefused(refused), None));
        }
        let before = self.keys(agent)?;
        keys.clone_from(&before);
        let changed = held_keys::change(keys, change, self.shared.key_secs());
        if changed != KeyChanged::Done {
            return Ok((changed, None));
        }
        self.use_nonce(agent, claim)?;
        self.tables.set_keys(agent, &before, keys)?;
        let made = keys.last().filter(|_| !matches!(change, KeyChange::Revoke(_)));
        Ok((changed, made.map(|key| MadeKey { name: key.name.clone(), ends: key.ends })))
    }

    /// The agent's keys, those that have ended too, and their uses up to now.
    fn keys(&mut self, agent: AgentId) -> Result<Vec<HeldKey>, redb::Error> {
        self.note_used(&self.shared.book.take_used(agent))?;
        self.tables.keys(agent)
    }

    /// Writes that these keys were used today, where that is not written yet.
    pub(super) fn note_used(&mut self, keys: &[KeyDigest]) -> Result<(), redb::Error> {
        let today = day_of(self.shared.key_secs());
        self.changed |= !keys.is_empty() && self.tables.note_used(keys, today)?;
        Ok(())
    }

    /// Why the nonce can't be used, if it can't.
    fn refuse(&self, agent: AgentId, claim: &NonceClaim) -> Result<Option<NonceRefused>, redb::Error> {
        let forgotten = self.shared.forgotten(claim);
        if forgotten.is_some() {
            return Ok(forgotten);
        }
        Ok(self.tables.has_nonce(agent, claim)?.then_some(NonceRefused::Used))
    }

    /// The row's time is never before the timestamp, even if the wall clock was stepped back since that was checked.
    fn use_nonce(&mut self, agent: AgentId, claim: &NonceClaim) -> Result<(), redb::Error> {
        self.changed = true;
        self.nonces += 1;
        self.tables.insert_nonce(agent, claim, self.now_secs.max(claim.signed_at.0))
    }
}

impl Step {
    /// Writes the step into the batch and keeps its answer.
    pub(super) fn write(&mut self, batch: &mut Batch<'_>) -> Result<(), redb::Error> {
        match self {
            Self::Admit { agent, scope, quota, claim, placed_at_micros, answer } => {
                answer.value = Some(batch.admit(*agent, scope, *quota, claim, placed_at_micros)?);
            }
            Self::ChangeKey { agent, claim, change, keys, answer } => {
                answer.value = Some(batch.change_key(*agent, claim, change, keys)?);
            }
            Self::Keys { agent, answer } => {
                let mut keys = batch.keys(*agent)?;
                keys.retain(|key| key.is_live(batch.shared.key_secs()));
                answer.value = Some(keys);
            }
            // Only a write shows if the disk takes one. This one writes the value that is there.
            Self::Probe { answer } => {
                batch.changed = true;
                let value = batch.shared.forgotten_before.load(Ordering::Acquire);
                answer.value = Some(batch.tables.set_forgotten_before(value)?);
            }
        }
        Ok(())
    }

    /// After the commit: brings memory up to date, then answers.
    pub(super) fn settle(self, book: &Book) {
        match self {
            Self::Admit { answer, .. } => answer.send(),
            Self::ChangeKey { agent, keys, answer, .. } => {
                if matches!(answer.value, Some((KeyChanged::Done, _))) {
                    book.set_keys(agent, Keys::of(keys));
                }
                answer.send();
            }
            Self::Keys { answer, .. } => answer.send(),
            Self::Probe { answer } => answer.send(),
        }
    }

    /// After a failed commit: gives back the place in the window.
    pub(super) fn withdraw(&self, book: &Book) {
        if let Self::Admit { agent, scope, placed_at_micros: Some(at_micros), .. } = self {
            book.withdraw(*agent, scope, *at_micros);
        }
    }

    /// The agent whose key the step changes.
    pub(super) fn changes_key_of(&self) -> Option<AgentId> {
        if let Self::ChangeKey { agent, .. } = self { Some(*agent) } else { None }
    }

    /// True when nobody waits for the answer any more.
    pub(super) fn is_abandoned(&self) -> bool {
        match self {
            Self::Admit { answer, .. } => answer.sender.is_closed(),
            Self::ChangeKey { answer, .. } => answer.sender.is_closed(),
            Self::Keys { answer, .. } => answer.sender.is_closed(),
            Self::Probe { answer } => answer.sender.is_closed(),
        }
    }
}
