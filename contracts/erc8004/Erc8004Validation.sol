// ERC-8004's validation registry: the agent's owner asks a validator, who answers with 0 to 100, and may answer again.
// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.24;

import {Erc8004About} from "./Upgradable.sol";

contract Erc8004Validation is Erc8004About {
    struct Status {
        address validator;
        uint256 agentId;
        uint8 response;
        bytes32 responseHash;
        string tag;
        uint256 lastUpdate;
        bool isAnswered;
    }

    event ValidationRequest(
        address indexed validatorAddress, uint256 indexed agentId, string requestURI, bytes32 indexed requestHash
    );
    event ValidationResponse(
        address indexed validatorAddress,
        uint256 indexed agentId,
        bytes32 indexed requestHash,
        uint8 response,
        string responseURI,
        bytes32 responseHash,
        string tag
    );

    mapping(bytes32 requestHash => Status) private _status;
    mapping(uint256 agentId => bytes32[]) private _ofAgent;
    mapping(address validator => bytes32[]) private _ofValidator;

    function validationRequest(address validator, uint256 agentId, string calldata requestURI, bytes32 requestHash)
        external
    {
        require(validator != address(0), "bad validator");
        require(_status[requestHash].validator == address(0), "exists");
        require(maySpeakFor(msg.sender, agentId), "Not authorized");
        _status[requestHash] = Status(validator, agentId, 0, 0, "", block.timestamp, false);
        _ofAgent[agentId].push(requestHash);
        _ofValidator[validator].push(requestHash);
        emit ValidationRequest(validator, agentId, requestURI, requestHash);
    }

    function validationResponse(
        bytes32 requestHash,
        uint8 response,
        string calldata responseURI,
        bytes32 responseHash,
        string calldata tag
    ) external {
        Status storage status = existing(requestHash);
        require(msg.sender == status.validator, "not validator");
        require(response <= 100, "resp>100");
        (status.response, status.responseHash, status.tag) = (response, responseHash, tag);
        (status.lastUpdate, status.isAnswered) = (block.timestamp, true);
        emit ValidationResponse(msg.sender, status.agentId, requestHash, response, responseURI, responseHash, tag);
    }

    // A request without an answer looks like one that was answered with 0, without hash and tag.
    function getValidationStatus(bytes32 requestHash)
        external
        view
        returns (
            address validatorAddress,
            uint256 agentId,
            uint8 response,
            bytes32 responseHash,
            string memory tag,
            uint256 lastUpdate
        )
    {
        Status storage it = existing(requestHash);
        return (it.validator, it.agentId, it.response, it.responseHash, it.tag, it.lastUpdate);
    }

    function getSummary(uint256 agentId, address[] calldata validators, string calldata tag)
        external
        view
        returns (uint64 count, uint8 avgResponse)
    {
        uint256 sum;
        bytes32[] storage requests = _ofAgent[agentId];
        for (uint256 i = 0; i < requests.length; i++) {
            Status storage it = _status[requests[i]];
            if (!it.isAnswered || !isListed(it.validator, validators)) continue;
            if (bytes(tag).length > 0 && keccak256(bytes(tag)) != keccak256(bytes(it.tag))) continue;
            sum += it.response;
            count++;
        }
        avgResponse = count > 0 ? uint8(sum / count) : 0;
    }

    function getAgentValidations(uint256 agentId) external view returns (bytes32[] memory) {
        return _ofAgent[agentId];
    }

    function getValidatorRequests(address validatorAddress) external view returns (bytes32[] memory) {
        return _ofValidator[validatorAddress];
    }

    // Each is, by an empty list.
    function isListed(address validator, address[] calldata validators) private pure returns (bool) {
        for (uint256 i = 0; i < validators.length; i++) if (validators[i] == validator) return true;
        return validators.length == 0;
    }

    function existing(bytes32 requestHash) private view returns (Status storage status) {
        status = _status[requestHash];
        require(status.validator != address(0), "unknown");
    }
}
