//! Feedback by listed clients, in ERC-8004's registry: that of strangers costs cents and does not count. There may be much of it, so
//! it is read apart from owner, stake and other numbers, by `contracts/ListedFeedback.sol`. Knows no node.

use std::sync::LazyLock;

use alloy::primitives::{Address, B256, Bytes, U256, keccak256};
use alloy::sol;
use alloy::sol_types::SolValue;

use crate::chain::answer::{Result3, code_in};
use crate::chain::fault::ReadError;
use crate::chain::registries::erc8004::is_version_2;
use crate::chain::registries::results::TOO_FEW;
use crate::domain::agent_id::AgentId;
use crate::domain::measure::Feedback;

sol! {
    /// The question: a registry, the clients, the hash of the tag or 0 for any, and how many entries of each client.
    struct Listed { address reputation; address[] clients; bytes32 tag; uint256 each; }

    /// The sum of one agent, with 18 decimals, of so many entries of so many clients.
    #[derive(Debug, PartialEq, Eq)]
    struct Sum { int256 total; uint256 entries; uint256 clients; }
}

/// An agent without a sum.
const UNREAD: ReadError = ReadError::Reverted("readFeedback, within chain.gas_cap,");

/// The compiled form of `contracts/ListedFeedback.sol`.
static CODE: LazyLock<Bytes> =
    LazyLock::new(|| code_in(include_str!("../../../contracts/artifacts/ListedFeedback.json")));

/// The init code that reads the feedback of these agents.
pub(in crate::chain) fn code(reputation: Address, of: &Feedback, agents: &[AgentId]) -> Bytes {
    let tag = if of.tag.is_empty() { B256::ZERO } else { keccak256(&of.tag) };
    let listed = Listed { reputation, clients: of.clients.clone(), tag, each: U256::from(of.each) };
    let agents: Vec<U256> = agents.iter().map(|agent| agent.token_id()).collect();
    [CODE.as_ref(), &(listed, agents).abi_encode_params()].concat().into()
}

/// The sums of the first agents, of one at least, in what [`code`] returned.
pub(in crate::chain) fn sums(results: &[Result3]) -> Result<Vec<Sum>, ReadError> {
    let (version, agents) = results.split_first().ok_or(TOO_FEW)?;
    is_version_2("chain.contracts.reputation", version)?;
    let read = agents.iter().take_while(|result| result.success);
    let sums: Option<Vec<Sum>> = read.map(|result| Sum::abi_decode(&result.returnData).ok()).collect();
    sums.filter(|sums| !sums.is_empty()).ok_or(UNREAD)
}

/// The sum, or the average where enough clients count; 0 where that is less.
pub(in crate::chain) fn number(sum: &Sum, average_over: Option<usize>) -> U256 {
    let total = U256::try_from(sum.total).unwrap_or_default();
    match average_over {
        None => total,
        Some(least) if sum.clients >= U256::from(least) => total.checked_div(sum.entries).unwrap_or_default(),
        Some(_) => U256::ZERO,
    }
}
