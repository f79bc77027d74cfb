//! The documented registries: calls, their decoding, events, and the reverts that mean "not minted".
//!
//! Only a decoded "not minted" is an absent agent. Empty or undecodable data is a misconfiguration, and a fault.

use alloy::primitives::{Address, B256, U256};
use alloy::sol;
use alloy::sol_types::{SolCall, SolError, SolEvent, SolType};

use crate::chain::answer::{Call3, DECODING, Result3};
use crate::chain::block::Log;
use crate::chain::fault::ReadError;
use crate::chain::pool::ANSWER_BYTES_MAX;
use crate::chain::registries::logs::{Drops, Events};
use crate::domain::agent_id::AgentId;
use crate::domain::holders::Holders;
use crate::domain::profile::{
    Details, LatestValidation, Organization, Reputation, Texts, TrustProfile, Validation,
};
use crate::domain::registries::Registries;
use crate::ports::chain::{Asked, AskedHolders};

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

sol! {
    event Transfer(address indexed from, address indexed to, uint256 indexed tokenId);
    event Approval(address indexed owner, address indexed approved, uint256 indexed tokenId);
    event ApprovalForAll(address indexed owner, address indexed operator, bool approved);
    /// ERC-4906.
    event MetadataUpdate(uint256 _tokenId);
    event Staked(uint256 indexed agentId, address indexed staker, uint256 amount);
    event Unstaked(uint256 indexed agentId, address indexed staker, uint256 amount);
    event FeedbackGiven(uint256 indexed agentId, address indexed from, int256 score);
    event ValidationSubmitted(uint256 indexed agentId, address indexed validator, bool passed);
    event OrganizationCreated(uint256 indexed orgId, string name);
    event OrganizationVerified(uint256 indexed orgId, bool verified);
    event MemberAdded(uint256 indexed orgId, uint256 indexed agentId);
    event MemberRemoved(uint256 indexed orgId, uint256 indexed agentId);
}

/// Whom the logs name.
pub(super) const EVENTS: Events = Events {
    harmless: &[Approval::SIGNATURE_HASH, ApprovalForAll::SIGNATURE_HASH],
    naming: &[
        (Transfer::SIGNATURE_HASH, 4),
        (Staked::SIGNATURE_HASH, 3),
        (Unstaked::SIGNATURE_HASH, 3),
        (FeedbackGiven::SIGNATURE_HASH, 3),
        (ValidationSubmitted::SIGNATURE_HASH, 3),
        (OrganizationCreated::SIGNATURE_HASH, 2),
        (OrganizationVerified::SIGNATURE_HASH, 2),
        (MemberAdded::SIGNATURE_HASH, 3),
        (MemberRemoved::SIGNATURE_HASH, 3),
    ],
    naming_in_data: MetadataUpdate::SIGNATURE_HASH,
};

/// Reasons of contracts that revert with a text.
const NOT_MINTED_REASONS: [&str; 4] = [
    "ERC721: invalid token ID",
    "ERC721: owner query for nonexistent token",
    "ERC721: nonexistent token",
    "NOT_MINTED",
];

/// The longest text taken from the chain, in bytes; the rest is cut.
const CHAIN_TEXT_BYTES_MAX: usize = 16 * 1024;

/// The most organizations taken from the chain; the rest is left out.
const ORGANIZATIONS_MAX: usize = 1_000;

/// An organization with a name of 256 bytes, in the ABI.
const ORGANIZATION_BYTES: usize = 5 * 32 + 256;

/// The envelope, in the ABI and in JSON-RPC.
const FRAME_BYTES: usize = 4 * 1024;

const TOO_FEW: ReadError = ReadError::Unintelligible("it has too few results");

const _: () = assert!(
    2 * (ORGANIZATIONS_MAX * ORGANIZATION_BYTES + 2 * CHAIN_TEXT_BYTES_MAX + FRAME_BYTES) <= ANSWER_BYTES_MAX,
    "a large profile must fit into one answer, in hex"
);

/// A registry's key and address, and the function that it answers.
pub(in crate::chain) type Found = (&'static str, Address, Result<&'static str, ReadError>);

