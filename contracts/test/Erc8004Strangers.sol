// For tests: accounts with code that register ERC-8004 agents or give feedback about them.
// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

import {KeyWallet} from "./Wallets.sol";

interface IRegistry {
    function register(string calldata agentURI) external returns (uint256 agentId);
    function transferFrom(address from, address to, uint256 agentId) external;
}

// Passes each agent on while it is being registered: the registry's last logs name this contract as owner and wallet. Its
// deployer's key signs for it.
contract PassingRegistrant is KeyWallet {
    address private _next;

    function register(IRegistry registry, address next) external {
        _next = next;
        registry.register("ipfs://passed");
    }

    function onERC721Received(address, address, uint256 agentId, bytes calldata) external returns (bytes4) {
        IRegistry(msg.sender).transferFrom(address(this), _next, agentId);
        return this.onERC721Received.selector;
    }
}

// Gives the same feedback many times, each client as often as is asked.
contract Crowd {
    function give(address reputation, bytes calldata feedback, uint256 clients, uint256 each) external {
        for (uint256 i = 0; i < clients; i++) new CrowdMember(reputation, feedback, each);
    }
}

contract CrowdMember {
    constructor(address reputation, bytes memory feedback, uint256 times) {
        for (uint256 i = 0; i < times; i++) {
            (bool success, ) = reputation.call(feedback);
            require(success);
        }
    }
}
