// The development chain's stake vault: a development stand-in that only counts.
// No tokens move: anybody may stake any amount for any agent, and take it back.
// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

contract StakeVault {
    event Staked(uint256 indexed agentId, address indexed staker, uint256 amount);
    event Unstaked(uint256 indexed agentId, address indexed staker, uint256 amount);

    error InsufficientStake(uint256 agentId, uint256 staked, uint256 requested);

    struct Stake {
        uint256 amount;
        uint256 cooldownAmount;
        uint256 cooldownEndTime;
    }

    uint256 public constant COOLDOWN_SECONDS = 7 days;

    mapping(uint256 agentId => Stake) private _stakes;

    function getStake(uint256 agentId)
        external
        view
        returns (uint256 amount, uint256 cooldownAmount, uint256 cooldownEndTime)
    {
        Stake storage s = _stakes[agentId];
        return (s.amount, s.cooldownAmount, s.cooldownEndTime);
    }

    function stake(uint256 agentId, uint256 amount) external {
        _stakes[agentId].amount += amount;
        emit Staked(agentId, msg.sender, amount);
    }

    /// Moves stake to cooldown, where it no longer counts; a second call restarts the cooldown of the whole.
    function unstake(uint256 agentId, uint256 amount) external {
        Stake storage s = _stakes[agentId];
        if (amount > s.amount) revert InsufficientStake(agentId, s.amount, amount);
        s.amount -= amount;
        s.cooldownAmount += amount;
        s.cooldownEndTime = block.timestamp + COOLDOWN_SECONDS;
        emit Unstaked(agentId, msg.sender, amount);
    }
}
