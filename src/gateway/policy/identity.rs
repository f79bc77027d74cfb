//! Identity hygiene: the client's headers in our name are stripped, then ours are written.
//!
//! Names are compared in a normal form, because many servers take `X_Agent_Id` and `X-Agent-Id` for one header.

use crate::domain::trusted_headers::{FORWARDED_PREFIX, OF_PROXIES};
use crate::domain::uint256::decimal;
use crate::http1::writing::{Lines, write_decimal};
use crate::pipeline::permit::Permit;

/// The beginning of our headers' names, in normal form.
const OURS: &[u8] = b"x-agent-";

/// Headers that no upstream sees by these names: other spellings of those that we set or read; those by which some servers
/// take another path than the one that was judged; and `Proxy`, which CGI turns into `HTTP_PROXY`.
const STRIPPED: [&[u8]; 10] = [
    b"forwarded",
    b"proxy",
    b"x-api-key",
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-forwarded-proto",
    b"x-original-uri",
    b"x-original-url",
    b"x-request-id",
    b"x-rewrite-url",
];

/// What a header's name means to the gateway, however it is spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It goes upstream.
    Free,
    /// It goes upstream from a proxy that is trusted to set it, and is stripped from others.
    OfProxies,
    /// It is stripped.
    Stripped,
}

/// Tells the upstream who is calling, with the assertion about it if there is one.
pub(in crate::gateway) fn write(permit: &Permit, assertion: Option<&str>, lines: &mut impl Lines) {
    let (id, profile) = (permit.agent().token_id(), permit.profile());
    let mismatch: &[u8] = if permit.endpoint_mismatch() { b"true" } else { b"false" };
    lines.line("X-Agent-Id", |out| match u64::try_from(id) {
        Ok(id) => write_decimal(id, out),
        Err(_) => out.extend_from_slice(decimal(id).as_bytes()),
    });
    lines.set("X-Agent-Owner", profile.owner_text().as_bytes());
    lines.set("X-Agent-Tier", &[b'0' + permit.tier().number()]);
    lines.set("X-Agent-Staked-Amount", profile.stake_text().as_bytes());
    lines.set("X-Agent-Endpoint-Mismatch", mismatch);
    if let Some(assertion) = assertion {
        lines.set("X-Agent-Assertion", assertion.as_bytes());
    }
}

/// The standing of a name that is none of those that rules know by an id.
pub(super) fn standing_of(name: &[u8]) -> Standing {
    // Most names begin with none of these letters.
    if !matches!(name.first(), Some(b'c' | b'C' | b'f' | b'F' | b'p' | b'P' | b't' | b'T' | b'x' | b'X')) {
        return Standing::Free;
    }
    let is_one = |one: &[u8]| one.len() == name.len() && begins(name, one);
    if begins(name, OURS) || STRIPPED.iter().any(|one| is_one(one)) {
        Standing::Stripped
    } else if begins(name, FORWARDED_PREFIX.as_bytes()) || OF_PROXIES.iter().any(|one| is_one(one.as_bytes()))
    {
        Standing::OfProxies
    } else {
        Standing::Free
    }
}

/// True if a name begins like this, in normal form.
fn begins(name: &[u8], with: &[u8]) -> bool {
    name.len() >= with.len() && name.iter().zip(with).all(|(byte, other)| normal(*byte) == *other)
}

/// Lower case, and `-` for whatever is no letter or digit.
const fn normal(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { b'-' }
}