/// Says which function a registry answers, by its key and a result.
type Judge = fn(&'static str, &Result3) -> Result<&'static str, ReadError>;

impl Registries {
    /// Whom these logs concern.
    pub(in crate::chain) fn drops(&self, logs: &[Log]) -> Drops {
        Drops::of(logs, self.organization, &EVENTS)
    }

    /// The calls for a whole profile.
    pub(in crate::chain) fn profile_calls(&self, agent: AgentId) -> Vec<Call3> {
        let id = agent.token_id();
        let calls = [
            Some((self.identity, ownerOfCall { tokenId: id }.abi_encode())),
            Some((self.identity, tokenURICall { tokenId: id }.abi_encode())),
            Some((self.stake_vault, getStakeCall { agentId: id }.abi_encode())),
            self.reputation.map(|to| (to, getReputationCall { agentId: id }.abi_encode())),
            self.validation.map(|to| (to, getValidationCall { agentId: id }.abi_encode())),
            self.organization.map(|to| (to, getAgentOrganizationsCall { agentId: id }.abi_encode())),
        ];
        calls.into_iter().flatten().map(|(to, data)| call(to, data)).collect()
    }

    /// The profile in the results of [`Self::profile_calls`]; `None` when the agent is not minted.
    pub(in crate::chain) fn read_profile(
        &self,
        agent: AgentId,
        results: &mut impl Iterator<Item = Result3>,
    ) -> Result<Option<TrustProfile>, ReadError> {
        // The identity registry is asked twice.
        let mut results = results.take(self.contracts().count() + 1).collect::<Vec<_>>().into_iter();
        let Some(holders) = read_holders(agent, &mut results)? else { return Ok(None) };
        let results = &mut results;
        let metadata_uri = cut(decode::<tokenURICall>("chain.contracts.identity", results)?);
        let stake = stake(results)?;
        let details = Details {
            metadata_uri,
            reputation: self.reputation.map(|_| reputation(results)).transpose()?.unwrap_or_default(),
            validation: self.validation.map(|_| validation(results)).transpose()?.unwrap_or_default(),
            organizations: self.organization.map(|_| organizations(results)).transpose()?.unwrap_or_default(),
        };
        Ok(Some(TrustProfile { holders, stake, details: Some(details), texts: Texts::default() }))
    }

    /// The calls for a profile without details.
    pub(in crate::chain) fn gate_calls(&self, agent: AgentId) -> Vec<Call3> {
        let stake = getStakeCall { agentId: agent.token_id() }.abi_encode();
        [self.holder_calls(agent), vec![call(self.stake_vault, stake)]].concat()
    }

    /// The call for the holders. No wallet acts for an agent of the documented registries.
    pub(in crate::chain) fn holder_calls(&self, agent: AgentId) -> Vec<Call3> {
        vec![call(self.identity, ownerOfCall { tokenId: agent.token_id() }.abi_encode())]
    }

    /// Each registry in the results of [`Self::profile_calls`] about any agent.
    pub(in crate::chain) fn found(&self, results: &[Result3]) -> Vec<Found> {
        let answers: [(bool, Judge); 5] = [
            (true, answers::<ownerOfCall>),
            (true, answers::<getStakeCall>),
            (self.reputation.is_some(), answers::<getReputationCall>),
            (self.validation.is_some(), answers::<getValidationCall>),
            (self.organization.is_some(), answers::<getAgentOrganizationsCall>),
        ];
        let answers = answers.into_iter().filter(|(is_configured, _)| *is_configured);
        // The second call is the identity registry's too.
        let by_contract = results.iter().enumerate().filter(|(index, _)| *index != 1);
        self.contracts()
            .zip(answers)
            .zip(by_contract)
            .map(|(((key, address), (_, answers)), (_, result))| (key, address, answers(key, result)))
            .collect()
    }
}

/// The function, if the contract has it. A call to an address without code succeeds and returns nothing. Contracts revert
/// without data at a function that they don't have; one that reverts with a reason knows the function, and not the agent.
fn answers<C: SolCall>(key: &'static str, result: &Result3) -> Result<&'static str, ReadError> {
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

pub(super) fn call(target: Address, data: Vec<u8>) -> Call3 {
    Call3 { target, allowFailure: true, callData: data.into() }
}

/// The holders in the results of [`Registries::holder_calls`]; `None` when the agent is not minted.
pub(in crate::chain) fn read_holders(
    agent: AgentId,
    results: &mut impl Iterator<Item = Result3>,
) -> Result<Option<Holders>, ReadError> {
    let result = results.next().ok_or(TOO_FEW)?;
    if !result.success && is_not_minted(agent, &result.returnData) {
        return Ok(None);
    }
    let owner = decode::<ownerOfCall>("chain.contracts.identity", &mut std::iter::once(result))?;
    Ok((owner != Address::ZERO).then_some(Holders::owned_by(owner)))
}

/// The profile in the results of [`Registries::gate_calls`]; `None` when the agent is not minted.
pub(in crate::chain) fn read_gate(
    agent: AgentId,
    mut results: impl Iterator<Item = Result3>,
) -> Result<Option<TrustProfile>, ReadError> {
    let Some(holders) = read_holders(agent, &mut results)? else { return Ok(None) };
    let stake = stake(&mut results)?;
    Ok(Some(TrustProfile { holders, stake, details: None, texts: Texts::default() }))
}

/// True when a whole profile may have failed because of its details alone: owner and stake may be had by themselves.
pub(in crate::chain) fn may_lie_in_details(error: &ReadError) -> bool {
    use ReadError::{NodeError, Reverted, TooLong, Undecodable};
    let is_of_gate = |call| [ownerOfCall::SIGNATURE, getStakeCall::SIGNATURE].contains(call);
    matches!(error, TooLong(_) | NodeError { .. })
        || matches!(error, Reverted(call) | Undecodable(call) if !is_of_gate(call))
}

/// The holders, and which of them accept a signature, in the results of `contracts/HolderSignatures.sol`; `None` when the agent
/// is not minted. Any other word than the one of ERC-1271 is no consent.
pub(in crate::chain) fn read_asked_holders(
    agent: AgentId,
    results: Vec<Result3>,
) -> Result<Option<AskedHolders>, ReadError> {
    let mut results = results.into_iter();
    let holders = read_holders(agent, &mut results)?;
    let Result3 { success, returnData: data } = results.next().ok_or(TOO_FEW)?;
    let accepts = success && **data == *B256::right_padding_from(&isValidSignatureCall::SELECTOR);
    let asked = |holders: Holders| Asked { address: holders.owner, has_code: !data.is_empty(), accepts };
    Ok(holders.map(|holders| AskedHolders { owner: asked(holders), wallet: None }))
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

fn stake(results: &mut impl Iterator<Item = Result3>) -> Result<U256, ReadError> {
    decode::<getStakeCall>("chain.contracts.stake_vault", results)
}

fn reputation(results: &mut impl Iterator<Item = Result3>) -> Result<Reputation, ReadError> {
    let row = decode::<getReputationCall>("chain.contracts.reputation", results)?;
    let feedback_count = count::<getReputationCall>(row.feedbackCount)?;
    Ok(Reputation { total_score: row.totalScore, feedback_count })
}

fn validation(results: &mut impl Iterator<Item = Result3>) -> Result<Validation, ReadError> {
    let row = decode::<getValidationCall>("chain.contracts.validation", results)?;
    let count = count::<getValidationCall>(row.count)?;
    let (passed, validator) = (row.latestPassed, row.latestValidator);
    let latest =
        (count > 0).then(|| LatestValidation { passed, evidence: cut(row.latestEvidence), validator });
    Ok(Validation { count, latest })
}

fn organizations(results: &mut impl Iterator<Item = Result3>) -> Result<Vec<Organization>, ReadError> {
    let rows = decode::<getAgentOrganizationsCall>("chain.contracts.organization", results)?;
    let organization = |row: OrganizationRow| {
        let name = cut(row.name);
        Organization { org_id: row.orgId, name, verified: row.verified }
    };
    Ok(rows.into_iter().take(ORGANIZATIONS_MAX).map(organization).collect())
}

/// What the next result returned. `contract` is the registry's key.
fn decode<C: SolCall>(
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

/// A number of submissions. No honest registry counts beyond 64 bits.
fn count<C: SolCall>(number: U256) -> Result<u64, ReadError> {
    u64::try_from(number).map_err(|_| ReadError::Undecodable(C::SIGNATURE))
}

fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(CHAIN_TEXT_BYTES_MAX));
    // The rest must not stay allocated for as long as the profile is cached.
    text.shrink_to_fit();
    text
}

#[cfg(test)]
mod tests;
