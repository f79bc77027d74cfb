//! The embedded store: authoritative in memory, durable in one file, no server needed.
//!
//! A store is for one chain: its file names it from the first transaction on, and is opened for no other.
//!
//! Keys and nonces are in the file before they are answered; windows and meters live in memory and begin anew with
//! the process. A key check touches memory alone. One thread reads and writes the file (`writer.rs`).
//!
//! After a crash every acknowledged change is in the file, and any other as a whole or not at all. The store is opened
//! only if the checksums of all pages in use are right. Only a missing file is begun anew, where that is asked for. The new
//! one takes no signature that one before it may have taken.
//!
//! Not detected:
//!
//! - An older copy of the file in its place.
//! - Damage to the tenth byte, the only one without a checksum: it says which of the last two commits is current, so a
//!   flipped bit can undo the last commit.
//! - A disk that reports a sync that it has not done.
//! - Damage that appears while the store is open, until redb reads the page or the store is opened again.

use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};
use std::{future::ready, path::PathBuf, pin::pin, sync::atomic::Ordering, time::Duration};

use async_trait::async_trait;
use futures_util::future::Either;
use tokio::sync::{Semaphore, watch};

use crate::domain::{
    AgentId, Binding, ClientNet, HeldKey, KeyDigest, NonceClaim, Quota, UnixSeconds, Verdict,
};
use crate::fair_timeout::fair_timeout;
use crate::ports::{
    Admission, Budget, Clock, KeyBudget, KeyChange, KeyChanged, KeyOwner, KeySeen, MadeKey, Proof, Reply,
    Scope, Store, StoreFault,
};
use crate::store::embedded::file::{Disk, Folder, OpenError};
use crate::store::embedded::shared::Shared;
use crate::store::embedded::writer::{Answer, Queued, Step, Writer};
use crate::telemetry::Metrics;

mod book;
pub mod file;
mod keys;
mod shared;
mod steady;
mod tables;
mod writer;

/// How many steps may wait for the writer or be in one commit. Further callers wait for a place.
const WAITING_STEPS_MAX: usize = 4_096;

/// For how long every caller waits for the writer.
const BRIEFLY: Duration = Duration::from_secs(1);

/// So many callers wait for longer while the disk hangs. The others get a fault: while they wait they hold places that key
/// checks need.
const PATIENT_MAX: usize = 16;

/// How long anybody waits in all.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// How many pairs of client and agent are counted at most, and how many of client and public route. Beyond that the least
/// used are forgotten.
const METERS_MAX: usize = 262_144;

/// The store's settings.
#[derive(Debug, Clone)]
pub struct Options {
    /// The folder of the store's file; made when it is missing.
    pub path: PathBuf,
    /// The chain that it is for.
    pub binding: Binding,
    /// For how many seconds a used nonce is remembered. At least as long as a signature is accepted.
    pub nonce_retention_secs: u64,
    /// How many seconds a signature's timestamp may lie ahead of its use.
    pub max_ahead_secs: u64,
}

/// A store in one file.
pub struct EmbeddedStore {
    shared: Arc<Shared>,
    places: Arc<Semaphore>,
    patient: Semaphore,
    /// `None` only while the store is being dropped.
    queue: Option<mpsc::Sender<Queued>>,
    writer: Option<JoinHandle<()>>,
    /// Closed once the thread that writes has ended. It ends with the store; if it panics it ends before, and every verb
    /// fails from then on.
    pub writer_ended: watch::Receiver<()>,
}

impl EmbeddedStore {
    /// Opens the store, making an empty one where there is none.
    ///
    /// # Errors
    ///
    /// [`OpenError`] says in one sentence why not. A damaged file is refused and never repaired by leaving data out.
    pub fn open(options: Options, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        // There may have been a store, which took signatures until now.
        let from = clock.unix_seconds() + options.max_ahead_secs + 1;
        Self::on(Box::new(Folder::take(&options.path, &options.binding, from)?), options, clock)
    }

    /// Shows how many entries are held, and the size of the file, at most a second ago.
    pub fn show(self: &Arc<Self>, metrics: &Metrics) {
        metrics.count_entries("agents", self, |store| store.shared.book.len());
        metrics.count_entries("key_managers", self, |store| store.shared.meters.len());
        metrics.count_entries("visitors", self, |store| store.shared.visitors.len());
        metrics.at_scrape_from(self, |families, store| {
            let size = i64::try_from(store.shared.size.load(Ordering::Relaxed)).unwrap_or(i64::MAX);
            families.store_size.with_label_values::<&str>(&[]).set(size);
        });
    }

    fn on(disk: Box<dyn Disk>, options: Options, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let opened = disk.open(&options.binding)?;
        let shared = Arc::new(Shared::new(clock, METERS_MAX));
        let (queue, steps) = mpsc::channel();
        let path = options.path.clone();
        let writer = Writer::new(Arc::clone(&shared), steps, disk, opened, options);
        let (alive, writer_ended) = watch::channel(());
        let writer = Builder::new().name("store-writer".to_owned()).spawn(move || {
            // Dropped with the thread, also when it panics.
            let _alive = alive;
            writer.run();
        });
        let writer = writer.map_err(|cause| OpenError::Unusable { path, cause })?;
        let places = Arc::new(Semaphore::new(WAITING_STEPS_MAX));
        let patient = Semaphore::new(PATIENT_MAX);
        Ok(Self { shared, places, patient, queue: Some(queue), writer: Some(writer), writer_ended })
    }

