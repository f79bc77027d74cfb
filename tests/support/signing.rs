//! Owners and their signatures: EIP-712 as the contract's table says, written independently of the product.

use std::sync::atomic::{AtomicU64, Ordering};

use alloy::primitives::{Address, Bytes, U256, address, hex};
use alloy::signers::SignerSync;
use alloy::signers::local::PrivateKeySigner;
use alloy::sol;
use alloy::sol_types::{Eip712Domain, SolStruct, SolValue};
use serde_json::{Value, json};

use crate::support::{secrets, time::unix_seconds};

/// A signature in a wrapper that says how to deploy its account (ERC-6492).
pub(crate) fn wrapped(signature: &[u8]) -> Vec<u8> {
    let texts = (Address::repeat_byte(7), Bytes::from_static(b"deploys"), Bytes::copy_from_slice(signature));
    [texts.abi_encode_params(), [0x64, 0x92].repeat(16)].concat()
}

sol! {
    struct Verification {
        uint256 agentId;
        uint256 nonce;
        uint256 timestamp;
    }

    struct ProfileRead {
        uint256 agentId;
        uint256 timestamp;
    }

    struct GenerateKey {
        string service;
        uint256 agentId;
        uint256 nonce;
        uint256 timestamp;
    }

    struct RotateKey {
        string service;
        uint256 agentId;
        uint256 nonce;
        uint256 timestamp;
    }

    struct RevokeKey {
        string service;
        uint256 agentId;
        uint256 nonce;
        uint256 timestamp;
    }
}

/// An account that development chains unlock, with its publicly known key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) address: Address,
    pub(crate) key: &'static str,
}

/// Deploys, gives feedback and validates; owns no agent.
pub(crate) const DEPLOYER: Account = Account {
    address: address!("0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"),
    key: "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80",
};

/// Owns agents.
pub(crate) const ALICE: Account = Account {
    address: address!("0x70997970C51812dc3A010C7d01b50e0d17dc79C8"),
    key: "0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d",
};

/// Owns other agents.
pub(crate) const BOB: Account = Account {
    address: address!("0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC"),
    key: "0x5de4111afa1a4b94908f83103eb1f1706367c2e68ca870fc3fb9a804cdab365a",
};

/// A nonce that this run has not used yet.
pub(crate) fn fresh_nonce() -> U256 {
    static NEXT: AtomicU64 = AtomicU64::new(1_000_000);
    U256::from(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A request that is to be signed.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) agent: U256,
    pub(crate) nonce: U256,
    pub(crate) timestamp: u64,
    pub(crate) signer: Account,
    pub(crate) domain: Eip712Domain,
}

impl Draft {
    /// A request of now, with a nonce of its own.
    pub(crate) fn new(agent: U256, signer: Account, registry: Address) -> Self {
        let domain = Eip712Domain {
            name: Some("Service Verification".into()),
            version: Some("1".into()),
            chain_id: Some(U256::from(8004)),
            verifying_contract: Some(registry),
            salt: None,
        };
        Self { agent, nonce: fresh_nonce(), timestamp: unix_seconds(), signer, domain }
    }

    pub(crate) fn nonce(self, nonce: U256) -> Self {
        Self { nonce, ..self }
    }

    pub(crate) fn timestamp(self, timestamp: u64) -> Self {
        Self { timestamp, ..self }
    }

    pub(crate) fn by(self, signer: Account) -> Self {
        Self { signer, ..self }
    }

    /// r, s and v.
    pub(crate) fn signature(&self) -> [u8; 65] {
        self.sign(&Verification {
            agentId: self.agent,
            nonce: self.nonce,
            timestamp: U256::from(self.timestamp),
        })
    }

    fn sign(&self, message: &impl SolStruct) -> [u8; 65] {
        let signer: PrivateKeySigner = self.signer.key.parse().unwrap();
        let signature = signer.sign_typed_data_sync(message, &self.domain).unwrap().as_bytes();
        secrets::keep(self.signer.key);
        secrets::keep(&hex::encode(signature));
        signature
    }

    /// The body that `POST /profile` takes.
    pub(crate) fn profile_body(&self) -> Value {
        let message = ProfileRead { agentId: self.agent, timestamp: U256::from(self.timestamp) };
        json!({
            "agentId": self.agent.to_string(),
            "signature": hex::encode_prefixed(self.sign(&message)),
            "timestamp": self.timestamp,
        })
    }

    /// The body that the signed endpoints take.
    pub(crate) fn body(&self) -> Value {
        self.body_with(&self.signature())
    }

    /// The same, signed as the own type of this name for the service.
    pub(crate) fn body_for(&self, own_type: &str, service: &str) -> Value {
        let (service, timestamp) = (service.to_owned(), U256::from(self.timestamp));
        let (agent_id, nonce) = (self.agent, self.nonce);
        self.body_with(&match own_type {
            "GenerateKey" => self.sign(&GenerateKey { service, agentId: agent_id, nonce, timestamp }),
            "RotateKey" => self.sign(&RotateKey { service, agentId: agent_id, nonce, timestamp }),
            "RevokeKey" => self.sign(&RevokeKey { service, agentId: agent_id, nonce, timestamp }),
            other => panic!("{other}"),
        })
    }

    /// The same with other bytes as signature.
    pub(crate) fn body_with(&self, signature: &[u8]) -> Value {
        json!({
            "agentId": self.agent.to_string(),
            "signature": hex::encode_prefixed(signature),
            "nonce": self.nonce.to_string(),
            "timestamp": self.timestamp,
        })
    }
}
