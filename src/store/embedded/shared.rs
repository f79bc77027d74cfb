//! State that the writer and all callers share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::{fmt::Display, sync::Arc};

use parking_lot::Mutex;

use crate::domain::{AgentId, ClientNet, NonceClaim, RetryAfter, UnixSeconds};
use crate::ports::{Clock, KeyBudget, NonceRefused, RouteScope, StoreFault};
use crate::sharded::Meters;
use crate::store::embedded::book::Book;

/// The disk hangs when the writer has been busy for so long, in microseconds: far longer than with a commit.
const HANG_MICROS: u64 = 500_000;

/// The last error once the writer has ended.
pub(super) const CLOSED: &str = "the store has been closed";

/// The store's memory and its health.
pub(super) struct Shared {
    pub(super) book: Book,
    pub(super) meters: Meters<(ClientNet, AgentId, KeyBudget)>,
    pub(super) visitors: Meters<(ClientNet, RouteScope)>,
    pub(super) clock: Arc<dyn Clock>,
    /// Nonces of signatures made before this may have been forgotten. Unix seconds; never falls.
    pub(super) forgotten_before: AtomicU64,
    /// Keys in memory may differ from those in the file: those of [`Self::doubtful`], or all once the writer has ended.
    pub(super) faulted: AtomicBool,
    /// Agents whose key a failed commit was to change; nobody once the writer has ended.
    pub(super) doubtful: Mutex<Vec<AgentId>>,
    /// Since when the writer has been busy, in monotonic microseconds; 0 while it waits for steps.
    pub(super) busy_since: AtomicU64,
    /// By how many microseconds the wall clock has led the monotonic one at most.
    lead_micros: AtomicU64,
    /// The size of the file in bytes, when it was looked at last.
    pub(super) size: AtomicU64,
    last_error: Mutex<Arc<str>>,
}

impl Shared {
    pub(super) fn new(clock: Arc<dyn Clock>, meters_max: usize) -> Self {
        Self {
            book: Book::default(),
            meters: Meters::new(meters_max),
            visitors: Meters::new(meters_max),
            clock,
            forgotten_before: AtomicU64::new(0),
            faulted: AtomicBool::new(false),
            doubtful: Mutex::default(),
            busy_since: AtomicU64::new(0),
            lead_micros: AtomicU64::new(0),
            size: AtomicU64::new(0),
            last_error: Mutex::new(CLOSED.into()),
        }
    }

    /// Succeeds while the store is open, and the agent's key in memory is known to equal that in the file.
    pub(super) fn check(&self, verb: &'static str, agent: Option<AgentId>) -> Result<(), StoreFault> {
        let is_faulted = || self.faulted.load(Ordering::Acquire);
        let has_it = |of: &[AgentId]| of.is_empty() || agent.is_some_and(|agent| of.contains(&agent));
        // Once it is over the list means nothing.
        let is_doubtful = is_faulted() && has_it(&self.doubtful.lock()) && is_faulted();
        if is_doubtful { Err(self.fault(verb)) } else { Ok(()) }
    }

    /// The time by which keys end, in Unix seconds. A wall clock that is stepped back lets no key live again that has ended: time
    /// goes on by the monotonic one.
    pub(super) fn key_secs(&self) -> u64 {
        let now_micros = self.clock.monotonic_micros();
        let lead_micros = self.clock.unix_millis().saturating_mul(1_000).saturating_sub(now_micros);
        let most_micros = self.lead_micros.load(Ordering::Relaxed);
        if lead_micros > most_micros {
            self.lead_micros.fetch_max(lead_micros, Ordering::Relaxed);
        }
        now_micros.saturating_add(most_micros.max(lead_micros)) / 1_000_000
    }

    /// True while the writer is busy for longer than steps keep it.
    pub(super) fn disk_hangs(&self) -> bool {
        let since = self.busy_since.load(Ordering::Relaxed);
        since > 0 && self.clock.monotonic_micros().saturating_sub(since) >= HANG_MICROS
    }

    /// The refusal of a signature that is so old that its nonce may have been forgotten.
    pub(super) fn forgotten(&self, claim: &NonceClaim) -> Option<NonceRefused> {
        let accepted_from = self.forgotten_before.load(Ordering::Acquire);
        if claim.signed_at.0 >= accepted_from {
            return None;
        }
        let wait_secs = accepted_from.saturating_sub(self.clock.unix_seconds());
        let retry_after = RetryAfter::from_micros(wait_secs.saturating_mul(1_000_000));
        Some(NonceRefused::Forgotten { accepted_from: UnixSeconds(accepted_from), retry_after })
    }

    /// The answer to a step that failed: the writer's last error.
    pub(super) fn fault(&self, verb: &'static str) -> StoreFault {
        StoreFault { verb, cause: Arc::clone(&self.last_error.lock()) }
    }

    pub(super) fn failed(&self, error: impl Display) {
        *self.last_error.lock() = error.to_string().into();
    }
}
