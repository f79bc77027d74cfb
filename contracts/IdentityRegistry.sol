// The development chain's identity registry: a small ERC-721 whose token ids are agent ids.
// Anybody may mint, which is right for development and wrong for anything else.
// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

interface ITokenReceiver {
    function onERC721Received(address operator, address from, uint256 id, bytes calldata data) external returns (bytes4);
}

contract IdentityRegistry {
    event Transfer(address indexed from, address indexed to, uint256 indexed tokenId);
    event Approval(address indexed owner, address indexed approved, uint256 indexed tokenId);
    event ApprovalForAll(address indexed owner, address indexed operator, bool approved);
    // ERC-4906.
    event MetadataUpdate(uint256 _tokenId);

    // Names and shapes of ERC-6093.
    error ERC721NonexistentToken(uint256 tokenId);
    error ERC721InvalidOwner(address owner);
    error ERC721InvalidSender(address sender);
    error ERC721InvalidReceiver(address receiver);
    error ERC721InvalidApprover(address approver);
    error ERC721InvalidOperator(address operator);
    error ERC721IncorrectOwner(address sender, uint256 tokenId, address owner);
    error ERC721InsufficientApproval(address operator, uint256 tokenId);

    string public constant name = "Development Agents";
    string public constant symbol = "DEVAGENT";

    mapping(uint256 id => address) private _owners;
    mapping(uint256 id => address) private _approved;
    mapping(uint256 id => string) private _uris;
    mapping(address owner => uint256) private _balances;
    mapping(address owner => mapping(address operator => bool)) private _operators;
    uint256 private _nextId = 1;

    function ownerOf(uint256 id) public view returns (address owner) {
        owner = _owners[id];
        if (owner == address(0)) revert ERC721NonexistentToken(id);
    }

    function tokenURI(uint256 id) external view returns (string memory) {
        ownerOf(id);
        return _uris[id];
    }

    function balanceOf(address owner) external view returns (uint256) {
        if (owner == address(0)) revert ERC721InvalidOwner(owner);
        return _balances[owner];
    }

    function getApproved(uint256 id) external view returns (address) {
        ownerOf(id);
        return _approved[id];
    }

    function isApprovedForAll(address owner, address operator) public view returns (bool) {
        return _operators[owner][operator];
    }

    function supportsInterface(bytes4 interfaceId) external pure returns (bool) {
        // ERC-165, ERC-721, ERC-721 metadata, ERC-4906
        return interfaceId == 0x01ffc9a7 || interfaceId == 0x80ac58cd || interfaceId == 0x5b5e139f
            || interfaceId == 0x49064906;
    }

    /// Mints the lowest id that the counter has not passed and nobody holds.
    function mint(address to, string calldata uri) external returns (uint256 id) {
        id = _nextId;
        while (_owners[id] != address(0)) id++;
        _nextId = id + 1;
        _mint(to, id, uri);
    }

    function mintWithId(address to, uint256 id, string calldata uri) external {
        _mint(to, id, uri);
    }

    function burn(uint256 id) external {
        address owner = ownerOf(id);
        if (msg.sender != owner) revert ERC721IncorrectOwner(msg.sender, id, owner);
        delete _owners[id];
        delete _approved[id];
        delete _uris[id];
        _balances[owner]--;
        emit Transfer(owner, address(0), id);
    }

    function setTokenURI(uint256 id, string calldata uri) external {
        _requireApproved(ownerOf(id), id);
        _uris[id] = uri;
        emit MetadataUpdate(id);
    }

    function approve(address to, uint256 id) external {
        address owner = ownerOf(id);
        if (msg.sender != owner && !isApprovedForAll(owner, msg.sender)) revert ERC721InvalidApprover(msg.sender);
        _approved[id] = to;
        emit Approval(owner, to, id);
    }

    function setApprovalForAll(address operator, bool approved) external {
        if (operator == address(0)) revert ERC721InvalidOperator(operator);
        _operators[msg.sender][operator] = approved;
        emit ApprovalForAll(msg.sender, operator, approved);
    }

    function transferFrom(address from, address to, uint256 id) public {
        address owner = ownerOf(id);
        if (owner != from) revert ERC721IncorrectOwner(from, id, owner);
        if (to == address(0)) revert ERC721InvalidReceiver(to);
        _requireApproved(owner, id);
        delete _approved[id];
        _balances[from]--;
        _balances[to]++;
        _owners[id] = to;
        emit Transfer(from, to, id);
    }

    function safeTransferFrom(address from, address to, uint256 id) external {
        safeTransferFrom(from, to, id, "");
    }

    function safeTransferFrom(address from, address to, uint256 id, bytes memory data) public {
        transferFrom(from, to, id);
        if (to.code.length == 0) return;
        try ITokenReceiver(to).onERC721Received(msg.sender, from, id, data) returns (bytes4 answer) {
            if (answer != ITokenReceiver.onERC721Received.selector) revert ERC721InvalidReceiver(to);
        } catch {
            revert ERC721InvalidReceiver(to);
        }
    }

    function _mint(address to, uint256 id, string calldata uri) private {
        if (to == address(0)) revert ERC721InvalidReceiver(to);
        if (_owners[id] != address(0)) revert ERC721InvalidSender(address(0));
        _owners[id] = to;
        _uris[id] = uri;
        _balances[to]++;
        emit Transfer(address(0), to, id);
    }

    function _requireApproved(address owner, uint256 id) private view {
        if (msg.sender == owner || isApprovedForAll(owner, msg.sender) || _approved[id] == msg.sender) return;
        revert ERC721InsufficientApproval(msg.sender, id);
    }
}
