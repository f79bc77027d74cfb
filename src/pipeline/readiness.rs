//! Whether verifications can be answered now (contract, "GET /readyz").
//!
//! The endpoint is public and a probe costs real work, so one answer serves everybody for a second.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::domain::freshness::UnixSeconds;
use crate::ports::chain::Chain;
use crate::ports::clock::Clock;
use crate::ports::store::Store;

/// How long one answer serves, in microseconds.
const ANSWER_SERVES_MICROS: u64 = 1_000_000;

/// How long a dependency has for its word; silence is a no.
const PROBE_TIME_MAX: Duration = Duration::from_secs(2);

/// A dependency's word: nothing to complain of, or what is wrong.
pub type Word = Result<(), Arc<dyn Error + Send + Sync>>;

/// A dependency that said nothing.
#[derive(Debug, thiserror::Error)]
#[error("the {name} did not answer a probe within {secs} s", name = .0, secs = PROBE_TIME_MAX.as_secs())]
struct Silent(&'static str);

/// What the dependencies said when they were last asked.
#[derive(Debug, Clone)]
pub struct Report {
    /// True once the process is to end: requests should go elsewhere.
    pub is_stopping: bool,
    /// The store's word.
    pub store: Word,
    /// The chain's word.
    pub chain: Word,
    /// True when no node gives logs, so that profiles are read again and again. Verifications are right all the same.
    pub lacks_logs: bool,
    /// Set while signatures are refused because nonces may have been lost. Key checks go on.
    pub signatures_accepted_from: Option<UnixSeconds>,
}

impl Report {
    /// True when verifications can be answered, and will be.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        !self.is_stopping && self.store.is_ok() && self.chain.is_ok()
    }
}

/// Asks the dependencies, at most once a second.
pub struct Readiness {
    chain: Arc<dyn Chain>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    is_stopping: AtomicBool,
    last: Mutex<Option<(u64, Report)>>,
}

impl Readiness {
    /// Over these dependencies; nothing has been asked yet.
    #[must_use]
    pub fn new(chain: Arc<dyn Chain>, store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self { chain, store, clock, is_stopping: AtomicBool::new(false), last: Mutex::new(None) }
    }

    /// Says from now on that the process is to end.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// The dependencies' word, at most a second old, and if the process is to end.
    pub async fn report(&self) -> Report {
        let report = self.of_dependencies().await;
        Report { is_stopping: self.is_stopping.load(Ordering::Relaxed), ..report }
    }

    /// Callers that come while dependencies are being asked wait for their word.
    async fn of_dependencies(&self) -> Report {
        let mut last = self.last.lock().await;
        let now = self.clock.monotonic_micros();
        if let Some((asked_at, report)) = last.as_ref()
            && now.saturating_sub(*asked_at) < ANSWER_SERVES_MICROS
        {
            return report.clone();
        }
        let (store, chain) =
            tokio::join!(word("store", self.store.probe()), word("chain", self.chain.probe()));
        let report = Report {
            is_stopping: false,
            store,
            chain,
            lacks_logs: self.chain.lacks_logs(),
            signatures_accepted_from: self.store.signatures_accepted_from(),
        };
        *last = Some((self.clock.monotonic_micros(), report.clone()));
        report
    }
}

async fn word<F: Error + Send + Sync + 'static>(
    name: &'static str,
    probe: impl Future<Output = Result<(), F>>,
) -> Word {
    match timeout(PROBE_TIME_MAX, probe).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(fault)) => Err(Arc::new(fault)),
        Err(_) => Err(Arc::new(Silent(name))),
    }
}
