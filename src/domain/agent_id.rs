//! The agent's identity: the token id of its NFT (contract, "Agent").

use std::fmt;
use std::hash::{Hash, Hasher};

use alloy::primitives::U256;

use crate::domain::uint256::{self, NotUint256};

/// A token id of the identity registry. Two texts that stand for one number are one agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AgentId(U256);

impl AgentId {
    /// Parses a decimal string.
    pub fn parse(text: &str) -> Result<Self, NotUint256> {
        uint256::parse_decimal(text).map(Self)
    }

    /// The agent with this token id.
    pub const fn new(token_id: U256) -> Self {
        Self(token_id)
    }

    /// The token id.
    pub const fn token_id(self) -> U256 {
        self.0
    }

    /// The id as 32 bytes, most significant first: how stores write it.
    pub const fn to_bytes(self) -> [u8; 32] {
        self.0.to_be_bytes()
    }

    /// The id that [`Self::to_bytes`] wrote.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(U256::from_be_bytes(bytes))
    }
}

/// Number by number: the number's own hash is that of 32 bytes, which takes hashers longer.
impl Hash for AgentId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.as_limbs().iter().for_each(|limb| state.write_u64(*limb));
    }
}

impl fmt::Display for AgentId {
    /// The canonical decimal form, without zeros in front.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&uint256::decimal(self.0))
    }
}
