//! The gateway against the real program: `tiergate run` between raw sockets on one side and upstreams that write down
//! every byte on the other.
//!
//! Cases share a chain and, where they can, one gateway; those that need another configuration, or break something,
//! start one for themselves. Topics that the store has a part in also run over a real Redis.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "what a test does not find where it should be is its failure"
)]

#[path = "../support/corpus/heads.rs"]
mod heads;
mod rig;
#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "shared with the contract's cases, which use what these do not")]
mod support;

mod access_log;
mod assertion;
mod authz;
mod authz_grpc;
mod authz_listener;
mod balancing;
mod behind;
mod behind_files;
mod bodies;
mod bots;
mod caches;
mod credentials;
mod crowds;
mod dialects;
mod differential;
mod discovery;
mod drain;
mod early_ends;
mod entry_points;
mod explain;
mod faults;
mod floods;
mod forwarding;
mod handover;
mod http2;
mod identity;
mod in_flight;
mod limits;
mod listed;
mod loops;
mod mcp;
mod mcp_calls;
mod metrics;
mod mounted;
mod online;
mod operations;
mod outcomes;
mod paths;
mod pressure;
mod proxy_protocol;
mod redis_faults;
mod refused;
mod relay;
mod relay_answers;
mod reload;
mod retries;
mod room;
mod routing;
mod secrets;
mod signed_requests;
mod slow;
mod smuggling;
mod streaming;
mod threads;
mod tls;
mod trace_trouble;
mod traces;
mod trouble;
mod unknown_keys;
mod upgrades;
mod upstream_addresses;
mod upstream_tls;
mod visitors;

use std::process::ExitCode;

use crate::rig::stage::Stage;
use crate::support::harness::{self, Topic};
use crate::support::world::{CHAINS, Kind, ONCE, STORES};

/// The slow ones first, so that they run beside the others.
const TOPICS: &[Topic<Stage>] = &[
    ("slow", ONCE, slow::CASES),
    ("room", ONCE, room::CASES),
    ("pressure", ONCE, pressure::CASES),
    ("crowds", ONCE, crowds::CASES),
    ("tls", ONCE, tls::CASES),
    ("upstream_tls", ONCE, upstream_tls::CASES),
    ("behind", ONCE, behind::CASES),
    ("behind", ONCE, behind_files::CASES),
    ("faults", CHAINS, faults::OF_THE_CHAIN),
    ("faults", STORES, faults::CASES),
    ("faults", ONCE, faults::ON_A_DISK),
    ("redis_faults", &[Kind::Redis], redis_faults::CASES),
    ("operations", ONCE, operations::CASES),
    ("drain", ONCE, drain::CASES),
    ("handover", &[Kind::Redis], handover::CASES),
    ("handover", ONCE, handover::ON_A_DISK),
    ("threads", ONCE, threads::CASES),
    ("threads", &[Kind::Redis], threads::OF_REDIS),
    ("balancing", ONCE, balancing::CASES),
    ("metrics", ONCE, metrics::CASES),
    ("outcomes", ONCE, outcomes::CASES),
    ("trouble", ONCE, trouble::CASES),
    ("streaming", ONCE, streaming::CASES),
    ("reload", ONCE, reload::CASES),
    ("mounted", ONCE, mounted::CASES),
    ("refused", ONCE, refused::CASES),
    ("listed", ONCE, listed::CASES),
    ("differential", ONCE, differential::CASES),
    ("dialects", ONCE, dialects::CASES),
    ("retries", ONCE, retries::CASES),
    ("relay", ONCE, relay::CASES),
    ("relay", ONCE, relay_answers::CASES),
    ("in_flight", ONCE, in_flight::CASES),
    ("identity", ONCE, identity::CASES),
    ("assertion", ONCE, assertion::CASES),
    ("loops", ONCE, loops::CASES),
    ("proxy_protocol", ONCE, proxy_protocol::CASES),
    ("limits", ONCE, limits::CASES),
    ("unknown_keys", ONCE, unknown_keys::CASES),
    ("visitors", STORES, visitors::CASES),
    ("visitors", &[Kind::Redis], visitors::OF_REDIS),
    ("bots", ONCE, bots::CASES),
    ("bots", STORES, bots::STORED),
    ("endings", ONCE, early_ends::CASES),
    ("upgrades", ONCE, upgrades::CASES),
    ("smuggling", ONCE, smuggling::CASES),
    ("bodies", ONCE, bodies::CASES),
    ("caches", ONCE, caches::CASES),
    ("http2", ONCE, http2::CASES),
    ("discovery", ONCE, discovery::CASES),
    ("mcp", ONCE, mcp::CASES),
    ("mcp", &[Kind::Redis], mcp::OF_REDIS),
    ("mcp_calls", ONCE, mcp_calls::CASES),
    ("routing", ONCE, routing::CASES),
    ("paths", ONCE, paths::CASES),
    ("credentials", ONCE, credentials::CASES),
    ("signed_requests", ONCE, signed_requests::CASES),
    ("signed_requests", STORES, signed_requests::STORED),
    ("signed_requests", &[Kind::Redis], signed_requests::OF_REDIS),
    ("secrets", ONCE, secrets::CASES),
    ("access_log", ONCE, access_log::CASES),
    ("explain", STORES, explain::CASES),
    ("explain", ONCE, explain::IN_WORDS),
    ("online", ONCE, online::CASES),
    ("traces", ONCE, traces::CASES),
    ("traces", ONCE, trace_trouble::CASES),
    ("entry_points", ONCE, entry_points::CASES),
    ("entry_points", STORES, entry_points::STORED),
    ("authz", ONCE, authz::CASES),
    ("authz", ONCE, authz_grpc::CASES),
    ("authz", ONCE, authz_listener::CASES),
    ("authz", &[Kind::Redis], authz_listener::OF_REDIS),
    ("forwarding", ONCE, forwarding::CASES),
    ("upstream_addresses", ONCE, upstream_addresses::CASES),
];

/// Floods.
const ALONE: &[Topic<Stage>] = &[
    ("unknown_keys", STORES, unknown_keys::FLOODS),
    ("crowds", ONCE, crowds::OF_AGENTS),
    ("floods", ONCE, floods::CASES),
];

/// The same with ten times as many, and over both stores: the budget of refused credentials, which they are about, knows neither.
const BEFORE_RELEASE: &[Topic<Stage>] = &[("crowds", STORES, crowds::OF_MORE_AGENTS)];

fn main() -> ExitCode {
    harness::run(Stage::new, TOPICS, ALONE, BEFORE_RELEASE)
}
