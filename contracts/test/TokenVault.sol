// For tests: a stake vault that names its token, which has six decimals.
// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

contract SixDecimals {
    uint8 public constant decimals = 6;
}

contract TokenVault {
    event Staked(uint256 indexed agentId, address indexed staker, uint256 amount);

    mapping(uint256 agentId => uint256) public getStake;
    address public immutable stakingToken = address(new SixDecimals());

    function stake(uint256 agentId, uint256 amount) external {
        getStake[agentId] += amount;
        emit Staked(agentId, msg.sender, amount);
    }
}
