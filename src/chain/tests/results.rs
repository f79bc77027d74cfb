//! What contracts return, as the tests need it.

use alloy::primitives::{Bytes, I256, U256};
use alloy::sol_types::{SolCall, SolError};
use serde_json::{Value, json};

use crate::chain::dated::{Result3, aggregate3Call};
use crate::chain::fixture::{CHAIN_ID, HEAD, OWNER};
use crate::chain::registries::calls::{ERC721NonexistentToken, ownerOfCall, tokenURICall};
use crate::chain::registries::documented::{
    OrganizationRow, getAgentOrganizationsCall, getReputationCall, getReputationReturn, getValidationCall,
    getValidationReturn,
};

/// Bytes as JSON-RPC shows them.
pub(in crate::chain) fn hex(bytes: impl AsRef<[u8]>) -> Value {
    json!(Bytes::copy_from_slice(bytes.as_ref()))
}

pub(in crate::chain) fn word(number: u64) -> Vec<u8> {
    U256::from(number).to_be_bytes_vec()
}

/// The revert of a token that is not minted.
pub(in crate::chain) fn not_minted() -> Vec<u8> {
    ERC721NonexistentToken { tokenId: U256::from(1) }.abi_encode()
}

pub(in crate::chain) fn returned(data: Vec<u8>) -> Result3 {
    Result3 { success: true, returnData: data.into() }
}

pub(in crate::chain) fn reverted(data: Vec<u8>) -> Result3 {
    Result3 { success: false, returnData: data.into() }
}

/// What Multicall3 returns for these results of inner calls, at a block.
pub(in crate::chain) fn dated(number: u64, results: &[Result3]) -> Vec<u8> {
    aggregate_of(CHAIN_ID, number, results)
}

/// The same on a chain.
pub(in crate::chain) fn aggregate_of(chain: u64, number: u64, results: &[Result3]) -> Vec<u8> {
    aggregate_at((chain, number, 1_700_000_000), results)
}

/// The same at a time.
pub(in crate::chain) fn aggregate_at(
    (chain, number, timestamp): (u64, u64, u64),
    results: &[Result3],
) -> Vec<u8> {
    let hashes = [returned(word(0)), returned(word(0))];
    created_at((chain, number, timestamp), &[&hashes, results].concat())
}

/// What a creation that dates itself returns for these results.
pub(in crate::chain) fn created(number: u64, results: &[Result3]) -> Vec<u8> {
    created_at((CHAIN_ID, number, 1_700_000_000), results)
}

/// The same at a time, on a chain.
pub(in crate::chain) fn created_at(
    (chain, number, timestamp): (u64, u64, u64),
    results: &[Result3],
) -> Vec<u8> {
    let dates = [chain, number, timestamp].map(|date| returned(word(date)));
    let all = [&dates, results, &[returned(Vec::new())]].concat();
    aggregate3Call::abi_encode_returns(&all)
}

/// The results, of those for an agent of whom everything is known, that a request asks for.
pub(in crate::chain) fn asked_for<'a>(request: &Value, results: &'a [Result3]) -> &'a [Result3] {
    let call: String = tokenURICall::SELECTOR.iter().map(|byte| format!("{byte:02x}")).collect();
    let is_of_details = request["params"][0]["data"].as_str().is_some_and(|input| input.contains(&call));
    let (gate, details) = results.split_at(results.len().min(2));
    if is_of_details { details } else { gate }
}

/// The same at the usual block.
pub(in crate::chain) fn aggregate(results: &[Result3]) -> Vec<u8> {
    dated(HEAD, results)
}

/// The results of the inner calls for an agent of whom everything is known: two of what decides, and of details.
pub(in crate::chain) fn results() -> Vec<Result3> {
    let organization = OrganizationRow { orgId: U256::from(9), name: "org".into(), verified: true };
    vec![
        returned(ownerOfCall::abi_encode_returns(&OWNER)),
        returned(word(5)),
        returned(tokenURICall::abi_encode_returns(&"ipfs://card".to_owned())),
        returned(reputation(U256::from(2))),
        returned(validation(U256::from(3))),
        returned(organizations(vec![organization])),
    ]
}

pub(in crate::chain) fn reputation(count: U256) -> Vec<u8> {
    let row = getReputationReturn { totalScore: I256::MINUS_ONE, feedbackCount: count };
    getReputationCall::abi_encode_returns(&row)
}

pub(in crate::chain) fn validation(count: U256) -> Vec<u8> {
    let row = getValidationReturn {
        count,
        latestPassed: true,
        latestEvidence: "ipfs://evidence".into(),
        latestValidator: OWNER,
    };
    getValidationCall::abi_encode_returns(&row)
}

pub(in crate::chain) fn organizations(rows: Vec<OrganizationRow>) -> Vec<u8> {
    getAgentOrganizationsCall::abi_encode_returns(&rows)
}
