//! Looks for the configured contracts. An address without code answers every call with success and no data, so that is
//! found out before anybody asks. Contracts that were found are not looked for again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use alloy::primitives::U256;
use parking_lot::Mutex;

use crate::chain::fault::ReadError;
use crate::chain::registries::Registries;
use crate::chain::source::{At, Source};
use crate::domain::agent_id::AgentId;
use crate::ports::chain::{Asker, ChainFault};

/// How long after a look that found something missing comes the next.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

pub(super) struct ContractCheck {
    pub(super) source: Arc<Source>,
    pub(super) registries: Registries,
    pub(super) are_found: AtomicBool,
    /// The key that the log named last.
    pub(super) reported: Mutex<Option<&'static str>>,
}

impl ContractCheck {
    /// Looks until all are found.
    pub(super) async fn watch(&self) {
        while self.look().await.is_err() {
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    }

    /// Succeeds when all contracts were found. Reads an agent, minted or not: which contracts answer says which are there.
    pub(super) async fn look(&self) -> Result<(), ChainFault> {
        if self.are_found.load(Ordering::Relaxed) {
            return Ok(());
        }
        let calls = self.registries.profile_calls(AgentId::new(U256::ONE));
        let missing = |results: Vec<_>| {
            self.registries.missing(&results).map_or(Ok(()), |key| Err(ReadError::NoCode(key)))
        };
        let found = self.source.read(Asker::Vouched, At::Latest, &calls, missing).await;
        match &found {
            Ok(_) => {
                self.are_found.store(true, Ordering::Relaxed);
                if self.reported.lock().take().is_some() {
                    tracing::info!("every configured contract is there now");
                }
            }
            Err(fault) => {
                if let Some(ReadError::NoCode(key)) = fault.cause.downcast_ref()
                    && self.reported.lock().replace(key) != Some(key)
                {
                    tracing::warn!("{fault}");
                }
            }
        }
        found.map(drop)
    }
}
