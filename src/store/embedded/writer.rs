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
use crate::store::embedded::book::{Keys, SHARDS};
use crate::store::embedded::tables::{self, Loaded, Tables};
use crate::store::embedded::{CLOSED, Options, Shared, file::Disk};
use crate::store::held_keys;

/// How long the writer waits for a step before it forgets and sweeps. A failed file is opened again once per tick.
const TICK_MICROS: u64 = 1_000_000;

/// How many nonces are forgotten in one commit: at most so many, and twice as many as it adds.
const PURGE_ROWS: usize = 256;

/// How many shards of agents are swept in one tick: all of them in half a minute.
const SWEPT_SHARDS: usize = 8;

/// A file with more nonces, forgotten ones that are still there included, is not made smaller: moving them would take longer
/// than the start may. Their space is used again when they have been forgotten.
const COMPACTION_NONCES_MAX: u64 = 10_000;

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
    queue: Receiver<Box<dyn Step>>,
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
        queue: Receiver<Box<dyn Step>>,
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
            writer.fail(Vec::new(), error.into());
        }
        writer
    }

    /// Works until the store is dropped and all steps in the queue are done.
    pub(super) fn run(mut self) {
        loop {
            let patience_micros = if self.more_to_purge { 0 } else { TICK_MICROS };
            let steps = match self.queue.recv_timeout(Duration::from_micros(patience_micros)) {
                Ok(first) => once(first).chain(self.queue.try_iter()).collect(),
                Err(RecvTimeoutError::Timeout) => Vec::new(),
                Err(RecvTimeoutError::Disconnected) => return,
            };
            self.work(steps);
            self.shared.hangs.store(false, Ordering::Relaxed);
        }
    }

    fn work(&mut self, mut steps: Vec<Box<dyn Step>>) {
        let used = self.sweep();
        if self.database.is_none() && !self.reopen() {
            return;
        }
        let mut effects = Effects::default();
        match self.commit(&mut steps, &used, &mut effects) {
            Ok(()) => {
                for (agent, keys) in effects.keys {
                    self.shared.book.set_keys(agent, Keys::of(keys));
                }
                steps.into_iter().for_each(|step| step.answer());
            }
            Err(error) => self.fail(effects.places, error),
        }
    }

    /// Writes all steps in one transaction, in the same that these keys were used, and forgets old nonces.
    fn commit(
        &mut self,
        steps: &mut [Box<dyn Step>],
        used: &[KeyDigest],
        effects: &mut Effects,
    ) -> Result<(), redb::Error> {
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
            effects,
            now_secs,
            nonces: 0,
            changed: false,
        };
        batch.note_used(used)?;
        steps.iter_mut().try_for_each(|step| step.write(&mut batch))?;

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
            *self.shared.doubtful.lock() = effects.keys.iter().map(|(agent, _)| *agent).collect();
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

    /// After a failed write: gives back places that were taken, closes the file, and lets the steps fail.
    fn fail(&mut self, places: Vec<(AgentId, Scope, u64)>, error: redb::Error) {
        for (agent, scope, at_micros) in places {
            self.shared.book.withdraw(agent, &scope, at_micros);
        }
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
pub(super) trait Step: Send {
    /// Writes the step into the batch, unless nobody waits for it any more, and keeps its answer.
    fn write(&mut self, batch: &mut Batch<'_>) -> Result<(), redb::Error>;

    /// Answers. The caller of a step that is dropped unanswered gets a fault.
    fn answer(self: Box<Self>);
}

/// A step, and where its answer goes.
pub(super) struct Task<T, W> {
    pub(super) work: W,
    pub(super) value: Option<T>,
    pub(super) answer: oneshot::Sender<T>,
    /// The place in the queue.
    pub(super) _place: OwnedSemaphorePermit,
}

impl<T: Send, W: FnMut(&mut Batch<'_>) -> Result<T, redb::Error> + Send> Step for Task<T, W> {
    fn write(&mut self, batch: &mut Batch<'_>) -> Result<(), redb::Error> {
        if !self.answer.is_closed() {
            self.value = Some((self.work)(batch)?);
        }
        Ok(())
    }

    fn answer(self: Box<Self>) {
        if let Some(value) = self.value {
            // The caller may have gone.
            let _ = self.answer.send(value);
        }
    }
}

/// Effects of a batch on memory.
#[derive(Default)]
pub(super) struct Effects {
    /// Places that were taken in windows, with the moment by which they are given back.
    places: Vec<(AgentId, Scope, u64)>,
    /// Agents' keys once they are written.
    keys: Vec<(AgentId, Vec<HeldKey>)>,
}

/// One transaction being written.
pub(super) struct Batch<'a> {
    pub(super) tables: Tables<'a>,
    pub(super) shared: &'a Shared,
    effects: &'a mut Effects,
    /// The wall clock when the batch was begun, in Unix seconds.
    pub(super) now_secs: u64,
    /// How many nonces were inserted.
    pub(super) nonces: usize,
    /// True when there is something to commit.
    pub(super) changed: bool,
}

impl Batch<'_> {
    /// Uses up the nonce and takes a place in the agent's window.
    pub(super) fn admit(
        &mut self,
        agent: AgentId,
        scope: &Scope,
        quota: Quota,
        claim: &NonceClaim,
    ) -> Result<Admission, redb::Error> {
        if let Some(refused) = self.refuse(agent, claim)? {
            return Ok(Admission::NonceRefused(refused));
        }
        let now_micros = self.shared.clock.monotonic_micros();
        let (verdict, at_micros) = self.shared.book.take_place(agent, scope, quota, now_micros);
        if let Verdict::Admitted { .. } = verdict {
            self.effects.places.push((agent, scope.clone(), at_micros));
            self.use_nonce(agent, claim)?;
        }
        Ok(verdict.into())
    }

    /// Uses up the nonce and changes the key.
    pub(super) fn change_key(
        &mut self,
        agent: AgentId,
        claim: &NonceClaim,
        change: &KeyChange,
    ) -> Result<(KeyChanged, Option<MadeKey>), redb::Error> {
        if let Some(refused) = self.refuse(agent, claim)? {
            return Ok((KeyChanged::NonceRefused(refused), None));
        }
        let before = self.keys(agent)?;
        let mut keys = before.clone();
        let changed = held_keys::change(&mut keys, change, self.shared.key_secs());
        if changed.0 == KeyChanged::Done {
            self.use_nonce(agent, claim)?;
            self.tables.set_keys(agent, &before, &keys)?;
            self.effects.keys.push((agent, keys));
        }
        Ok(changed)
    }

    /// The agent's keys that have not ended.
    pub(super) fn live_keys(&mut self, agent: AgentId) -> Result<Vec<HeldKey>, redb::Error> {
        let mut keys = self.keys(agent)?;
        keys.retain(|key| key.is_live(self.shared.key_secs()));
        Ok(keys)
    }

    /// Finds out if the file can be written. Only a write shows if the disk takes one. This one writes the value that is there.
    pub(super) fn probe(&mut self) -> Result<(), redb::Error> {
        self.changed = true;
        self.tables.set_forgotten_before(self.shared.forgotten_before.load(Ordering::Acquire))
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

/// A clock that is ahead for longer than this is believed, in seconds; for longer where nonces are kept for longer.
const SPAN_SECS_MIN: u64 = 86_400;

/// How many parts a span has: an hour each.
const PARTS: usize = 24;

/// The wall clock as far as forgetting may trust it: without what it has gained on the monotonic one within the last span. A
/// step back is followed at once, and in up to two parts of a span forgotten as soon as it is over. Signatures that may carry a
/// forgotten nonce are refused for good, so a clock that runs years ahead for an hour must not forget any.
#[derive(Debug)]
struct SteadyWall {
    part_micros: u64,
    part_ends_micros: u64,
    /// By how many seconds the wall clock led the monotonic one, at least: in each part of the last span and a little more.
    least_lead_secs: [u64; PARTS + 3],
}

impl SteadyWall {
    fn new(retention_secs: u64, wall_secs: u64, now_micros: u64) -> Self {
        let part_micros = retention_secs.max(SPAN_SECS_MIN).saturating_mul(1_000_000) / PARTS as u64;
        let least_lead_secs = [lead_secs(wall_secs, now_micros); PARTS + 3];
        Self { part_micros, part_ends_micros: now_micros.saturating_add(part_micros), least_lead_secs }
    }

    /// Looks at both clocks and says what time it is at least.
    fn secs(&mut self, wall_secs: u64, now_micros: u64) -> u64 {
        let lead = lead_secs(wall_secs, now_micros);
        if now_micros >= self.part_ends_micros {
            self.least_lead_secs.rotate_right(1);
            self.least_lead_secs[0] = lead;
            self.part_ends_micros = now_micros.saturating_add(self.part_micros);
        }
        self.least_lead_secs[0] = self.least_lead_secs[0].min(lead);
        let mut leads = self.least_lead_secs;
        let (_, third, _) = leads.select_nth_unstable(2);
        lead.min(*third).saturating_add(now_micros / 1_000_000)
    }
}

fn lead_secs(wall_secs: u64, now_micros: u64) -> u64 {
    wall_secs.saturating_sub(now_micros / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::SteadyWall;

    const SPAN_SECS: u64 = 86_400;

    fn clock() -> SteadyWall {
        SteadyWall::new(900, 1_000, 0)
    }

    #[test]
    fn a_steady_clock_is_believed() {
        let mut steady = clock();
        for passed in (0..1_000).step_by(7) {
            assert_eq!(steady.secs(1_000 + passed, passed * 1_000_000), 1_000 + passed);
        }
    }

    #[test]
    fn a_step_forward_is_believed_only_after_a_whole_span() {
        let mut steady = clock();
        for passed in 0..=SPAN_SECS {
            assert_eq!(steady.secs(9_000 + passed, passed * 1_000_000), 1_000 + passed);
        }
        for passed in SPAN_SECS..2 * SPAN_SECS {
            steady.secs(9_000 + passed, passed * 1_000_000);
        }
        let passed = 2 * SPAN_SECS;
        assert_eq!(steady.secs(9_000 + passed, passed * 1_000_000), 9_000 + passed);
    }

    #[test]
    fn a_clock_that_was_behind_for_a_moment_is_believed_again_at_once() {
        let mut steady = clock();
        for passed in 0..2 * SPAN_SECS {
            let behind = if passed % SPAN_SECS == 40_000 { 900 } else { 0 };
            let shown = 1_000 + passed - behind;
            assert_eq!(steady.secs(shown, passed * 1_000_000), shown, "after {passed} s");
        }
    }

    #[test]
    fn a_clock_that_is_ahead_now_and_then_is_never_believed() {
        let mut steady = clock();
        for passed in 0..4 * SPAN_SECS {
            let ahead = if passed % 600 < 500 { 1_000_000 } else { 0 };
            assert_eq!(steady.secs(1_000 + passed + ahead, passed * 1_000_000), 1_000 + passed);
        }
    }

    #[test]
    fn a_step_back_is_believed_at_once() {
        assert_eq!(clock().secs(500, 1_000_000), 500);
    }
}
