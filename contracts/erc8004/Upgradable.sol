// ERC-8004's registries stand behind proxies that their owner can upgrade. As deployed, a proxy answers as version 0.0.1;
// the registries below are its version 2.0.0.
// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.24;

import {OwnableUpgradeable} from "@openzeppelin/contracts-upgradeable/access/OwnableUpgradeable.sol";
import {UUPSUpgradeable} from "@openzeppelin/contracts-upgradeable/proxy/utils/UUPSUpgradeable.sol";
import {ERC1967Proxy} from "@openzeppelin/contracts/proxy/ERC1967/ERC1967Proxy.sol";

contract Erc8004Proxy is ERC1967Proxy {
    constructor(address implementation, bytes memory call) ERC1967Proxy(implementation, call) {}
}

abstract contract Erc8004Upgradable is OwnableUpgradeable, UUPSUpgradeable {
    address internal _identity;

    constructor() {
        _disableInitializers();
    }

    function getVersion() external pure virtual returns (string memory) {
        return "2.0.0";
    }

    function _authorizeUpgrade(address) internal override onlyOwner {}
}

contract Erc8004Unfinished is Erc8004Upgradable {
    function initialize(address identity) external initializer {
        __Ownable_init(msg.sender);
        _identity = identity;
    }

    function getVersion() external pure override returns (string memory) {
        return "0.0.1";
    }
}

interface IErc8004Identity {
    function isAuthorizedOrOwner(address spender, uint256 agentId) external view returns (bool);
}

// A registry of what is said about the agents of an identity registry.
abstract contract Erc8004About is Erc8004Upgradable {
    function initialize(address identity) external reinitializer(2) onlyOwner {
        require(identity != address(0), "bad identity");
        _identity = identity;
    }

    function getIdentityRegistry() external view returns (address) {
        return _identity;
    }

    function maySpeakFor(address account, uint256 agentId) internal view returns (bool) {
        return IErc8004Identity(_identity).isAuthorizedOrOwner(account, agentId);
    }
}
