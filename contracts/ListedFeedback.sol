// Adds up what listed clients say of agents in ERC-8004's reputation registry. It is run as a creation by eth_call and never
// deployed. It gives back what Snapshot does: chain id, number and time of the block, the registry's version, a sum for each
// agent, and Arbitrum's block number. From the first agent on that can't be read, or has too little gas, there is no sum.
// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

contract ListedFeedback {
    struct Result {
        bool success;
        bytes returnData;
    }

    struct Question {
        address reputation;
        address[] clients;
        // The hash of the tag that counts; 0: any.
        bytes32 tag;
        // How many entries of each client are looked at, the newest ones.
        uint256 each;
    }

    struct Sum {
        // With 18 decimals.
        int256 total;
        // How many entries counted, and of how many clients.
        uint256 entries;
        uint256 clients;
    }

    // Kept for the answer.
    uint256 private constant ANSWER_GAS = 200_000;

    constructor(Question memory question, uint256[] memory agents) {
        uint256 count = agents.length;
        Result[] memory results = new Result[](count + 5);
        results[0] = Result(true, abi.encode(block.chainid));
        results[1] = Result(true, abi.encode(block.number));
        results[2] = Result(true, abi.encode(block.timestamp));
        (bool success, bytes memory data) = ask(question.reputation, abi.encodeWithSignature("getVersion()"));
        results[3] = Result(success, data);
        for (uint256 i = 0; i < count; i++) {
            Sum memory sum;
            if (!read(question, agents[i], sum)) break;
            results[i + 4] = Result(true, abi.encode(sum));
        }
        (success, data) = address(0x64).call{gas: gasleft() / 2}(abi.encodeWithSignature("arbBlockNumber()"));
        results[count + 4] = Result(success, data);
        bytes memory returned = abi.encode(results);
        // What a creation returns is taken for a contract's code, which costs gas by the byte and may not be long (EIP-170).
        assembly {
            revert(add(returned, 32), mload(returned))
        }
    }

    function read(Question memory question, uint256 agent, Sum memory sum) private view returns (bool) {
        for (uint256 i = 0; i < question.clients.length; i++) {
            address client = question.clients[i];
            (bool known, bytes memory data) =
                ask(question.reputation, abi.encodeWithSignature("getLastIndex(uint256,address)", agent, client));
            if (!known || data.length < 32) return false;
            uint256 index = uint64(abi.decode(data, (uint256)));
            uint256 counted = sum.entries;
            for (uint256 looked = 0; index > 0 && looked < question.each; looked++) {
                bytes memory entry =
                    abi.encodeWithSignature("readFeedback(uint256,address,uint64)", agent, client, index--);
                if (!add(question, entry, sum)) return false;
                // There may be thousands, and memory grows dear.
                assembly {
                    mstore(0x40, entry)
                }
            }
            if (sum.entries > counted) sum.clients++;
        }
        return true;
    }

    // Value, decimals, the places of two tags, if it is revoked; then the tags.
    function add(Question memory question, bytes memory entry, Sum memory sum) private view returns (bool) {
        (bool known, bytes memory data) = ask(question.reputation, entry);
        if (!known || data.length < 224) return false;
        (int256 value, uint256 decimals, uint256 place, , uint256 revoked) =
            abi.decode(data, (int256, uint256, uint256, uint256, uint256));
        if (value != int128(value) || decimals > 18 || place > data.length - 32) return false;
        uint256 length;
        assembly {
            length := mload(add(add(data, 32), place))
        }
        if (length > data.length - 32 - place) return false;
        bytes32 tag;
        assembly {
            tag := keccak256(add(add(data, 64), place), length)
        }
        if (revoked == 0 && (question.tag == 0 || question.tag == tag)) {
            sum.total += value * int256(10 ** (18 - decimals));
            sum.entries++;
        }
        return true;
    }

    function ask(address on, bytes memory question) private view returns (bool known, bytes memory data) {
        if (gasleft() < 2 * ANSWER_GAS) return (false, data);
        return on.staticcall{gas: gasleft() - ANSWER_GAS}(question);
    }
}
