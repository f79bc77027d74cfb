//! Agents of a test's own, so that tests can share one service and run side by side.

use alloy::primitives::{U256, uint};
use serde_json::{Value, json};

use crate::support::client::{once_read, with};
use crate::support::signing::{ALICE, Account, Draft};
use crate::support::{secrets, service::Service, world::World};

/// The stakes at which tiers 1 to 4 begin, in the token's smallest unit.
pub(crate) const THRESHOLDS: [U256; 4] = [
    uint!(1_000_000_000_000_000_000_000_U256),
    uint!(10_000_000_000_000_000_000_000_U256),
    uint!(100_000_000_000_000_000_000_000_U256),
    uint!(500_000_000_000_000_000_000_000_U256),
];

/// Requests a minute of tiers 1 to 4.
pub(crate) const LIMITS: [u32; 4] = [1, 16, 166, 2_700];

/// A minted agent.
#[derive(Debug, Clone)]
pub(crate) struct Agent {
    pub(crate) id: U256,
    pub(crate) owner: Account,
    registry: alloy::primitives::Address,
}

impl World {
    /// Mints an agent of this tier, 0 to 4, staked exactly at its threshold. Alice owns it.
    pub(crate) fn agent(&self, tier: usize) -> Agent {
        let id = self.chain().mint(ALICE, "ipfs://card");
        if let Some(units) = tier.checked_sub(1).map(|index| THRESHOLDS[index]) {
            self.chain().stake(id, units);
        }
        self.known_agent(id, ALICE)
    }

    /// An agent that is there already, or should not be.
    pub(crate) fn known_agent(&self, id: U256, owner: Account) -> Agent {
        Agent { id, owner, registry: self.chain().contracts.identity }
    }
}

impl Agent {
    /// An agent of another registry than the world's.
    pub(crate) fn on(registry: alloy::primitives::Address, id: U256, owner: Account) -> Self {
        Self { id, owner, registry }
    }

    /// The agent's id as the contract writes it.
    pub(crate) fn text(&self) -> String {
        self.id.to_string()
    }

    /// A request of now, to be signed.
    pub(crate) fn draft(&self) -> Draft {
        Draft::new(self.id, self.owner, self.registry)
    }

    /// A freshly signed body.
    pub(crate) fn signed(&self) -> Value {
        self.draft().body()
    }

    /// Generates a key and gives it.
    pub(crate) fn generate(&self, service: &Service) -> String {
        key_of(&once_read(|| service.generate(&self.signed())).success(201))
    }

    /// Generates a key for a declared endpoint.
    pub(crate) fn generate_for(&self, service: &Service, declared: &str) -> String {
        let body = || with(&self.signed(), "declaredEndpoint", json!(declared));
        key_of(&once_read(|| service.generate(&body())).success(201))
    }
}

/// The key in an answer to generate or rotate; checks its format.
#[track_caller]
pub(crate) fn key_of(body: &Value) -> String {
    let key = body["apiKey"].as_str().unwrap();
    let secret = key.strip_prefix("svc_live_v1_").unwrap_or_else(|| panic!("another prefix: {key}"));
    assert_eq!(secret.len(), 64, "{key}");
    assert!(secret.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')), "{key}");
    secrets::keep(key);
    key.to_owned()
}

/// A well-formed key that nobody has.
pub(crate) fn unknown_key(seed: u64) -> String {
    let key =
        format!("svc_live_v1_{:064x}", alloy::primitives::keccak256(seed.to_be_bytes())).replace("0x", "");
    secrets::keep(&key);
    key
}
