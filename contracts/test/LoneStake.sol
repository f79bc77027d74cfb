// For tests: a stake vault whose getStake returns the amount alone, with no cooldown beside it.
// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

contract LoneStake {
    event Staked(uint256 indexed agentId, address indexed staker, uint256 amount);

    mapping(uint256 agentId => uint256) public getStake;

    function stake(uint256 agentId, uint256 amount) external {
        getStake[agentId] += amount;
        emit Staked(agentId, msg.sender, amount);
    }
}
