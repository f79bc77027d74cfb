//! The identity registry, an ERC-721 contract in every set: owners, the reverts that mean "not minted", and wallets of
//! contracts (ERC-1271).
//!
//! Only a decoded "not minted" is an absent agent. Empty or undecodable data is a misconfiguration, and a fault.

use alloy::primitives::{Address, B256};
use alloy::sol;
use alloy::sol_types::{SolCall, SolError};

use crate::chain::answer::{Call3, Result3};
use crate::chain::fault::ReadError;
use crate::chain::registries::results::{TOO_FEW, call, decode};
use crate::domain::agent_id::AgentId;
use crate::ports::chain::Asked;

sol! {
    /// ERC-721.
    function ownerOf(uint256 tokenId) external view returns (address);
    function tokenURI(uint256 tokenId) external view returns (string);
    event Transfer(address indexed from, address indexed to, uint256 indexed tokenId);
    event Approval(address indexed owner, address indexed approved, uint256 indexed tokenId);
    event ApprovalForAll(address indexed owner, address indexed operator, bool approved);

    /// ERC-4906.
    event MetadataUpdate(uint256 _tokenId);

    /// Contract wallet (ERC-1271).
    function isValidSignature(bytes32 hash, bytes signature) external view returns (bytes4 magicValue);

    /// OpenZeppelin 5 (ERC-6093).
    error ERC721NonexistentToken(uint256 tokenId);
    /// ERC721A.
    error OwnerQueryForNonexistentToken();
    /// Solady.
    error TokenDoesNotExist();
    /// Solidity's own `require` with a reason: OpenZeppelin 4, solmate.
    error Error(string reason);
}

/// Reasons of contracts that revert with a text.
const NOT_MINTED_REASONS: [&str; 4] = [
    "ERC721: invalid token ID",
    "ERC721: owner query for nonexistent token",
    "ERC721: nonexistent token",
    "NOT_MINTED",
];

/// The call for the owner.
pub(super) fn owner_call(identity: Address, agent: AgentId) -> Call3 {
    call(identity, ownerOfCall { tokenId: agent.token_id() }.abi_encode())
}

/// The owner in the result of `ownerOf`; `None` when the agent is not minted.
pub(in crate::chain) fn read_owner(
    agent: AgentId,
    results: &mut impl Iterator<Item = Result3>,
) -> Result<Option<Address>, ReadError> {
    let result = results.next().ok_or(TOO_FEW)?;
    if !result.success && is_not_minted(agent, &result.returnData) {
        return Ok(None);
    }
    let owner = decode::<ownerOfCall>("chain.contracts.identity", &mut std::iter::once(result))?;
    Ok((owner != Address::ZERO).then_some(owner))
}

/// A holder that was asked for a signature, with its answer.
pub(super) fn asked(address: Address, result: &Result3) -> Asked {
    let data = &result.returnData;
    Asked { address, has_code: !data.is_empty(), accepts: result.success && is_consent(data) }
}

/// True for the word of ERC-1271, and zeros.
pub(in crate::chain) fn is_consent(word: &[u8]) -> bool {
    *word == *B256::right_padding_from(&isValidSignatureCall::SELECTOR)
}

/// True when the revert of `ownerOf` says that this token is not minted. An id in it must be the one that was asked for.
fn is_not_minted(agent: AgentId, revert_data: &[u8]) -> bool {
    if let Ok(error) = ERC721NonexistentToken::abi_decode(revert_data) {
        return error.tokenId == agent.token_id();
    }
    let without_id = [OwnerQueryForNonexistentToken::SELECTOR, TokenDoesNotExist::SELECTOR];
    without_id.iter().any(|selector| selector == revert_data)
        || Error::abi_decode(revert_data)
            .is_ok_and(|error| NOT_MINTED_REASONS.contains(&error.reason.as_str()))
}
