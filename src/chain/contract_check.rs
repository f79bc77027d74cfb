//! Looks for the configured contracts: an address without code answers every call with success and no data, and another
//! contract answers none, so that is found out before anybody asks. Contracts that were found are looked for again each minute if
//! they have versions, and one of them may be replaced in its place.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::U256;
use foldhash::quality::RandomState;
use parking_lot::Mutex;

use crate::chain::agents::Agents;
use crate::chain::answer::{Call3, Result3};
use crate::chain::block::Date;
use crate::chain::fault::ReadError;
use crate::chain::pool::Input;
use crate::chain::registries::results::{Check, Found, found, is_of_details};
use crate::chain::source::At;
use crate::domain::agent_id::AgentId;
use crate::ports::chain::ChainFault;

/// How long after a look that found something missing comes the next.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// For how long a look counts that may soon find something else, in microseconds.
const COUNTS_MICROS: u64 = 60_000_000;

pub(super) struct ContractCheck {
    agents: Arc<Agents>,
    /// Until when the last look counts, if it found all that decide.
    pub(super) found: Mutex<Option<u64>>,
    /// The problem that the log named last.
    reported: Mutex<Option<ReadError>>,
}

impl ContractCheck {
    pub(super) fn new(agents: &Arc<Agents>) -> Self {
        Self { agents: Arc::clone(agents), found: Mutex::default(), reported: Mutex::default() }
    }

    /// True when a registry can't be used that only details are read from.
    pub(super) fn lacks_details(&self) -> bool {
        self.found.lock().is_some() && self.reported.lock().is_some()
    }

    /// Looks until all are found, and again whenever one may have been replaced. Beside ERC-8004's a creation shows once whether
    /// details can be had.
    pub(super) async fn watch(&self) {
        let Agents { registries, source, .. } = &*self.agents;
        let mut is_tried = !registries.has_wallets();
        loop {
            if self.check(source.pool.deadline()).await.is_ok() && !is_tried {
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
        deadline: u64,
        read: impl FnOnce(Vec<Found>) -> Result<T, ReadError>,
    ) -> Result<(Date, T), ChainFault> {
        let Agents { registries, measures, source, .. } = &*self.agents;
        let somebody = AgentId::new(U256::from(RandomState::default().hash_one(())));
        let checks = registries.checks(somebody).into_iter().chain(measures.checks(somebody));
        let checks: Vec<Check> = checks.collect();
        let calls: Vec<Call3> = checks.iter().map(|check| check.call.clone()).collect();
        let found = |results: Vec<Result3>| read(found(&checks, &results));
        let (seen, found) = source.read((At::Latest(None), Input::Ours), deadline, &calls, found).await?;
        Ok((seen.at.date, found))
    }

    /// Succeeds when all contracts that decide who passes were found, and answer what they are asked for.
    pub(super) async fn check(&self, deadline: u64) -> Result<(), ChainFault> {
        let Agents { registries, measures, .. } = &*self.agents;
        let now = self.agents.now();
        if self.found.lock().is_some_and(|until_micros| now < until_micros) {
            return Ok(());
        }
        let reads_feedback = measures.of_feedback().next().is_some();
        let found = self.look(deadline, |found| all_usable(found, reads_feedback)).await;
        let (problem, until_micros) = match &found {
            Ok((_, None)) if !registries.has_wallets() => (None, Some(u64::MAX)),
            Ok((_, lacking)) => (lacking.as_ref(), Some(now + COUNTS_MICROS)),
            Err(fault) => (fault.cause.downcast_ref().filter(|problem| is_of_contract(problem)), None),
        };
        // Those that were found are not doubted because no node has time for the question.
        if found.is_err() && problem.is_none() {
            return found.map(drop);
        }
        *self.found.lock() = until_micros;
        let reported = std::mem::replace(&mut *self.reported.lock(), problem.cloned());
        match (problem, &found) {
            _ if reported.as_ref() == problem => {}
            (Some(_), Err(fault)) => tracing::warn!("{fault}"),
            (Some(problem), Ok(_)) => tracing::warn!("details lack a registry: {problem}"),
            (None, _) => tracing::info!("every configured contract is there now"),
        }
        found.map(drop)
    }
}

const fn is_of_contract(error: &ReadError) -> bool {
    matches!(error, ReadError::NoCode(_) | ReadError::OtherContract { .. } | ReadError::Version { .. })
}

/// The first problem of a registry that only details are read from. Fails when no verification can be answered because of the
/// contracts. A registry of details that is another contract leaves profiles without details.
pub(super) fn all_usable(found: Vec<Found>, reads_feedback: bool) -> Result<Option<ReadError>, ReadError> {
    let mut lacking = None;
    for (key, _, answer) in found {
        match answer {
            Err(error) if !is_of_details(key) || (reads_feedback && key == "chain.contracts.reputation") => {
                return Err(error);
            }
            Err(error @ (ReadError::NoCode(_) | ReadError::Version { .. })) => {
                lacking = lacking.or(Some(error));
            }
            Ok(_) | Err(_) => {}
        }
    }
    Ok(lacking)
}
