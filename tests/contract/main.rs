//! The contract, row by row, against the real program: `tiergate run` over HTTP, in front of a real chain.
//!
//! Every topic runs on the product's own development chain over the embedded store. Topics about the chain also run on
//! anvil, topics about keys, nonces and limits also over a real Redis. Cases share a service; those that need another
//! configuration, or kill something, start a service for themselves.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "what a test does not find where it should be is its failure"
)]

#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "shared with the cases of the gateway, which use what these do not")]
mod support;

mod authentication;
mod balanced;
mod changes;
mod console;
mod crash;
mod erc8004;
mod errors;
mod faults;
mod following;
mod health;
mod http;
mod keys;
mod limits;
mod logs;
mod metrics;
mod misconfigured;
mod own_types;
mod owners;
mod profile;
mod provider_keys;
mod redis_faults;
mod replicas;
mod secrets;
mod several_sources;
mod signing;
mod sold;
mod tier_sources;
mod tiers;
mod validation;
mod verify;
mod wallets;

use std::process::ExitCode;

use crate::support::harness::{self, Topic};
use crate::support::world::{CHAINS, Kind, ONCE, STORES, World};

/// The slow ones first, so that they run beside the others.
const TOPICS: &[Topic<World>] = &[
    ("limits", STORES, limits::WINDOWS),
    ("limits", ONCE, limits::CASES),
    ("crash", STORES, crash::CASES),
    ("crash", ONCE, crash::ON_A_DISK),
    ("balanced", CHAINS, balanced::CASES),
    ("tier_sources", CHAINS, tier_sources::CASES),
    ("several_sources", CHAINS, several_sources::CASES),
    ("redis_faults", &[Kind::Redis], redis_faults::CASES),
    ("http", ONCE, http::CASES),
    ("faults", ONCE, faults::CASES),
    ("following", CHAINS, following::EVENTS),
    ("following", ONCE, following::CASES),
    ("following", &[Kind::Anvil], following::ON_A_REAL_NODE),
    ("health", ONCE, health::CASES),
    ("misconfigured", CHAINS, misconfigured::NODES),
    ("misconfigured", ONCE, misconfigured::CASES),
    ("verify", CHAINS, verify::PROFILES),
    ("verify", STORES, verify::KEYS),
    ("verify", ONCE, verify::CASES),
    ("keys", STORES, keys::CASES),
    ("keys", ONCE, keys::FORMATS),
    ("authentication", CHAINS, authentication::OWNERS),
    ("authentication", STORES, authentication::NONCES),
    ("authentication", ONCE, authentication::SIGNATURES),
    ("profile", CHAINS, profile::OWNERS),
    ("profile", STORES, profile::KEYS),
    ("profile", ONCE, profile::CASES),
    ("sold", STORES, sold::CASES),
    ("sold", &[Kind::Redis], sold::REPLICAS),
    ("wallets", CHAINS, wallets::CASES),
    ("wallets", &[Kind::Anvil], wallets::ON_A_REAL_NODE),
    ("tiers", ONCE, tiers::CASES),
    ("validation", ONCE, validation::CASES),
    ("errors", ONCE, errors::CASES),
    ("signing", ONCE, signing::CASES),
    ("own_types", ONCE, own_types::CASES),
    ("console", ONCE, console::CASES),
    ("owners", ONCE, owners::CASES),
    ("metrics", STORES, metrics::OPERATIONS),
    ("metrics", ONCE, metrics::CASES),
    ("logs", ONCE, logs::CASES),
    ("secrets", STORES, secrets::CASES),
    ("secrets", ONCE, secrets::ON_A_DISK),
    ("secrets", ONCE, secrets::SEARCH),
    ("provider_keys", ONCE, provider_keys::CASES),
    ("replicas", &[Kind::Redis], replicas::CASES),
];

fn main() -> ExitCode {
    harness::run(World::new, TOPICS, &[], &[])
}
