//! The embedded store: authoritative in memory, durable in one file, no server needed.
//!
//! Keys and nonces are in the file before anybody is told of them; windows and meters live in memory and begin anew with
//! the process. A key check touches memory alone. Whatever changes the file goes through one thread (`writer.rs`).
//!
//! What the file is protected against:
//!
//! - A crash at any moment: whatever was acknowledged is there afterwards; what was not is there as a whole or not at all.
//! - Damage to anything that is in use: every page is under a checksum that is verified when the store is opened, and a
//!   commit whose pages don't verify is refused and never passed over for the one before it, because every commit is
//!   a two-phase one (see `tables::begin`). The bytes that no checksum covers are judged in `header.rs`.
//! - A file of zero length, a strange one, and one that was cut where anything in use stood, are refused. Only a missing
//!   file is begun anew.
//!
//! What it is not protected against: somebody who puts an older copy of the file in its place, or deletes it; two or
//! more faults that conspire (a wrong flag in the header of a file that was not closed *and* a damaged last commit);
//! a disk that says that it has written what it has not; and damage that appears while the store is open, until redb
//! reads the page again (a fault then, not a missing nonce) or the store is opened again.

use std::future::ready;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};

use async_trait::async_trait;
use futures_util::future::Either;
use tokio::sync::{Semaphore, oneshot};

use crate::domain::agent_id::AgentId;
use crate::domain::api_key::KeyDigest;
use crate::domain::client::ClientNet;
use crate::domain::freshness::UnixSeconds;
use crate::domain::nonce::NonceClaim;
use crate::domain::quota::{Quota, RetryAfter};
use crate::domain::window::Verdict;
use crate::ports::clock::Clock;
use crate::ports::store::{
    Admission, KeyChange, KeyChanged, KeyOwner, Metered, Proof, Reply, Scope, Store, StoreFault,
};
use crate::sharded::meters::Meters;
use crate::store::embedded::book::{Book, CurrentKey, Reserved};
use crate::store::embedded::file::{Disk, Folder, OpenError};
use crate::store::embedded::shared::{Cause, Closed, Shared};
use crate::store::embedded::writer::{Answer, Queued, Step, Writer};

mod book;
pub mod file;
mod header;
mod page;
mod shared;
mod steady;
mod tables;
mod writer;

/// How many steps may wait for the writer; whoever comes then waits for a place.
const WAITING_STEPS_MAX: usize = 4_096;

/// How many pairs of client and agent are counted at most; beyond that the least used are forgotten.
const METERS_MAX: usize = 262_144;

/// What the store needs to know.
#[derive(Debug, Clone)]
pub struct Options {
    /// The folder that the store's file lives in; made when it is missing.
    pub path: PathBuf,
    /// For how many seconds a used nonce is remembered; not less than a signature can be acceptable.
    pub nonce_retention_secs: u64,
    /// How many seconds a signature's timestamp may lie ahead of its use.
    pub max_ahead_secs: u64,
}

/// A store in one file.
pub struct EmbeddedStore {
    shared: Arc<Shared>,
    places: Arc<Semaphore>,
    /// Nothing only while the store is being dropped.
    queue: Option<mpsc::Sender<Queued>>,
    writer: Option<JoinHandle<()>>,
}

impl EmbeddedStore {
    /// Opens the store, making an empty one where there is none.
    ///
    /// # Errors
    ///
    /// [`OpenError`] says in one sentence why not. Nothing is ever repaired by leaving something out.
    pub fn open(options: Options, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let folder = Folder::take(&options.path)?;
        folder.make_if_missing()?;
        Self::on(Box::new(folder), options, clock)
    }

    /// How many agents have a key or a window.
    #[must_use]
    pub fn agents(&self) -> usize {
        self.shared.book.len()
    }

    /// How many pairs of client and agent are counted for their requests to manage keys.
    #[must_use]
    pub fn key_managers(&self) -> usize {
        self.shared.meters.len()
    }

