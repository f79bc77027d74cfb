// Reads the owner of a token, and asks it by ERC-1271 for a signature if it has code: run as a creation by eth_call, it is
// never deployed. What it gives back is as Snapshot's: chain id, number and time of the block, the result of ownerOf, that of
// isValidSignature (a failure where nobody was asked), and Arbitrum's block number.
// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

contract OwnerSignature {
    struct Result {
        bool success;
        bytes returnData;
    }

    // The most gas that a wallet may burn. A passkey checked in Solidity takes 350,000, a Safe 10,000 for each owner. Anybody
    // can name an agent of theirs whose owner burns it all: a node must still answer in a fraction of its time limit.
    uint256 private constant WALLET_GAS_MAX = 2_000_000;

    constructor(address identity, uint256 token, bytes32 digest, bytes memory signature) {
        Result[] memory results = new Result[](6);
        results[0] = Result(true, abi.encode(block.chainid));
        results[1] = Result(true, abi.encode(block.number));
        results[2] = Result(true, abi.encode(block.timestamp));
        (bool success, bytes memory data) = identity.call(abi.encodeWithSignature("ownerOf(uint256)", token));
        results[3] = Result(success, data);
        if (success && data.length >= 32) {
            address owner = address(uint160(uint256(bytes32(data))));
            if (owner.code.length > 0) results[4] = ask(owner, digest, signature);
        }
        (success, data) = address(0x64).call(abi.encodeWithSignature("arbBlockNumber()"));
        results[5] = Result(success, data);
        bytes memory returned = abi.encode(results);
        assembly {
            return(add(returned, 32), mload(returned))
        }
    }

    // At most half of the gas that is left, so that the rest can be done whatever the wallet does. No more than one word is
    // taken of what it returns.
    function ask(address owner, bytes32 digest, bytes memory signature) private view returns (Result memory) {
        bytes memory question = abi.encodeWithSignature("isValidSignature(bytes32,bytes)", digest, signature);
        bytes memory word = new bytes(32);
        uint256 most = gasleft() / 2;
        if (most > WALLET_GAS_MAX) most = WALLET_GAS_MAX;
        bool success;
        assembly {
            success := staticcall(most, owner, add(question, 32), mload(question), add(word, 32), 32)
            if lt(returndatasize(), 32) {
                mstore(word, returndatasize())
            }
        }
        return Result(success, word);
    }
}
