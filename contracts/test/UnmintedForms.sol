// For tests: identity registries that name an unminted id as widespread ERC-721 implementations do.
// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

abstract contract Identity {
    event Transfer(address indexed from, address indexed to, uint256 indexed tokenId);

    mapping(uint256 id => address) private _owners;
    mapping(uint256 id => string) private _uris;
    uint256 private _nextId = 1;

    function ownerOf(uint256 id) public view returns (address owner) {
        owner = _owners[id];
        if (owner == address(0)) _revertUnminted(id);
    }

    function tokenURI(uint256 id) external view returns (string memory) {
        ownerOf(id);
        return _uris[id];
    }

    function mint(address to, string calldata uri) external returns (uint256 id) {
        id = _nextId++;
        _owners[id] = to;
        _uris[id] = uri;
        emit Transfer(address(0), to, id);
    }

    function _revertUnminted(uint256 id) internal pure virtual;
}

// OpenZeppelin 4.9.
contract LegacyIdentity is Identity {
    function _revertUnminted(uint256) internal pure override {
        revert("ERC721: invalid token ID");
    }
}

// OpenZeppelin 5 (ERC-6093).
contract OpenZeppelin5Identity is Identity {
    error ERC721NonexistentToken(uint256 tokenId);

    function _revertUnminted(uint256 id) internal pure override {
        revert ERC721NonexistentToken(id);
    }
}

contract SolmateIdentity is Identity {
    function _revertUnminted(uint256) internal pure override {
        revert("NOT_MINTED");
    }
}

contract Erc721aIdentity is Identity {
    error OwnerQueryForNonexistentToken();

    function _revertUnminted(uint256) internal pure override {
        revert OwnerQueryForNonexistentToken();
    }
}

contract SoladyIdentity is Identity {
    error TokenDoesNotExist();

    function _revertUnminted(uint256) internal pure override {
        revert TokenDoesNotExist();
    }
}

// Speaks of another id than it was asked for.
contract ConfusedIdentity is Identity {
    error ERC721NonexistentToken(uint256 tokenId);

    function _revertUnminted(uint256 id) internal pure override {
        revert ERC721NonexistentToken(id + 1);
    }
}
