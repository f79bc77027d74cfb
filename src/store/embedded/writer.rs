//! The writer: the one thread that reads and writes the file. It takes all steps that wait, writes them in one durable
//! commit, brings memory up to date, and then answers.
//!
//! A step whose caller has gone before it is taken is not made. After a failed write the file is opened and verified again
//! before the next one. If the commit itself failed, nobody knows whether it is on the disk: what asks for the key of an
//! agent whose change was in it fails until the file has been opened. All other keys in memory still equal those in the file,
//! and their checks go on meanwhile.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::{iter::once, sync::Arc, sync::atomic::Ordering, time::Duration};

use redb::Database;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::domain::{
    AgentId, HeldKey, KeyDigest, MINUTE_MICROS, NonceClaim, Quota, Verdict, WINDOW_MICROS_MAX,
    held_key::day_of,
};
use crate::ports::{Admission, KeyChange, KeyChanged, MadeKey, NonceRefused, Scope};
use crate::store::embedded::book::{Book, SHARDS};
use crate::store::embedded::shared::{CLOSED, Shared};
use crate::store::embedded::tables::{self, Loaded, Tables};
use crate::store::{
    embedded::Options, embedded::file::Disk, embedded::keys::Keys, embedded::steady::SteadyWall, held_keys,
};

/// How long the writer waits for a step before it forgets and sweeps. A failed file is opened again once per tick.
const TICK_MICROS: u64 = 1_000_000;

/// How many nonces are forgotten in one commit: at most so many, and twice as many as it adds.
const PURGE_ROWS: usize = 256;

/// How many shards of agents are swept in one tick: all of them in half a minute.
const SWEPT_SHARDS: usize = 8;

/// A file with more nonces, forgotten ones that are still there included, is not made smaller: moving them would take longer
/// than the start may. Their space is used again when they have been forgotten.
const COMPACTION_NONCES_MAX: u64 = 10_000;

/// A step and its place in the queue.
pub(super) struct Queued {
    pub(super) step: Step,
    pub(super) _place: OwnedSemaphorePermit,
}

/// Nonces that were used before the load. A machine may boot with a clock that is years ahead, so for them time goes on from
/// the last use. Those that are used afterwards are forgotten by the clock that they were judged by.
struct Former {
    /// The last use.
    newest_secs: u64,
    steady_wall: SteadyWall,
}

/// The writer's own state.
pub(super) struct Writer {
    shared: Arc<Shared>,
    queue: Receiver<Queued>,
    disk: Box<dyn Disk>,
    /// `None` after a failed commit.
    database: Option<Database>,
    options: Options,
    steady_wall: SteadyWall,
    /// Until the nonces from before the load are forgotten.
    former: Option<Former>,
    /// The last purge left rows that could go.
    more_to_purge: bool,
    next_tick_micros: u64,
    next_reopening_micros: u64,
    next_shard: usize,
}

impl Writer {
    /// Takes the loaded keys into memory and gives free space of the file back.
    pub(super) fn new(
        shared: Arc<Shared>,
        queue: Receiver<Queued>,
        disk: Box<dyn Disk>,
        (database, loaded): (Database, Loaded),
        options: Options,
    ) -> Self {
        let now_micros = shared.clock.monotonic_micros();
        let (wall_secs, retention_secs) = (shared.clock.unix_seconds(), options.nonce_retention_secs);
        let former = loaded.newest_use_secs.map(|newest_secs| Former {
            newest_secs,
            steady_wall: SteadyWall::new(retention_secs, wall_secs.min(newest_secs), now_micros),
        });
        shared.forgotten_before.store(loaded.forgotten_before, Ordering::Release);
        for (agent, key) in loaded.keys {
            shared.book.set_keys(agent, key);
        }
        let mut writer = Self {
            steady_wall: SteadyWall::new(retention_secs, wall_secs, now_micros),
            former,
            shared,
            queue,
            disk,
            database: Some(database),
            options,
            more_to_purge: false,
            next_tick_micros: 0,
            next_reopening_micros: 0,
            next_shard: 0,
        };
        if loaded.nonces < COMPACTION_NONCES_MAX
            && let Some(Err(error)) = writer.database.as_mut().map(Database::compact)
        {
            writer.fail(&[], error.into());
        }
        writer
    }

