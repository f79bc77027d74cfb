//! Calls to registries, and what is taken of their results. Knows no registry.

use alloy::primitives::Address;
use alloy::sol_types::{SolCall, SolType};

use crate::chain::answer::{Call3, DECODING, Result3};
use crate::chain::fault::ReadError;

/// The longest text taken from the chain, in bytes; the rest is cut.
pub(super) const CHAIN_TEXT_BYTES_MAX: usize = 16 * 1024;

/// The error of an answer with fewer results than calls.
pub(in crate::chain) const TOO_FEW: ReadError = ReadError::Unintelligible("it has too few results");

/// A contract's key and address, and the function that it answers.
pub(in crate::chain) type Found = (&'static str, Address, Result<&'static str, ReadError>);

/// Each contract by the results of these questions.
pub(in crate::chain) fn found(checks: &[Check], results: &[Result3]) -> Vec<Found> {
    let judged = checks.iter().zip(results);
    judged.map(|(of, result)| (of.key, of.call.target, (of.judge)(of.key, result))).collect()
}

/// True for the key of a registry that only details are read from.
pub(in crate::chain) fn is_of_details(key: &str) -> bool {
    ["chain.contracts.reputation", "chain.contracts.validation", "chain.contracts.organization"]
        .contains(&key)
}

/// A question to a contract that shows whether it is the one that its key means.
pub(in crate::chain) struct Check {
    pub(in crate::chain) key: &'static str,
    pub(in crate::chain) call: Call3,
    pub(in crate::chain) judge: Judge,
}

/// Says which function a contract answers, by its key and a result.
pub(in crate::chain) type Judge = fn(&'static str, &Result3) -> Result<&'static str, ReadError>;

/// A call that may fail.
pub(in crate::chain) fn call(target: Address, data: Vec<u8>) -> Call3 {
    Call3 { target, allowFailure: true, callData: data.into() }
}

/// The function, if the contract has it. A call to an address without code succeeds and returns nothing. Contracts revert
/// without data at a function that they don't have; one that reverts with a reason knows the function, and not the agent.
pub(in crate::chain) fn answers<C: SolCall>(
    key: &'static str,
    result: &Result3,
) -> Result<&'static str, ReadError> {
    if result.success && result.returnData.is_empty() {
        return Err(ReadError::NoCode(key));
    }
    let says_why = !result.success && !result.returnData.is_empty();
    if says_why || decode::<C>(key, &mut std::iter::once(result.clone())).is_ok() {
        Ok(C::SIGNATURE)
    } else {
        Err(ReadError::OtherContract { key, function: C::SIGNATURE })
    }
}

/// What the next result returned. `contract` is the registry's key.
pub(in crate::chain) fn decode<C: SolCall>(
    contract: &'static str,
    results: &mut impl Iterator<Item = Result3>,
) -> Result<C::Return, ReadError> {
    let Result3 { success, returnData: data } = results.next().ok_or(TOO_FEW)?;
    if !success {
        return Err(ReadError::Reverted(C::SIGNATURE));
    }
    if data.is_empty() {
        return Err(ReadError::NoCode(contract));
    }
    // A word that no value of its type has is none; further words may follow.
    let is_static = !<C::ReturnTuple<'_> as SolType>::DYNAMIC;
    let config = DECODING.validate(is_static).validate_allow_trailing_bytes(true);
    let decoded = C::abi_decode_returns_with_config(&data, config).ok();
    let is_whole = !is_static || data.len().is_multiple_of(32);
    decoded.filter(|_| is_whole).ok_or(ReadError::Undecodable(C::SIGNATURE))
}

/// The text, or as much of it as is kept.
pub(super) fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(CHAIN_TEXT_BYTES_MAX));
    // The rest must not stay allocated for as long as the profile is cached.
    text.shrink_to_fit();
    text
}
