//! Looks for the configured contracts. An address without code answers every call with success and no data, so that is
//! found out before anybody asks. Contracts that were found are not looked for again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use alloy::primitives::U256;
use parking_lot::Mutex;

use crate::chain::fault::ReadError;
use crate::chain::pool::Lane;
use crate::chain::registries::Registries;
use crate::chain::source::{At, Source};
use crate::domain::agent_id::AgentId;
use crate::ports::chain::ChainFault;
use crate::ports::clock::Clock;

/// How long after a look that found something missing comes the next.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// For how long the result of a look serves whoever asks, in microseconds.
const RESULT_SERVES_MICROS: u64 = 3_000_000;

pub(super) struct ContractCheck {
    source: Arc<Source>,
    registries: Registries,
    clock: Arc<dyn Clock>,
    are_found: AtomicBool,
    /// The last look, when it failed: when it ended, and why.
    last: Mutex<Option<(u64, ChainFault)>>,
    /// The key that the log named last.
    told: Mutex<Option<&'static str>>,
}

impl ContractCheck {
    pub(super) fn new(source: Arc<Source>, registries: Registries, clock: Arc<dyn Clock>) -> Self {
        let (last, told) = (Mutex::new(None), Mutex::new(None));
        Self { source, registries, clock, are_found: AtomicBool::new(false), last, told }
    }

    /// Succeeds when all contracts were found. Nobody is asked while a look is not long ago.
    pub(super) async fn result(&self) -> Result<(), ChainFault> {
        if self.are_found.load(Ordering::Relaxed) {
            return Ok(());
        }
        let last = self.last.lock().clone();
        match last {
            Some((at, fault)) if self.clock.monotonic_micros().saturating_sub(at) < RESULT_SERVES_MICROS => {
                Err(fault)
            }
            Some(_) | None => self.look().await,
        }
    }

    /// Looks until all are found.
    pub(super) async fn watch(&self) {
        while self.look().await.is_err() {
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    }

    /// Reads an agent, minted or not: which contracts answer says which are there.
    async fn look(&self) -> Result<(), ChainFault> {
        if self.are_found.load(Ordering::Relaxed) {
            return Ok(());
        }
        let calls = self.registries.profile_calls(AgentId::new(U256::ONE));
        let missing = |results: &[_]| match self.registries.missing(results) {
            Some(key) => Err(ReadError::NoCode(key)),
            None => Ok(()),
        };
        let terms = self.source.terms(Lane::Known);
        let found = self.source.read(&terms, At::Latest, &calls, |results| missing(&results)).await;
        match &found {
            Ok(_) => {
                self.are_found.store(true, Ordering::Relaxed);
                if self.told.lock().take().is_some() {
                    tracing::info!("every configured contract is there now");
                }
            }
            Err(fault) => {
                if let Some(ReadError::NoCode(key)) = fault.cause.downcast_ref()
                    && self.told.lock().replace(key) != Some(key)
                {
                    tracing::warn!("{fault}");
                }
            }
        }
        let found = found.map(drop);
        *self.last.lock() = found.clone().err().map(|fault| (self.clock.monotonic_micros(), fault));
        found
    }
}
