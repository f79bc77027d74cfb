// For tests: an identity registry of the older kind, which names an unminted id with Error(string).
// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

contract LegacyIdentity {
    event Transfer(address indexed from, address indexed to, uint256 indexed tokenId);

    mapping(uint256 id => address) private _owners;
    mapping(uint256 id => string) private _uris;
    uint256 private _nextId = 1;

    function ownerOf(uint256 id) public view returns (address owner) {
        owner = _owners[id];
        require(owner != address(0), "ERC721: invalid token ID");
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
}
