//! What an upstream is told of who is calling: everything that a client might have written in our name goes, then ours
//! comes (design: identity hygiene).
//!
//! Names are compared in a normal form, because many servers take `X_Agent_Id` and `X-Agent-Id` for one header.

use alloy::primitives::{Address, U256};
use http::{HeaderMap, HeaderName, HeaderValue};
use quick_cache::sync::Cache;

use crate::domain::agent_id::AgentId;
use crate::domain::api_key::ApiKeyFormat;
use crate::domain::tier::Tier;
use crate::domain::uint256::decimal;
use crate::pipeline::permit::Permit;
use crate::wire::credentials::{AGENT_ID, shows_key};

const AGENT_OWNER: HeaderName = HeaderName::from_static("x-agent-owner");
const AGENT_TIER: HeaderName = HeaderName::from_static("x-agent-tier");
const AGENT_STAKE: HeaderName = HeaderName::from_static("x-agent-staked-amount");
const AGENT_MISMATCH: HeaderName = HeaderName::from_static("x-agent-endpoint-mismatch");

/// What our headers begin with, in normal form.
const OURS: &[u8] = b"x-agent-";

/// How many agents are remembered as text.
const AGENTS_REMEMBERED: usize = 4_096;

/// Names that carry our word when they are spelled as here, and are dropped when they are spelled otherwise.
const SPELLED_ONCE: [&[u8]; 6] = [
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-forwarded-proto",
    b"forwarded",
    b"x-request-id",
    b"x-api-key",
];

/// Takes out of a request what only we may say, and every credential of ours.
pub(super) fn strip(headers: &mut HeaderMap, keys: &ApiKeyFormat) {
    let unwanted: Vec<HeaderName> =
        headers.keys().filter(|name| is_unwanted(name, headers, keys)).cloned().collect();
    for name in unwanted {
        headers.remove(&name);
    }
}

/// Writes who is calling.
pub(super) struct Scribe {
    /// Agents as text: a checksum is a hash, and long numbers are slow to write.
    agents: Cache<AgentId, Written>,
}

/// An agent as it was written last.
#[derive(Clone)]
struct Written {
    owner: Address,
    stake: U256,
    id_text: HeaderValue,
    owner_text: HeaderValue,
    stake_text: HeaderValue,
}

impl Scribe {
    pub(super) fn new() -> Self {
        Self { agents: Cache::new(AGENTS_REMEMBERED) }
    }

    /// Tells the upstream who is calling.
    pub(super) fn write(&self, headers: &mut HeaderMap, permit: &Permit) {
        let written = self.written(permit);
        let mismatch = if permit.endpoint_mismatch() { "true" } else { "false" };
        headers.insert(AGENT_ID, written.id_text);
        headers.insert(AGENT_OWNER, written.owner_text);
        headers.insert(AGENT_TIER, HeaderValue::from_static(digit(permit.tier())));
        headers.insert(AGENT_STAKE, written.stake_text);
        headers.insert(AGENT_MISMATCH, HeaderValue::from_static(mismatch));
    }

    fn written(&self, permit: &Permit) -> Written {
        let (agent, profile) = (permit.agent(), permit.profile());
        let known = self.agents.get(&agent);
        if let Some(known) =
            known.filter(|known| known.owner == profile.owner && known.stake == profile.stake)
        {
            return known;
        }
        let written = Written {
            owner: profile.owner,
            stake: profile.stake,
            id_text: value(decimal(agent.token_id())),
            owner_text: value(profile.owner.to_checksum(None)),
            stake_text: value(decimal(profile.stake)),
        };
        self.agents.insert(agent, written.clone());
        written
    }
}

/// Digits are always a header value.
fn value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}

const fn digit(tier: Tier) -> &'static str {
    match tier {
        Tier::Unverified => "0",
        Tier::Bronze => "1",
        Tier::Silver => "2",
        Tier::Gold => "3",
        Tier::Diamond => "4",
    }
}

/// Whether a name is ours, however it is spelled.
pub(super) fn is_ours(name: &HeaderName) -> bool {
    let name = name.as_str().as_bytes();
    name.len() >= OURS.len() && name.iter().zip(OURS).all(|(byte, ours)| normal(*byte) == *ours)
}

fn is_unwanted(name: &HeaderName, headers: &HeaderMap, keys: &ApiKeyFormat) -> bool {
    is_ours(name)
        || is_misspelled(name)
        || headers.get_all(name).iter().any(|value| shows_key(name, value, keys))
}

/// Whether a name is one of ours for those who don't look closely, and not for those who do.
fn is_misspelled(name: &HeaderName) -> bool {
    let name = name.as_str().as_bytes();
    SPELLED_ONCE.iter().any(|ours| {
        *ours != name
            && ours.len() == name.len()
            && name.iter().zip(*ours).all(|(byte, ours)| normal(*byte) == *ours)
    })
}

/// Lower case, and `-` for whatever is no letter or digit. Header names are in lower case here already.
const fn normal(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { b'-' }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};
    use proptest::prelude::{prop_assert, proptest};

    use super::{ApiKeyFormat, strip};

    /// What is left of headers with these names.
    fn left(names: &[&str]) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for name in names {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_static("Bearer svc_live_v1_x"));
        }
        strip(&mut headers, &ApiKeyFormat::new("svc_live_v1_"));
        headers.keys().map(|name| name.as_str().to_owned()).collect()
    }

    #[test]
    fn what_may_be_taken_for_ours_goes_and_the_rest_stays() {
        assert!(
            left(&["X-Agent-Id", "x_agent_owner", "X.Agent.Tier", "x-agent-", "X-AGENT~anything"]).is_empty()
        );
        assert!(
            left(&["Authorization", "X-API-Key", "X_Forwarded_For", "x_api_key", "X.Request.Id"]).is_empty()
        );
        let kept =
            ["x-agent", "xagent-id", "x-agents-id", "user-agent", "x-forwarded-for", "x-note", "cookie"];
        assert_eq!(left(&kept).len(), kept.len());
    }

    proptest! {
        #[test]
        fn no_spelling_of_an_agent_header_survives(
            separators in "[-_.!#$%&'*+^`|~]{2}",
            rest in "[a-zA-Z0-9_.~-]{0,12}",
            upper in proptest::bits::u8::ANY,
        ) {
            let (first, second) = separators.split_at(1);
            let spelled = format!("x{first}agent{second}{rest}");
            let spelled: String = spelled.chars().enumerate()
                .map(|(at, letter)| if upper >> (at % 8) & 1 == 1 { letter.to_ascii_uppercase() } else { letter })
                .collect();
            prop_assert!(HeaderName::from_bytes(spelled.as_bytes()).is_ok());
            prop_assert!(left(&[&spelled]).is_empty(), "{spelled}");
        }
    }
}
