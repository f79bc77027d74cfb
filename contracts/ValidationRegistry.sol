// The development chain's validation registry: how often an agent was validated, and the latest verdict.
// Anybody may submit a validation.
// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

contract ValidationRegistry {
    event ValidationSubmitted(uint256 indexed agentId, address indexed validator, bool passed);

    struct Validation {
        uint256 count;
        bool latestPassed;
        string latestEvidence;
        address latestValidator;
    }

    mapping(uint256 agentId => Validation) private _validations;

    function getValidation(uint256 agentId)
        external
        view
        returns (uint256 count, bool latestPassed, string memory latestEvidence, address latestValidator)
    {
        Validation storage v = _validations[agentId];
        return (v.count, v.latestPassed, v.latestEvidence, v.latestValidator);
    }

    function submitValidation(uint256 agentId, bool passed, string calldata evidence) external {
        Validation storage v = _validations[agentId];
        v.count++;
        v.latestPassed = passed;
        v.latestEvidence = evidence;
        v.latestValidator = msg.sender;
        emit ValidationSubmitted(agentId, msg.sender, passed);
    }
}
