// Reads what ERC-8004's registries say of agents besides who may act for them, which strangers write as much of as they like:
// so each list is taken in part, and each call has its share of the gas. It is run as a creation by eth_call and never
// deployed. It gives back what Snapshot does: chain id, number and time of the block, the details of each agent, and
// Arbitrum's block number.
// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

contract AgentDetails {
    struct Result {
        bool success;
        bytes returnData;
    }

    struct Details {
        // More gas may tell more.
        bool ranOut;
        // The beginning of the agent's URI; empty where it can't be read.
        bytes uri;
        // The sum of all feedback that was read and is not revoked, with 18 decimals, and how many there are.
        int256 total;
        uint256 feedback;
        bool feedbackCut;
        // How many requests were answered, or how many of those that were looked at, and the latest of the answers; no
        // validator: there is none.
        uint256 validations;
        bool validationsCut;
        bytes32 request;
        address validator;
        uint256 response;
        bytes32 responseHash;
    }

    // A text of 16 KiB, and the rest of its last character.
    uint256 private constant URI_BYTES_MAX = 16_387;

    // The most gas for one entry of a list. Its texts are long if that does not do.
    uint256 private constant ENTRY_GAS_MAX = 200_000;

    // How many requests for validation are looked at, the newest first.
    uint256 private constant REQUESTS_MAX = 64;

    // A registry with the zero address is not asked. No more entries of feedback than `feedbackMax` are looked at.
    constructor(
        address identity,
        address reputation,
        address validation,
        uint256 feedbackMax,
        uint256[] memory agents
    ) {
        uint256 count = agents.length;
        Result[] memory results = new Result[](count + 4);
        results[0] = Result(true, abi.encode(block.chainid));
        results[1] = Result(true, abi.encode(block.number));
        results[2] = Result(true, abi.encode(block.timestamp));
        // An eighth is for the answer.
        uint256 kept = gasleft() / 8;
        for (uint256 i = 0; i < count; i++) {
            uint256 share = gasleft() > kept ? (gasleft() - kept) / (count - i) : 0;
            uint256 until = gasleft() - share;
            Details memory details;
            readUri(details, identity, agents[i], share / 4);
            if (validation != address(0)) readValidations(details, validation, agents[i], until);
            if (reputation != address(0)) readFeedback(details, reputation, agents[i], feedbackMax, until);
            results[i + 3] = Result(true, abi.encode(details));
        }
        (bool success, bytes memory data) = address(0x64).call(abi.encodeWithSignature("arbBlockNumber()"));
        results[count + 3] = Result(success, data);
        bytes memory returned = abi.encode(results);
        // What a creation returns is taken for a contract's code, which costs gas by the byte and may not be long (EIP-170).
        assembly {
            revert(add(returned, 32), mload(returned))
        }
    }

    function readUri(Details memory details, address identity, uint256 agent, uint256 gasMax) private view {
        bytes memory question = abi.encodeWithSignature("tokenURI(uint256)", agent);
        uint256 length;
        bool known;
        uint256 size;
        assembly {
            known := staticcall(gasMax, identity, add(question, 32), mload(question), 0, 64)
            size := returndatasize()
            length := mload(32)
        }
        if (!known || size < 64 || length > size - 64) {
            details.ranOut = true;
            return;
        }
        if (length > URI_BYTES_MAX) length = URI_BYTES_MAX;
        bytes memory uri = new bytes(length);
        assembly {
            returndatacopy(add(uri, 32), 64, length)
        }
        details.uri = uri;
    }

    // Clients in the order in which they came, and of each its feedback in order: nobody pushes older feedback out.
    function readFeedback(Details memory details, address on, uint256 agent, uint256 most, uint256 until)
        private
        view
    {
        uint256[7] memory answer;
        if (!isVersion2(on, answer)) {
            details.feedbackCut = true;
            return;
        }
        bytes memory question = abi.encodeWithSignature("getClients(uint256)", agent);
        (bool known, uint256 length, uint256[] memory clients) = list(on, question, left(until) / 2, most, false);
        if (!known) {
            details.feedbackCut = details.ranOut = true;
            return;
        }
        details.feedbackCut = length > clients.length;
        uint256 looked;
        for (uint256 i = 0; i < clients.length; i++) {
            bytes4 lastIndex = bytes4(keccak256("getLastIndex(uint256,address)"));
            if (left(until) < 2 * ENTRY_GAS_MAX || ask(on, lastIndex, agent, clients[i], 0, answer) < 32) {
                details.feedbackCut = details.ranOut = true;
                return;
            }
            uint256 last = answer[0];
            for (uint256 index = 1; index <= last; index++) {
                if (looked++ == most) {
                    details.feedbackCut = true;
                    return;
                }
                if (left(until) < 2 * ENTRY_GAS_MAX) {
                    details.feedbackCut = details.ranOut = true;
                    return;
                }
                addFeedback(details, on, agent, clients[i], index, answer);
            }
        }
    }

    function addFeedback(
        Details memory details,
        address on,
        uint256 agent,
        uint256 client,
        uint256 index,
        uint256[7] memory answer
    ) private view {
        bytes4 read = bytes4(keccak256("readFeedback(uint256,address,uint64)"));
        // Value, decimals, two tags, whether it is revoked; tags of no length take two words more.
        bool known = ask(on, read, agent, client, index, answer) >= 224 && answer[1] <= 18;
        int256 value = int256(answer[0]);
        if (!known || value != int128(value)) {
            details.feedbackCut = true;
        } else if (answer[4] == 0) {
            details.total += value * int256(10 ** (18 - answer[1]));
            details.feedback++;
        }
    }

    function readValidations(Details memory details, address on, uint256 agent, uint256 until) private view {
        uint256[7] memory answer;
        if (!isVersion2(on, answer)) {
            details.validationsCut = true;
            return;
        }
        bytes memory question = abi.encodeWithSignature("getAgentValidations(uint256)", agent);
        (bool known, uint256 length, uint256[] memory requests) =
            list(on, question, left(until) / 4, REQUESTS_MAX, true);
        if (!known) {
            details.validationsCut = details.ranOut = true;
            return;
        }
        details.validationsCut = length > requests.length;
        if (length == 0) return;
        question = abi.encodeWithSignature("getSummary(uint256,address[],string)", agent, new address[](0), "");
        (known, details.validations) = number(on, question, left(until) / 4);
        if (!known) details.validationsCut = details.ranOut = true;
        // A status does not tell a request without an answer from one that was answered with nothing but zeros: not unless
        // all are answered.
        bool isEachAnswered = details.validations == length;
        uint256 newest;
        for (uint256 i = requests.length; i > 0; i--) {
            bytes4 status = bytes4(keccak256("getValidationStatus(bytes32)"));
            if (left(until) < 2 * ENTRY_GAS_MAX) {
                details.validationsCut = details.ranOut = true;
                return;
            }
            if (ask(on, status, requests[i - 1], 0, 0, answer) < 224) {
                details.validationsCut = true;
                continue;
            }
            // Validator, agent, response, hash, tag, time; at the end the tag's length.
            bool isAnswered = isEachAnswered || answer[2] != 0 || answer[3] != 0 || answer[6] != 0;
            if (!isAnswered) continue;
            if (!known) details.validations++;
            if (answer[5] <= newest) continue;
            newest = answer[5];
            details.request = bytes32(requests[i - 1]);
            details.validator = address(uint160(answer[0]));
            details.response = answer[2];
            details.responseHash = bytes32(answer[3]);
        }
    }

    // Registries are upgraded in their place, and another version means other things by the same functions.
    function isVersion2(address on, uint256[7] memory answer) private view returns (bool) {
        // The text's place, its length, and the text.
        return ask(on, bytes4(keccak256("getVersion()")), 0, 0, 0, answer) >= 96 && answer[2] >> 240 == 0x322e;
    }

    // How much of a share of the gas is left.
    function left(uint256 until) private view returns (uint256) {
        uint256 all = gasleft();
        return all > until ? all - until : 0;
    }

    // The first words of a list, or the last ones, and how long it is.
    function list(address on, bytes memory question, uint256 gasMax, uint256 most, bool fromEnd)
        private
        view
        returns (bool known, uint256 length, uint256[] memory words)
    {
        uint256 size;
        assembly {
            known := staticcall(gasMax, on, add(question, 32), mload(question), 0, 64)
            size := returndatasize()
            length := mload(32)
        }
        if (!known || size < 64 || length > (size - 64) / 32) return (false, 0, words);
        uint256 taken = length < most ? length : most;
        uint256 from = 64 + 32 * (fromEnd ? length - taken : 0);
        words = new uint256[](taken);
        assembly {
            returndatacopy(add(words, 32), from, mul(taken, 32))
        }
    }

    // The first word of an answer; 0 of a call that failed.
    function number(address on, bytes memory question, uint256 gasMax)
        private
        view
        returns (bool known, uint256 word)
    {
        assembly {
            known := staticcall(gasMax, on, add(question, 32), mload(question), 0, 32)
            known := and(known, gt(returndatasize(), 31))
            if known { word := mload(0) }
        }
    }

    // The first words of an answer, and how many bytes it has; none of a call that failed. A function with fewer arguments
    // passes over the rest. Takes no memory: there are thousands of calls.
    function ask(address on, bytes4 selector, uint256 a, uint256 b, uint256 c, uint256[7] memory answer)
        private
        view
        returns (uint256 size)
    {
        uint256 gasMax = ENTRY_GAS_MAX;
        assembly {
            let question := mload(0x40)
            mstore(question, selector)
            mstore(add(question, 4), a)
            mstore(add(question, 36), b)
            mstore(add(question, 68), c)
            if staticcall(gasMax, on, question, 100, answer, 224) {
                size := returndatasize()
            }
        }
    }
}
