//! Drives a development chain over JSON-RPC: deploys, mints, stakes, and what else the registries can do.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use alloy::primitives::{Address, Bytes, I256, U256, address};
use alloy::sol;
use alloy::sol_types::SolCall;
use serde_json::{Value, json};

use crate::support::client::Connection;
use crate::support::process::{Process, free_port, own_ip};
use crate::support::signing::{Account, DEPLOYER};
use crate::support::time::{SOON, until};

/// Where Multicall3 stands on every chain.
const MULTICALL: Address = address!("0xcA11bde05977b3631167028862bE2a173976CA11");

/// Not there in a build without the development chain, whose tests have a real node.
const DEVELOPMENT: Option<&str> = option_env!("CARGO_BIN_EXE_tiergate-dev");

sol! {
    interface Identity {
        function mint(address to, string uri) external returns (uint256 id);
        function mintWithId(address to, uint256 id, string uri) external;
        function burn(uint256 id) external;
        function setTokenURI(uint256 id, string uri) external;
        function transferFrom(address from, address to, uint256 id) external;
    }

    interface Vault {
        function stake(uint256 agentId, uint256 amount) external;
        function unstake(uint256 agentId, uint256 amount) external;
    }

    interface Reputation {
        function giveFeedback(uint256 agentId, int256 score) external;
    }

    interface Validation {
        function submitValidation(uint256 agentId, bool passed, string evidence) external;
    }

    interface Multicall {
        struct Call { address target; bool allowFailure; bytes callData; }
        function aggregate3(Call[] calldata calls) external payable;
    }

    interface Organizations {
        function createOrganization(string name) external returns (uint256 orgId);
        function addMember(uint256 orgId, uint256 agentId) external;
        function removeMember(uint256 orgId, uint256 agentId) external;
        function setVerified(uint256 orgId, bool verified) external;
    }
}

/// Where the registries stand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Contracts {
    pub(crate) identity: Address,
    pub(crate) stake_vault: Address,
    pub(crate) reputation: Address,
    pub(crate) validation: Address,
    pub(crate) organization: Address,
    pub(crate) multicall: Address,
    pub(crate) chain_id: i64,
}

/// A node with the registries on it.
pub(crate) struct Chain {
    pub(crate) node: SocketAddr,
    pub(crate) contracts: Contracts,
    /// One transaction at a time: nodes count the sender's nonces.
    turn: Mutex<()>,
    _process: Process,
    _folder: tempfile::TempDir,
}

