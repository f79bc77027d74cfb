//! ERC-8004's registries on any node: deployed as their authors do, and driven call by call.
//!
//! The contracts are ours, of `contracts/erc8004`, or those of the file that a variable names. The library's tests have this
//! too: it knows neither them nor the suites.

use std::path::{Path, PathBuf};
use std::{io::Write, sync::LazyLock};

use alloy::primitives::{Address, B256, Bytes, Log, U256};
use alloy::signers::SignerSync;
use alloy::signers::local::PrivateKeySigner;
use alloy::sol;
use alloy::sol_types::{Eip712Domain, SolCall, SolEvent, SolValue};
use serde_json::Value;

/// Names a file of `{contract: {bytecode}}` with ERC-8004's own contracts, which take the place of ours.
pub(crate) const ARTIFACTS_VARIABLE: &str = "TG_ERC8004_ARTIFACTS";

sol! {
    #[derive(Debug)]
    interface Identity8004 {
        struct MetadataEntry { string metadataKey; bytes metadataValue; }
        function register() external returns (uint256 agentId);
        function register(string agentURI) external returns (uint256 agentId);
        function register(string agentURI, MetadataEntry[] metadata) external returns (uint256 agentId);
        function getMetadata(uint256 agentId, string metadataKey) external view returns (bytes);
        function setMetadata(uint256 agentId, string metadataKey, bytes metadataValue) external;
        function setAgentURI(uint256 agentId, string newURI) external;
        function getAgentWallet(uint256 agentId) external view returns (address);
        function setAgentWallet(uint256 agentId, address newWallet, uint256 deadline, bytes signature) external;
        function unsetAgentWallet(uint256 agentId) external;
        function isAuthorizedOrOwner(address spender, uint256 agentId) external view returns (bool);
        function getVersion() external pure returns (string);
        function initialize() external;
        function eip712Domain() external view;
        function supportsInterface(bytes4 interfaceId) external view returns (bool);
        function name() external view returns (string);
        function symbol() external view returns (string);
        function balanceOf(address owner) external view returns (uint256);
        function ownerOf(uint256 tokenId) external view returns (address);
        function tokenURI(uint256 tokenId) external view returns (string);
        function getApproved(uint256 tokenId) external view returns (address);
        function approve(address to, uint256 tokenId) external;
        function setApprovalForAll(address operator, bool approved) external;
        function transferFrom(address from, address to, uint256 tokenId) external;
        function safeTransferFrom(address from, address to, uint256 tokenId) external;
        event Registered(uint256 indexed agentId, string agentURI, address indexed owner);
    }

    interface Reputation8004 {
        function giveFeedback(uint256 agentId, int128 value, uint8 valueDecimals, string tag1, string tag2, string endpoint, string feedbackURI, bytes32 feedbackHash) external;
        function revokeFeedback(uint256 agentId, uint64 feedbackIndex) external;
        function appendResponse(uint256 agentId, address clientAddress, uint64 feedbackIndex, string responseURI, bytes32 responseHash) external;
        function getSummary(uint256 agentId, address[] clientAddresses, string tag1, string tag2) external view returns (uint64 count, int128 summaryValue, uint8 summaryValueDecimals);
        function readFeedback(uint256 agentId, address clientAddress, uint64 feedbackIndex) external view;
        function readAllFeedback(uint256 agentId, address[] clientAddresses, string tag1, string tag2, bool includeRevoked) external view;
        function getResponseCount(uint256 agentId, address clientAddress, uint64 feedbackIndex, address[] responders) external view returns (uint64 count);
        function getClients(uint256 agentId) external view returns (address[]);
        function getLastIndex(uint256 agentId, address clientAddress) external view returns (uint64);
    }

    interface Validation8004 {
        function validationRequest(address validatorAddress, uint256 agentId, string requestURI, bytes32 requestHash) external;
        function validationResponse(bytes32 requestHash, uint8 response, string responseURI, bytes32 responseHash, string tag) external;
        function getValidationStatus(bytes32 requestHash) external view;
        function getSummary(uint256 agentId, address[] validatorAddresses, string tag) external view returns (uint64 count, uint8 avgResponse);
        function getAgentValidations(uint256 agentId) external view returns (bytes32[]);
        function getValidatorRequests(address validatorAddress) external view returns (bytes32[]);
    }

    interface Proxy8004 {
        function initialize(address identityRegistry) external;
        function getIdentityRegistry() external view returns (address);
        function upgradeToAndCall(address newImplementation, bytes data) external payable;
        function owner() external view returns (address);
        function transferOwnership(address newOwner) external;
        function renounceOwnership() external;
        function proxiableUUID() external view returns (bytes32);
        function UPGRADE_INTERFACE_VERSION() external view returns (string);
    }

    interface Strangers {
        function register(address registry, address next) external;
        function give(address reputation, bytes feedback, uint256 clients, uint256 each) external;
    }

    struct AgentWalletSet { uint256 agentId; address newWallet; address owner; uint256 deadline; }
}

