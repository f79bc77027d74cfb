//! Looks for the configured contracts: an address without code answers every call with success and no data, and another
//! contract answers none, so that is found out before anybody asks. Contracts that were found are not looked for again.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use alloy::primitives::U256;
use foldhash::quality::RandomState;
use parking_lot::Mutex;

use crate::chain::fault::ReadError;
use crate::chain::source::{At, Source};
use crate::domain::agent_id::AgentId;
use crate::domain::registries::Registries;
use crate::ports::chain::ChainFault;

/// How long after a look that found something missing comes the next.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// Any agent, minted or not, and another one each time: of one that is known strangers could write more than can be read.
pub(super) fn somebody() -> AgentId {
    AgentId::new(U256::from(RandomState::default().hash_one(())))
}

pub(super) struct ContractCheck {
    pub(super) source: Arc<Source>,
    pub(super) registries: Registries,
    pub(super) are_found: AtomicBool,
    /// The problem that the log named last.
    pub(super) reported: Mutex<Option<ReadError>>,
}

impl ContractCheck {
    /// Looks until all are found.
    pub(super) async fn watch(&self) {
        while self.look().await.is_err() {
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    }

    /// Succeeds when all contracts were found, and those that decide who passes answer what they are asked for.
    pub(super) async fn look(&self) -> Result<(), ChainFault> {
        if self.are_found.load(Ordering::Relaxed) {
            return Ok(());
        }
        let calls = self.registries.profile_calls(somebody());
        let judge = |results: Vec<_>| self.registries.unusable(&results).map_or(Ok(()), Err);
        let found = self.source.read(At::Latest, &calls, judge).await;
        match &found {
            Ok(_) => {
                self.are_found.store(true, Ordering::Relaxed);
                if self.reported.lock().take().is_some() {
                    tracing::info!("every configured contract is there now");
                }
            }
            Err(fault) => {
                if let Some(problem @ (ReadError::NoCode(_) | ReadError::OtherContract { .. })) =
                    fault.cause.downcast_ref()
                    && self.reported.lock().replace(problem.clone()).as_ref() != Some(problem)
                {
                    tracing::warn!("{fault}");
                }
            }
        }
        found.map(drop)
    }
}
