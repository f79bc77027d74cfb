//! What an agent's owner signs (contract, "Signed request"; EIP-712).

use std::{fmt, sync::Arc};

use alloy::primitives::{Address, B256, Keccak256, U256, keccak256};

use crate::domain::{agent_id::AgentId, freshness::UnixSeconds, nonce::Nonce};

const DOMAIN_TYPE: &str =
    "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)";
const PROFILE_TYPE: &str = "ProfileRead(uint256 agentId,uint256 timestamp)";
const MESSAGE_TYPE: &str = "Verification(uint256 agentId,uint256 nonce,uint256 timestamp)";
const OWN_FIELDS: &str = "(string service,uint256 agentId,uint256 nonce,uint256 timestamp)";

/// A change of an agent's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum KeyOperation {
    /// Makes the first key.
    Generate,
    /// Replaces the key.
    Rotate,
    /// Ends the key.
    Revoke,
}

impl KeyOperation {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Generate, Self::Rotate, Self::Revoke];

    /// Its name, as in the API.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The name of its own EIP-712 type.
    pub const fn type_name(self) -> &'static str {
        match self {
            Self::Generate => "GenerateKey",
            Self::Rotate => "RotateKey",
            Self::Revoke => "RevokeKey",
        }
    }
}

/// The type of a message that can do one thing with a key, at one service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnType {
    /// What it can do.
    pub operation: KeyOperation,
    /// The service's name.
    pub service: Arc<str>,
}

impl fmt::Display for OwnType {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "type {} of the service {:?}", self.operation.type_name(), self.service)
    }
}

/// The EIP-712 domain that signatures are bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eip712Domain {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its chain id.
    pub chain_id: u64,
    /// The address of the identity registry.
    pub verifying_contract: Address,
}

impl fmt::Display for Eip712Domain {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, version, chain_id, verifying_contract } = self;
        write!(
            out,
            "name {name:?}, version {version:?}, chain id {chain_id}, verifying contract {verifying_contract}"
        )
    }
}

/// The domain that signatures are bound to, with everything that does not change between messages computed once.
#[derive(Debug, Clone)]
pub struct SigningDomain {
    domain: Arc<Eip712Domain>,
    separator: B256,
    message_type: B256,
    profile_type: B256,
    /// The service's name, where changes of keys are signed as types of their own.
    key_service: Option<Arc<str>>,
}

impl SigningDomain {
    /// Signatures for this domain.
    pub fn new(domain: Eip712Domain) -> Self {
        let mut hasher = Keccak256::new();
        hasher.update(keccak256(DOMAIN_TYPE));
        hasher.update(keccak256(&domain.name));
        hasher.update(keccak256(&domain.version));
        hasher.update(U256::from(domain.chain_id).to_be_bytes::<32>());
        hasher.update(domain.verifying_contract.into_word());
        let (message_type, profile_type) = (keccak256(MESSAGE_TYPE), keccak256(PROFILE_TYPE));
        let separator = hasher.finalize();
        Self { domain: Arc::new(domain), separator, message_type, profile_type, key_service: None }
    }

    /// The same; changes of keys are signed as types of their own, for the service of this name.
    #[must_use]
    pub fn with_own_types(self, service: &str) -> Self {
        Self { key_service: Some(service.into()), ..self }
    }

    /// The own type of a change of a key; `None`: it is signed as a verification is.
    pub fn own_type(&self, operation: KeyOperation) -> Option<OwnType> {
        Some(OwnType { operation, service: Arc::clone(self.key_service.as_ref()?) })
    }

    /// The domain.
    pub const fn domain(&self) -> &Arc<Eip712Domain> {
        &self.domain
    }

    /// The digest that the owner's key signs for this message.
    pub fn digest(&self, agent: AgentId, nonce: Nonce, signed_at: UnixSeconds) -> B256 {
        self.digest_of(self.message_type, [agent.to_bytes(), nonce.to_bytes(), word(signed_at)])
    }

    /// The digest that the owner's key signs to read the profile. No message of the other type has it, so that a signature
    /// for reading changes nothing.
    pub fn profile_digest(&self, agent: AgentId, signed_at: UnixSeconds) -> B256 {
        self.digest_of(self.profile_type, [agent.to_bytes(), word(signed_at)])
    }

    /// The digest that the owner's key signs for this message of an own type. No message of another type or service has it.
    pub fn own_digest(
        &self,
        own_type: &OwnType,
        agent: AgentId,
        nonce: Nonce,
        signed_at: UnixSeconds,
    ) -> B256 {
        let OwnType { operation, service } = own_type;
        let kind = keccak256([operation.type_name(), OWN_FIELDS].concat());
        let service = keccak256(service.as_bytes());
        self.digest_of(kind, [service.0, agent.to_bytes(), nonce.to_bytes(), word(signed_at)])
    }

    fn digest_of<const N: usize>(&self, kind: B256, words: [[u8; 32]; N]) -> B256 {
        let mut message = Keccak256::new();
        message.update(kind);
        words.iter().for_each(|word| message.update(word));

        let mut hasher = Keccak256::new();
        hasher.update([0x19, 0x01]);
        hasher.update(self.separator);
        hasher.update(message.finalize());
        hasher.finalize()
    }
}

fn word(UnixSeconds(seconds): UnixSeconds) -> [u8; 32] {
    U256::from(seconds).to_be_bytes()
}

#[cfg(test)]
mod tests;
