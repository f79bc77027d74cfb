//! What the registries and Multicall3 look like on the wire: calls, return values and the errors that mean "not minted".

use alloy::primitives::Bytes;
use alloy::sol;
use alloy::sol_types::{SolError, SolValue};

sol! {
    /// Identity registry (ERC-721).
    function ownerOf(uint256 tokenId) external view returns (address);
    function tokenURI(uint256 tokenId) external view returns (string);

    /// Stake vault. Only the first word counts.
    function getStake(uint256 agentId) external view returns (uint256 amount);

    /// Reputation registry.
    function getReputation(uint256 agentId) external view returns (int256 totalScore, uint256 feedbackCount);

    /// Validation registry.
    function getValidation(uint256 agentId) external view
        returns (uint256 count, bool latestPassed, string latestEvidence, address latestValidator);

    /// Organization registry.
    struct OrganizationRow { uint256 orgId; string name; bool verified; }
    function getAgentOrganizations(uint256 agentId) external view returns (OrganizationRow[] organizations);

    /// Multicall3.
    struct Call3 { address target; bool allowFailure; bytes callData; }
    struct Result3 { bool success; bytes returnData; }
    function aggregate3(Call3[] calls) external payable returns (Result3[] returnData);

    /// ERC-6093.
    error ERC721NonexistentToken(uint256 tokenId);
    /// Solidity's own `require` with a reason.
    error Error(string reason);
}

/// Reasons by which widespread ERC-721 contracts say, in the older form, that a token is not minted.
const NOT_MINTED_REASONS: [&str; 4] = [
    "ERC721: invalid token ID",
    "ERC721: owner query for nonexistent token",
    "ERC721: nonexistent token",
    "NOT_MINTED",
];

/// True when the revert of an owner look-up says that the token is not minted. Any other revert says nothing.
pub(super) fn is_not_minted(revert_data: &[u8]) -> bool {
    if revert_data.starts_with(&ERC721NonexistentToken::SELECTOR) {
        return ERC721NonexistentToken::abi_decode(revert_data).is_ok();
    }
    Error::abi_decode(revert_data).is_ok_and(|error| NOT_MINTED_REASONS.contains(&error.reason.as_str()))
}

/// The first word of a return value: a lone uint256 and a tuple that begins with one read the same.
pub(super) fn first_word(data: &Bytes) -> Option<alloy::primitives::U256> {
    let (word, rest) = data.split_at_checked(32)?;
    if !rest.len().is_multiple_of(32) {
        return None;
    }
    alloy::primitives::U256::abi_decode(word).ok()
}

#[cfg(test)]
mod tests {
    use alloy::primitives::{Bytes, U256};
    use alloy::sol_types::SolError;

    use super::{ERC721NonexistentToken, Error, first_word, is_not_minted};

    fn reason(text: &str) -> Vec<u8> {
        Error { reason: text.to_owned() }.abi_encode()
    }

    #[test]
    fn only_a_revert_that_decodes_to_not_minted_is_not_minted() {
        assert!(is_not_minted(&ERC721NonexistentToken { tokenId: U256::from(7) }.abi_encode()));
        assert!(is_not_minted(&reason("ERC721: invalid token ID")));
        assert!(is_not_minted(&reason("ERC721: owner query for nonexistent token")));
        for data in [
            Vec::new(),
            ERC721NonexistentToken::SELECTOR.to_vec(),
            [ERC721NonexistentToken::SELECTOR.as_slice(), &[0; 31]].concat(),
            reason("paused"),
            reason(""),
            vec![0x4e, 0x48, 0x7b, 0x71],
        ] {
            assert!(!is_not_minted(&data), "{data:02x?}");
        }
    }

    #[test]
    fn a_stake_may_be_a_lone_word_or_the_first_of_several() {
        let lone = Bytes::from(U256::from(5).to_be_bytes_vec());
        let three = Bytes::from([U256::from(5).to_be_bytes_vec(), vec![0; 64]].concat());
        assert_eq!(first_word(&lone), Some(U256::from(5)));
        assert_eq!(first_word(&three), Some(U256::from(5)));
        assert_eq!(first_word(&Bytes::new()), None);
        assert_eq!(first_word(&Bytes::from(vec![0; 33])), None);
    }
}
