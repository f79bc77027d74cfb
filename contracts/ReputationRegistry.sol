// The development chain's reputation registry: the sum and the number of the scores given to an agent.
// Anybody may give feedback, any number of times.
// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

contract ReputationRegistry {
    event FeedbackGiven(uint256 indexed agentId, address indexed from, int256 score);

    struct Reputation {
        int256 totalScore;
        uint256 feedbackCount;
    }

    mapping(uint256 agentId => Reputation) private _reputations;

    function getReputation(uint256 agentId) external view returns (int256 totalScore, uint256 feedbackCount) {
        Reputation storage r = _reputations[agentId];
        return (r.totalScore, r.feedbackCount);
    }

    function giveFeedback(uint256 agentId, int256 score) external {
        Reputation storage r = _reputations[agentId];
        r.totalScore += score;
        r.feedbackCount++;
        emit FeedbackGiven(agentId, msg.sender, score);
    }
}
