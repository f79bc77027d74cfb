//! ERC-8004's registries, version 2: calls, their decoding, and events.
//!
//! Strangers write as much feedback as they like, so an agent's details are read apart from what decides who passes:
//! `contracts/AgentDetails.sol` takes a part of each list, within a share of the gas.

use std::sync::LazyLock;

use alloy::primitives::{Address, B256, Bytes, U256};
use alloy::sol;
use alloy::sol_types::{SolCall, SolEvent, SolValue};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::chain::dated::{Call3, DECODING, Result3, call, code_in};
use crate::chain::fault::{ReadError, TOO_FEW};
use crate::chain::registries::calls::{
    Approval, ApprovalForAll, Check, MetadataUpdate, Staked, Transfer, Unstaked, cut, decode, getStakeCall,
    owner_call, read_owner,
};
use crate::chain::registries::logs::Events;
use crate::domain::{AgentId, Details, Holders, LatestValidation, Registries, Reputation, Validation};

sol! {
    /// Identity registry. The wallet is zero where none is set.
    function getAgentWallet(uint256 agentId) external view returns (address);

    /// In every registry.
    function getVersion() external pure returns (string);

    /// The details of one agent, as `contracts/AgentDetails.sol` returns them.
    struct Reported {
        bool ranOut; bytes uri; int256 total; uint256 feedback; bool feedbackCut; uint256 validations;
        bool validationsCut; bytes32 request; address validator; uint256 response; bytes32 responseHash;
    }
}

sol! {
    event Registered(uint256 indexed agentId, string agentURI, address indexed owner);
    event URIUpdated(uint256 indexed agentId, string newURI, address indexed updatedBy);
    event MetadataSet(uint256 indexed agentId, string indexed indexedMetadataKey, string metadataKey, bytes metadataValue);
    event NewFeedback(uint256 indexed agentId, address indexed clientAddress, uint64 feedbackIndex, int128 value, uint8 valueDecimals, string indexed indexedTag1, string tag1, string tag2, string endpoint, string feedbackURI, bytes32 feedbackHash);
    event FeedbackRevoked(uint256 indexed agentId, address indexed clientAddress, uint64 indexed feedbackIndex);
    event ResponseAppended(uint256 indexed agentId, address indexed clientAddress, uint64 feedbackIndex, address indexed responder, string responseURI, bytes32 responseHash);
    event ValidationRequest(address indexed validatorAddress, uint256 indexed agentId, string requestURI, bytes32 indexed requestHash);
    event ValidationResponse(address indexed validatorAddress, uint256 indexed agentId, bytes32 indexed requestHash, uint8 response, string responseURI, bytes32 responseHash, string tag);
}

/// Events, and whom their logs name. `Upgraded` and `BatchMetadataUpdate` name nobody, and so concern everybody.
pub(super) const EVENTS: Events = Events {
    // Anybody may respond to feedback, and no profile shows it.
    harmless: &[Approval::SIGNATURE_HASH, ApprovalForAll::SIGNATURE_HASH, ResponseAppended::SIGNATURE_HASH],
    naming: &[
        (Transfer::SIGNATURE_HASH, 4, &[2]),
        (Registered::SIGNATURE_HASH, 3, &[0]),
        (URIUpdated::SIGNATURE_HASH, 3, &[0]),
        (MetadataSet::SIGNATURE_HASH, 3, &[0]),
        (NewFeedback::SIGNATURE_HASH, 4, &[0]),
        (FeedbackRevoked::SIGNATURE_HASH, 4, &[0]),
        (ValidationRequest::SIGNATURE_HASH, 4, &[1]),
        (ValidationResponse::SIGNATURE_HASH, 4, &[1]),
        (Staked::SIGNATURE_HASH, 3, &[0]),
        (Unstaked::SIGNATURE_HASH, 3, &[0]),
    ],
    naming_in_data: MetadataUpdate::SIGNATURE_HASH,
    has_agent_0: true,
};

/// The beginning of each version that can be read.
const VERSION: &str = "2.";

/// The most of a version that is shown, in bytes.
const VERSION_BYTES_MAX: usize = 32;

/// The decimals of sums of feedback.
const SCORE_DECIMALS: u8 = 18;

/// The response of a validator that an agent passed with.
const PASSED: u64 = 100;

/// The compiled form of `contracts/AgentDetails.sol`.
static DETAILS_CODE: LazyLock<Bytes> =
    LazyLock::new(|| code_in(include_str!("../../../contracts/artifacts/AgentDetails.json")));

/// The calls for the holders. The registry can be replaced in its place, and a wallet of version 1 outlives a sale: so each
/// read asks for the version too.
pub(super) fn holder_calls(identity: Address, agent: AgentId) -> Vec<Call3> {
    vec![
        call(identity, &getVersionCall {}),
        owner_call(identity, agent),
        call(identity, &getAgentWalletCall { agentId: agent.token_id() }),
    ]
}

/// The holders in the results of [`holder_calls`]; `None` when the agent is not minted.
pub(super) fn read_holders(
    agent: AgentId,
    results: &mut impl Iterator<Item = Result3>,
) -> Result<Option<Holders>, ReadError> {
    check_version(&results.next().ok_or(TOO_FEW)?)?;
    let Some(owner) = read_owner(agent, results)? else { return Ok(None) };
    Ok(Some(Holders { owner, wallet: read_wallet(results)? }))
}

