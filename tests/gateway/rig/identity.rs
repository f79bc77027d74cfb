//! The identity that an upstream reads from a request, by the most lenient of readers.

use crate::rig::{h2c::Message, site::SiteBuilder, upstream::Seen};
use crate::support::{agents::Agent, signing::ALICE};

pub(crate) const OURS: [&str; 6] = [
    "x-agent-id",
    "x-agent-owner",
    "x-agent-tier",
    "x-agent-tier-source",
    "x-agent-staked-amount",
    "x-agent-endpoint-mismatch",
];

/// True if these are all that are always there, and the source of the tier, or a stake, or both.
pub(crate) fn are_whole(names: &[&str]) -> bool {
    let either = [OURS[3], OURS[4]];
    let wanted = OURS.into_iter().filter(|name| !either.contains(name) || names.contains(name));
    wanted.eq(names.iter().copied()) && either.iter().any(|name| names.contains(name))
}

/// Names as the most lenient of servers would compare them.
pub(crate) fn normal(name: &str) -> String {
    name.chars()
        .map(|char| if char.is_ascii_alphanumeric() { char.to_ascii_lowercase() } else { '-' })
        .collect()
}

/// The identity that an upstream would read from a request: from its raw lines, whatever ends them, and its trailers.
pub(crate) fn identity(seen: &Seen) -> Vec<(String, String)> {
    let head = String::from_utf8_lossy(&seen.head).into_owned();
    let lines = head.split(['\r', '\n', '\0']).skip(1).filter_map(|line| line.split_once(':'));
    let of_head = lines.map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    let all = of_head.chain(seen.trailers.iter().cloned());
    all.filter(|(name, _)| normal(name.trim()).starts_with("x-agent-")).collect()
}

/// What the gateway has to say of an agent without a declared endpoint.
pub(crate) fn expected(agent: &Agent, tier: usize) -> Vec<(String, String)> {
    let stake =
        tier.checked_sub(1).map(|index| crate::support::agents::THRESHOLDS[index]).unwrap_or_default();
    let values = [
        agent.text(),
        ALICE.address.to_checksum(None),
        tier.to_string(),
        stake.to_string(),
        "false".to_owned(),
    ];
    // Where only stakes give tiers their source has no name.
    let names = OURS.iter().filter(|name| **name != OURS[3]);
    names.map(|name| (*name).to_owned()).zip(values).collect()
}

/// Every agent has tier 3, whatever its stake. With a vault a stake may give more.
pub(crate) fn everyone_is_gold(site: SiteBuilder<'_>, has_vault: bool) -> SiteBuilder<'_> {
    if has_vault {
        let everyone = toml::toml! {
            source = "everyone"
            tier = 3
        };
        let vault = toml::toml! { source = "stake_vault" };
        return site.set("tiers.sources", vec![toml::Value::Table(everyone), toml::Value::Table(vault)]);
    }
    site.set("tiers.source", "everyone").set("tiers.tier", 3).without("chain.contracts.stake_vault")
}

/// What the gateway has to say there of an agent with the stake of tier 2.
pub(crate) fn graded(agent: &Agent, has_vault: bool) -> Vec<(String, String)> {
    let mut identity_headers = expected(agent, 2);
    identity_headers.retain(|(name, _)| has_vault || name != OURS[4]);
    identity_headers[2].1 = "3".to_owned();
    identity_headers.insert(3, (OURS[3].to_owned(), "everyone".to_owned()));
    identity_headers
}

/// The same, sorted and with names in lower case.
pub(crate) fn identity_headers(seen: &Seen) -> Vec<(String, String)> {
    let mut identity_headers: Vec<_> =
        identity(seen).into_iter().map(|(name, value)| (name.to_lowercase(), value)).collect();
    identity_headers.sort_by_key(|(name, _)| OURS.iter().position(|ours| ours == name));
    identity_headers
}

pub(crate) fn identity_of(message: &Message) -> Vec<(String, String)> {
    let all = message.headers.iter().chain(message.trailers.iter());
    let named = all.filter(|(name, _)| normal(name.as_str()).starts_with("x-agent-"));
    let mut identity_headers: Vec<_> =
        named.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
    identity_headers.sort_by_key(|(name, _)| OURS.iter().position(|ours| ours == name));
    identity_headers
}
