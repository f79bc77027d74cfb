//! The verification result (contract, "Verification result"), and the profile that an owner reads.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use quick_cache::sync::Cache;
use serde::Serialize;

use crate::domain::{
    AgentId, Grade, HeldKey, Organization, Reputation, TrustProfile, UnixSeconds, Validation,
    held_key::day_begins,
};
use crate::http1::writing::write_decimal;
use crate::pipeline::{OwnerProfile, permit::Permit};
use crate::wire::answers::{Answer, json, json_text, rfc3339, write_allowance};

/// How many agents are kept as text.
const AGENTS_KEPT: usize = 4_096;

/// The longest text that is kept, in bytes.
const KEPT_BYTES_MAX: usize = 4 * 1024;

/// The room for a result's timestamp and mismatch, in bytes.
const MOMENT_BYTES: usize = 64;

pub(crate) struct VerificationResults {
    /// Agents as text: the checksum of an address is a hash, and long numbers are slow to write.
    agents: Cache<AgentId, Arc<Written>>,
}

/// An agent's result without the fields that each request has of its own.
struct Written {
    /// The profile that was written. It is kept, so that no other can have its place in memory.
    profile: Arc<TrustProfile>,
    grade: Grade,
    /// The fields before `timestamp`, without the closing brace.
    before: Vec<u8>,
    /// The fields behind `endpointMismatch`, without the opening brace.
    behind: Vec<u8>,
}

#[derive(Serialize)]
struct LeadingFields<'a> {
    valid: bool,
    #[serde(flatten)]
    agent: AgentPart<'a>,
}

/// 200 of `POST /profile`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ProfileResult<'a> {
    #[serde(flatten)]
    agent: AgentPart<'a>,
    organizations: Option<Vec<OrganizationPart<'a>>>,
    has_key: bool,
    keys: Vec<KeyPart<'a>>,
    timestamp: u64,
}

/// One of the agent's keys. The key itself is known to nobody here.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct KeyPart<'a> {
    name: Option<String>,
    expires_at: Option<u64>,
    tenants: Option<Vec<&'a str>>,
    replaced: bool,
    made_on: Option<String>,
    last_used_on: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AgentPart<'a> {
    agent_id: String,
    owner: &'a str,
    trust_tier: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    tier_source: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    staked_amount: Option<&'a str>,
    /// The reputation: like the next ones there wherever the whole profile is asked for, as it is for all answers.
    reputation: Option<ReputationPart>,
    validation: Option<ValidationPart<'a>>,
    #[serde(rename = "metadataURI")]
    metadata_uri: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReputationPart {
    total_score: String,
    feedback_count: u64,
    average_rating: Option<f64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    bounded: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ValidationPart<'a> {
    count: u64,
    latest_passed: Option<bool>,
    latest_evidence: Option<&'a str>,
    latest_validator: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    bounded: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OrganizationPart<'a> {
    org_id: String,
    name: &'a str,
    verified: bool,
}

impl VerificationResults {
    pub(crate) fn new() -> Self {
        Self { agents: Cache::new(AGENTS_KEPT) }
    }

    /// 200 of `POST /verify` and `POST /verify/signature`, verified at this time.
    pub(crate) fn answer(&self, permit: &Permit, verified_at: UnixSeconds) -> Answer {
        let written = self.written(permit.agent(), permit.grade(), permit.profile());
        let mut headers = HeaderMap::with_capacity(6);
        write_allowance(&mut headers, permit.allowance());
        json_text(StatusCode::OK, headers, written.at(verified_at, permit.endpoint_mismatch()))
    }

    fn written(&self, agent: AgentId, grade: Grade, profile: &Arc<TrustProfile>) -> Arc<Written> {
        let known = self.agents.get(&agent);
        if let Some(known) =
            known.filter(|known| Arc::ptr_eq(&known.profile, profile) && known.grade == grade)
        {
            return known;
        }
        let written = Arc::new(Written::new((agent, grade), Arc::clone(profile)));
        if written.before.len() + written.behind.len() <= KEPT_BYTES_MAX {
            self.agents.insert(agent, Arc::clone(&written));
        }
        written
    }
}