/// The agent's wallet, if one is set, in the result of `getAgentWallet`.
pub(super) fn read_wallet(results: &mut impl Iterator<Item = Result3>) -> Result<Option<Address>, ReadError> {
    let wallet = decode::<getAgentWalletCall>("chain.contracts.identity", results)?;
    Ok(Some(wallet).filter(|wallet| !wallet.is_zero()))
}

/// A question to the contract of this key, about any agent.
pub(super) fn check(key: &'static str, to: Address, agent: AgentId) -> Check {
    match key {
        "chain.contracts.stake_vault" => Check::new(key, to, &getStakeCall { agentId: agent.token_id() }),
        _ => Check { key, call: call(to, &getVersionCall {}), judge: is_version_2 },
    }
}

/// Fails if the identity registry is none that is read, by its answer to `getVersion`.
pub(super) fn check_version(result: &Result3) -> Result<(), ReadError> {
    is_version_2("chain.contracts.identity", result).map(drop)
}

/// The function that a registry of a version that is read here answered.
pub(in crate::chain) fn is_version_2(key: &'static str, result: &Result3) -> Result<&'static str, ReadError> {
    let version = match decode::<getVersionCall>(key, &mut std::iter::once(result.clone())) {
        Ok(version) if version.starts_with(VERSION) => return Ok(getVersionCall::SIGNATURE),
        Err(error @ ReadError::NoCode(_)) => return Err(error),
        Ok(version) => version,
        Err(_) => "none".to_owned(),
    };
    let shown = version.chars().filter(char::is_ascii_graphic).take(VERSION_BYTES_MAX).collect();
    Err(ReadError::Version { key, version: shown })
}

/// The init code that reads the details of these agents.
pub(super) fn details_code(on: &Registries, feedback_max: u32, agents: &[AgentId]) -> Bytes {
    let agents: Vec<U256> = agents.iter().map(|agent| agent.token_id()).collect();
    let [reputation, validation] = [on.reputation, on.validation].map(Option::unwrap_or_default);
    let question =
        (on.identity, reputation, validation, U256::from(feedback_max), agents).abi_encode_params();
    [DETAILS_CODE.as_ref(), &question].concat().into()
}

/// The details of one agent.
#[derive(Debug, Clone)]
pub(in crate::chain) struct DetailsRead {
    pub(in crate::chain) details: Details,
    /// True if they had too small a share of the gas: alone the agent may have more.
    pub(in crate::chain) ran_out: bool,
    /// The latest validation, whose evidence is not among them.
    pub(in crate::chain) latest: Option<Answered>,
}

/// A validator's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::chain) struct Answered {
    request: B256,
    response: U256,
    response_hash: B256,
}

/// The details of an agent in what [`details_code`] returned of it.
pub(in crate::chain) fn read_details(result: &Result3) -> Result<DetailsRead, ReadError> {
    const UNDECODABLE: ReadError = ReadError::Unintelligible("it has no details");
    let found = Reported::abi_decode_with_config(&result.returnData, DECODING).map_err(|_| UNDECODABLE)?;
    let count = |number: U256| u64::try_from(number).map_err(|_| UNDECODABLE);
    let latest = LatestValidation {
        passed: found.response == U256::from(PASSED),
        evidence: String::new(),
        validator: found.validator,
    };
    let is_answered = !found.validator.is_zero();
    let details = Details {
        reputation: Reputation {
            total_score: found.total,
            decimals: SCORE_DECIMALS,
            feedback_count: count(found.feedback)?,
            is_bounded: found.feedbackCut,
        },
        validation: Validation {
            count: count(found.validations)?,
            latest: is_answered.then(|| Box::new(latest)),
            is_bounded: found.validationsCut,
        },
        metadata_uri: cut(String::from_utf8_lossy(&found.uri).into_owned()),
        organizations: Vec::new(),
    };
    let latest =
        Answered { request: found.request, response: found.response, response_hash: found.responseHash };
    Ok(DetailsRead { details, ran_out: found.ranOut, latest: is_answered.then_some(latest) })
}

/// A log with all of its data.
#[derive(Debug, Clone, Deserialize)]
pub(in crate::chain) struct Response {
    data: Bytes,
}

/// The filter of the logs of an answer, up to this block. Its evidence is nowhere else.
pub(in crate::chain) fn response_filter(
    validation: Address,
    agent: AgentId,
    latest: Answered,
    block: Value,
) -> Value {
    let topics =
        json!([ValidationResponse::SIGNATURE_HASH, null, B256::from(agent.token_id()), latest.request]);
    json!({ "address": validation, "topics": topics, "fromBlock": "0x0", "toBlock": block })
}

/// The evidence of an answer in the last of its logs; `None`: that is of another answer.
pub(in crate::chain) fn evidence(latest: Answered, logs: &[Response]) -> Option<String> {
    let data = ValidationResponse::abi_decode_data(&logs.last()?.data).ok()?;
    let (response, uri, hash, _) = data;
    (U256::from(response) == latest.response && hash == latest.response_hash).then(|| cut(uri))
}

#[cfg(test)]
mod tests;
