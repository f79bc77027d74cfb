//! The reader against nodes over real HTTP: the development chain, and one that misbehaves on command.

mod absurd;
mod answers;
#[cfg(feature = "dev-chain")]
mod development;
mod dispute;
mod failover;
mod lanes;
mod misbehaving;
mod secrets;
mod survey;

use alloy::primitives::U256;

use crate::domain::agent_id::AgentId;

fn agent(id: u64) -> AgentId {
    AgentId::new(U256::from(id))
}