    /// Has the writer make a step, in time. A caller that goes away before the writer takes the step leaves nothing behind;
    /// afterwards the step may be made for nobody.
    async fn ask<T>(
        &self,
        verb: &'static str,
        step: impl FnOnce(Answer<T>) -> Step,
    ) -> Result<T, StoreFault> {
        let late = || StoreFault { verb, cause: "the disk did not take a write in time".into() };
        if self.shared.disk_hangs() && self.patient.available_permits() == 0 {
            return Err(late());
        }
        let mut answered = pin!(self.ask_writer(verb, step));
        if let Some(answer) = fair_timeout(BRIEFLY, answered.as_mut()).await {
            return answer;
        }
        let patient = self.shared.disk_hangs().then(|| self.patient.try_acquire());
        let _patient = patient.transpose().map_err(|_| late())?;
        fair_timeout(ANSWER_TIME_MAX - BRIEFLY, answered).await.unwrap_or_else(|| Err(late()))
    }

    async fn ask_writer<T>(
        &self,
        verb: &'static str,
        step: impl FnOnce(Answer<T>) -> Step,
    ) -> Result<T, StoreFault> {
        let fault = || self.shared.fault(verb);
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(|_| fault())?;
        let (answer, answered) = Answer::new();
        let queue = self.queue.as_ref().ok_or_else(fault)?;
        queue.send(Queued { step: step(answer), _place: place }).map_err(|_| fault())?;
        answered.await.map_err(|_| fault())
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    fn find<'a>(&'a self, digest: &'a KeyDigest) -> Reply<'a, Option<KeyOwner>> {
        let found = self.shared.book.find(digest, || self.shared.key_secs());
        let checked = self.shared.check("find a key", found.as_ref().map(|owner| owner.agent));
        Either::Left(ready(checked.map(|()| found)))
    }

    fn admit<'a>(
        &'a self,
        agent: AgentId,
        scope: &'a Scope,
        quota: Quota,
        proof: &'a Proof,
    ) -> Reply<'a, Admission> {
        let verb = "admit";
        match proof {
            Proof::Key(digest) => Either::Left(ready(self.shared.check(verb, Some(agent)).map(|()| {
                let now = (self.shared.clock.monotonic_micros(), || self.shared.key_secs());
                self.shared.book.admit_by_key(agent, scope, quota, digest, now)
            }))),
            Proof::Nonce(claim) => Either::Right(Box::pin(async move {
                self.shared.check(verb, Some(agent))?;
                let (scope, claim) = (scope.clone(), *claim);
                let step =
                    |answer| Step::Admit { agent, scope, quota, claim, placed_at_micros: None, answer };
                self.ask(verb, step).await
            })),
        }
    }

    fn count<'a>(&'a self, budget: &'a Budget, quota: Quota) -> Reply<'a, Verdict> {
        Either::Left(ready(self.shared.check("count a request", None).map(|()| {
            let (shared, now_micros) = (&self.shared, self.shared.clock.monotonic_micros());
            match budget {
                Budget::Route(visitor) => shared.visitors.hit(visitor, quota, now_micros),
                Budget::Key(client, agent, of) => {
                    shared.meters.hit(&(*client, *agent, *of), quota, now_micros)
                }
            }
        })))
    }

    async fn give_back(&self, client: ClientNet, agent: AgentId, of: KeyBudget) {
        self.shared.meters.give_back(&(client, agent, of));
    }

    fn fits(&self, _agent: AgentId, _digest: &KeyDigest) -> bool {
        true
    }

    async fn change_key(
        &self,
        agent: AgentId,
        claim: NonceClaim,
        change: KeyChange,
    ) -> Result<(KeyChanged, Option<MadeKey>), StoreFault> {
        let verb = "change a key";
        self.shared.check(verb, Some(agent))?;
        self.ask(verb, |answer| Step::ChangeKey { agent, claim, change, keys: Vec::new(), answer }).await
    }

    async fn status(&self, client: ClientNet, agent: AgentId, quota: Quota) -> Result<KeySeen, StoreFault> {
        self.shared.check("look for a key", Some(agent))?;
        let now_micros = self.shared.clock.monotonic_micros();
        let left = match self.shared.meters.peek(&(client, agent, KeyBudget::Changes), quota, || now_micros) {
            Verdict::Admitted { remaining } => remaining + 1,
            Verdict::Limited { .. } => 0,
        };
        Ok(KeySeen { has_key: self.shared.book.has_current(agent, self.shared.key_secs()), left })
    }

    async fn keys(&self, agent: AgentId) -> Result<Vec<HeldKey>, StoreFault> {
        let verb = "look for a key";
        self.shared.check(verb, Some(agent))?;
        self.ask(verb, |answer| Step::Keys { agent, answer }).await
    }

    fn signatures_accepted_from(&self) -> Option<UnixSeconds> {
        let accepted_from = self.shared.forgotten_before.load(Ordering::Acquire);
        (accepted_from > self.shared.clock.unix_seconds()).then_some(UnixSeconds(accepted_from))
    }

    async fn probe(&self) -> Result<(), StoreFault> {
        // Also while the store is faulted: the writer may recover now.
        self.ask("write", |answer| Step::Probe { answer }).await
    }
}

impl Drop for EmbeddedStore {
    /// Finishes what waits, then closes the file.
    fn drop(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take() {
            // A panic of the writer has been logged and has closed the store.
            let _ = writer.join();
        }
    }
}

#[cfg(test)]
mod tests;
