//! Looks for the configured contracts: an address without code answers every call with success and no data, and another
//! contract answers none, so that is found out before anybody asks. Contracts that were found are not looked for again, unless
//! they have versions and one of them may have been replaced in its place.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::U256;
use foldhash::quality::RandomState;
use parking_lot::Mutex;

use crate::chain::agents::Agents;
use crate::chain::answer::{Date, Result3};
use crate::chain::cache::status::Ticket;
use crate::chain::fault::ReadError;
use crate::chain::measures::CONTRACT;
use crate::chain::pool::Input;
use crate::chain::registries::results::Found;
use crate::chain::source::At;
use crate::domain::agent_id::AgentId;
use crate::ports::chain::ChainFault;

/// How long after a look that found something missing comes the next.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

pub(super) struct ContractCheck {
    agents: Arc<Agents>,
    /// The ticket of the look that found them all.
    pub(super) found: Mutex<Option<Ticket>>,
    /// The problem that the log named last.
    reported: Mutex<Option<ReadError>>,
}

impl ContractCheck {
    pub(super) fn new(agents: &Arc<Agents>) -> Self {
        Self { agents: Arc::clone(agents), found: Mutex::default(), reported: Mutex::default() }
    }

    /// Looks until all are found, and again whenever one may have been replaced. Beside ERC-8004's a creation shows once whether
    /// details can be had.
    pub(super) async fn watch(&self) {
        let Agents { registries, source, .. } = &*self.agents;
        let mut is_tried = !registries.has_wallets();
        loop {
            if self.check().await.is_ok() && !is_tried {
                is_tried = true;
                if let Err(fault) = source.try_creation().await {
                    tracing::warn!("details and tiers by feedback can't be read: {fault}");
                }
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    }

    /// The latest block, and `read` of each registry. They are asked about any agent, minted or not, and another one each
    /// time: of one that is known strangers could write more than can be read.
    pub(super) async fn look<T>(
        &self,
        read: impl FnOnce(Vec<Found>) -> Result<T, ReadError>,
    ) -> Result<(Date, T), ChainFault> {
        let Agents { registries, measures, source, .. } = &*self.agents;
        let somebody = AgentId::new(U256::from(RandomState::default().hash_one(())));
        let mut calls = registries.check_calls(somebody);
        let own = calls.len();
        calls.extend(measures.check_calls(somebody));
        let found = |results: Vec<Result3>| {
            let further = measures.found(results.get(own..).unwrap_or_default());
            read(registries.found(&results).into_iter().chain(further).collect())
        };
        source.read((At::Latest, Input::Ours), &calls, found).await
    }

    /// Succeeds when all contracts were found, and those that decide who passes answer what they are asked for.
    pub(super) async fn check(&self) -> Result<(), ChainFault> {
        let Agents { registries, cache, .. } = &*self.agents;
        let counts = |found: &Ticket| !registries.has_wallets() || cache.is_current(found);
        if self.found.lock().as_ref().is_some_and(counts) {
            return Ok(());
        }
        let ticket = cache.begin_latest();
        let found = self.look(all_usable).await;
        match &found {
            Ok(_) => {
                *self.found.lock() = Some(ticket);
                if self.reported.lock().take().is_some() {
                    tracing::info!("every configured contract is there now");
                }
            }
            Err(fault) => {
                // Those that were found are not doubted because no node has time for the question.
                if let Some(
                    problem @ (ReadError::NoCode(_)
                    | ReadError::OtherContract { .. }
                    | ReadError::Version { .. }),
                ) = fault.cause.downcast_ref()
                {
                    *self.found.lock() = None;
                    if self.reported.lock().replace(problem.clone()).as_ref() != Some(problem) {
                        tracing::warn!("{fault}");
                    }
                }
            }
        }
        found.map(drop)
    }
}

/// Fails when no verification can be answered because of the contracts. A registry of details that is another contract leaves
/// profiles without details.
pub(super) fn all_usable(found: Vec<Found>) -> Result<(), ReadError> {
    let is_needed =
        |key| ["chain.contracts.identity", "chain.contracts.stake_vault", CONTRACT].contains(&key);
    found.into_iter().try_for_each(|(key, _, answer)| match answer {
        Err(error @ (ReadError::NoCode(_) | ReadError::Version { .. })) => Err(error),
        Err(error) if is_needed(key) => Err(error),
        Ok(_) | Err(_) => Ok(()),
    })
}
