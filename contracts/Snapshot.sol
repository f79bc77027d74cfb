// Several calls in one where there is no Multicall3: run as a creation by eth_call, it is never deployed.
// What it gives back is no code but what Multicall3's aggregate3 would return for these calls, each allowed to fail, when
// getChainId, getBlockNumber and getCurrentBlockTimestamp of Multicall3 stood before them.
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

    // What a creation returns is taken for a contract's code, which may not be longer (EIP-170). What it reverts with may.
    uint256 private constant CODE_BYTES_MAX = 24_576;

    constructor(Call3[] memory calls) {
        Result[] memory results = new Result[](calls.length + 3);
        results[0] = Result(true, abi.encode(block.chainid));
        results[1] = Result(true, abi.encode(block.number));
        results[2] = Result(true, abi.encode(block.timestamp));
        for (uint256 i = 0; i < calls.length; i++) {
            (bool success, bytes memory data) = calls[i].target.call(calls[i].callData);
            results[i + 3] = Result(success, data);
        }
        bytes memory returned = abi.encode(results);
        uint256 most = CODE_BYTES_MAX;
        assembly {
            let length := mload(returned)
            if gt(length, most) {
                revert(add(returned, 32), length)
            }
            return(add(returned, 32), length)
        }
    }
}