/// A node that has unlocked accounts.
pub(crate) trait Node {
    /// Sends a transaction, which must succeed; without `to` it creates a contract.
    fn transact(&self, from: Address, to: Option<Address>, data: Bytes) -> Sent;

    /// The time of a block that is made now, in seconds since the Unix epoch.
    fn seconds(&self) -> u64;

    fn chain_id(&self) -> u64;
}

/// A transaction's outcome.
#[derive(Debug)]
pub(crate) struct Sent {
    /// The new contract, if it made one.
    pub(crate) created: Option<Address>,
    pub(crate) logs: Vec<Log>,
}

/// How each contract is created.
#[derive(Debug)]
pub(crate) struct Creation {
    /// Behind each proxy at first, answers as version 0.0.1.
    unfinished: Bytes,
    proxy: Bytes,
    identity: Bytes,
    reputation: Bytes,
    validation: Bytes,
}

impl Creation {
    /// Those of the file that the variable names. Without it ours.
    pub(crate) fn chosen() -> &'static Self {
        static CHOSEN: LazyLock<Creation> = LazyLock::new(|| {
            let file = named_file();
            let which =
                file.as_ref().map_or("ours".to_owned(), |file| format!("those of {}", file.display()));
            // Past the harness, which keeps what a test that passes says through `eprintln!`.
            let _ = writeln!(std::io::stderr(), "ERC-8004's contracts are {which}");
            file.map_or_else(Creation::ours, |file| Creation::of_file(&file))
        });
        &CHOSEN
    }

    pub(crate) fn ours() -> Self {
        let [unfinished, proxy, identity, reputation, validation] =
            ["Unfinished", "Proxy", "Identity", "Reputation", "Validation"]
                .map(|name| artifact(&format!("Erc8004{name}")));
        Self { unfinished, proxy, identity, reputation, validation }
    }

    pub(crate) fn of_file(file: &Path) -> Self {
        let text = std::fs::read_to_string(file)
            .unwrap_or_else(|why| panic!("{ARTIFACTS_VARIABLE} names {}: {why}", file.display()));
        let all: Value = serde_json::from_str(&text).unwrap();
        let of = |name: &str| -> Bytes { all[name]["bytecode"].as_str().unwrap().parse().unwrap() };
        Self {
            unfinished: of("HardhatMinimalUUPS"),
            proxy: of("ERC1967Proxy"),
            identity: of("IdentityRegistryUpgradeable"),
            reputation: of("ReputationRegistryUpgradeable"),
            validation: of("ValidationRegistryUpgradeable"),
        }
    }
}

/// The file with the contracts that take the place of ours, if the variable names one.
pub(crate) fn named_file() -> Option<PathBuf> {
    std::env::var_os(ARTIFACTS_VARIABLE).map(PathBuf::from)
}

/// The proxies, and who can upgrade them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Erc8004 {
    pub(crate) identity: Address,
    pub(crate) reputation: Address,
    pub(crate) validation: Address,
    pub(crate) upgrader: Address,
    pub(crate) identity_code: Address,
}

impl Erc8004 {
    /// Deploys the chosen contracts.
    pub(crate) fn deploy(node: &impl Node, from: Address) -> Self {
        Self::deploy_of(Creation::chosen(), node, from)
    }

    /// Deploys the proxies over the unfinished implementation, and upgrades each.
    pub(crate) fn deploy_of(creation: &Creation, node: &impl Node, from: Address) -> Self {
        let create = |code: &Bytes| node.transact(from, None, code.clone()).created.unwrap();
        let unfinished = create(&creation.unfinished);
        let identity = proxy(creation, node, (from, unfinished), Address::ZERO);
        let [reputation, validation] = [(); 2].map(|()| proxy(creation, node, (from, unfinished), identity));
        let about = Proxy8004::initializeCall { identityRegistry: identity }.abi_encode();
        let identity_code = create(&creation.identity);
        let all = Self { identity, reputation, validation, upgrader: from, identity_code };
        all.upgrade(node, identity, identity_code, Identity8004::initializeCall {}.abi_encode());
        all.upgrade(node, reputation, create(&creation.reputation), about.clone());
        all.upgrade(node, validation, create(&creation.validation), about);
        all
    }

