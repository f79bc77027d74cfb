//! The one thread that writes: it takes every step that waits, makes all of them in one durable commit, brings memory
//! up to date in the order of the commit, and only then answers.
//!
//! A step whose caller has gone before it is taken is not made. After a failed commit nothing is answered but faults
//! until the file has been opened and read anew, because nobody knows what of the commit is on the disk.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::domain::agent_id::AgentId;
use crate::domain::nonce::NonceClaim;
use crate::domain::quota::WINDOW_MICROS_MAX;
use crate::ports::store::{KeyChange, KeyChanged, NewKey};
use crate::store::embedded::book::{CurrentKey, Reservation, SHARDS};
use crate::store::embedded::file::Disk;
use crate::store::embedded::page::{Outcome, Page};
use crate::store::embedded::shared::{Cause, Shared};
use crate::store::embedded::steady::SteadyWall;
use crate::store::embedded::tables::{self, Ledger, Loaded};

/// How many steps one commit may hold.
const BATCH_STEPS_MAX: usize = 1_024;

/// How long the writer waits for a step before it looks after the house, and how often it reopens a failed file.
const TICK_MICROS: u64 = 1_000_000;

/// How many forgotten nonces an idle writer takes out in one commit.
const IDLE_PURGE_ROWS: usize = 1_024;

/// How many a commit takes out beside its own rows: at least this many, and twice what it puts in.
const BUSY_PURGE_ROWS: usize = 64;

/// How many shards of agents are swept in one tick: all of them in half a minute.
const SWEPT_SHARDS: usize = 8;

/// How the writer answers.
pub(super) type Answer<T> = oneshot::Sender<Result<T, Cause>>;

/// What the writer is asked to do.
pub(super) enum Step {
    /// Uses up the nonce of an admission whose place is held. Says whether the nonce was unused.
    Spend { place: Reservation, claim: NonceClaim, answer: Answer<bool> },
    /// Uses up the nonce and changes the key.
    Change { agent: AgentId, claim: NonceClaim, change: KeyChange, answer: Answer<KeyChanged> },
    /// Finds out whether the file can be written.
    Probe { answer: Answer<()> },
}

/// A step and its place in the queue.
pub(super) struct Queued {
    pub(super) step: Step,
    pub(super) _place: OwnedSemaphorePermit,
}

/// The writer's own state.
pub(super) struct Writer {
    shared: Arc<Shared>,
    queue: Receiver<Queued>,
    disk: Box<dyn Disk>,
    nonce_retention_secs: u64,
    max_ahead_secs: u64,
    steady_wall: SteadyWall,
    /// The last purge left rows that could go.
    more_to_purge: bool,
    /// A write that changed nothing for anybody has failed: memory still equals the file, but the file must be opened
    /// anew before the next write.
    stale: bool,
    next_tick_micros: u64,
    next_reopening_micros: u64,
    next_shard: usize,
}

impl Writer {
    pub(super) fn new(
        shared: Arc<Shared>,
        queue: Receiver<Queued>,
        disk: Box<dyn Disk>,
        nonce_retention_secs: u64,
        max_ahead_secs: u64,
        newest_use_secs: Option<u64>,
    ) -> Self {
        let now_micros = shared.clock.monotonic_micros();
        // A machine may boot with a clock that is years ahead. While nonces are remembered, time goes on from the last
        // use, and the clock is believed no sooner than one that jumps while the service runs.
        let wall_secs = shared.clock.unix_seconds().min(newest_use_secs.unwrap_or(u64::MAX));
        Self {
            steady_wall: SteadyWall::new(nonce_retention_secs, wall_secs, now_micros),
            shared,
            queue,
            disk,
            nonce_retention_secs,
            max_ahead_secs,
            more_to_purge: false,
            stale: false,
            next_tick_micros: 0,
            next_reopening_micros: 0,
            next_shard: 0,
        }
    }

    /// Works until nobody can ask any more and everything that was asked is done.
    pub(super) fn run(mut self) {
        let _end = StopWhenDropped(Arc::clone(&self.shared));
        while let Some(steps) = self.next_steps() {
            self.work(steps);
        }
    }

