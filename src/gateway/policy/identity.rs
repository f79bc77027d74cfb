//! Identity hygiene: the client's headers in our name are stripped, then ours are written.
//!
//! Names are compared in a normal form, because many servers take `X_Agent_Id` and `X-Agent-Id` for one header.

use std::sync::LazyLock;

use bytes::Bytes;

use crate::domain::{ApiKeyFormat, FORWARDED_PREFIX, OF_PROXIES, TrustedHeaders, uint256::decimal};
use crate::http1::{Fields, Lines, name::Name, writing::write_decimal};
use crate::pipeline::permit::Permit;
use crate::wire::credentials::shows_key;

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

/// The class of a header by its name, however that is spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeaderClass {
    /// Goes upstream.
    Free,
    /// Goes upstream from a proxy that is trusted to set it, and is stripped from others.
    OfProxies,
    /// Stripped.
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
    if let Some(source) = permit.grade().source {
        lines.set("X-Agent-Tier-Source", source.as_bytes());
    }
    if let Some(stake) = profile.stake_text() {
        lines.set("X-Agent-Staked-Amount", stake.as_bytes());
    }
    lines.set("X-Agent-Endpoint-Mismatch", mismatch);
    if let Some(assertion) = assertion {
        lines.set("X-Agent-Assertion", assertion.as_bytes());
    }
}

/// The names of headers that tell an upstream of ours who calls, and of those that prove it to us. Another gateway strips them
/// where we don't set them: it may not have shown us all that the client sent.
const OF_AGENTS: [&str; 12] = [
    "x-agent-domain",
    "x-agent-id",
    "x-agent-owner",
    "x-agent-tier",
    "x-agent-tier-source",
    "x-agent-staked-amount",
    "x-agent-endpoint-mismatch",
    "x-agent-assertion",
    "x-agent-signature",
    "x-agent-nonce",
    "x-agent-timestamp",
    "x-api-key",
];

/// The names of headers by which some servers take another path than the one that was judged, and `Proxy`.
const OVERRIDES: [&str; 4] = ["proxy", "x-original-uri", "x-original-url", "x-rewrite-url"];

/// [`OF_AGENTS`] and [`OVERRIDES`], and their spellings with `_` for one `-` or more.
static SPELLINGS: LazyLock<Vec<Bytes>> = LazyLock::new(|| {
    let all = || OF_AGENTS.iter().chain(&OVERRIDES);
    let dashed = all().map(|name| Bytes::from_static(name.as_bytes()));
    let others = all().flat_map(|name| {
        let parts: Vec<&str> = name.split('-').collect();
        (1..1 << (parts.len() - 1)).map(move |mask: u32| {
            let mut spelled = parts.first().copied().unwrap_or_default().to_owned();
            for (at, part) in parts.iter().skip(1).enumerate() {
                spelled.push(if mask >> at & 1 == 1 { '_' } else { '-' });
                spelled.push_str(part);
            }
            Bytes::from(spelled)
        })
    });
    dashed.chain(others).collect()
});

/// Headers that tell how a request came, and that a gateway which asks has set itself, over those of the client.
const OF_GATEWAYS: [&str; 4] =
    ["x-forwarded-client-cert", "x-forwarded-for", "x-forwarded-proto", "x-request-id"];

/// The names that another gateway strips from a request with these fields: those in our name and our credentials, however they
/// are spelled, but for those that it sets; [`OVERRIDES`]; and those that tell how the request came, but for [`OF_GATEWAYS`] and
/// those that proxies are believed to set.
pub(in crate::gateway) fn to_strip(
    fields: &impl Fields,
    keys: &ApiKeyFormat,
    believed: &TrustedHeaders,
    set: &[&str],
) -> Vec<Bytes> {
    let is_one = |name: &[u8], all: &[&str]| all.iter().any(|one| name.eq_ignore_ascii_case(one.as_bytes()));
    let is_set = |name: &[u8]| is_one(name, set);
    let mut names: Vec<Bytes> = SPELLINGS.iter().filter(|name| !is_set(name)).cloned().collect();
    for (name, value) in fields.all() {
        let is_stripped =
            header_class(name) != HeaderClass::Free && !is_one(name, &OF_GATEWAYS) && !believed.has(name);
        if is_stripped || shows_key(Name::of(name), value, keys) {
            // A name that stands there twice is stripped once. To look for it would cost time by the square of the head.
            if !is_set(name) {
                names.push(name.to_ascii_lowercase().into());
            }
        }
    }
    names
}

/// True if a name of these fields is one of [`OF_AGENTS`] or [`OVERRIDES`] in another spelling, as `X_Agent_Id`. A gateway that
/// strips by names would leave it.
pub(in crate::gateway) fn is_respelled(fields: &impl Fields) -> bool {
    let respells = |name: &[u8], one: &str| {
        name.len() == one.len() && begins(name, one.as_bytes()) && !name.eq_ignore_ascii_case(one.as_bytes())
    };
    let names = || OF_AGENTS.iter().chain(&OVERRIDES);
    fields.all().any(|(name, _)| names().any(|one| respells(name, one)))
}

/// The standing of a name that is none of those that rules know by an id.
pub(super) fn header_class(name: &[u8]) -> HeaderClass {
    // Most names begin with none of these letters.
    if !matches!(name.first(), Some(b'c' | b'C' | b'f' | b'F' | b'p' | b'P' | b't' | b'T' | b'x' | b'X')) {
        return HeaderClass::Free;
    }
    let is_one = |one: &[u8]| one.len() == name.len() && begins(name, one);
    if begins(name, OURS) || STRIPPED.iter().any(|one| is_one(one)) {
        HeaderClass::Stripped
    } else if begins(name, FORWARDED_PREFIX.as_bytes()) || OF_PROXIES.iter().any(|one| is_one(one.as_bytes()))
    {
        HeaderClass::OfProxies
    } else {
        HeaderClass::Free
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