    /// A proxy that nobody has upgraded since it was deployed: it answers as version 0.0.1.
    pub(crate) fn deploy_unfinished(node: &impl Node, from: Address) -> Address {
        let creation = Creation::chosen();
        let unfinished = node.transact(from, None, creation.unfinished.clone()).created.unwrap();
        proxy(creation, node, (from, unfinished), Address::ZERO)
    }

    /// Takes a proxy back to version 0.0.1.
    pub(crate) fn downgrade(&self, node: &impl Node, proxy: Address) {
        let unfinished = &Creation::chosen().unfinished;
        let unfinished = node.transact(self.upgrader, None, unfinished.clone()).created.unwrap();
        self.upgrade(node, proxy, unfinished, Vec::new());
    }

    /// Upgrades a proxy to other code.
    pub(crate) fn upgrade(&self, node: &impl Node, proxy: Address, code: Address, call: Vec<u8>) {
        let upgrade = Proxy8004::upgradeToAndCallCall { newImplementation: code, data: call.into() };
        send(node, self.upgrader, proxy, &upgrade);
    }

    /// Upgrades the identity registry to the code that it has: only its log is new.
    pub(crate) fn upgrade_to_the_same(&self, node: &impl Node) {
        self.upgrade(node, self.identity, self.identity_code, Vec::new());
    }

    /// Registers an agent, whose wallet is its owner at first.
    pub(crate) fn register(&self, node: &impl Node, owner: Address, uri: &str) -> U256 {
        let logs =
            send(node, owner, self.identity, &Identity8004::register_1Call { agentURI: uri.to_owned() });
        logs.iter().find_map(registered).unwrap()
    }

    /// Has a contract register an agent, which passes it on to `next` while it is being registered: the last logs name the
    /// contract as owner and as wallet.
    pub(crate) fn register_and_pass_on(&self, node: &impl Node, from: Address, next: Address) -> U256 {
        let registrant = node.transact(from, None, artifact("PassingRegistrant")).created.unwrap();
        let call = Strangers::registerCall { registry: self.identity, next };
        send(node, from, registrant, &call).iter().find_map(registered).unwrap()
    }

    pub(crate) fn set_uri(&self, node: &impl Node, owner: Address, id: U256, uri: &str) {
        let call = Identity8004::setAgentURICall { agentId: id, newURI: uri.to_owned() };
        send(node, owner, self.identity, &call);
    }

    pub(crate) fn transfer(&self, node: &impl Node, from: Address, to: Address, id: U256) {
        send(node, from, self.identity, &Identity8004::transferFromCall { from, to, tokenId: id });
    }

    /// Gives the agent the wallet of this key, which signs.
    pub(crate) fn set_wallet(&self, node: &impl Node, owner: Address, id: U256, wallet_key: &str) {
        let signer: PrivateKeySigner = wallet_key.parse().unwrap();
        let set = self.wallet_set(node, (id, signer.address(), owner), node.seconds() + 200, wallet_key);
        send(node, owner, self.identity, &set);
    }

    /// A call that sets the wallet `agent.1` of the agent `agent.0`, which `agent.2` owns, signed with this key.
    pub(crate) fn wallet_set(
        &self,
        node: &impl Node,
        (agent, wallet, owner): (U256, Address, Address),
        deadline: u64,
        key: &str,
    ) -> Identity8004::setAgentWalletCall {
        let domain = Eip712Domain {
            name: Some("ERC8004IdentityRegistry".into()),
            version: Some("1".into()),
            chain_id: Some(U256::from(node.chain_id())),
            verifying_contract: Some(self.identity),
            salt: None,
        };
        let deadline = U256::from(deadline);
        let message = AgentWalletSet { agentId: agent, newWallet: wallet, owner, deadline };
        let signer: PrivateKeySigner = key.parse().unwrap();
        let signature = signer.sign_typed_data_sync(&message, &domain).unwrap().as_bytes();
        let signature = Bytes::from(signature);
        Identity8004::setAgentWalletCall { agentId: agent, newWallet: wallet, deadline, signature }
    }

    pub(crate) fn unset_wallet(&self, node: &impl Node, owner: Address, id: U256) {
        send(node, owner, self.identity, &Identity8004::unsetAgentWalletCall { agentId: id });
    }

