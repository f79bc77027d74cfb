//! The configured contracts: whether they are there, for readiness, and all that the service will ask of a node, for
//! `tiergate check --online`.
//!
//! An address without code answers every call with success and no data, and another contract answers none, so that is found out
//! before anybody asks. Contracts that were found are looked for again each minute if they have versions, and one of them may be
//! replaced in its place.

use std::{hash::BuildHasher, sync::Arc, time::Duration};

use alloy::primitives::{Address, U64, U256};
use foldhash::quality::RandomState;
use futures_util::join;
use parking_lot::Mutex;
use serde_json::json;

use crate::chain::block::{Block, Date, Log, block_call, logs_call};
use crate::chain::dated::{At, Call3, call};
use crate::chain::fault::{ReadError, ReadFault};
use crate::chain::pool::{Answers, Call, Input};
use crate::chain::registries::calls::{Check, Found, decimalsCall, read_token, token_calls, word};
use crate::chain::{reads::Agents, registries::logs::Kind};
use crate::domain::AgentId;
use crate::ports::ChainFault;

/// How long after a check that found something missing comes the next.
const CHECK_PAUSE: Duration = Duration::from_secs(1);

/// For how long a check counts that may soon find something else, in microseconds.
const COUNTS_MICROS: u64 = 60_000_000;

/// Of the agents below this number, which are read in one call, the first one is looked for.
pub(crate) const FIRST_AGENTS: u64 = 32;

/// The most blocks of a request for logs, and how many are asked for where so many are refused.
const LOG_BLOCKS_MAX: u64 = 17;
const FEWER_LOG_BLOCKS: [u64; 3] = [8, 4, 1];

/// The state at the latest block.
pub(crate) struct LatestState {
    /// The chain's id.
    pub(crate) chain: u64,
    /// The block's number.
    pub(crate) block: u64,
    /// The block's time, in seconds since 1970.
    pub(crate) timestamp: u64,
    /// Contracts: each registry's key and address, and the function that it answers.
    pub(crate) contracts: Vec<(&'static str, Address, Result<&'static str, String>)>,
    /// The first agent that is minted, or can't be read, of the [`FIRST_AGENTS`].
    pub(crate) first_agent: Option<AgentId>,
    /// Requests that its nodes don't take as most do.
    pub(crate) oddities: Vec<String>,
}

/// The configured contracts.
pub(crate) struct Contracts {
    agents: Arc<Agents>,
    /// Until when the last check counts, if it found all that decide.
    pub(super) found: Mutex<Option<u64>>,
    /// The problem that the log named last.
    reported: Mutex<Option<ReadError>>,
}

impl Contracts {
    pub(super) fn new(agents: &Arc<Agents>) -> Self {
        Self { agents: Arc::clone(agents), found: Mutex::default(), reported: Mutex::default() }
    }

    /// True when a registry can't be used that only details are read from.
    pub(super) fn lacks_details(&self) -> bool {
        self.found.lock().is_some() && self.reported.lock().is_some()
    }

    /// Checks until all are found, and again whenever one may have been replaced. Beside ERC-8004's a creation shows once whether
    /// details can be had.
    pub(super) async fn watch(&self) {
        let Agents { registries, state, .. } = &*self.agents;
        let mut is_tried = !registries.has_wallets();
        loop {
            if self.check(state.pool.deadline()).await.is_ok() && !is_tried {
                is_tried = true;
                if let Err(fault) = state.try_creation().await {
                    tracing::warn!("details and tiers by feedback can't be read: {fault}");
                }
            }
            tokio::time::sleep(CHECK_PAUSE).await;
        }
    }

    /// The latest block, and `read` of each contract. They are asked about any agent, minted or not, and another one each
    /// time: of one that is known strangers could write more than can be read.
    pub(super) async fn ask<T>(
        &self,
        deadline: u64,
        read: impl FnOnce(Vec<Found>) -> Result<T, ReadError>,
    ) -> Result<(Date, T), ReadFault> {
        let Agents { registries, measures, state, .. } = &*self.agents;
        let somebody = AgentId::new(U256::from(RandomState::default().hash_one(())));
        let checks: Vec<Check> = registries.checks(somebody).chain(measures.checks(somebody)).collect();
        let calls: Vec<Call3> = checks.iter().map(|check| check.call.clone()).collect();
        let answer = state.read((At::Latest(None), Input::Ours), deadline, &calls).await?;
        let found = checks.iter().zip(&answer.results).map(|(check, result)| check.found(result)).collect();
        Ok((answer.at.date, read(found).map_err(|error| answer.fault(error))?))
    }

