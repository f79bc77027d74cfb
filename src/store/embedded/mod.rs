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

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};
use std::{fmt::Display, future::ready, path::PathBuf, time::Duration};

use async_trait::async_trait;
use futures_util::future::Either;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot, watch};

use crate::domain::{
    AgentId, Binding, ClientNet, HeldKey, KeyDigest, NonceClaim, Quota, RetryAfter, UnixSeconds, Verdict,
};
use crate::fair_timeout::fair_timeout;
use crate::ports::{
    Admission, Budget, Clock, KeyBudget, KeyChange, KeyChanged, KeyOwner, KeySeen, MadeKey, NonceRefused,
    Proof, Reply, RouteScope, Scope, Store, StoreFault,
};
use crate::sharded::Meters;
use crate::store::embedded::book::Book;
use crate::store::embedded::file::{Disk, Folder, OpenError};
use crate::store::embedded::writer::{Batch, Step, Task, Writer};
use crate::telemetry::Metrics;

mod book;
pub mod file;
mod tables;
mod writer;

/// How many steps may wait for the writer or be in one commit. Further callers wait for a place.
const WAITING_STEPS_MAX: usize = 4_096;

/// For how long a caller waits for the writer. Once one has in vain, whoever comes before the disk is back gets a fault at once: who
/// waits holds a place that key checks need.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);

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
    /// `None` only while the store is being dropped.
    queue: Option<mpsc::Sender<Box<dyn Step>>>,
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
        let shared = Arc::new(Shared::new(clock));
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
        Ok(Self { shared, places, queue: Some(queue), writer: Some(writer), writer_ended })
    }

    /// Has the writer make a step, in time. A caller that goes away before the writer takes the step leaves nothing behind;
    /// afterwards the step may be made for nobody.
    async fn ask<T: Send + 'static>(
        &self,
        verb: &'static str,
        work: impl FnMut(&mut Batch<'_>) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, StoreFault> {
        let late = || StoreFault { verb, cause: "the disk did not take a write in time".into() };
        if self.shared.hangs.load(Ordering::Relaxed) {
            return Err(late());
        }
        let fault = || self.shared.fault(verb);
        let answered = async {
            let place = Arc::clone(&self.places).acquire_owned().await.map_err(|_| fault())?;
            let (answer, answered) = oneshot::channel();
            let queue = self.queue.as_ref().ok_or_else(fault)?;
            queue.send(Box::new(Task { work, value: None, answer, _place: place })).map_err(|_| fault())?;
            answered.await.map_err(|_| fault())
        };
        fair_timeout(ANSWER_TIME_MAX, answered).await.unwrap_or_else(|| {
            self.shared.hangs.store(true, Ordering::Relaxed);
            Err(late())
        })
    }
}

/// The last error once the writer has ended.
const CLOSED: &str = "the store has been closed";

/// The store's memory and its health, which the writer and all callers share.
struct Shared {
    book: Book,
    meters: Meters<(ClientNet, AgentId, KeyBudget)>,
    visitors: Meters<(ClientNet, RouteScope)>,
    clock: Arc<dyn Clock>,
    /// Nonces of signatures made before this may have been forgotten. Unix seconds; never falls.
    forgotten_before: AtomicU64,
    /// Keys in memory may differ from those in the file: those of [`Self::doubtful`], or all once the writer has ended.
    faulted: AtomicBool,
    /// Agents whose key a failed commit was to change; nobody once the writer has ended.
    doubtful: Mutex<Vec<AgentId>>,
    /// True from when a caller has waited for a step in vain until the writer comes back from the disk.
    hangs: AtomicBool,
    /// By how many microseconds the wall clock has led the monotonic one at most.
    lead_micros: AtomicU64,
    /// The size of the file in bytes, when it was looked at last.
    size: AtomicU64,
    last_error: Mutex<Arc<str>>,
}

impl Shared {
    fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            book: Book::default(),
            meters: Meters::new(METERS_MAX),
            visitors: Meters::new(METERS_MAX),
            clock,
            forgotten_before: AtomicU64::new(0),
            faulted: AtomicBool::new(false),
            doubtful: Mutex::default(),
            hangs: AtomicBool::new(false),
            lead_micros: AtomicU64::new(0),
            size: AtomicU64::new(0),
            last_error: Mutex::new(CLOSED.into()),
        }
    }

    /// Succeeds while the store is open, and the agent's key in memory is known to equal that in the file.
    fn check(&self, verb: &'static str, agent: Option<AgentId>) -> Result<(), StoreFault> {
        let is_faulted = || self.faulted.load(Ordering::Acquire);
        let has_it = |of: &[AgentId]| of.is_empty() || agent.is_some_and(|agent| of.contains(&agent));
        // Once it is over the list means nothing.
        let is_doubtful = is_faulted() && has_it(&self.doubtful.lock()) && is_faulted();
        if is_doubtful { Err(self.fault(verb)) } else { Ok(()) }
    }

    /// The time by which keys end, in Unix seconds. A wall clock that is stepped back lets no key live again that has ended: time
    /// goes on by the monotonic one.
    fn key_secs(&self) -> u64 {
        let now_micros = self.clock.monotonic_micros();
        let lead_micros = self.clock.unix_millis().saturating_mul(1_000).saturating_sub(now_micros);
        let most_micros = self.lead_micros.load(Ordering::Relaxed);
        if lead_micros > most_micros {
            self.lead_micros.fetch_max(lead_micros, Ordering::Relaxed);
        }
        now_micros.saturating_add(most_micros.max(lead_micros)) / 1_000_000
    }

    /// The refusal of a signature that is so old that its nonce may have been forgotten.
    fn forgotten(&self, claim: &NonceClaim) -> Option<NonceRefused> {
        let accepted_from = self.forgotten_before.load(Ordering::Acquire);
        if claim.signed_at.0 >= accepted_from {
            return None;
        }
        let wait_secs = accepted_from.saturating_sub(self.clock.unix_seconds());
        let retry_after = RetryAfter::from_micros(wait_secs.saturating_mul(1_000_000));
        Some(NonceRefused::Forgotten { accepted_from: UnixSeconds(accepted_from), retry_after })
    }

    /// The answer to a step that failed: the writer's last error.
    fn fault(&self, verb: &'static str) -> StoreFault {
        StoreFault { verb, cause: Arc::clone(&self.last_error.lock()) }
    }

    fn failed(&self, error: impl Display) {
        *self.last_error.lock() = error.to_string().into();
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
                self.ask(verb, move |batch| batch.admit(agent, &scope, quota, &claim)).await
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
        self.ask(verb, move |batch| batch.change_key(agent, &claim, &change)).await
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
        self.ask(verb, move |batch| batch.live_keys(agent)).await
    }

    fn signatures_accepted_from(&self) -> Option<UnixSeconds> {
        let accepted_from = self.shared.forgotten_before.load(Ordering::Acquire);
        (accepted_from > self.shared.clock.unix_seconds()).then_some(UnixSeconds(accepted_from))
    }

    async fn probe(&self) -> Result<(), StoreFault> {
        // Also while the store is faulted: the writer may recover now.
        self.ask("write", |batch| batch.probe()).await
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
