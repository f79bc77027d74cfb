//! What the pipeline asks of the chain. Must not know RPC, ABIs or caches.

use std::error::Error;
use std::sync::Arc;

use alloy::primitives::Address;
use async_trait::async_trait;

use crate::domain::agent_id::AgentId;
use crate::domain::profile::TrustProfile;

/// Reads agents from the chain.
///
/// `Ok(None)` means that the registry said the agent is not minted, and only that; whatever is unclear is a
/// [`ChainFault`].
#[async_trait]
pub trait Chain: Send + Sync {
    /// The agent's profile, at most as stale as the configuration allows.
    async fn profile(&self, agent: AgentId) -> Result<Option<Arc<TrustProfile>>, ChainFault>;

    /// The agent's profile from a read that began after this call.
    async fn latest_profile(&self, agent: AgentId) -> Result<Option<Arc<TrustProfile>>, ChainFault>;

    /// The agent's owner at the latest block, from a read that began after this call.
    async fn owner(&self, agent: AgentId) -> Result<Option<Address>, ChainFault>;

    /// Succeeds when verifications can be answered: a node answers and the contracts are where they should be.
    async fn probe(&self) -> Result<(), ChainFault>;
}

/// The chain could not be read, or said something that can't be believed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{method} at {endpoint} failed: {cause}")]
pub struct ChainFault {
    /// Scheme, host and port of the node: nothing that could hold a provider's key.
    pub endpoint: Arc<str>,
    /// The JSON-RPC method.
    pub method: &'static str,
    /// What happened, for the log. Never sent to a client.
    pub cause: Arc<dyn Error + Send + Sync>,
}
