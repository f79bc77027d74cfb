//! What `tiergate check --online` asks of a node, once: all that the service will ask. Keeps nothing.

use alloy::primitives::{Address, U64, U256};
use futures_util::join;
use serde_json::json;

use crate::chain::agents::Agents;
use crate::chain::answer::Result3;
use crate::chain::block::{Block, Log, block_call, logs_call};
use crate::chain::fault::ReadError;
use crate::chain::pool::{Answers, Call, Input};
use crate::chain::reader::ChainReader;
use crate::chain::registries::logs::Kind;
use crate::chain::registries::results::Found;
use crate::chain::registries::stake_vault::{decimals_call, read_decimals, read_token, token_calls};
use crate::domain::agent_id::AgentId;
use crate::ports::chain::ChainFault;

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
    /// Its time, in seconds since 1970.
    pub(crate) timestamp: u64,
    /// Each registry's key and address, and the function that it answers.
    pub(crate) contracts: Vec<(&'static str, Address, Result<&'static str, String>)>,
    /// The first agent that is minted, of the [`FIRST_AGENTS`].
    pub(crate) first_agent: Option<AgentId>,
    /// What its nodes don't take as most do.
    pub(crate) oddities: Vec<String>,
}

impl ChainReader {
    /// Looks at the latest block. Fails where the service could not be ready, or a tier not be read.
    pub(crate) async fn look(&self) -> Result<LatestState, ChainFault> {
        let Agents { measures, source, .. } = &*self.agents;
        let shown = |(key, address, answer): Found| (key, address, answer.map_err(|error| error.to_string()));
        let read = |found: Vec<Found>| Ok(found.into_iter().map(shown).collect());
        let (date, contracts) = self.follower.contracts.look(source.pool.deadline(), read).await?;
        let (logs, first, creation) = join!(self.log_oddity(), self.first_agent(), source.try_creation());
        if measures.of_feedback().next().is_some() {
            creation.clone()?;
        }
        let group =
            |fault: &ChainFault| format!("no read of {FIRST_AGENTS} agents in a call: {}", fault.cause);
        let creation = creation.err().map(|fault| format!("no eth_call without `to`: {}", fault.cause));
        let oddities = [logs?, first.as_ref().err().map(group), creation];
        Ok(LatestState {
            chain: source.pool.chain_id,
            block: date.number,
            timestamp: date.timestamp,
            contracts,
            first_agent: first.unwrap_or_default(),
            oddities: oddities.into_iter().flatten().collect(),
        })
    }

    /// Why logs can't be followed as most nodes give them. Fails where a node takes no batches, or is on another chain.
    async fn log_oddity(&self) -> Result<Option<String>, ChainFault> {
        let pool = &self.agents.source.pool;
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
                return Ok(Some(format!("{phrase}: {}", refused.cause)));
            }
        }
        Ok(Some(format!("no logs, so that profiles serve for chain.poll_interval: {}", refused.cause)))
    }

    /// The logs of so many blocks up to this one, each kind in a request with the block.
    async fn read_logs(&self, number: u64, blocks: u64) -> Result<(), ChainFault> {
        let from = (number + 1).saturating_sub(blocks);
        for kind in [Kind::All, Kind::Tokens] {
            let Some(logs) = self.agents.logs_of(kind) else { continue };
            let calls = [block_call(json!(U64::from(number))), logs_call(&logs, [from, number])];
            let read = |answers: &mut Answers<'_>| {
                answers.next::<Option<Block>>()?;
                answers.next::<Vec<Log>>().map(drop)
            };
            let pool = &self.agents.source.pool;
            pool.ask(pool.deadline(), (&calls, Input::Strangers), read).await?;
        }
        Ok(())
    }

    /// The first agent that is minted, of the [`FIRST_AGENTS`].
    async fn first_agent(&self) -> Result<Option<AgentId>, ChainFault> {
        let Agents { registries, source, .. } = &*self.agents;
        let agents: Vec<_> = (0..FIRST_AGENTS).map(|id| AgentId::new(U256::from(id))).collect();
        let calls: Vec<_> = agents.iter().flat_map(|agent| registries.holder_calls(*agent)).collect();
        let decode = |results: Vec<Result3>| {
            let each = results.chunks((calls.len() / agents.len().max(1)).max(1));
            let is_minted = |(agent, results): &(&AgentId, &[Result3])| {
                matches!(registries.read_holders(**agent, &mut results.iter().cloned()), Ok(Some(_)))
            };
            Ok(agents.iter().zip(each).find(is_minted).map(|(agent, _)| *agent))
        };
        source.read_latest(&calls, decode).await.map(|(_, first)| first)
    }

    /// The token that the stake vault takes, where it says so.
    pub(crate) async fn stake_token(&self) -> Result<Option<Address>, ChainFault> {
        let Agents { registries, source, .. } = &*self.agents;
        let Some(vault) = registries.stake_vault else { return Ok(None) };
        let read = source.read_latest(&token_calls(vault), |found: Vec<_>| Ok(read_token(&found))).await?;
        Ok(read.1)
    }

    /// The decimals of a token, where it says so.
    pub(crate) async fn decimals(&self, token: Address) -> Result<Option<u8>, ChainFault> {
        let read = |found: Vec<_>| Ok(found.first().and_then(read_decimals));
        Ok(self.agents.source.read_latest(&[decimals_call(token)], read).await?.1)
    }
}