impl Chain {
    /// The product's own development chain.
    pub(crate) fn dev() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let node = free_port(own_ip());
        let arguments = ["--only-chain", "--chain", &node.to_string()].map(str::to_owned);
        let program = Path::new(DEVELOPMENT.unwrap());
        let process = Process::start(program, &arguments, &folder.path().join("log"), "");
        let facts: Value = until("the development chain prints its addresses", SOON, || {
            process.log().lines().find_map(|line| serde_json::from_str(line).ok())
        });
        let at = |name: &str| facts[name].as_str().unwrap().parse().unwrap();
        let contracts = Contracts {
            identity: at("identity"),
            stake_vault: at("stakeVault"),
            reputation: at("reputation"),
            validation: at("validation"),
            organization: at("organization"),
            multicall: at("multicall"),
            chain_id: facts["chainId"].as_i64().unwrap(),
        };
        wait_for_node(node);
        Self { node, contracts, turn: Mutex::new(()), _process: process, _folder: folder }
    }

    /// A real node, with the registries deployed.
    pub(crate) fn anvil(program: &Path) -> Self {
        Self::anvil_on(program, 31_337)
    }

    /// A real node of this chain, with the registries deployed, at the same addresses on each.
    pub(crate) fn anvil_on(program: &Path, chain_id: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let node = free_port(own_ip());
        let (host, port) = (node.ip().to_string(), node.port().to_string());
        let id = chain_id.to_string();
        let arguments = ["--host", &host, "--port", &port, "--chain-id", &id, "--silent"].map(str::to_owned);
        let process = Process::start(program, &arguments, &folder.path().join("log"), "");
        wait_for_node(node);
        rpc(node, "anvil_setCode", json!([MULTICALL, artifact("Multicall3")["deployedBytecode"]])).unwrap();
        let create = |name| create(node, name);
        let contracts = Contracts {
            identity: create("IdentityRegistry"),
            stake_vault: create("StakeVault"),
            reputation: create("ReputationRegistry"),
            validation: create("ValidationRegistry"),
            organization: create("OrganizationRegistry"),
            multicall: MULTICALL,
            chain_id: chain_id.into(),
        };
        Self { node, contracts, turn: Mutex::new(()), _process: process, _folder: folder }
    }

    /// One more contract, by the name of its artifact.
    pub(crate) fn deploy(&self, name: &str) -> Address {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        create(self.node, name)
    }

    /// One JSON-RPC call that must succeed.
    pub(crate) fn rpc(&self, method: &str, params: Value) -> Value {
        rpc(self.node, method, params).unwrap()
    }

    /// Makes an empty block.
    pub(crate) fn mine(&self) {
        self.rpc("evm_mine", json!([]));
    }

    /// The number of the latest block.
    pub(crate) fn head(&self) -> u64 {
        let head = self.rpc("eth_blockNumber", json!([]));
        u64::from_str_radix(head.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
    }

    /// Sends a transaction and waits for its receipt.
    pub(crate) fn send(&self, from: Account, to: Address, call: &impl SolCall) -> Value {
        self.receipt(json!({ "from": from.address, "to": to, "data": Bytes::from(call.abi_encode()) }))
    }

    /// Sends any transaction and waits for its receipt.
    pub(crate) fn receipt(&self, transaction: Value) -> Value {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        transact(self.node, transaction)
    }

    pub(crate) fn mint(&self, owner: Account, uri: &str) -> U256 {
        self.mint_on(self.contracts.identity, owner, uri)
    }

    /// Mints on any registry that emits ERC-721's `Transfer`.
    pub(crate) fn mint_on(&self, registry: Address, owner: Account, uri: &str) -> U256 {
        let call = Identity::mintCall { to: owner.address, uri: uri.to_owned() };
        topic(&self.send(owner, registry, &call), 3)
    }

    pub(crate) fn mint_with_id(&self, owner: Account, id: U256) {
        let call = Identity::mintWithIdCall { to: owner.address, id, uri: String::new() };
        self.send(owner, self.contracts.identity, &call);
    }

    pub(crate) fn burn(&self, owner: Account, id: U256) {
        self.send(owner, self.contracts.identity, &Identity::burnCall { id });
    }

    pub(crate) fn set_uri(&self, owner: Account, id: U256, uri: &str) {
        self.send(owner, self.contracts.identity, &Identity::setTokenURICall { id, uri: uri.to_owned() });
    }

    pub(crate) fn transfer(&self, from: Account, to: Account, id: U256) {
        let call = Identity::transferFromCall { from: from.address, to: to.address, id };
        self.send(from, self.contracts.identity, &call);
    }

    pub(crate) fn stake(&self, agent: U256, units: U256) {
        self.stake_on(self.contracts.stake_vault, agent, units);
    }

    pub(crate) fn stake_on(&self, vault: Address, agent: U256, units: U256) {
        self.send(DEPLOYER, vault, &Vault::stakeCall { agentId: agent, amount: units });
    }

    pub(crate) fn unstake(&self, agent: U256, units: U256) {
        self.send(
            DEPLOYER,
            self.contracts.stake_vault,
            &Vault::unstakeCall { agentId: agent, amount: units },
        );
    }

    pub(crate) fn feedback(&self, agent: U256, score: I256) {
        let call = Reputation::giveFeedbackCall { agentId: agent, score };
        self.send(DEPLOYER, self.contracts.reputation, &call);
    }

    pub(crate) fn validate(&self, validator: Account, agent: U256, passed: bool, evidence: &str) {
        let call = Validation::submitValidationCall { agentId: agent, passed, evidence: evidence.to_owned() };
        self.send(validator, self.contracts.validation, &call);
    }

    /// Makes an organization and gives its id.
    pub(crate) fn organization(&self, name: &str) -> U256 {
        let call = Organizations::createOrganizationCall { name: name.to_owned() };
        topic(&self.send(DEPLOYER, self.contracts.organization, &call), 1)
    }

    pub(crate) fn join(&self, organization: U256, agent: U256) {
        let call = Organizations::addMemberCall { orgId: organization, agentId: agent };
        self.send(DEPLOYER, self.contracts.organization, &call);
    }

    /// Makes so many organizations with names of so many bytes, in a registry that has none, and has the agent join each.
    pub(crate) fn join_crowd(
        &self,
        registry: Address,
        agent: U256,
        (organizations, name_bytes): (u64, usize),
    ) {
        const OF_A_TRANSACTION: usize = 4;
        let of_organization = |id: u64| {
            let create = Organizations::createOrganizationCall { name: "n".repeat(name_bytes) };
            let join = Organizations::addMemberCall { orgId: U256::from(id), agentId: agent };
            let call = |data: Vec<u8>| Multicall::Call {
                target: registry,
                allowFailure: false,
                callData: data.into(),
            };
            [call(create.abi_encode()), call(join.abi_encode())]
        };
        for first in (1..=organizations).step_by(OF_A_TRANSACTION) {
            let all = first..=organizations;
            let calls = all.take(OF_A_TRANSACTION).flat_map(of_organization).collect();
            self.send(DEPLOYER, self.contracts.multicall, &Multicall::aggregate3Call { calls });
        }
    }

    pub(crate) fn leave(&self, organization: U256, agent: U256) {
        let call = Organizations::removeMemberCall { orgId: organization, agentId: agent };
        self.send(DEPLOYER, self.contracts.organization, &call);
    }

    pub(crate) fn set_verified(&self, organization: U256, verified: bool) {
        let call = Organizations::setVerifiedCall { orgId: organization, verified };
        self.send(DEPLOYER, self.contracts.organization, &call);
    }
}

