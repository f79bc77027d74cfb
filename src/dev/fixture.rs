//! What tests share: a clock that is set by hand, a chain to try things on, JSON-RPC in one line.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use alloy::eips::BlockId;
use alloy::primitives::{Address, Bytes};
use alloy::sol;
use alloy::sol_types::SolCall;
use serde_json::{Value, json};

use crate::dev::accounts::SAMPLE_ACCOUNTS;
use crate::dev::chain::{self, DevChain, ExecutionError};
use crate::dev::erc8004_rig::{Node, Sent};
use crate::dev::samples::{Deployment, deploy};
use crate::ports::Clock;

pub(crate) const CHAIN_ID: u64 = 31_337;
pub(crate) const START_SECONDS: u64 = 1_700_000_000;

/// Shows the time it was last set to.
pub(crate) struct SetClock(AtomicU64);

impl SetClock {
    pub(crate) fn set(&self, seconds: u64) {
        self.0.store(seconds, Ordering::Relaxed);
    }
}

impl Clock for SetClock {
    fn unix_millis(&self) -> u64 {
        self.0.load(Ordering::Relaxed) * 1_000
    }

    fn monotonic_micros(&self) -> u64 {
        0
    }
}

pub(crate) fn chain() -> (DevChain, Arc<SetClock>) {
    chain_of(CHAIN_ID)
}

pub(crate) fn chain_of(chain_id: u64) -> (DevChain, Arc<SetClock>) {
    let clock = Arc::new(SetClock(AtomicU64::new(START_SECONDS)));
    (DevChain::new(chain_id, clock.clone()), clock)
}

pub(crate) fn deployed() -> (DevChain, Deployment) {
    let (chain, deployment, _) = deployed_by_clock();
    (chain, deployment)
}

/// The same, with the clock that says when blocks are made.
pub(crate) fn deployed_by_clock() -> (DevChain, Deployment, Arc<SetClock>) {
    let (chain, clock) = chain();
    let deployment = deploy(&chain).unwrap();
    (chain, deployment, clock)
}

impl DevChain {
    /// Calls a contract at the newest block.
    pub(crate) fn call(&self, to: Address, data: Bytes) -> Result<Bytes, ExecutionError> {
        let ledger = self.ledger.lock();
        let message = ledger.message(Address::ZERO, to.into(), data);
        chain::output(ledger.call(ledger.readable(BlockId::latest()).unwrap(), message)?)
    }
}

impl Node for DevChain {
    fn transact(&self, from: Address, to: Option<Address>, data: Bytes) -> Sent {
        let sent = self.send(from, to, data).unwrap();
        let created = sent.created_address().filter(|_| to.is_none());
        Sent { created, logs: sent.into_logs() }
    }

    fn seconds(&self) -> u64 {
        self.now()
    }

    fn chain_id(&self) -> u64 {
        self.ledger.lock().chain_id
    }
}

/// Sends a transaction from the first sample account and expects it to succeed.
pub(crate) fn send(chain: &DevChain, to: Address, call: &impl SolCall) {
    chain.send(SAMPLE_ACCOUNTS[0].address, Some(to), call.abi_encode().into()).unwrap();
}

/// Calls a contract and decodes what it returns.
pub(crate) fn read<C: SolCall>(chain: &DevChain, to: Address, call: &C) -> C::Return {
    C::abi_decode_returns(&chain.call(to, call.abi_encode().into()).unwrap()).unwrap()
}

/// Deploys a contract of `contracts/artifacts`.
pub(crate) fn create(chain: &DevChain, name: &str) -> Address {
    let path = format!("{}/contracts/artifacts/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let artifact: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let code: Bytes = artifact["bytecode"].as_str().unwrap().parse().unwrap();
    chain.send(SAMPLE_ACCOUNTS[0].address, None, code).unwrap().created_address().unwrap()
}

/// One JSON-RPC request, the whole answer.
pub(crate) fn ask(chain: &DevChain, method: &str, params: Value) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    serde_json::from_slice(&chain.answer(body.to_string().as_bytes())).unwrap()
}

/// One JSON-RPC request that succeeds, its result.
pub(crate) fn result(chain: &DevChain, method: &str, params: Value) -> Value {
    let answer = ask(chain, method, params);
    assert!(answer.get("error").is_none(), "{answer}");
    answer["result"].clone()
}

/// One JSON-RPC request that fails, its error.
pub(crate) fn error(chain: &DevChain, method: &str, params: Value) -> Value {
    let answer = ask(chain, method, params);
    assert!(answer.get("result").is_none(), "{answer}");
    answer["error"].clone()
}

sol! {
    interface Identity {
        function ownerOf(uint256 id) external view returns (address);
        function tokenURI(uint256 id) external view returns (string);
        function balanceOf(address owner) external view returns (uint256);
        function getApproved(uint256 id) external view returns (address);
        function supportsInterface(bytes4 interfaceId) external view returns (bool);
        function mint(address to, string uri) external returns (uint256);
        function mintWithId(address to, uint256 id, string uri) external;
        function burn(uint256 id) external;
        function setTokenURI(uint256 id, string uri) external;
        function approve(address to, uint256 id) external;
        function transferFrom(address from, address to, uint256 id) external;
        function safeTransferFrom(address from, address to, uint256 id) external;
        function setLength(uint256 id, uint256 uriBytes) external;
    }

    interface Registries {
        struct Organization {
            uint256 orgId;
            string name;
            bool verified;
        }

        function getStake(uint256 agentId) external view returns (uint256 amount, uint256 cooldownAmount, uint256 cooldownEndTime);
        function getReputation(uint256 agentId) external view returns (int256 totalScore, uint256 feedbackCount);
        function getValidation(uint256 agentId) external view returns (uint256 count, bool latestPassed, string latestEvidence, address latestValidator);
        function getAgentOrganizations(uint256 agentId) external view returns (Organization[] memory);
        function stake(uint256 agentId, uint256 amount) external;
        function unstake(uint256 agentId, uint256 amount) external;
        function createOrganization(string name) external returns (uint256);
        function setVerified(uint256 orgId, bool verified) external;
        function addMember(uint256 orgId, uint256 agentId) external;
        function removeMember(uint256 orgId, uint256 agentId) external;
    }

    interface Multicall {
        struct Call3 {
            address target;
            bool allowFailure;
            bytes callData;
        }

        struct Result {
            bool success;
            bytes returnData;
        }

        function aggregate3(Call3[] calldata calls) external payable returns (Result[] memory returnData);
        function getBlockNumber() external view returns (uint256);
        function getCurrentBlockTimestamp() external view returns (uint256);
    }
}