    /// Everything that waits; nothing when the time for housekeeping has come.
    fn next_steps(&self) -> Option<Vec<Queued>> {
        let first = if self.more_to_purge {
            match self.queue.try_recv() {
                Ok(step) => Some(step),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => return None,
            }
        } else {
            match self.queue.recv_timeout(Duration::from_micros(TICK_MICROS)) {
                Ok(step) => Some(step),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        };
        let mut steps: Vec<Queued> = first.into_iter().collect();
        if !steps.is_empty() {
            steps.extend(self.queue.try_iter().take(BATCH_STEPS_MAX - 1));
        }
        Some(steps)
    }

    fn work(&mut self, mut steps: Vec<Queued>) {
        if let Some(cause) = self.shared.cause()
            && !self.reopen()
        {
            steps.into_iter().for_each(|queued| queued.step.fail(&cause));
            return;
        }
        if self.stale {
            self.open_again(&steps);
        }
        self.sweep(steps.is_empty());
        steps.retain(|queued| !queued.step.is_abandoned());
        match self.commit(&steps) {
            Ok(outcomes) => {
                for (queued, outcome) in steps.into_iter().zip(outcomes) {
                    self.settle(queued.step, outcome);
                }
            }
            Err(error) => {
                self.more_to_purge = false;
                if steps.iter().all(|queued| matches!(queued.step, Step::Probe { .. })) {
                    // Whatever of this commit is on the disk, nobody's key or nonce is in it. At most a line a tick.
                    tracing::warn!(%error, "the store failed to write; key checks go on");
                    self.stale = true;
                } else {
                    tracing::error!(%error, "the store failed to write; it answers nothing until its file is read anew");
                }
                let cause: Cause = Arc::new(error);
                if !self.stale {
                    self.shared.fault(&cause);
                }
                steps.into_iter().for_each(|queued| queued.step.fail(&cause));
            }
        }
    }

    /// Makes all steps in one transaction, and forgets old nonces in the same.
    fn commit(&mut self, steps: &[Queued]) -> Result<Vec<Outcome>, redb::Error> {
        let used_at_secs = self.shared.clock.unix_seconds();
        let steady_secs = self.steady_wall.secs(used_at_secs, self.shared.clock.monotonic_micros());
        let forgotten_before = self.shared.forgotten_before.load(Ordering::Acquire);
        let guard = self.shared.database.read();
        let Some(database) = guard.as_ref() else { return Err(redb::Error::DatabaseClosed) };
        let transaction = tables::begin(database)?;
        let mut page = Page {
            ledger: Ledger::open(&transaction)?,
            forgotten_before,
            used_at_secs,
            written: 0,
            probed: false,
        };
        let outcomes = steps.iter().map(|queued| page.make(&queued.step)).collect::<Result<Vec<_>, _>>()?;

        let rows_max = if steps.is_empty() { IDLE_PURGE_ROWS } else { BUSY_PURGE_ROWS + 2 * page.written };
        let cutoff_secs = steady_secs.saturating_sub(self.nonce_retention_secs);
        let purged = page.ledger.forget(cutoff_secs, rows_max)?;
        // A forgotten nonce has a timestamp before the cut-off. Rows of older builds have one that is up to
        // `max_ahead_secs` later.
        let forgotten_before = forgotten_before.max(cutoff_secs.saturating_add(self.max_ahead_secs));
        if purged > 0 {
            page.ledger.set_forgotten_before(forgotten_before)?;
        }
        let changed = page.probed || page.written + purged > 0;
        drop(page);
        if !changed {
            transaction.abort()?;
        } else {
            transaction.commit()?;
        }
        if purged > 0 {
            self.shared.forgotten_before.store(forgotten_before, Ordering::Release);
        }
        self.more_to_purge = purged == rows_max;
        Ok(outcomes)
    }

    /// Brings memory up to date with what is now durable, then answers. Nobody may be there to hear it.
    fn settle(&self, step: Step, outcome: Outcome) {
        match (step, outcome) {
            (Step::Spend { place, answer, .. }, Outcome::Spent(unused)) => {
                if unused {
                    place.keep();
                } else {
                    drop(place);
                }
                let _ = answer.send(Ok(unused));
            }
            (Step::Change { agent, change, answer, .. }, Outcome::Changed(changed)) => {
                if changed == KeyChanged::Done {
                    self.shared.book.set_key(agent, key_after(change).map(current));
                }
                let _ = answer.send(Ok(changed));
            }
            (Step::Probe { answer }, Outcome::Probed) => {
                let _ = answer.send(Ok(()));
            }
            // Each step makes its own kind of outcome; any other would drop the answer, which its caller takes as a fault.
            (Step::Spend { .. } | Step::Change { .. } | Step::Probe { .. }, _) => {}
        }
    }

    /// Opens the file anew after a failed write that changed nothing: at once for a step that needs it, otherwise at most
    /// once in a tick. Where even that fails, the step fails, and with it the store.
    fn open_again(&mut self, steps: &[Queued]) {
        let now_micros = self.shared.clock.monotonic_micros();
        let needed = steps.iter().any(|queued| !matches!(queued.step, Step::Probe { .. }));
        if !needed && now_micros < self.next_reopening_micros {
            return;
        }
        self.next_reopening_micros = now_micros.saturating_add(TICK_MICROS);
        self.stale = false;
        drop(self.shared.database.write().take());
        match self.disk.open() {
            Ok((database, loaded)) => {
                self.shared.forgotten_before.fetch_max(loaded.forgotten_before, Ordering::AcqRel);
                *self.shared.database.write() = Some(database);
            }
            Err(error) => {
                tracing::error!(%error, "the store can't open its file anew");
                self.stale = true;
            }
        }
    }

    /// Opens the file anew and makes memory equal to it; at most once in a tick.
    fn reopen(&mut self) -> bool {
        let now_micros = self.shared.clock.monotonic_micros();
        if now_micros < self.next_reopening_micros {
            return false;
        }
        self.next_reopening_micros = now_micros.saturating_add(TICK_MICROS);
        drop(self.shared.database.write().take());
        match self.disk.open() {
            Ok((database, Loaded { keys, forgotten_before, .. })) => {
                self.shared.book.replace_keys(
                    keys.into_iter()
                        .map(|key| (key.agent, CurrentKey { digest: key.digest, origin: key.origin })),
                );
                self.shared.forgotten_before.fetch_max(forgotten_before, Ordering::AcqRel);
                *self.shared.database.write() = Some(database);
                self.stale = false;
                self.shared.recovered();
                tracing::info!("the store has read its file anew and answers again");
                true
            }
            Err(error) => {
                tracing::error!(%error, "the store can't read its file anew");
                self.shared.fault(&(Arc::new(error) as Cause));
                false
            }
        }
    }

    /// Forgets idle windows, a few shards in each tick.
    fn sweep(&mut self, idle: bool) {
        let now_micros = self.shared.clock.monotonic_micros();
        if !idle && now_micros < self.next_tick_micros {
            return;
        }
        self.next_tick_micros = now_micros.saturating_add(TICK_MICROS);
        for _ in 0..SWEPT_SHARDS {
            self.shared.book.sweep(self.next_shard, now_micros);
            self.next_shard = (self.next_shard + 1) % SHARDS;
        }
        if self.next_shard == 0 {
            // Idle for the widest window is idle whatever the quota.
            self.shared.meters.sweep(WINDOW_MICROS_MAX, now_micros);
        }
    }
}

impl Step {
    /// True when nobody waits for the answer any more. A probe is worth making even so.
    fn is_abandoned(&self) -> bool {
        match self {
            Self::Spend { answer, .. } => answer.is_closed(),
            Self::Change { answer, .. } => answer.is_closed(),
            Self::Probe { .. } => false,
        }
    }

    /// Answers with the fault; what was held is given back first.
    fn fail(self, cause: &Cause) {
        let cause = Arc::clone(cause);
        match self {
            Self::Spend { place, answer, .. } => {
                drop(place);
                let _ = answer.send(Err(cause));
            }
            Self::Change { answer, .. } => {
                let _ = answer.send(Err(cause));
            }
            Self::Probe { answer } => {
                let _ = answer.send(Err(cause));
            }
        }
    }
}

fn key_after(change: KeyChange) -> Option<NewKey> {
    match change {
        KeyChange::Issue(key) | KeyChange::Rotate(key) => Some(key),
        KeyChange::Revoke => None,
    }
}

fn current(key: NewKey) -> CurrentKey {
    CurrentKey { digest: key.digest, origin: key.declared_endpoint.map(|endpoint| endpoint.origin().clone()) }
}

/// However the writer ends, even by a panic, nothing is let through after it, and the file is closed.
struct StopWhenDropped(Arc<Shared>);

impl Drop for StopWhenDropped {
    fn drop(&mut self) {
        self.0.stopped();
        drop(self.0.database.write().take());
    }
}