    /// Gives feedback of `value.0` with `value.1` decimals.
    pub(crate) fn feedback(&self, node: &impl Node, client: Address, id: U256, value: (i128, u8), tag: &str) {
        send(node, client, self.reputation, &entry_of_feedback(id, value, tag));
    }

    /// Entries of each client are counted from 1.
    pub(crate) fn revoke(&self, node: &impl Node, client: Address, id: U256, index: u64) {
        let call = Reputation8004::revokeFeedbackCall { agentId: id, feedbackIndex: index };
        send(node, client, self.reputation, &call);
    }

    /// Responds to the entry `of.1` of the client `of.0`.
    pub(crate) fn respond(&self, node: &impl Node, responder: Address, id: U256, of: (Address, u64)) {
        let call = Reputation8004::appendResponseCall {
            agentId: id,
            clientAddress: of.0,
            feedbackIndex: of.1,
            responseURI: "ipfs://response".into(),
            responseHash: B256::repeat_byte(0x11),
        };
        send(node, responder, self.reputation, &call);
    }

    /// Has so many new accounts give so many equal entries each.
    pub(crate) fn feedback_of_many(
        &self,
        node: &impl Node,
        (from, id): (Address, U256),
        (clients, each): (u64, u64),
        value: (i128, u8),
    ) {
        // Fits a transaction of 10,000,000 gas.
        const ENTRIES_OF_A_TRANSACTION: u64 = 40;
        assert!(each <= ENTRIES_OF_A_TRANSACTION, "of one client");
        let crowd = node.transact(from, None, artifact("Crowd")).created.unwrap();
        let at_once = ENTRIES_OF_A_TRANSACTION / each;
        for first in (0..clients).step_by(usize::try_from(at_once).unwrap()) {
            let call = Strangers::giveCall {
                reputation: self.reputation,
                feedback: entry_of_feedback(id, value, "").abi_encode().into(),
                clients: U256::from(at_once.min(clients - first)),
                each: U256::from(each),
            };
            send(node, from, crowd, &call);
        }
    }

    /// The agent's owner asks the validator.
    pub(crate) fn request(&self, node: &impl Node, owner: Address, validator: Address, id: U256, hash: B256) {
        let call = Validation8004::validationRequestCall {
            validatorAddress: validator,
            agentId: id,
            requestURI: "ipfs://request".into(),
            requestHash: hash,
        };
        send(node, owner, self.validation, &call);
    }

    /// The validator answers with 0 to 100 and the evidence's URI, perhaps not for the first time.
    pub(crate) fn answer(
        &self,
        node: &impl Node,
        validator: Address,
        hash: B256,
        (response, evidence): (u8, &str),
    ) {
        let call = Validation8004::validationResponseCall {
            requestHash: hash,
            response,
            responseURI: evidence.to_owned(),
            responseHash: B256::repeat_byte(0x22),
            tag: "audit".into(),
        };
        send(node, validator, self.validation, &call);
    }
}

/// A new proxy over this code.
fn proxy(
    creation: &Creation,
    node: &impl Node,
    (from, code): (Address, Address),
    identity: Address,
) -> Address {
    let initialize = Proxy8004::initializeCall { identityRegistry: identity }.abi_encode();
    let arguments = (code, Bytes::from(initialize)).abi_encode_params();
    let data = [&creation.proxy[..], &arguments].concat();
    node.transact(from, None, data.into()).created.unwrap()
}

pub(crate) fn entry_of_feedback(
    id: U256,
    (value, decimals): (i128, u8),
    tag: &str,
) -> Reputation8004::giveFeedbackCall {
    Reputation8004::giveFeedbackCall {
        agentId: id,
        value,
        valueDecimals: decimals,
        tag1: tag.to_owned(),
        tag2: String::new(),
        endpoint: String::new(),
        feedbackURI: String::new(),
        feedbackHash: B256::ZERO,
    }
}

fn send(node: &impl Node, from: Address, to: Address, call: &impl SolCall) -> Vec<Log> {
    node.transact(from, Some(to), call.abi_encode().into()).logs
}

fn registered(log: &Log) -> Option<U256> {
    Some(Identity8004::Registered::decode_log(log).ok()?.agentId)
}

/// The creation code of one of our contracts.
pub(crate) fn artifact(name: &str) -> Bytes {
    let file = format!("{}/contracts/artifacts/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let artifact: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    artifact["bytecode"].as_str().unwrap().parse().unwrap()
}
