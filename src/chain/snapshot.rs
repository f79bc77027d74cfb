//! One agent's profile from one block: one `eth_call` of Multicall3's `aggregate3`, every inner call allowed to fail. Where
//! there is no Multicall3, the same calls are made by a creation that is never carried out (`contracts/Snapshot.sol`).
//!
//! Only a decoded "not minted" is an absent agent. Empty or undecodable data is a misconfiguration or a lie, and a fault.

use std::sync::LazyLock;

use alloy::primitives::{Address, Bytes, U256};
use alloy::sol_types::abi::AbiDecoderConfig;
use alloy::sol_types::{SolCall, SolValue};
use serde::Deserialize;

use crate::chain::abi::{
    Call3, Result3, aggregate3Call, first_word, getAgentOrganizationsCall, getReputationCall, getStakeCall,
    getValidationCall, is_not_minted, ownerOfCall, tokenURICall,
};
use crate::chain::fault::ReadError;
use crate::chain::rpc::CallOutcome;
use crate::chain::rpc::transport::ANSWER_BYTES_MAX;
use crate::domain::agent_id::AgentId;
use crate::domain::profile::{LatestValidation, Organization, Reputation, TrustProfile, Validation};

/// The longest text taken from the chain, in bytes; what is longer is cut.
const CHAIN_TEXT_BYTES_MAX: usize = 16 * 1024;

/// The most organizations taken from the chain; the rest is left out.
const ORGANIZATIONS_MAX: usize = 1_000;

/// An organization with a name of 256 bytes, in the ABI: its offset, its number, the name's offset and length, the mark.
const ORGANIZATION_BYTES: usize = 5 * 32 + 256;

/// What surrounds all of it, in the ABI and in JSON-RPC.
const FRAME_BYTES: usize = 4 * 1024;

/// Hex has two digits for each byte. As many organizations as are taken can be read with names of a usual length and
/// both texts at their longest; the chain may hold longer profiles, and these are faults of theirs alone.
const _: () = assert!(
    2 * (ORGANIZATIONS_MAX * ORGANIZATION_BYTES + 2 * CHAIN_TEXT_BYTES_MAX + FRAME_BYTES) <= ANSWER_BYTES_MAX,
    "a large profile must fit into one answer"
);

/// How return values are decoded. In the ABI a short answer can point to one long text a thousand times; so what comes
/// out of one answer is bounded too.
const DECODING: AbiDecoderConfig = AbiDecoderConfig::new().memory_limit(2 * ANSWER_BYTES_MAX);

/// The compiled form of `contracts/Snapshot.sol`. A test holds that it can be read.
static SNAPSHOT_CODE: LazyLock<Bytes> = LazyLock::new(|| {
    let artifact = include_str!("../../contracts/artifacts/Snapshot.json");
    serde_json::from_str(artifact).map(|Artifact { bytecode }| bytecode).unwrap_or_default()
});

/// What `contracts/compile.mjs` writes of one contract.
#[derive(Deserialize)]
struct Artifact {
    bytecode: Bytes,
}

/// Where the registries stand. Those that are absent read as zero or empty.
#[derive(Debug, Clone, Copy)]
pub struct Registries {
    /// ERC-721 registry of agents.
    pub identity: Address,
    /// Where agents' stakes lie.
    pub stake_vault: Address,
    /// Feedback, if there is such a registry.
    pub reputation: Option<Address>,
    /// Validations, if there is such a registry.
    pub validation: Option<Address>,
    /// Organizations, if there is such a registry.
    pub organization: Option<Address>,
    /// Multicall3, if it is there.
    pub multicall: Address,
}

impl Registries {
    /// Every registry, by its name in the configuration.
    pub(super) fn contracts(&self) -> impl Iterator<Item = (&'static str, Address)> {
        [
            ("chain.contracts.identity", Some(self.identity)),
            ("chain.contracts.stake_vault", Some(self.stake_vault)),
            ("chain.contracts.reputation", self.reputation),
            ("chain.contracts.validation", self.validation),
            ("chain.contracts.organization", self.organization),
        ]
        .into_iter()
        .filter_map(|(name, address)| address.map(|address| (name, address)))
    }

    /// The registries, whose logs say when a profile changes.
    pub(super) fn followed(&self) -> impl Iterator<Item = Address> + use<> {
        let required = [self.identity, self.stake_vault];
        let optional = [self.reputation, self.validation, self.organization];
        required.into_iter().chain(optional.into_iter().flatten())
    }

    /// The call data of a whole profile for Multicall3.
    pub(super) fn profile_call(&self, agent: AgentId) -> Bytes {
        aggregate3Call { calls: self.profile_calls(agent) }.abi_encode().into()
    }

    /// The init code of a creation that makes the same calls.
    pub(super) fn profile_creation(&self, agent: AgentId) -> Bytes {
        let arguments = (self.profile_calls(agent),).abi_encode_params();
        [SNAPSHOT_CODE.as_ref(), &arguments].concat().into()
    }

    fn profile_calls(&self, agent: AgentId) -> Vec<Call3> {
        let id = agent.token_id();
        let calls = [
            Some((self.identity, ownerOfCall { tokenId: id }.abi_encode())),
            Some((self.identity, tokenURICall { tokenId: id }.abi_encode())),
            Some((self.stake_vault, getStakeCall { agentId: id }.abi_encode())),
            self.reputation.map(|to| (to, getReputationCall { agentId: id }.abi_encode())),
            self.validation.map(|to| (to, getValidationCall { agentId: id }.abi_encode())),
            self.organization.map(|to| (to, getAgentOrganizationsCall { agentId: id }.abi_encode())),
        ];
        let calls = calls.into_iter().flatten();
        calls.map(|(target, data)| Call3 { target, allowFailure: true, callData: data.into() }).collect()
    }

