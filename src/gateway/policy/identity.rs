//! Identity hygiene: the client's headers in our name are stripped, then ours are written.
//!
//! Names are compared in a normal form, because many servers take `X_Agent_Id` and `X-Agent-Id` for one header.

use crate::domain::tier::Tier;
use crate::domain::uint256::decimal;
use crate::http1::writing::{Lines, write_decimal};
use crate::pipeline::permit::Permit;

/// The beginning of our headers' names, in normal form.
const OURS: &[u8] = b"x-agent-";

/// Headers that we set or read. Other spellings of them are stripped.
const SPELLED_ONCE: [&[u8]; 6] = [
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-forwarded-proto",
    b"forwarded",
    b"x-request-id",
    b"x-api-key",
];

/// Tells the upstream who is calling.
pub(in crate::gateway) fn write(permit: &Permit, lines: &mut impl Lines) {
    let (id, profile) = (permit.agent().token_id(), permit.profile());
    let mismatch: &[u8] = if permit.endpoint_mismatch() { b"true" } else { b"false" };
    lines.line("X-Agent-Id", |out| match u64::try_from(id) {
        Ok(id) => write_decimal(id, out),
        Err(_) => out.extend_from_slice(decimal(id).as_bytes()),
    });
    lines.set("X-Agent-Owner", profile.owner_text().as_bytes());
    lines.set("X-Agent-Tier", digit(permit.tier()));
    lines.set("X-Agent-Staked-Amount", profile.stake_text().as_bytes());
    lines.set("X-Agent-Endpoint-Mismatch", mismatch);
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
