// For tests: tokens whose balances give tiers. Anybody mints and burns. One that is broken answers no question about balances.
// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.24;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {ERC721} from "@openzeppelin/contracts/token/ERC721/ERC721.sol";

abstract contract Breakable {
    bool private _isBroken;

    modifier unlessBroken() {
        require(!_isBroken, "broken");
        _;
    }

    function setBroken(bool isBroken) external {
        _isBroken = isBroken;
    }
}

contract TierToken is ERC20("Tier token", "TIER"), Breakable {
    function mint(address to, uint256 amount) external {
        _mint(to, amount);
    }

    function burn(address from, uint256 amount) external {
        _burn(from, amount);
    }

    function balanceOf(address account) public view override unlessBroken returns (uint256) {
        return super.balanceOf(account);
    }
}

contract TierCollection is ERC721("Tier collection", "TIERS"), Breakable {
    function mint(address to, uint256 id) external {
        _mint(to, id);
    }

    function burn(uint256 id) external {
        _burn(id);
    }

    function balanceOf(address account) public view override unlessBroken returns (uint256) {
        return super.balanceOf(account);
    }
}

// A number for each agent, but for those with the greatest one, about whom it reverts. The second setter emits nothing.
contract Scores is Breakable {
    event ScoreChanged(uint256 indexed agentId, uint256 score);

    mapping(uint256 agentId => uint256) private _scores;

    function score(uint256 agentId) external view unlessBroken returns (uint256) {
        require(_scores[agentId] != type(uint256).max, "no score");
        return _scores[agentId];
    }

    function set(uint256 agentId, uint256 value) external {
        _scores[agentId] = value;
        emit ScoreChanged(agentId, value);
    }

    function setQuietly(uint256 agentId, uint256 value) external {
        _scores[agentId] = value;
    }
}