    /// Works until the store is dropped and all steps in the queue are done.
    pub(super) fn run(mut self) {
        loop {
            let patience_micros = if self.more_to_purge { 0 } else { TICK_MICROS };
            match self.queue.recv_timeout(Duration::from_micros(patience_micros)) {
                Ok(first) => self.work_watched(once(first).chain(self.queue.try_iter()).collect()),
                Err(RecvTimeoutError::Timeout) => self.work_watched(Vec::new()),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn work_watched(&mut self, steps: Vec<Queued>) {
        let now_micros = self.shared.clock.monotonic_micros().max(1);
        self.shared.busy_since.store(now_micros, Ordering::Relaxed);
        self.work(steps);
        self.shared.busy_since.store(0, Ordering::Relaxed);
    }

    fn work(&mut self, mut steps: Vec<Queued>) {
        let used = self.sweep();
        if self.database.is_none() && !self.reopen() {
            return;
        }
        steps.retain(|queued| !queued.step.is_abandoned());
        match self.commit(&mut steps, &used) {
            Ok(()) => steps.into_iter().for_each(|queued| queued.step.settle(&self.shared.book)),
            Err(error) => self.fail(&steps, error),
        }
    }

    /// Writes all steps in one transaction, in the same that these keys were used, and forgets old nonces.
    fn commit(&mut self, steps: &mut [Queued], used: &[KeyDigest]) -> Result<(), redb::Error> {
        let Some(database) = &self.database else { return Err(redb::Error::DatabaseClosed) };
        self.shared.doubtful.lock().clear();
        let now_secs = self.shared.clock.unix_seconds();
        let now_micros = self.shared.clock.monotonic_micros();
        let mut steady_secs = self.steady_wall.secs(now_secs, now_micros);
        if let Some(former) = &mut self.former {
            steady_secs = steady_secs.min(former.steady_wall.secs(now_secs, now_micros));
        }
        let transaction = tables::begin(database)?;
        let mut batch = Batch {
            tables: Tables::open(&transaction)?,
            shared: &self.shared,
            now_secs,
            nonces: 0,
            changed: false,
        };
        batch.note_used(used)?;
        steps.iter_mut().try_for_each(|queued| queued.step.write(&mut batch))?;

        let rows_max = PURGE_ROWS + 2 * batch.nonces;
        let cutoff_secs = steady_secs.saturating_sub(self.options.nonce_retention_secs);
        let purged = batch.tables.forget(cutoff_secs, rows_max)?;
        let mut forgotten_before = self.shared.forgotten_before.load(Ordering::Acquire);
        if purged > 0 {
            // A forgotten nonce has a timestamp before the cut-off. Rows of older builds have one that is up to
            // `max_ahead_secs` later.
            forgotten_before = forgotten_before.max(cutoff_secs.saturating_add(self.options.max_ahead_secs));
            batch.tables.set_forgotten_before(forgotten_before)?;
            batch.changed = true;
        }
        let changed = batch.changed;
        drop(batch);
        if changed {
            *self.shared.doubtful.lock() =
                steps.iter().filter_map(|queued| queued.step.changes_key_of()).collect();
            transaction.commit()?;
        }
        self.shared.forgotten_before.store(forgotten_before, Ordering::Release);
        self.more_to_purge = purged == rows_max;
        if !self.more_to_purge && self.former.as_ref().is_some_and(|former| cutoff_secs > former.newest_secs)
        {
            self.former = None;
        }
        Ok(())
    }

    /// After a failed write: gives back what the steps hold, closes the file, and lets the steps fail.
    fn fail(&mut self, steps: &[Queued], error: redb::Error) {
        steps.iter().for_each(|queued| queued.step.withdraw(&self.shared.book));
        self.more_to_purge = false;
        self.database = None;
        let agents = self.shared.doubtful.lock().len();
        if agents == 0 {
            tracing::warn!(%error, "the store failed to write; key checks go on");
        } else {
            tracing::error!(%error, agents, "the store failed to change keys; their agents get faults until it has read its file again");
        }
        self.shared.failed(error);
        self.shared.faulted.store(agents > 0, Ordering::Release);
    }

    /// Opens and verifies the file again, at most once per tick. Only the keys of doubtful agents can differ from those
    /// in memory, so no other key is touched.
    fn reopen(&mut self) -> bool {
        let now_micros = self.shared.clock.monotonic_micros();
        if now_micros < self.next_reopening_micros {
            return false;
        }
        self.next_reopening_micros = now_micros.saturating_add(TICK_MICROS);
        match self.disk.open(&self.options.binding) {
            Ok((database, loaded)) => {
                // Several changes in the failed commit may be of one agent.
                for agent in &*self.shared.doubtful.lock() {
                    self.shared.book.set_keys(*agent, loaded.keys.get(agent).cloned().unwrap_or(Keys::None));
                }
                self.shared.forgotten_before.fetch_max(loaded.forgotten_before, Ordering::AcqRel);
                self.database = Some(database);
                self.shared.faulted.store(false, Ordering::Release);
                tracing::info!("the store has read its file again");
                true
            }
            Err(error) => {
                tracing::error!(%error, "the store can't read its file again");
                self.shared.failed(error);
                false
            }
        }
    }

    /// Forgets idle windows, a few shards in each tick, and looks at the size of the file. Returns which of their keys were used.
    fn sweep(&mut self) -> Vec<KeyDigest> {
        let (now_micros, mut used) = (self.shared.clock.monotonic_micros(), Vec::new());
        if now_micros < self.next_tick_micros {
            return used;
        }
        self.next_tick_micros = now_micros.saturating_add(TICK_MICROS);
        if let Some(size) = self.disk.size() {
            self.shared.size.store(size, Ordering::Relaxed);
        }
        for _ in 0..SWEPT_SHARDS {
            self.shared.book.sweep(self.next_shard, now_micros, &mut used);
            self.next_shard = (self.next_shard + 1) % SHARDS;
        }
        if self.next_shard == 0 {
            // Idle for the widest window is idle whatever the quota.
            self.shared.meters.sweep(WINDOW_MICROS_MAX, now_micros);
            self.shared.visitors.sweep(MINUTE_MICROS, now_micros);
        }
        used
    }
}

impl Drop for Writer {
    /// Closes the store, also after a panic: every verb fails from now on.
    fn drop(&mut self) {
        self.shared.failed(CLOSED);
        self.shared.doubtful.lock().clear();
        self.shared.faulted.store(true, Ordering::Release);
    }
}

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
        if changed.0 == KeyChanged::Done {
            self.use_nonce(agent, claim)?;
            self.tables.set_keys(agent, &before, keys)?;
        }
        Ok(changed)
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
