// ERC-8004's identity registry: agents are tokens of ERC-721, from 0. Each has a wallet that may act for it.
// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.24;

import {
    ERC721URIStorageUpgradeable
} from "@openzeppelin/contracts-upgradeable/token/ERC721/extensions/ERC721URIStorageUpgradeable.sol";
import {EIP712Upgradeable} from "@openzeppelin/contracts-upgradeable/utils/cryptography/EIP712Upgradeable.sol";
import {IERC1271} from "@openzeppelin/contracts/interfaces/IERC1271.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {Erc8004Upgradable} from "./Upgradable.sol";

contract Erc8004Identity is Erc8004Upgradable, ERC721URIStorageUpgradeable, EIP712Upgradeable {
    struct MetadataEntry {
        string metadataKey;
        bytes metadataValue;
    }

    event Registered(uint256 indexed agentId, string agentURI, address indexed owner);
    event MetadataSet(
        uint256 indexed agentId, string indexed indexedMetadataKey, string metadataKey, bytes metadataValue
    );
    event URIUpdated(uint256 indexed agentId, string newURI, address indexed updatedBy);

    bytes32 private constant WALLET_TYPE =
        keccak256("AgentWalletSet(uint256 agentId,address newWallet,address owner,uint256 deadline)");
    bytes32 private constant WALLET_KEY = keccak256("agentWallet");

    uint256 private _registered;
    mapping(uint256 agentId => mapping(string key => bytes)) private _metadata;

    modifier onlyAuthorized(uint256 agentId) {
        require(isAuthorizedOrOwner(msg.sender, agentId), "Not authorized");
        _;
    }

    modifier notTheWallet(string memory key) {
        require(keccak256(bytes(key)) != WALLET_KEY, "reserved key");
        _;
    }

    function initialize() external reinitializer(2) onlyOwner {
        __ERC721_init("AgentIdentity", "AGENT");
        __EIP712_init("ERC8004IdentityRegistry", "1");
    }

    function register() external returns (uint256 agentId) {
        agentId = mint();
        announce(agentId, "");
    }

    function register(string memory agentURI) external returns (uint256) {
        return register(agentURI, new MetadataEntry[](0));
    }

    function register(string memory agentURI, MetadataEntry[] memory metadata) public returns (uint256 agentId) {
        agentId = mint();
        _setTokenURI(agentId, agentURI);
        announce(agentId, agentURI);
        for (uint256 i = 0; i < metadata.length; i++) {
            put(agentId, metadata[i].metadataKey, metadata[i].metadataValue);
        }
    }

    function setAgentURI(uint256 agentId, string calldata newURI) external onlyAuthorized(agentId) {
        _setTokenURI(agentId, newURI);
        emit URIUpdated(agentId, newURI, msg.sender);
    }

    function getMetadata(uint256 agentId, string memory metadataKey) external view returns (bytes memory) {
        return _metadata[agentId][metadataKey];
    }

    function setMetadata(uint256 agentId, string memory metadataKey, bytes memory metadataValue)
        external
        onlyAuthorized(agentId)
    {
        put(agentId, metadataKey, metadataValue);
    }

    function getAgentWallet(uint256 agentId) external view returns (address) {
        return address(bytes20(_metadata[agentId]["agentWallet"]));
    }

    // Signed by the new wallet, for the owner of now.
    function setAgentWallet(uint256 agentId, address newWallet, uint256 deadline, bytes calldata signature)
        external
        onlyAuthorized(agentId)
    {
        require(newWallet != address(0), "bad wallet");
        require(block.timestamp <= deadline, "expired");
        require(deadline <= block.timestamp + 5 minutes, "deadline too far");
        bytes32 hash =
            _hashTypedDataV4(keccak256(abi.encode(WALLET_TYPE, agentId, newWallet, ownerOf(agentId), deadline)));
        require(isSignedBy(newWallet, hash, signature), "invalid wallet sig");
        putWallet(agentId, abi.encodePacked(newWallet));
    }

    function unsetAgentWallet(uint256 agentId) external onlyAuthorized(agentId) {
        putWallet(agentId, "");
    }

    function isAuthorizedOrOwner(address spender, uint256 agentId) public view returns (bool) {
        return _isAuthorized(ownerOf(agentId), spender, agentId);
    }

    // A transfer clears the wallet. A mint does not.
    function _update(address to, uint256 agentId, address auth) internal override returns (address from) {
        if (_ownerOf(agentId) != address(0) && to != address(0)) putWallet(agentId, "");
        return super._update(to, agentId, auth);
    }

    // The receiver's hook may transfer the agent, before `announce` says who registered it.
    function mint() private returns (uint256 agentId) {
        agentId = _registered++;
        _metadata[agentId]["agentWallet"] = abi.encodePacked(msg.sender);
        _safeMint(msg.sender, agentId);
    }

    function announce(uint256 agentId, string memory agentURI) private {
        emit Registered(agentId, agentURI, msg.sender);
        emit MetadataSet(agentId, "agentWallet", "agentWallet", abi.encodePacked(msg.sender));
    }

    function put(uint256 agentId, string memory key, bytes memory value) private notTheWallet(key) {
        _metadata[agentId][key] = value;
        emit MetadataSet(agentId, key, key, value);
    }

    function putWallet(uint256 agentId, bytes memory value) private {
        _metadata[agentId]["agentWallet"] = value;
        emit MetadataSet(agentId, "agentWallet", "agentWallet", value);
    }

    function isSignedBy(address wallet, bytes32 hash, bytes calldata signature) private view returns (bool) {
        (address signer, ECDSA.RecoverError fault, ) = ECDSA.tryRecover(hash, signature);
        if (fault == ECDSA.RecoverError.NoError && signer == wallet) return true;
        (bool success, bytes memory answer) =
            wallet.staticcall(abi.encodeCall(IERC1271.isValidSignature, (hash, signature)));
        return success && answer.length >= 32
            && abi.decode(answer, (bytes4)) == IERC1271.isValidSignature.selector;
    }
}
