// For tests: an identity registry that answers for an unminted id with the zero address instead of reverting.
// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

contract ZeroOwnerIdentity {
    event Transfer(address indexed from, address indexed to, uint256 indexed tokenId);

    mapping(uint256 id => address) public ownerOf;
    mapping(uint256 id => string) public tokenURI;
    uint256 private _nextId = 1;

    function mint(address to, string calldata uri) external returns (uint256 id) {
        id = _nextId++;
        ownerOf[id] = to;
        tokenURI[id] = uri;
        emit Transfer(address(0), to, id);
    }
}
