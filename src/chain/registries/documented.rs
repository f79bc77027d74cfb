//! The documented registries: calls for details, their decoding, and events.

use alloy::primitives::{Address, U256};
use alloy::sol;
use alloy::sol_types::{SolCall, SolEvent};

use crate::chain::dated::{Call3, Result3, call};
use crate::chain::registries::calls::{
    Approval, ApprovalForAll, CHAIN_TEXT_BYTES_MAX, Check, MetadataUpdate, Staked, Transfer, Unstaked, cut,
    decode, getStakeCall, ownerOfCall, tokenURICall,
};
use crate::chain::{fault::ReadError, pool::ANSWER_BYTES_MAX, registries::logs::Events};
use crate::domain::{AgentId, Details, LatestValidation, Organization, Registries, Reputation, Validation};

sol! {
    /// Reputation registry.
    function getReputation(uint256 agentId) external view returns (int256 totalScore, uint256 feedbackCount);

    /// Validation registry.
    function getValidation(uint256 agentId) external view
        returns (uint256 count, bool latestPassed, string latestEvidence, address latestValidator);

    /// Organization registry.
    struct OrganizationRow { uint256 orgId; string name; bool verified; }
    function getAgentOrganizations(uint256 agentId) external view returns (OrganizationRow[] organizations);
}

sol! {
    event FeedbackGiven(uint256 indexed agentId, address indexed from, int256 score);
    event ValidationSubmitted(uint256 indexed agentId, address indexed validator, bool passed);
    event OrganizationCreated(uint256 indexed orgId, string name);
    event OrganizationVerified(uint256 indexed orgId, bool verified);
    event MemberAdded(uint256 indexed orgId, uint256 indexed agentId);
    event MemberRemoved(uint256 indexed orgId, uint256 indexed agentId);
}

/// Events, and whom their logs name.
pub(super) const EVENTS: Events = Events {
    harmless: &[Approval::SIGNATURE_HASH, ApprovalForAll::SIGNATURE_HASH],
    naming: &[
        (Transfer::SIGNATURE_HASH, 4, &[2]),
        (Staked::SIGNATURE_HASH, 3, &[0]),
        (Unstaked::SIGNATURE_HASH, 3, &[0]),
        (FeedbackGiven::SIGNATURE_HASH, 3, &[0]),
        (ValidationSubmitted::SIGNATURE_HASH, 3, &[0]),
        (OrganizationCreated::SIGNATURE_HASH, 2, &[0]),
        (OrganizationVerified::SIGNATURE_HASH, 2, &[0]),
        (MemberAdded::SIGNATURE_HASH, 3, &[0, 1]),
        (MemberRemoved::SIGNATURE_HASH, 3, &[0, 1]),
    ],
    naming_in_data: MetadataUpdate::SIGNATURE_HASH,
    has_agent_0: false,
};

/// The most organizations taken from the chain; the rest is left out.
const ORGANIZATIONS_MAX: usize = 1_000;

/// An organization with a name of 256 bytes, in the ABI.
const ORGANIZATION_BYTES: usize = 5 * 32 + 256;

/// The envelope, in the ABI and in JSON-RPC.
const FRAME_BYTES: usize = 4 * 1024;

const _: () = assert!(
    2 * (ORGANIZATIONS_MAX * ORGANIZATION_BYTES + 2 * CHAIN_TEXT_BYTES_MAX + FRAME_BYTES) <= ANSWER_BYTES_MAX,
    "a large profile must fit into one answer, in hex"
);

/// The calls for the details.
pub(super) fn details_calls(on: &Registries, organization: Option<Address>, agent: AgentId) -> Vec<Call3> {
    let id = agent.token_id();
    let calls = [
        Some(call(on.identity, &tokenURICall { tokenId: id })),
        on.reputation.map(|to| call(to, &getReputationCall { agentId: id })),
        on.validation.map(|to| call(to, &getValidationCall { agentId: id })),
        organization.map(|to| call(to, &getAgentOrganizationsCall { agentId: id })),
    ];
    calls.into_iter().flatten().collect()
}

/// The details in the results of [`details_calls`].
pub(in crate::chain) fn read_details(
    on: &Registries,
    results: &mut impl Iterator<Item = Result3>,
) -> Result<Details, ReadError> {
    Ok(Details {
        metadata_uri: cut(decode::<tokenURICall>("chain.contracts.identity", results)?),
        reputation: on.reputation.map(|_| reputation(results)).transpose()?.unwrap_or_default(),
        validation: on.validation.map(|_| validation(results)).transpose()?.unwrap_or_default(),
        organizations: on.organization().map(|_| organizations(results)).transpose()?.unwrap_or_default(),
    })
}

/// A question to the registry of this key, about any agent.
pub(super) fn check(key: &'static str, to: Address, agent: AgentId) -> Check {
    let id = agent.token_id();
    match key {
        "chain.contracts.identity" => Check::new(key, to, &ownerOfCall { tokenId: id }),
        "chain.contracts.stake_vault" => Check::new(key, to, &getStakeCall { agentId: id }),
        "chain.contracts.reputation" => Check::new(key, to, &getReputationCall { agentId: id }),
        "chain.contracts.validation" => Check::new(key, to, &getValidationCall { agentId: id }),
        _ => Check::new(key, to, &getAgentOrganizationsCall { agentId: id }),
    }
}

fn reputation(results: &mut impl Iterator<Item = Result3>) -> Result<Reputation, ReadError> {
    let row = decode::<getReputationCall>("chain.contracts.reputation", results)?;
    let feedback_count = count::<getReputationCall>(row.feedbackCount)?;
    Ok(Reputation { total_score: row.totalScore, feedback_count, ..Reputation::default() })
}

fn validation(results: &mut impl Iterator<Item = Result3>) -> Result<Validation, ReadError> {
    let row = decode::<getValidationCall>("chain.contracts.validation", results)?;
    let count = count::<getValidationCall>(row.count)?;
    let (passed, validator) = (row.latestPassed, row.latestValidator);
    let latest = (count > 0)
        .then(|| Box::new(LatestValidation { passed, evidence: cut(row.latestEvidence), validator }));
    Ok(Validation { count, latest, is_bounded: false })
}

fn organizations(results: &mut impl Iterator<Item = Result3>) -> Result<Vec<Organization>, ReadError> {
    let rows = decode::<getAgentOrganizationsCall>("chain.contracts.organization", results)?;
    let organization = |row: OrganizationRow| {
        let name = cut(row.name);
        Organization { org_id: row.orgId, name, verified: row.verified }
    };
    Ok(rows.into_iter().take(ORGANIZATIONS_MAX).map(organization).collect())
}

/// A number of submissions. No honest registry counts beyond 64 bits.
fn count<C: SolCall>(number: U256) -> Result<u64, ReadError> {
    u64::try_from(number).map_err(|_| ReadError::Undecodable(C::SIGNATURE))
}

#[cfg(test)]
mod tests;