    fn on(disk: Box<dyn Disk>, options: Options, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let (database, loaded) = disk.open()?;
        let book = Book::new();
        for key in loaded.keys {
            book.set_key(key.agent, Some(CurrentKey { digest: key.digest, origin: key.origin }));
        }
        let meters = Meters::new(METERS_MAX);
        let shared = Arc::new(Shared::new(book, meters, database, loaded.forgotten_before, clock));
        let (queue, steps) = mpsc::channel();
        let Options { path, nonce_retention_secs, max_ahead_secs } = options;
        let newest_use_secs = loaded.newest_use_secs;
        let writer = Writer::new(
            Arc::clone(&shared),
            steps,
            disk,
            nonce_retention_secs,
            max_ahead_secs,
            newest_use_secs,
        );
        let writer = Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || writer.run())
            .map_err(|cause| OpenError::NoThread { folder: path, cause })?;
        let places = Arc::new(Semaphore::new(WAITING_STEPS_MAX));
        Ok(Self { shared, places, queue: Some(queue), writer: Some(writer) })
    }

    async fn spend(
        &self,
        agent: AgentId,
        scope: &Scope,
        quota: Quota,
        claim: NonceClaim,
    ) -> Result<Admission, Cause> {
        // The place in the queue comes first, so that no place in the window is held while waiting for it.
        let queue_place = Arc::clone(&self.places).acquire_owned().await.map_err(closed)?;
        match self.shared.may_have_used(agent, &claim) {
            Ok(false) => {}
            Ok(true) => return Ok(self.nonce_refused(&claim)),
            Err(error) => {
                // The writer finds out whether the file has to be read anew.
                let _ = self.send(Queued { step: probe().0, _place: queue_place });
                return Err(Arc::new(error));
            }
        }
        let now_micros = self.shared.clock.monotonic_micros();
        let (place, remaining) = match self.shared.book.reserve(agent, scope, quota, claim.nonce, now_micros)
        {
            Reserved::Place(place, remaining) => (place, remaining),
            Reserved::Limited(retry_after) => {
                // The place may have gone to a twin of this request since its nonce was looked up.
                let used = self.shared.may_have_used(agent, &claim);
                let used = used.map_err(|error| Arc::new(error) as Cause)?;
                return Ok(if used {
                    self.nonce_refused(&claim)
                } else {
                    Admission::Limited { retry_after }
                });
            }
            Reserved::InFlight => return Ok(Admission::NonceUsed),
        };
        // From here on the writer's side owns the reservation: this future may be dropped at any moment.
        let (answer, answered) = oneshot::channel();
        self.send(Queued { step: Step::Spend { place, claim, answer }, _place: queue_place })?;
        let unused = answered.await.map_err(closed)??;
        Ok(if unused { Admission::Admitted { remaining } } else { self.nonce_refused(&claim) })
    }

    fn nonce_refused(&self, claim: &NonceClaim) -> Admission {
        match self.shared.forgotten(claim) {
            Some((accepted_from, retry_after)) => Admission::NonceForgotten { accepted_from, retry_after },
            None => Admission::NonceUsed,
        }
    }

    async fn ask<T>(&self, step: Step, answered: oneshot::Receiver<Result<T, Cause>>) -> Result<T, Cause> {
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(closed)?;
        self.send(Queued { step, _place: place })?;
        answered.await.map_err(closed)?
    }

    #[cfg(test)]
    fn places_taken(&self) -> usize {
        WAITING_STEPS_MAX - self.places.available_permits()
    }

    fn send(&self, queued: Queued) -> Result<(), Cause> {
        match &self.queue {
            Some(queue) => queue.send(queued).map_err(closed),
            None => Err(Arc::new(Closed)),
        }
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    fn find<'a>(&'a self, digest: &'a KeyDigest) -> Reply<'a, Option<KeyOwner>> {
        let checked = self.shared.check("find a key");
        Either::Left(ready(checked.map(|()| self.shared.book.find(digest))))
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
            Proof::Key(digest) => Either::Left(ready(self.shared.check(verb).map(|()| {
                let now_micros = self.shared.clock.monotonic_micros();
                self.shared.book.admit_by_key(agent, scope, quota, digest, now_micros)
            }))),
            Proof::Nonce(claim) => Either::Right(Box::pin(async move {
                self.shared.check(verb)?;
                self.spend(agent, scope, quota, *claim).await.map_err(|cause| StoreFault { verb, cause })
            })),
        }
    }

    async fn change_key(
        &self,
        agent: AgentId,
        claim: NonceClaim,
        change: KeyChange,
    ) -> Result<KeyChanged, StoreFault> {
        let verb = "change a key";
        self.shared.check(verb)?;
        let (answer, answered) = oneshot::channel();
        let step = Step::Change { agent, claim, change, answer };
        let changed = self.ask(step, answered).await.map_err(|cause| StoreFault { verb, cause })?;
        Ok(match (changed, self.shared.forgotten(&claim)) {
            (KeyChanged::NonceUsed, Some((accepted_from, retry_after))) => {
                KeyChanged::NonceForgotten { accepted_from, retry_after }
            }
            (changed, _) => changed,
        })
    }

    async fn has_key(&self, agent: AgentId) -> Result<bool, StoreFault> {
        self.shared.check("look for a key")?;
        Ok(self.shared.book.has_key(agent))
    }

    async fn hit(&self, client: ClientNet, agent: AgentId, quota: Quota) -> Result<Metered, StoreFault> {
        self.shared.check("count a request")?;
        let now_micros = self.shared.clock.monotonic_micros();
        Ok(match self.shared.meters.hit(&(client, agent), quota, now_micros) {
            Verdict::Admitted { remaining } => Metered::Counted { remaining },
            Verdict::Limited { retry_after_micros } => {
                Metered::Limited { retry_after: RetryAfter::from_micros(retry_after_micros) }
            }
        })
    }

    async fn charge(&self, client: ClientNet, agent: AgentId, quota: Quota) -> Result<Metered, StoreFault> {
        // It is counted already.
        Ok(Metered::Counted { remaining: self.left(client, agent, quota).await? })
    }

    async fn left(&self, client: ClientNet, agent: AgentId, quota: Quota) -> Result<u32, StoreFault> {
        self.shared.check("look at a count")?;
        let now_micros = self.shared.clock.monotonic_micros();
        Ok(match self.shared.meters.peek(&(client, agent), quota, || now_micros) {
            Verdict::Admitted { remaining } => remaining + 1,
            Verdict::Limited { .. } => 0,
        })
    }

    fn signatures_accepted_from(&self) -> Option<UnixSeconds> {
        let accepted_from = self.shared.forgotten_before.load(Ordering::Acquire);
        (accepted_from > self.shared.clock.unix_seconds()).then_some(UnixSeconds(accepted_from))
    }

    async fn probe(&self) -> Result<(), StoreFault> {
        // A fault is no reason not to ask: the writer may recover now.
        let (step, answered) = probe();
        self.ask(step, answered).await.map_err(|cause| StoreFault { verb: "write", cause })
    }
}

impl Drop for EmbeddedStore {
    /// Finishes what waits, then closes the file.
    fn drop(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has been reported by the panic itself and has closed the store.
            let _ = writer.join();
        }
    }
}

fn probe() -> (Step, oneshot::Receiver<Result<(), Cause>>) {
    let (answer, answered): (Answer<()>, _) = oneshot::channel();
    (Step::Probe { answer }, answered)
}

fn closed<E>(_: E) -> Cause {
    Arc::new(Closed)
}

#[cfg(test)]
mod tests;
