// ERC-8004's reputation registry: each account but the agent's own can give feedback, as numbers with decimals.
// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.24;

import {Erc8004About} from "./Upgradable.sol";

contract Erc8004Reputation is Erc8004About {
    struct Feedback {
        int128 value;
        uint8 valueDecimals;
        bool isRevoked;
        string tag1;
        string tag2;
    }

    struct Found {
        address[] clients;
        uint64[] indexes;
        int128[] values;
        uint8[] decimals;
        string[] tag1s;
        string[] tag2s;
        bool[] revoked;
    }

    event NewFeedback(
        uint256 indexed agentId,
        address indexed clientAddress,
        uint64 feedbackIndex,
        int128 value,
        uint8 valueDecimals,
        string indexed indexedTag1,
        string tag1,
        string tag2,
        string endpoint,
        string feedbackURI,
        bytes32 feedbackHash
    );
    event FeedbackRevoked(
        uint256 indexed agentId, address indexed clientAddress, uint64 indexed feedbackIndex
    );
    event ResponseAppended(
        uint256 indexed agentId,
        address indexed clientAddress,
        uint64 feedbackIndex,
        address indexed responder,
        string responseURI,
        bytes32 responseHash
    );

    int128 private constant VALUE_MAX = 1e38;

    // Counted from 1: the entry of index 0 is never there.
    mapping(uint256 agentId => mapping(address client => mapping(uint64 index => Feedback))) private _feedback;
    mapping(uint256 agentId => mapping(address client => uint64)) private _lastIndex;
    mapping(uint256 agentId => address[]) private _clients;
    mapping(uint256 agentId => mapping(address client => mapping(uint64 index => address[]))) private _responders;
    mapping(
        uint256 agentId => mapping(address client => mapping(uint64 index => mapping(address responder => uint64)))
    ) private _responses;

    function giveFeedback(
        uint256 agentId,
        int128 value,
        uint8 valueDecimals,
        string calldata tag1,
        string calldata tag2,
        string calldata endpoint,
        string calldata feedbackURI,
        bytes32 feedbackHash
    ) external {
        require(valueDecimals <= 18, "too many decimals");
        require(value >= -VALUE_MAX && value <= VALUE_MAX, "value too large");
        require(!maySpeakFor(msg.sender, agentId), "Self-feedback not allowed");
        uint64 index = ++_lastIndex[agentId][msg.sender];
        if (index == 1) _clients[agentId].push(msg.sender);
        _feedback[agentId][msg.sender][index] = Feedback(value, valueDecimals, false, tag1, tag2);
        emit NewFeedback(
            agentId, msg.sender, index, value, valueDecimals, tag1, tag1, tag2, endpoint, feedbackURI, feedbackHash
        );
    }

    function revokeFeedback(uint256 agentId, uint64 feedbackIndex) external {
        Feedback storage feedback = existing(agentId, msg.sender, feedbackIndex);
        require(!feedback.isRevoked, "Already revoked");
        feedback.isRevoked = true;
        emit FeedbackRevoked(agentId, msg.sender, feedbackIndex);
    }

    function appendResponse(
        uint256 agentId,
        address clientAddress,
        uint64 feedbackIndex,
        string calldata responseURI,
        bytes32 responseHash
    ) external {
        require(feedbackIndex > 0, "index must be > 0");
        require(bytes(responseURI).length > 0, "Empty URI");
        existing(agentId, clientAddress, feedbackIndex);
        uint64 count = ++_responses[agentId][clientAddress][feedbackIndex][msg.sender];
        if (count == 1) _responders[agentId][clientAddress][feedbackIndex].push(msg.sender);
        emit ResponseAppended(agentId, clientAddress, feedbackIndex, msg.sender, responseURI, responseHash);
    }

    function getClients(uint256 agentId) external view returns (address[] memory) {
        return _clients[agentId];
    }

    function getLastIndex(uint256 agentId, address clientAddress) external view returns (uint64) {
        return _lastIndex[agentId][clientAddress];
    }

    function readFeedback(uint256 agentId, address clientAddress, uint64 feedbackIndex)
        external
        view
        returns (int128 value, uint8 valueDecimals, string memory tag1, string memory tag2, bool isRevoked)
    {
        Feedback storage it = existing(agentId, clientAddress, feedbackIndex);
        return (it.value, it.valueDecimals, it.tag1, it.tag2, it.isRevoked);
    }

    function readAllFeedback(
        uint256 agentId,
        address[] calldata clientAddresses,
        string calldata tag1,
        string calldata tag2,
        bool includeRevoked
    )
        external
        view
        returns (
            address[] memory clients,
            uint64[] memory feedbackIndexes,
            int128[] memory values,
            uint8[] memory valueDecimals,
            string[] memory tag1s,
            string[] memory tag2s,
            bool[] memory revokedStatuses
        )
    {
        address[] memory of_ = clientAddresses;
        if (of_.length == 0) of_ = _clients[agentId];
        Found memory all = find(agentId, of_, tag1, tag2, includeRevoked);
        return (all.clients, all.indexes, all.values, all.decimals, all.tag1s, all.tag2s, all.revoked);
    }

    // The average, with the decimals that most entries have: what it cuts off is lost.
    function getSummary(uint256 agentId, address[] calldata clientAddresses, string calldata tag1, string calldata tag2)
        external
        view
        returns (uint64 count, int128 summaryValue, uint8 summaryValueDecimals)
    {
        require(clientAddresses.length > 0, "clientAddresses required");
        Found memory all = find(agentId, clientAddresses, tag1, tag2, false);
        count = uint64(all.values.length);
        if (count == 0) return (0, 0, 0);
        int256 sum;
        uint256[19] memory uses;
        for (uint256 i = 0; i < count; i++) {
            sum += int256(all.values[i]) * int256(10 ** (18 - all.decimals[i]));
            uses[all.decimals[i]]++;
        }
        for (uint8 i = 1; i <= 18; i++) if (uses[i] > uses[summaryValueDecimals]) summaryValueDecimals = i;
        summaryValue = int128(sum / int256(uint256(count)) / int256(10 ** (18 - summaryValueDecimals)));
    }

    function getResponseCount(
        uint256 agentId,
        address clientAddress,
        uint64 feedbackIndex,
        address[] calldata responders
    ) external view returns (uint64 count) {
        if (clientAddress != address(0)) return responses(agentId, clientAddress, feedbackIndex, responders);
        address[] storage clients = _clients[agentId];
        for (uint256 i = 0; i < clients.length; i++) count += responses(agentId, clients[i], 0, responders);
    }

    // Index 0 stands for each entry of the client.
    function responses(uint256 agentId, address client, uint64 index, address[] memory responders)
        private
        view
        returns (uint64 count)
    {
        if (index == 0) {
            for (uint64 i = 1; i <= _lastIndex[agentId][client]; i++) count += responses(agentId, client, i, responders);
            return count;
        }
        if (responders.length == 0) responders = _responders[agentId][client][index];
        for (uint256 i = 0; i < responders.length; i++) count += _responses[agentId][client][index][responders[i]];
    }

    // Counts first: memory grows by what is found.
    function find(uint256 agentId, address[] memory clients, string memory tag1, string memory tag2, bool revoked)
        private
        view
        returns (Found memory all)
    {
        uint256 count;
        for (uint256 i = 0; i < clients.length; i++) {
            for (uint64 index = 1; index <= _lastIndex[agentId][clients[i]]; index++) {
                if (fits(_feedback[agentId][clients[i]][index], tag1, tag2, revoked)) count++;
            }
        }
        all = Found(
            new address[](count),
            new uint64[](count),
            new int128[](count),
            new uint8[](count),
            new string[](count),
            new string[](count),
            new bool[](count)
        );
        uint256 found;
        for (uint256 i = 0; i < clients.length; i++) {
            for (uint64 index = 1; index <= _lastIndex[agentId][clients[i]]; index++) {
                Feedback storage it = _feedback[agentId][clients[i]][index];
                if (!fits(it, tag1, tag2, revoked)) continue;
                (all.clients[found], all.indexes[found]) = (clients[i], index);
                (all.values[found], all.decimals[found], all.revoked[found]) = (it.value, it.valueDecimals, it.isRevoked);
                (all.tag1s[found], all.tag2s[found]) = (it.tag1, it.tag2);
                found++;
            }
        }
    }

    function fits(Feedback storage it, string memory tag1, string memory tag2, bool revoked)
        private
        view
        returns (bool)
    {
        return (revoked || !it.isRevoked) && (bytes(tag1).length == 0 || same(tag1, it.tag1))
            && (bytes(tag2).length == 0 || same(tag2, it.tag2));
    }

    function same(string memory one, string memory other) private pure returns (bool) {
        return keccak256(bytes(one)) == keccak256(bytes(other));
    }

    function existing(uint256 agentId, address client, uint64 index) private view returns (Feedback storage) {
        require(index > 0, "index must be > 0");
        require(index <= _lastIndex[agentId][client], "index out of bounds");
        return _feedback[agentId][client][index];
    }
}
