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

#[path = "../support/corpus/heads.rs"]
mod heads;
#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "shared with the cases of the gateway, which use what these do not")]
mod support;

mod authentication;
mod crash;
mod errors;
mod faults;
mod following;
mod health;
mod http;
mod keys_generate;
mod keys_revoke;
mod keys_rotate;
mod keys_status;
mod limits;
mod metrics;
mod misconfigured;
mod provider_keys;
mod redis_faults;
mod replicas;
mod secrets;
mod strangers;
mod tiers;
mod validation;
mod verify;
mod verify_signature;

use std::process::ExitCode;

use crate::support::harness::{self, Topic};
use crate::support::world::{CHAINS, Kind, ONCE, STORES, World};

/// The slow ones first, so that they run beside the others.
const TOPICS: &[Topic<World>] = &[
    ("limits", STORES, limits::CASES),
    ("crash", STORES, crash::CASES),
    ("crash", ONCE, crash::ON_A_DISK),
    ("following", CHAINS, following::CASES),
    ("following", &[Kind::Anvil], following::ON_A_REAL_NODE),
    ("http", ONCE, http::CASES),
    ("faults", CHAINS, faults::CASES),
    ("redis_faults", &[Kind::Redis], redis_faults::CASES),
    ("health", ONCE, health::CASES),
    ("misconfigured", CHAINS, misconfigured::CASES),
    ("verify", CHAINS, verify::CASES),
    ("verify_signature", STORES, verify_signature::CASES),
    ("keys_generate", STORES, keys_generate::CASES),
    ("keys_rotate", STORES, keys_rotate::CASES),
    ("keys_revoke", STORES, keys_revoke::CASES),
    ("keys_status", STORES, keys_status::CASES),
    ("authentication", CHAINS, authentication::CASES),
    ("tiers", CHAINS, tiers::CASES),
    ("validation", ONCE, validation::CASES),
    ("errors", ONCE, errors::CASES),
    ("metrics", STORES, metrics::CASES),
    ("secrets", STORES, secrets::CASES),
    ("secrets", ONCE, secrets::ON_A_DISK),
    ("provider_keys", ONCE, provider_keys::CASES),
    ("replicas", &[Kind::Redis], replicas::CASES),
];

/// Floods.
const ALONE: &[Topic<World>] = &[("strangers", STORES, strangers::CASES)];

fn main() -> ExitCode {
    harness::run(World::new, TOPICS, ALONE)
}
