// Several calls in one where there is no Multicall3: run as a creation by eth_call, it is never deployed.
// What it gives back is no code but what Multicall3's aggregate3 would return for these calls, each allowed to fail, when
// getChainId, getBlockNumber, getCurrentBlockTimestamp, getLastBlockHash and getBlockHash(followed) of Multicall3 stood before
// them. It reverts with that: what a creation returns is taken for a contract's code, which is paid for by the byte and may not be
// longer than EIP-170 has it.
// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

contract Snapshot {
    struct Call3 {
        address target;
        bool allowFailure;
        bytes callData;
    }

    struct Result {
        bool success;
        bytes returnData;
    }

    constructor(Call3[] memory calls, uint256 followed) {
        Result[] memory results = new Result[](calls.length + 5);
        results[0] = Result(true, abi.encode(block.chainid));
        results[1] = Result(true, abi.encode(block.number));
        results[2] = Result(true, abi.encode(block.timestamp));
        results[3] = Result(true, abi.encode(blockhash(block.number - 1)));
        results[4] = Result(true, abi.encode(blockhash(followed)));
        for (uint256 i = 0; i < calls.length; i++) {
            (bool success, bytes memory data) = calls[i].target.call(calls[i].callData);
            results[i + 5] = Result(success, data);
        }
        bytes memory returned = abi.encode(results);
        assembly {
            revert(add(returned, 32), mload(returned))
        }
    }
}