/// 200 of `POST /profile`, read at this time.
pub(crate) fn owner_profile(read: &OwnerProfile, read_at: UnixSeconds) -> Answer {
    let result = ProfileResult {
        agent: AgentPart::new((read.agent(), read.grade), &read.profile),
        organizations: organizations(&read.profile),
        has_key: read.keys.iter().any(|key| !key.is_replaced),
        keys: read.keys.iter().map(key_part).collect(),
        timestamp: read_at.0,
    };
    let mut headers = HeaderMap::with_capacity(6);
    write_allowance(&mut headers, read.allowance);
    json(StatusCode::OK, headers, &result)
}

fn key_part(key: &HeldKey) -> KeyPart<'_> {
    KeyPart {
        name: key.name.as_ref().map(ToString::to_string),
        expires_at: key.ends,
        tenants: key.tenants.as_ref().map(|tenants| tenants.ids().collect()),
        replaced: key.is_replaced,
        made_on: key.days.map(|days| date(days.made)),
        last_used_on: key.days.and_then(|days| days.used).map(date),
    }
}

/// A day in UTC as ISO 8601 has it.
fn date(day: u32) -> String {
    rfc3339(UnixSeconds(day_begins(day))).chars().take_while(|char| *char != 'T').collect()
}

impl<'a> AgentPart<'a> {
    fn new((agent, grade): (AgentId, Grade), profile: &'a TrustProfile) -> Self {
        let details = profile.details.as_ref();
        Self {
            agent_id: agent.to_string(),
            owner: profile.owner_text(),
            trust_tier: grade.tier.number(),
            tier_source: grade.source,
            staked_amount: profile.stake_text(),
            reputation: details.map(|details| reputation(&details.reputation)),
            validation: details.map(|details| validation(&details.validation)),
            metadata_uri: details.map(|details| details.metadata_uri.as_str()),
        }
    }
}

fn reputation(reputation: &Reputation) -> ReputationPart {
    ReputationPart {
        total_score: reputation.total_text(),
        feedback_count: reputation.feedback_count,
        average_rating: reputation.average_rating(),
        bounded: reputation.is_bounded,
    }
}

fn validation(validation: &Validation) -> ValidationPart<'_> {
    let latest = validation.latest.as_ref();
    ValidationPart {
        count: validation.count,
        latest_passed: latest.map(|latest| latest.passed),
        latest_evidence: latest.map(|latest| latest.evidence.as_str()),
        latest_validator: latest.map(|latest| latest.validator.to_checksum(None)),
        bounded: validation.is_bounded,
    }
}

fn organizations(profile: &TrustProfile) -> Option<Vec<OrganizationPart<'_>>> {
    let organizations = profile.details.as_ref()?.organizations.iter();
    let parts = organizations.map(|Organization { org_id, name, verified }| OrganizationPart {
        org_id: org_id.to_string(),
        name,
        verified: *verified,
    });
    Some(parts.collect())
}

impl Written {
    fn new(agent: (AgentId, Grade), profile: Arc<TrustProfile>) -> Self {
        let (_, grade) = agent;
        let before = LeadingFields { valid: true, agent: AgentPart::new(agent, &profile) };
        // String keys and finite numbers always serialise.
        let mut before = serde_json::to_vec(&before).unwrap_or_default();
        before.pop();
        let mut behind = b"\"organizations\":".to_vec();
        behind.extend(serde_json::to_vec(&organizations(&profile)).unwrap_or_default());
        behind.push(b'}');
        Self { grade, before, behind, profile }
    }