fn wait_for_node(node: SocketAddr) {
    until("the node answers", SOON, || {
        Connection::open(node).ok().and_then(|_| rpc(node, "eth_chainId", json!([])).ok())
    });
}

fn create(node: SocketAddr, name: &str) -> Address {
    let receipt =
        transact(node, json!({ "from": DEPLOYER.address, "data": artifact(name)["bytecode"].clone() }));
    receipt["contractAddress"].as_str().unwrap().parse().unwrap()
}

/// Sends a transaction from an unlocked account and gives its receipt, which must be one of success.
fn transact(node: SocketAddr, mut transaction: Value) -> Value {
    // A node's own estimate may be too low a second later, when what is written is the time.
    transaction["gas"] = json!("0x989680");
    let hash = rpc(node, "eth_sendTransaction", json!([transaction])).unwrap();
    let receipt = until("the transaction is mined", SOON, || {
        rpc(node, "eth_getTransactionReceipt", json!([hash])).ok().filter(|receipt| !receipt.is_null())
    });
    assert_eq!(receipt["status"], json!("0x1"), "{receipt}");
    receipt
}

fn topic(receipt: &Value, index: usize) -> U256 {
    receipt["logs"][0]["topics"][index].as_str().unwrap().parse().unwrap()
}

/// One JSON-RPC call; the error object when the node answers with one.
fn rpc(node: SocketAddr, method: &str, params: Value) -> Result<Value, Value> {
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let answer = Connection::open(node).and_then(|mut node| node.post("/", &request));
    let answer: Value = match answer {
        Ok(answer) => serde_json::from_slice(&answer.body).map_err(|error| json!(error.to_string()))?,
        Err(error) => return Err(json!(error.to_string())),
    };
    match answer.get("error") {
        Some(error) => Err(error.clone()),
        None => Ok(answer["result"].clone()),
    }
}

fn artifact(name: &str) -> Value {
    let file: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "contracts", "artifacts", &format!("{name}.json")].iter().collect();
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}
