//! What a view function of the agent's id returns.

use alloy::primitives::{Address, U256};
use alloy::sol_types::SolValue;

use crate::chain::answer::{Call3, Result3};
use crate::chain::fault::ReadError;
use crate::chain::measures::CONTRACT;
use crate::chain::registries::results;
use crate::domain::agent_id::AgentId;

/// The function, by the key that names it.
const FUNCTION: &str = "tiers.function";

pub(super) fn call(contract: Address, selector: [u8; 4], agent: AgentId) -> Call3 {
    results::call(contract, [&selector[..], &agent.token_id().abi_encode()].concat())
}

pub(super) fn number(result: Result3) -> Result<U256, ReadError> {
    if !result.success {
        return Err(ReadError::Reverted(FUNCTION));
    }
    if result.returnData.is_empty() {
        return Err(ReadError::NoCode(CONTRACT));
    }
    let word = <[u8; 32]>::try_from(&result.returnData[..]).map_err(|_| ReadError::Undecodable(FUNCTION))?;
    Ok(U256::from_be_bytes(word))
}

/// A function that reverts with a reason is there, and does not know the agent.
pub(super) fn found(key: &'static str, result: &Result3) -> Result<&'static str, ReadError> {
    let says_why = !result.success && !result.returnData.is_empty();
    match number(result.clone()) {
        Err(error @ ReadError::NoCode(_)) => Err(error),
        Err(_) if !says_why => Err(ReadError::OtherContract { key, function: FUNCTION }),
        Ok(_) | Err(_) => Ok(FUNCTION),
    }
}