    /// The whole result.
    fn at(&self, verified_at: UnixSeconds, endpoint_mismatch: bool) -> Vec<u8> {
        let mut text = Vec::with_capacity(self.before.len() + MOMENT_BYTES + self.behind.len());
        text.extend_from_slice(&self.before);
        text.extend_from_slice(b",\"timestamp\":");
        write_decimal(verified_at.0, &mut text);
        text.extend_from_slice(b",\"endpointMismatch\":");
        text.extend_from_slice(if endpoint_mismatch { b"true," } else { b"false," });
        text.extend_from_slice(&self.behind);
        text
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use alloy::primitives::{Address, I256, U256};
    use serde_json::{Value, json};

    use super::VerificationResults;
    use crate::domain::{
        AgentId, Details, Grade, Holders, LatestValidation, Organization, Reputation, Texts, Tier,
        TrustProfile, UnixSeconds, Validation,
    };

    fn profile(uri: &str) -> Arc<TrustProfile> {
        Arc::new(profile_with(uri, Some(U256::from(5))))
    }

    fn profile_with(uri: &str, stake: Option<U256>) -> TrustProfile {
        let evidence = "\"quoted\"".to_owned();
        TrustProfile {
            holders: Holders::owned_by(Address::repeat_byte(0xab)),
            stake,
            measured: None,
            details: Some(Details {
                reputation: Reputation {
                    total_score: I256::unchecked_from(-9),
                    feedback_count: 2,
                    ..Reputation::default()
                },
                validation: Validation {
                    count: 1,
                    latest: Some(Box::new(LatestValidation {
                        passed: true,
                        evidence,
                        validator: Address::ZERO,
                    })),
                    is_bounded: false,
                },
                metadata_uri: uri.to_owned(),
                organizations: vec![Organization {
                    org_id: U256::from(3),
                    name: "Guild".to_owned(),
                    verified: false,
                }],
            }),
            texts: Texts::default(),
        }
    }

    /// By stakes alone.
    const fn staked(tier: Tier) -> Grade {
        Grade { tier, source: None }
    }

    fn result(results: &VerificationResults, grade: Grade, profile: &Arc<TrustProfile>) -> Value {
        let written = results.written(AgentId::new(U256::from(7)), grade, profile);
        serde_json::from_slice(&written.at(UnixSeconds(9), true)).unwrap()
    }

    #[test]
    fn a_result_has_the_fields_of_the_contract() {
        let expected = json!({
            "valid": true,
            "agentId": "7",
            "owner": "0xABaBaBaBABabABabAbAbABAbABabababaBaBABaB",
            "trustTier": 2,
            "stakedAmount": "5",
            "reputation": { "totalScore": "-9", "feedbackCount": 2, "averageRating": -4.5 },
            "validation": {
                "count": 1,
                "latestPassed": true,
                "latestEvidence": "\"quoted\"",
                "latestValidator": "0x0000000000000000000000000000000000000000",
            },
            "metadataURI": "ipfs://a",
            "timestamp": 9,
            "endpointMismatch": true,
            "organizations": [{ "orgId": "3", "name": "Guild", "verified": false }],
        });
        let results = VerificationResults::new();
        assert_eq!(result(&results, staked(Tier::Silver), &profile("ipfs://a")), expected);
        let mut expected = expected;
        expected["tierSource"] = json!("erc20");
        let grade = |source| Grade { tier: Tier::Silver, source: Some(source) };
        let (kept, unread) = (profile("ipfs://a"), Arc::new(profile_with("ipfs://a", None)));
        assert_eq!(result(&results, grade("erc20"), &kept), expected, "other sources are named");
        expected["tierSource"] = json!("list");
        assert_eq!(result(&results, grade("list"), &kept), expected, "at once");
        expected.as_object_mut().unwrap().remove("stakedAmount");
        assert_eq!(result(&results, grade("list"), &unread), expected, "no vault is read");
    }

    #[test]
    fn a_profile_that_was_read_anew_and_another_tier_are_shown_at_once() {
        let results = VerificationResults::new();
        for (uri, tier) in [("a", Tier::Bronze), ("b", Tier::Bronze), ("b", Tier::Gold), ("a", Tier::Gold)] {
            let shown = result(&results, staked(tier), &profile(uri));
            assert_eq!((&shown["metadataURI"], &shown["trustTier"]), (&json!(uri), &json!(tier.number())));
        }
        let (first, again) = (profile("a"), profile("a"));
        let written = |profile| results.written(AgentId::new(U256::from(7)), staked(Tier::Gold), profile);
        assert!(Arc::ptr_eq(&written(&first), &written(&first)), "kept while the profile is the same");
        assert!(!Arc::ptr_eq(&written(&first), &written(&again)));
    }

    #[test]
    fn long_texts_of_strangers_are_not_kept() {
        let results = VerificationResults::new();
        result(&results, staked(Tier::Gold), &profile(&"x".repeat(16 * 1024)));
        assert_eq!(results.agents.len(), 0);
        result(&results, staked(Tier::Gold), &profile("ipfs://a"));
        assert_eq!(results.agents.len(), 1);
    }
}
