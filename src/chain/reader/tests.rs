//! The reader against nodes over HTTP.

mod answers;
mod details;
#[cfg(feature = "dev-chain")]
mod development;
#[cfg(feature = "dev-chain")]
mod erc8004;
mod gas;
mod look;
mod multicall;
mod secrets;
mod wallets;

use futures_util::future::join_all;

use crate::chain::{cache::CachedProfile, fixture::Bench, reads::Read};
use crate::domain::AgentId;
use crate::ports::Parts;

/// Reads agents that are asked for at once.
async fn together(bench: &Bench, agents: &[AgentId], parts: Parts) -> Vec<Read<CachedProfile>> {
    let late = || Err(bench.reader.agents.state.pool.out_of_time());
    let read = agents.iter().map(|agent| bench.reader.reads(parts).get((*agent, parts)));
    join_all(read).await.into_iter().map(|read| read.unwrap_or_else(late)).collect()
}
