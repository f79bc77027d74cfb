// Reads who holds a token, its owner and, where the registry has them, its wallet (ERC-8004), and asks each of them that has
// code for a signature by ERC-1271. It is run as a creation by eth_call and never deployed. It gives back what Snapshot does:
// chain id, number and time of the block, the results of ownerOf, of the owner's isValidSignature, of getAgentWallet, of the
// wallet's isValidSignature and of getVersion, and Arbitrum's block number. Where nobody was asked the result is a failure without data.
// With the digest zero nobody is asked, and those that have code have a word as their result all the same.
// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

contract HolderSignatures {
    struct Result {
        bool success;
        bytes returnData;
    }

    // The most gas that a wallet may burn. A passkey checked in Solidity takes 350,000, a Safe 10,000 for each owner. Anybody
    // can name an agent of theirs whose owner burns it all: a node must still answer in a fraction of its time limit.
    uint256 private constant WALLET_GAS_MAX = 2_000_000;

    constructor(address identity, uint256 token, bool hasWallets, bytes32 digest, bytes memory signature) {
        Result[] memory results = new Result[](9);
        results[0] = Result(true, abi.encode(block.chainid));
        results[1] = Result(true, abi.encode(block.number));
        results[2] = Result(true, abi.encode(block.timestamp));
        bytes memory question;
        if (digest != 0) question = abi.encodeWithSignature("isValidSignature(bytes32,bytes)", digest, signature);
        address owner;
        (results[3], owner) = read(identity, abi.encodeWithSignature("ownerOf(uint256)", token));
        results[4] = ask(owner, question);
        if (hasWallets) {
            address wallet;
            (results[5], wallet) = read(identity, abi.encodeWithSignature("getAgentWallet(uint256)", token));
            if (wallet != owner) results[6] = ask(wallet, question);
            (results[7], ) = read(identity, abi.encodeWithSignature("getVersion()"));
        }
        (bool success, bytes memory data) = address(0x64).call(abi.encodeWithSignature("arbBlockNumber()"));
        results[8] = Result(success, data);
        bytes memory returned = abi.encode(results);
        // What a creation returns is taken for a contract's code, which costs gas by the byte.
        assembly {
            revert(add(returned, 32), mload(returned))
        }
    }

    function read(address identity, bytes memory question) private returns (Result memory, address holder) {
        (bool success, bytes memory data) = identity.call(question);
        if (success && data.length >= 32) holder = address(uint160(uint256(bytes32(data))));
        return (Result(success, data), holder);
    }

    // At most a third of the gas that is left, so that the rest can be done whatever the wallet does. No more than one word is
    // taken of what it returns, and none of less. Whoever was asked has a word as its result, even if it gave none.
    function ask(address holder, bytes memory question) private view returns (Result memory result) {
        if (holder.code.length == 0) return result;
        bytes memory word = new bytes(32);
        if (question.length == 0) return Result(false, word);
        uint256 most = gasleft() / 3;
        if (most > WALLET_GAS_MAX) most = WALLET_GAS_MAX;
        bool success;
        assembly {
            success := staticcall(most, holder, add(question, 32), mload(question), add(word, 32), 32)
            if lt(returndatasize(), 32) {
                mstore(add(word, 32), 0)
            }
        }
        return Result(success, word);
    }
}