    /// Succeeds when all contracts that decide who passes were found, and answer what they are asked for.
    pub(super) async fn check(&self, deadline: u64) -> Result<(), ReadFault> {
        let Agents { registries, measures, .. } = &*self.agents;
        let now = self.agents.now();
        if self.found.lock().is_some_and(|until_micros| now < until_micros) {
            return Ok(());
        }
        let reads_feedback = measures.feedback().next().is_some();
        let found = self.ask(deadline, |found| all_usable(found, reads_feedback)).await;
        let is_of_contract = |error: &&ReadError| {
            matches!(
                error,
                ReadError::NoCode(_) | ReadError::OtherContract { .. } | ReadError::Version { .. }
            )
        };
        let (problem, until_micros) = match &found {
            Ok((_, None)) if !registries.has_wallets() => (None, Some(u64::MAX)),
            Ok((_, lacking)) => (lacking.as_ref(), Some(now + COUNTS_MICROS)),
            Err(fault) => (Some(&*fault.error).filter(is_of_contract), None),
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

    /// Asks for all that the service will ask, once. Fails where the service could not be ready, or a tier not be read.
    pub(crate) async fn inspect(&self) -> Result<LatestState, ChainFault> {
        let Agents { measures, state, .. } = &*self.agents;
        let (date, contracts) = self.ask(state.pool.deadline(), Ok).await?;
        let agents = (0..FIRST_AGENTS).map(|id| AgentId::new(U256::from(id)));
        let agents: Vec<AgentId> = agents.take(self.agents.group_max()).collect();
        let group = self.agents.graded(&agents, None, state.pool.deadline());
        let (logs, group, creation) = join!(self.log_oddity(), group, state.try_creation());
        if measures.feedback().next().is_some() {
            creation.clone()?;
        }
        let refused =
            |fault: &ReadFault| format!("no read of {} agents in a call: {}", agents.len(), fault.error);
        let creation = creation.err().map(|fault| format!("no eth_call without `to`: {}", fault.error));
        let oddities = [logs?, group.as_ref().err().map(refused), creation];
        let mut read = group.into_iter().flat_map(|(_, profiles)| profiles).zip(&agents);
        Ok(LatestState {
            chain: state.pool.chain_id,
            block: date.number,
            timestamp: date.timestamp,
            contracts: contracts
                .into_iter()
                .map(|(key, address, answer)| (key, address, answer.map_err(|error| error.to_string())))
                .collect(),
            // One that can't be read says why when it is read whole.
            first_agent: read.find(|(profile, _)| !matches!(profile, Ok(None))).map(|(_, agent)| *agent),
            oddities: oddities.into_iter().flatten().collect(),
        })
    }

    /// Why logs can't be followed as most nodes give them. Fails where a node takes no batches, or is on another chain.
    async fn log_oddity(&self) -> Result<Option<String>, ReadFault> {
        let pool = &self.agents.state.pool;
        let calls = [Call { method: "eth_chainId", params: json!([]) }, block_call(json!("latest"))];
        let read = |answers: &mut Answers<'_>| {
            let (reported, chain) = (answers.next::<U64>()?.to(), pool.chain_id);
            if reported == chain { answers.next() } else { Err(ReadError::WrongChain { reported, chain }) }
        };
        let Block { number, .. } = pool.ask(pool.deadline(), (&calls, Input::Strangers), read).await?;
        let Err(refused) = self.read_logs(number, LOG_BLOCKS_MAX).await else { return Ok(None) };
        for blocks in FEWER_LOG_BLOCKS {
            if self.read_logs(number, blocks).await.is_ok() {
                let phrase = format!("no logs of {LOG_BLOCKS_MAX} blocks in a request, but of {blocks}");
                return Ok(Some(format!("{phrase}: {}", refused.error)));
            }
        }
        Ok(Some(format!("no logs, so that profiles serve for chain.poll_interval: {}", refused.error)))
    }

    /// The logs of so many blocks up to this one, each kind in a request with the block.
    async fn read_logs(&self, number: u64, blocks: u64) -> Result<(), ReadFault> {
        let from = (number + 1).saturating_sub(blocks);
        for kind in [Kind::All, Kind::Tokens] {
            let Some(logs) = self.agents.logs_of(kind) else { continue };
            let calls = [block_call(json!(U64::from(number))), logs_call(&logs, [from, number])];
            let read = |answers: &mut Answers<'_>| {
                answers.next::<Option<Block>>()?;
                answers.next::<Vec<Log>>().map(drop)
            };
            let pool = &self.agents.state.pool;
            pool.ask(pool.deadline(), (&calls, Input::Strangers), read).await?;
        }
        Ok(())
    }

    /// The token that the stake vault takes, where it says so.
    pub(crate) async fn stake_token(&self) -> Result<Option<Address>, ChainFault> {
        let Agents { registries, state, .. } = &*self.agents;
        let Some(vault) = registries.stake_vault else { return Ok(None) };
        Ok(read_token(&state.read_latest(&token_calls(vault)).await?.results))
    }

    /// The decimals of a token, where it says so.
    pub(crate) async fn decimals(&self, token: Address) -> Result<Option<u8>, ChainFault> {
        let answer = self.agents.state.read_latest(&[call(token, &decimalsCall {})]).await?;
        Ok(answer.results.first().and_then(word).and_then(|decimals| decimals.try_into().ok()))
    }
}

/// The first problem of a registry that only details are read from. Fails when no verification can be answered because of the
/// contracts. A registry of details that is another contract leaves profiles without details.
pub(super) fn all_usable(found: Vec<Found>, reads_feedback: bool) -> Result<Option<ReadError>, ReadError> {
    let mut lacking = None;
    for (key, _, answer) in found {
        let is_of_details = match key {
            "chain.contracts.reputation" => !reads_feedback,
            key => ["chain.contracts.validation", "chain.contracts.organization"].contains(&key),
        };
        match answer {
            Err(error) if !is_of_details => return Err(error),
            Err(error @ (ReadError::NoCode(_) | ReadError::Version { .. })) => {
                lacking = lacking.or(Some(error));
            }
            Ok(_) | Err(_) => {}
        }
    }
    Ok(lacking)
}
