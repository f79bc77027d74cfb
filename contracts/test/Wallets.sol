// For tests: contract wallets (ERC-1271), an honest one and one that is not.
// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

// Accepts signatures of its deployer's key. More bytes may follow the key's 65.
contract KeyWallet {
    address private immutable _key = msg.sender;

    function isValidSignature(bytes32 hash, bytes calldata signature) external view returns (bytes4) {
        (bytes32 r, bytes32 s, uint8 v) = (bytes32(signature[0:32]), bytes32(signature[32:64]), uint8(signature[64]));
        return ecrecover(hash, v, r, s) == _key ? bytes4(0x1626ba7e) : bytes4(0xffffffff);
    }

    function execute(address to, bytes calldata data) external {
        require(msg.sender == _key);
        (bool success, ) = to.call(data);
        require(success);
    }
}

// Does what the first byte of the signature says.
contract LyingWallet {
    uint256 private _written;

    function isValidSignature(bytes32, bytes calldata signature) external returns (bytes4) {
        uint256 mode = uint8(signature[0]);
        bytes32 word = bytes32(bytes4(0x1626ba7e));
        // 0: the truth, and anybody is let in.
        if (mode == 0) giveBack(word, 32);
        // Other words than that of the standard.
        if (mode == 1) giveBack(bytes32(uint256(1)), 32);
        if (mode == 2) giveBack(bytes32(uint256(0x1626ba7e)), 32);
        if (mode == 3) giveBack(word | bytes32(uint256(1)), 32);
        if (mode == 4) giveBack(bytes32(bytes4(0x20c13b0b)), 32);
        if (mode == 5) giveBack(bytes32(bytes4(0xffffffff)), 32);
        // Too little.
        if (mode == 6) giveBack(word, 0);
        if (mode == 7) giveBack(word, 4);
        if (mode == 8) giveBack(word, 31);
        // Far too much.
        if (mode == 9) giveBack(bytes32(uint256(1)), 400_000);
        if (mode == 10) refuse(word, 400_000);
        // Failures.
        if (mode == 11) refuse(word, 32);
        if (mode == 12) while (true) {}
        if (mode == 13) giveBack(word, 1_000_000_000);
        if (mode == 14) _written = 1;
        // Nearly all the gas that is given, and the truth.
        if (mode == 255) {
            while (gasleft() > 10_000) {}
            giveBack(word, 32);
        }
        assert(mode == 14);
        giveBack(word, 32);
    }

    function giveBack(bytes32 word, uint256 length) private pure {
        assembly {
            mstore(0, word)
            return(0, length)
        }
    }

    function refuse(bytes32 word, uint256 length) private pure {
        assembly {
            mstore(0, word)
            revert(0, length)
        }
    }
}
