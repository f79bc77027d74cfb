//! What the pipeline asks of the chain. Must not know RPC, ABIs or caches.

use std::{future::Ready, sync::Arc};

use alloy::primitives::{Address, B256};
use async_trait::async_trait;
use futures_util::future::{BoxFuture, Either};

use crate::domain::{AgentId, Holders, TrustProfile};

/// On whose behalf holders are read. It decides who waits for whom, and never who is let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Asker {
    /// Somebody who signed with the key of a holder that was seen last.
    Vouched,
    /// Anybody: whoever sends something of the right shape.
    Stranger,
}

/// How much of a profile must be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Parts {
    /// Owner and stake, which decide who passes.
    Gate,
    /// All that is shown.
    Whole,
}

/// A holder of an agent that may have been asked for a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// Its address.
    pub address: Address,
    /// True if it has code: it is a contract, or a key that acts as one (EIP-7702).
    pub has_code: bool,
    /// True if its code accepts the signature (ERC-1271).
    pub accepts: bool,
}

/// The holders of an agent, who may have been asked for a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AskedHolders {
    /// The owner.
    pub owner: Asked,
    /// The wallet, where one is set that may act and is not the owner.
    pub wallet: Option<Asked>,
}

impl AskedHolders {
    /// The owner first.
    pub fn iter(&self) -> impl Iterator<Item = &Asked> {
        std::iter::once(&self.owner).chain(&self.wallet)
    }

    /// True if this account is one of them and has code.
    pub fn has_code(&self, account: Address) -> bool {
        self.iter().any(|one| one.address == account && one.has_code)
    }

    /// Who they are.
    pub fn holders(&self) -> Holders {
        Holders { owner: self.owner.address, wallet: self.wallet.map(|wallet| wallet.address) }
    }
}

/// An answer that is there at once, or one to wait for. A cached profile is there without an allocation.
pub type ChainRead<'a, T> = Either<Ready<Result<T, ChainFault>>, BoxFuture<'a, Result<T, ChainFault>>>;

/// Reads agents from the chain.
///
/// Profiles are for those who have proven who they are. Holders are for anybody, who must not keep these waiting.
///
/// `Ok(None)` means that the registry said the agent is not minted, and only that; whatever is unclear is a
/// [`ChainFault`].
#[async_trait]
pub trait Chain: Send + Sync {
    /// The agent's profile, at most as stale as the configuration allows. Without details where they are not asked for, or
    /// can't be read because of what they are.
    fn profile(&self, agent: AgentId, parts: Parts) -> ChainRead<'_, Option<Arc<TrustProfile>>>;

    /// The agent's profile from a read that began after this call; with details where the whole is asked for. A fault may be
    /// that of a read just before.
    async fn latest_profile(
        &self,
        agent: AgentId,
        parts: Parts,
    ) -> Result<Option<Arc<TrustProfile>>, ChainFault>;

    /// Who may act for the agent at the latest block, from a read that began after this call.
    async fn holders(&self, agent: AgentId, asker: Asker) -> Result<Option<Holders>, ChainFault>;

    /// Who may act for the agent at the latest block, and which of them have code. Nobody is asked. From a read that began after
    /// this call, which all who ask meanwhile share.
    async fn inspect_holders(&self, agent: AgentId, asker: Asker)
    -> Result<Option<AskedHolders>, ChainFault>;

    /// Who may act for the agent at the latest block, and which of them are contracts that accept this signature (ERC-1271).
    /// From one read that began after this call. A contract's errors are no fault: it does not accept the signature. Such a
    /// read is always a stranger's.
    async fn ask_holders(
        &self,
        agent: AgentId,
        digest: B256,
        signature: &[u8],
    ) -> Result<Option<AskedHolders>, ChainFault>;

    /// Who may act for the agent by the read that was made last, however long ago. Reads nothing. It proves nothing either: it
    /// says whose read is worth more than a stranger's.
    fn last_holders(&self, agent: AgentId) -> Option<Holders>;

    /// True where the registries have no agent of this id, whatever the chain says.
    fn reserves(&self, agent: AgentId) -> bool {
        agent.token_id().is_zero()
    }

    /// The fault of a read that was given up because its request has no time left.
    fn out_of_time(&self) -> ChainFault;

    /// Succeeds when verifications can be answered: a node answers and the contracts are where they should be.
    async fn probe(&self) -> Result<(), ChainFault>;

    /// True when nodes do not run what details are read by, or a registry of details can't be used: profiles have less.
    fn lacks_details(&self) -> bool {
        false
    }

    /// True when no node gives logs: profiles are right, and read again and again.
    fn lacks_logs(&self) -> bool {
        false
    }
}

/// The chain could not be read, or said something that can't be believed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{method} at {endpoint} failed: {cause}")]
pub struct ChainFault {
    /// Scheme, host and port of the node: nothing that could hold a provider's key.
    pub endpoint: Arc<str>,
    /// The JSON-RPC method.
    pub method: &'static str,
    /// True when the nodes are behind: what they answered is older than what is known.
    pub is_behind: bool,
    /// The error, for the log. Never sent to a client.
    pub cause: Arc<str>,
}
