//! What an agent's owner signs (contract, "Signed request"; EIP-712).

use alloy::primitives::{Address, B256, Keccak256, U256, keccak256};

use crate::domain::agent_id::AgentId;
use crate::domain::freshness::UnixSeconds;
use crate::domain::nonce::Nonce;

const DOMAIN_TYPE: &str =
    "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)";
const MESSAGE_TYPE: &str = "Verification(uint256 agentId,uint256 nonce,uint256 timestamp)";

/// The domain that signatures are bound to, with everything that does not change between messages computed once.
#[derive(Debug, Clone)]
pub struct SigningDomain {
    separator: B256,
    message_type: B256,
}

impl SigningDomain {
    /// The domain of this name, version, chain id and identity registry.
    #[must_use]
    pub fn new(name: &str, version: &str, chain_id: u64, verifying_contract: Address) -> Self {
        let mut hasher = Keccak256::new();
        hasher.update(keccak256(DOMAIN_TYPE));
        hasher.update(keccak256(name));
        hasher.update(keccak256(version));
        hasher.update(U256::from(chain_id).to_be_bytes::<32>());
        hasher.update(verifying_contract.into_word());
        Self { separator: hasher.finalize(), message_type: keccak256(MESSAGE_TYPE) }
    }

    /// The digest that the owner's key signs for this message.
    #[must_use]
    pub fn digest(&self, agent: AgentId, nonce: Nonce, signed_at: UnixSeconds) -> B256 {
        let mut message = Keccak256::new();
        message.update(self.message_type);
        message.update(agent.to_bytes());
        message.update(nonce.to_bytes());
        message.update(U256::from(signed_at.0).to_be_bytes::<32>());

        let mut hasher = Keccak256::new();
        hasher.update([0x19, 0x01]);
        hasher.update(self.separator);
        hasher.update(message.finalize());
        hasher.finalize()
    }
}

#[cfg(test)]
mod tests;
