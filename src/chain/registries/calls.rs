//! Calls that all sets of registries have in common: the identity registry (ERC-721), the stake vault and its token; and how
//! results of calls are decoded. Knows no set.
//!
//! Only a decoded "not minted" is an absent agent. Empty or undecodable data is a misconfiguration, and a fault.

use std::iter::once;

use alloy::primitives::{Address, B256, U256};
use alloy::sol;
use alloy::sol_types::{SolCall, SolError, SolType, SolValue};

use crate::chain::dated::{Call3, DECODING, Result3, call};
use crate::chain::fault::{ReadError, TOO_FEW};
use crate::domain::AgentId;
use crate::ports::Asked;

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

    /// Stake vault. Only the first word counts.
    function getStake(uint256 agentId) external view returns (uint256 amount);
    event Staked(uint256 indexed agentId, address indexed staker, uint256 amount);
    event Unstaked(uint256 indexed agentId, address indexed staker, uint256 amount);

    /// Names by which vaults tell their token. The last one is ERC-4626's.
    function token() external view returns (address);
    function stakingToken() external view returns (address);
    function stakeToken() external view returns (address);
    function asset() external view returns (address);

    /// ERC-20.
    function decimals() external view returns (uint8);
}

/// Reasons of contracts that revert with a text.
const NOT_MINTED_REASONS: [&str; 4] = [
    "ERC721: invalid token ID",
    "ERC721: owner query for nonexistent token",
    "ERC721: nonexistent token",
    "NOT_MINTED",
];

/// The longest text taken from the chain, in bytes; the rest is cut.
pub(super) const CHAIN_TEXT_BYTES_MAX: usize = 16 * 1024;

/// A contract's key and address, and the function that it answers.
pub(in crate::chain) type Found = (&'static str, Address, Result<&'static str, ReadError>);

/// A question to a contract that shows whether it is the one that its key means.
pub(in crate::chain) struct Check {
    pub(in crate::chain) key: &'static str,
    pub(in crate::chain) call: Call3,
    pub(in crate::chain) judge: Judge,
}

/// Says which function a contract answers, by its key and a result.
pub(in crate::chain) type Judge = fn(&'static str, &Result3) -> Result<&'static str, ReadError>;

impl Check {
    /// Asks whether the contract has this function.
    pub(in crate::chain) fn new<C: SolCall>(key: &'static str, contract: Address, of: &C) -> Self {
        Self { key, call: call(contract, of), judge: answers::<C> }
    }

    pub(in crate::chain) fn found(&self, result: &Result3) -> Found {
        (self.key, self.call.target, (self.judge)(self.key, result))
    }
}

/// The function, if the contract has it. A call to an address without code succeeds and returns nothing. Contracts revert
/// without data at a function that they don't have; one that reverts with a reason knows the function, and not the agent.
fn answers<C: SolCall>(key: &'static str, result: &Result3) -> Result<&'static str, ReadError> {
    if result.success && result.returnData.is_empty() {
        return Err(ReadError::NoCode(key));
    }
    let says_why = !result.success && !result.returnData.is_empty();
    if says_why || decode::<C>(key, &mut once(result.clone())).is_ok() {
        Ok(C::SIGNATURE)
    } else {
        Err(ReadError::OtherContract { key, function: C::SIGNATURE })
    }
}

/// Decodes what the next result returned. `contract` is the registry's key.
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

/// The call for the owner.
pub(super) fn owner_call(identity: Address, agent: AgentId) -> Call3 {
    call(identity, &ownerOfCall { tokenId: agent.token_id() })
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
    let owner = decode::<ownerOfCall>("chain.contracts.identity", &mut once(result))?;
    Ok((owner != Address::ZERO).then_some(owner))
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

/// A holder that was asked for a signature, with its answer.
pub(super) fn asked(address: Address, result: &Result3) -> Asked {
    let data = &result.returnData;
    Asked { address, has_code: !data.is_empty(), accepts: result.success && is_consent(data) }
}

/// True for the word of ERC-1271, and zeros.
pub(in crate::chain) fn is_consent(word: &[u8]) -> bool {
    *word == *B256::right_padding_from(&isValidSignatureCall::SELECTOR)
}

/// The calls for a vault's token.
pub(in crate::chain) fn token_calls(vault: Address) -> [Call3; 4] {
    [
        call(vault, &tokenCall {}),
        call(vault, &stakingTokenCall {}),
        call(vault, &stakeTokenCall {}),
        call(vault, &assetCall {}),
    ]
}

/// The token in the results of [`token_calls`].
pub(in crate::chain) fn read_token(results: &[Result3]) -> Option<Address> {
    let mut tokens = results.iter().filter_map(word).map(|word| Address::from_word(word.into()));
    tokens.find(|token| !token.is_zero())
}

/// The number that a call returned.
pub(in crate::chain) fn word(result: &Result3) -> Option<U256> {
    result.success.then(|| U256::abi_decode(&result.returnData).ok()).flatten()
}