    /// The profile in what Multicall3 returned; nothing when the agent is not minted.
    pub(super) fn read_profile(&self, outcome: CallOutcome) -> Result<Option<TrustProfile>, ReadError> {
        let CallOutcome::Returned(data) = outcome else { return Err(ReadError::Reverted("aggregate3")) };
        if data.is_empty() {
            return Err(ReadError::NoCode("chain.multicall"));
        }
        self.read_results("aggregate3", &data)
    }

    /// The profile in what the creation gave back. It reverts with what is too long for a contract's code.
    pub(super) fn read_created_profile(
        &self,
        outcome: CallOutcome,
    ) -> Result<Option<TrustProfile>, ReadError> {
        match outcome {
            CallOutcome::Reverted(data) if data.is_empty() => Err(ReadError::Reverted("the snapshot")),
            CallOutcome::Returned(data) | CallOutcome::Reverted(data) => {
                self.read_results("the snapshot", &data)
            }
        }
    }

    fn read_results(&self, name: &'static str, data: &[u8]) -> Result<Option<TrustProfile>, ReadError> {
        let results = aggregate3Call::abi_decode_returns_with_config(data, DECODING);
        let mut results = results.map_err(|_| ReadError::Undecodable(name))?.into_iter();
        let mut next = || results.next().ok_or(ReadError::Undecodable(name));

        let Some(owner) = read_owner(outcome_of(next()?))? else { return Ok(None) };
        let metadata_uri = decode::<tokenURICall>("tokenURI", "chain.contracts.identity", next()?)?;
        let stake = returned("getStake", "chain.contracts.stake_vault", next()?)?;
        let stake = first_word(&stake).ok_or(ReadError::Undecodable("getStake"))?;
        Ok(Some(TrustProfile {
            owner,
            stake,
            metadata_uri: cut(metadata_uri),
            reputation: match self.reputation {
                Some(_) => reputation(next()?)?,
                None => Reputation::default(),
            },
            validation: match self.validation {
                Some(_) => validation(next()?)?,
                None => Validation::default(),
            },
            organizations: match self.organization {
                Some(_) => organizations(next()?)?,
                None => Vec::new(),
            },
        }))
    }
}

/// The call data of an owner look-up.
pub(super) fn owner_call(agent: AgentId) -> Vec<u8> {
    ownerOfCall { tokenId: agent.token_id() }.abi_encode()
}

/// The owner in what the identity registry returned; nothing when the agent is not minted.
pub(super) fn read_owner(outcome: CallOutcome) -> Result<Option<Address>, ReadError> {
    match outcome {
        CallOutcome::Returned(data) if data.is_empty() => Err(ReadError::NoCode("chain.contracts.identity")),
        CallOutcome::Returned(data) => {
            let owner = ownerOfCall::abi_decode_returns_validate(&data);
            let owner = owner.map_err(|_| ReadError::Undecodable("ownerOf"))?;
            Ok((owner != Address::ZERO).then_some(owner))
        }
        CallOutcome::Reverted(data) if is_not_minted(&data) => Ok(None),
        CallOutcome::Reverted(_) => Err(ReadError::Reverted("ownerOf")),
    }
}

fn reputation(result: Result3) -> Result<Reputation, ReadError> {
    let row = decode::<getReputationCall>("getReputation", "chain.contracts.reputation", result)?;
    Ok(Reputation { total_score: row.totalScore, feedback_count: count("getReputation", row.feedbackCount)? })
}

fn validation(result: Result3) -> Result<Validation, ReadError> {
    let row = decode::<getValidationCall>("getValidation", "chain.contracts.validation", result)?;
    let count = count("getValidation", row.count)?;
    let latest = (count > 0).then(|| LatestValidation {
        passed: row.latestPassed,
        evidence: cut(row.latestEvidence),
        validator: row.latestValidator,
    });
    Ok(Validation { count, latest })
}

fn organizations(result: Result3) -> Result<Vec<Organization>, ReadError> {
    let rows =
        decode::<getAgentOrganizationsCall>("getAgentOrganizations", "chain.contracts.organization", result)?;
    let rows = rows.into_iter().take(ORGANIZATIONS_MAX);
    Ok(rows
        .map(|row| Organization { org_id: row.orgId, name: cut(row.name), verified: row.verified })
        .collect())
}

fn decode<C: SolCall>(
    name: &'static str,
    contract: &'static str,
    result: Result3,
) -> Result<C::Return, ReadError> {
    let data = returned(name, contract, result)?;
    C::abi_decode_returns_with_config(&data, DECODING).map_err(|_| ReadError::Undecodable(name))
}

fn returned(name: &'static str, contract: &'static str, result: Result3) -> Result<Bytes, ReadError> {
    match outcome_of(result) {
        CallOutcome::Returned(data) if data.is_empty() => Err(ReadError::NoCode(contract)),
        CallOutcome::Returned(data) => Ok(data),
        CallOutcome::Reverted(_) => Err(ReadError::Reverted(name)),
    }
}

fn outcome_of(result: Result3) -> CallOutcome {
    let Result3 { success, returnData } = result;
    if success { CallOutcome::Returned(returnData) } else { CallOutcome::Reverted(returnData) }
}

/// A number of submissions. No honest registry counts beyond 64 bits, and JSON readers don't either.
fn count(name: &'static str, number: U256) -> Result<u64, ReadError> {
    u64::try_from(number).map_err(|_| ReadError::Undecodable(name))
}

pub(super) fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(CHAIN_TEXT_BYTES_MAX));
    // What is cut off must not stay allocated for as long as the profile is kept.
    text.shrink_to_fit();
    text
}
