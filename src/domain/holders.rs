//! Who may act for an agent: its owner and, where its registry names one, the agent's own wallet (ERC-8004, `getAgentWallet`).

use alloy::primitives::Address;

/// The accounts that may sign for an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Holders {
    /// The owner of the agent's NFT.
    pub owner: Address,
    /// The agent's wallet, where one is set. It acts only where `signature.agent_wallet` says so.
    pub wallet: Option<Address>,
}

impl Holders {
    /// The owner alone.
    pub const fn owned_by(owner: Address) -> Self {
        Self { owner, wallet: None }
    }

    /// True if this account may act for the agent; its wallet may where wallets are heard.
    pub fn may_act(&self, account: Address, hears_wallet: bool) -> bool {
        account == self.owner || (hears_wallet && self.wallet == Some(account))
    }
}
