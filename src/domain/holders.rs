//! Who may act for an agent: its owner and, where its registry names one, the agent's own wallet (ERC-8004, `getAgentWallet`).

use alloy::primitives::Address;

/// The accounts that may sign for an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Holders {
    /// The owner of the agent's NFT.
    pub owner: Address,
    /// The agent's wallet, where one is set and may act.
    pub wallet: Option<Address>,
}

/// As who an account acts for an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// As its owner.
    Owner,
    /// As its wallet.
    Wallet,
}

impl Holders {
    /// The owner alone.
    pub const fn owned_by(owner: Address) -> Self {
        Self { owner, wallet: None }
    }

    /// As who this account may act; `None`: it may not. An owner that is the wallet too acts as the owner.
    pub fn role_of(&self, account: Address) -> Option<Role> {
        if account == self.owner {
            Some(Role::Owner)
        } else {
            (self.wallet == Some(account)).then_some(Role::Wallet)
        }
    }
}

#[cfg(test)]
mod tests {
    use alloy::primitives::Address;

    use super::{Holders, Role};

    #[test]
    fn owner_and_wallet_may_act_and_nobody_else() {
        let [owner, wallet, other] = [1, 2, 3].map(Address::with_last_byte);
        let holders = Holders { owner, wallet: Some(wallet) };
        assert_eq!(holders.role_of(owner), Some(Role::Owner));
        assert_eq!(holders.role_of(wallet), Some(Role::Wallet));
        assert_eq!(holders.role_of(other), None);
        assert_eq!(Holders { wallet: None, ..holders }.role_of(wallet), None);
        assert_eq!(Holders { wallet: Some(owner), ..holders }.role_of(owner), Some(Role::Owner));
    }
}
