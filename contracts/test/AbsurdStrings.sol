// For tests: an identity registry whose token URIs are as long as one asks for.
// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

contract AbsurdStrings {
    event Transfer(address indexed from, address indexed to, uint256 indexed tokenId);

    error ERC721NonexistentToken(uint256 tokenId);

    mapping(uint256 id => address) private _owners;
    mapping(uint256 id => uint256) private _uriBytes;
    uint256 private _nextId = 1;

    function ownerOf(uint256 id) public view returns (address owner) {
        owner = _owners[id];
        if (owner == address(0)) revert ERC721NonexistentToken(id);
    }

    /// As many letters `a` as setLength said.
    function tokenURI(uint256 id) external view returns (string memory uri) {
        ownerOf(id);
        uri = new string(_uriBytes[id]);
        assembly ("memory-safe") {
            let end := add(add(uri, 32), mload(uri))
            let cursor := add(uri, 32)
            for {} iszero(gt(add(cursor, 32), end)) { cursor := add(cursor, 32) } {
                mstore(cursor, 0x6161616161616161616161616161616161616161616161616161616161616161)
            }
            for {} lt(cursor, end) { cursor := add(cursor, 1) } { mstore8(cursor, 0x61) }
        }
    }

    function setLength(uint256 id, uint256 uriBytes) external {
        ownerOf(id);
        _uriBytes[id] = uriBytes;
    }

    /// The URI given here counts by its length alone.
    function mint(address to, string calldata uri) external returns (uint256 id) {
        id = _nextId++;
        _owners[id] = to;
        _uriBytes[id] = bytes(uri).length;
        emit Transfer(address(0), to, id);
    }
}
