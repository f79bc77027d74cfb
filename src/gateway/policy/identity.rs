//! Identity hygiene: the client's headers in our name are stripped, then ours are written.
//!
//! Names are compared in a normal form, because many servers take `X_Agent_Id` and `X-Agent-Id` for one header.

use std::sync::Arc;

use alloy::primitives::{Address, U256};
use quick_cache::sync::Cache;

use crate::domain::agent_id::AgentId;
use crate::domain::tier::Tier;
use crate::domain::uint256::decimal;
use crate::http1::writing::Lines;
use crate::pipeline::permit::Permit;

/// The beginning of our headers' names, in normal form.
const OURS: &[u8] = b"x-agent-";

/// How many agents are remembered as text.
const AGENTS_REMEMBERED: usize = 4_096;

/// Headers that we set or read. Other spellings of them are stripped.
const SPELLED_ONCE: [&[u8]; 6] = [
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-forwarded-proto",
    b"forwarded",
    b"x-request-id",
    b"x-api-key",
];

/// Writes identity headers.
pub(in crate::gateway) struct IdentityHeaders {
    /// Agents as text: a checksum is a hash, and long numbers are slow to write.
    agents: Cache<AgentId, Arc<Written>>,
}

/// An agent as it was written last.
struct Written {
    owner: Address,
    stake: U256,
    id_text: String,
    owner_text: String,
    stake_text: String,
}

impl IdentityHeaders {
    pub(in crate::gateway) fn new() -> Self {
        Self { agents: Cache::new(AGENTS_REMEMBERED) }
    }

    /// Tells the upstream who is calling.
    pub(in crate::gateway) fn write(&self, permit: &Permit, lines: &mut impl Lines) {
        let written = self.written(permit);
        let mismatch: &[u8] = if permit.endpoint_mismatch() { b"true" } else { b"false" };
        lines.set("X-Agent-Id", written.id_text.as_bytes());
        lines.set("X-Agent-Owner", written.owner_text.as_bytes());
        lines.set("X-Agent-Tier", digit(permit.tier()));
        lines.set("X-Agent-Staked-Amount", written.stake_text.as_bytes());
        lines.set("X-Agent-Endpoint-Mismatch", mismatch);
    }

    fn written(&self, permit: &Permit) -> Arc<Written> {
        let (agent, profile) = (permit.agent(), permit.profile());
        let known = self.agents.get(&agent);
        if let Some(known) =
            known.filter(|known| known.owner == profile.owner && known.stake == profile.stake)
        {
            return known;
        }
        let written = Arc::new(Written {
            owner: profile.owner,
            stake: profile.stake,
            id_text: decimal(agent.token_id()),
            owner_text: profile.owner.to_checksum(None),
            stake_text: decimal(profile.stake),
        });
        self.agents.insert(agent, Arc::clone(&written));
        written
    }
}

const fn digit(tier: Tier) -> &'static [u8] {
    match tier {
        Tier::Unverified => b"0",
        Tier::Bronze => b"1",
        Tier::Silver => b"2",
        Tier::Gold => b"3",
        Tier::Diamond => b"4",
    }
}

/// True if a name is ours, however it is spelled.
pub(super) fn is_ours(name: &[u8]) -> bool {
    name.len() >= OURS.len() && name.iter().zip(OURS).all(|(byte, ours)| normal(*byte) == *ours)
}

/// True if a name is another spelling of one that we set or read.
pub(super) fn is_misspelled(name: &[u8]) -> bool {
    SPELLED_ONCE.iter().any(|ours| {
        ours.len() == name.len()
            && name.iter().zip(*ours).all(|(byte, ours)| normal(*byte) == *ours)
            && !name.eq_ignore_ascii_case(ours)
    })
}

/// Lower case, and `-` for whatever is no letter or digit.
const fn normal(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { b'-' }
}
