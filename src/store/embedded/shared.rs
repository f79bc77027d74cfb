//! What the writer and everybody who asks the store share.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use redb::Database;

use crate::domain::agent_id::AgentId;
use crate::domain::client::ClientNet;
use crate::domain::freshness::UnixSeconds;
use crate::domain::nonce::NonceClaim;
use crate::domain::quota::RetryAfter;
use crate::ports::clock::Clock;
use crate::ports::store::StoreFault;
use crate::sharded::meters::Meters;
use crate::store::embedded::book::Book;
use crate::store::embedded::tables;

/// Why the store fails.
pub(super) type Cause = Arc<dyn Error + Send + Sync>;

/// The writer has ended, or never got to the step.
#[derive(Debug, thiserror::Error)]
#[error("the store has been closed")]
pub(super) struct Closed;

/// The store's state.
pub(super) struct Shared {
    pub(super) book: Arc<Book>,
    pub(super) meters: Meters<(ClientNet, AgentId)>,
    /// Taken out while the file is being read anew. Key checks never come here; a nonce is looked up under the read
    /// half, and only the writer takes the other.
    pub(super) database: RwLock<Option<Database>>,
    /// Signatures made before this may carry nonces that were forgotten. Unix seconds; never falls.
    pub(super) forgotten_before: AtomicU64,
    pub(super) clock: Arc<dyn Clock>,
    /// Read by every verb; the cause beside it is for those who find it set.
    faulted: AtomicBool,
    cause: Mutex<Option<Cause>>,
}

impl Shared {
    pub(super) fn new(
        book: Book,
        meters: Meters<(ClientNet, AgentId)>,
        database: Database,
        forgotten_before: u64,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            book: Arc::new(book),
            meters,
            database: RwLock::new(Some(database)),
            forgotten_before: AtomicU64::new(forgotten_before),
            clock,
            faulted: AtomicBool::new(false),
            cause: Mutex::new(None),
        }
    }

    /// Succeeds while memory is known to equal the file.
    pub(super) fn check(&self, verb: &'static str) -> Result<(), StoreFault> {
        if !self.faulted.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(StoreFault { verb, cause: self.cause().unwrap_or_else(|| Arc::new(Closed)) })
    }

    /// From when on signatures are accepted, and when that is, where this one is too old for its nonce to be known.
    pub(super) fn forgotten(&self, claim: &NonceClaim) -> Option<(UnixSeconds, RetryAfter)> {
        let accepted_from = self.forgotten_before.load(Ordering::Acquire);
        if claim.signed_at.0 >= accepted_from {
            return None;
        }
        let wait_secs = accepted_from.saturating_sub(self.clock.unix_seconds());
        Some((UnixSeconds(accepted_from), RetryAfter::from_micros(wait_secs.saturating_mul(1_000_000))))
    }

    /// Whether the nonce was used before, or may have been.
    pub(super) fn may_have_used(&self, agent: AgentId, claim: &NonceClaim) -> Result<bool, redb::Error> {
        if self.forgotten(claim).is_some() {
            return Ok(true);
        }
        match self.database.read().as_ref() {
            Some(database) => tables::has_used(database, agent, claim),
            None => Err(redb::Error::DatabaseClosed),
        }
    }

    /// The fault there is, if any.
    pub(super) fn cause(&self) -> Option<Cause> {
        self.cause.lock().clone()
    }

    pub(super) fn fault(&self, cause: &Cause) {
        *self.cause.lock() = Some(Arc::clone(cause));
        self.faulted.store(true, Ordering::Release);
    }

    pub(super) fn recovered(&self) {
        *self.cause.lock() = None;
        self.faulted.store(false, Ordering::Release);
    }

    pub(super) fn stopped(&self) {
        self.fault(&(Arc::new(Closed) as Cause));
    }
}
