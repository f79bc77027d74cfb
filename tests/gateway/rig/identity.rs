//! The identity that an upstream reads from a request, by the most lenient of readers.

use crate::rig::h2c::Message;
use crate::rig::upstream::Seen;
use crate::support::agents::Agent;
use crate::support::signing::ALICE;

pub(crate) const OURS: [&str; 5] =
    ["x-agent-id", "x-agent-owner", "x-agent-tier", "x-agent-staked-amount", "x-agent-endpoint-mismatch"];

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
    OURS.iter().map(|name| (*name).to_owned()).zip(values).collect()
}

/// The same, sorted and with names in lower case.
pub(crate) fn told(seen: &Seen) -> Vec<(String, String)> {
    let mut told: Vec<_> =
        identity(seen).into_iter().map(|(name, value)| (name.to_lowercase(), value)).collect();
    told.sort_by_key(|(name, _)| OURS.iter().position(|ours| ours == name));
    told
}

pub(crate) fn identity_of(message: &Message) -> Vec<(String, String)> {
    let all = message.headers.iter().chain(message.trailers.iter());
    let named = all.filter(|(name, _)| normal(name.as_str()).starts_with("x-agent-"));
    let mut told: Vec<_> =
        named.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
    told.sort_by_key(|(name, _)| OURS.iter().position(|ours| ours == name));
    told
}
