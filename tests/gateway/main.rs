//! The gateway against the real program: `tiergate run` between raw sockets on one side and upstreams that write down
//! every byte on the other.
//!
//! Cases share a chain and, where they can, one gateway; those that need another configuration, or break something,
//! start one for themselves. Each is named after the topic and the guarantee.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "what a test does not find where it should be is its failure"
)]

mod rig;
#[path = "../contract/support/mod.rs"]
#[expect(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "shared with the contract's cases, which use what these do not"
)]
mod support;

mod balancing;
mod bodies;
mod credentials;
mod endings;
mod faults;
mod floods;
mod forgery;
mod forwarding;
mod http2;
mod identity;
mod limits;
mod parity;
mod paths;
mod reload;
mod retries;
mod routing;
mod secrets;
mod slow;
mod smuggling;
mod streaming;
mod tls;
mod trouble;
mod unknown_keys;
mod upgrades;
mod upstream_tls;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};

use crate::rig::case::Case;
use crate::rig::stage::Stage;

/// Cases mostly wait for other processes.
const CASES_AT_ONCE: usize = 8;

/// The slow ones first, so that they run beside the others.
const TOPICS: &[(&str, &[Case])] = &[
    ("slow", slow::CASES),
    ("unknown_keys", unknown_keys::CASES),
    ("tls", tls::CASES),
    ("upstream_tls", upstream_tls::CASES),
    ("faults", faults::CASES),
    ("floods", floods::CASES),
    ("balancing", balancing::CASES),
    ("trouble", trouble::CASES),
    ("streaming", streaming::CASES),
    ("reload", reload::CASES),
    ("retries", retries::CASES),
    ("forgery", forgery::CASES),
    ("identity", identity::CASES),
    ("limits", limits::CASES),
    ("endings", endings::CASES),
    ("upgrades", upgrades::CASES),
    ("smuggling", smuggling::CASES),
    ("bodies", bodies::CASES),
    ("http2", http2::CASES),
    ("routing", routing::CASES),
    ("paths", paths::CASES),
    ("credentials", credentials::CASES),
    ("secrets", secrets::CASES),
    ("parity", parity::CASES),
    ("forwarding", forwarding::CASES),
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(CASES_AT_ONCE);
    let stage = Arc::new(Stage::new());
    let cases = TOPICS.iter().flat_map(|(topic, cases)| cases.iter().map(move |case| (topic, *case)));
    let trials = cases.map(|(topic, case)| {
        let shared = Arc::clone(&stage);
        Trial::test(format!("{topic}::{}", case.name), move || {
            (case.run)(&shared);
            Ok(())
        })
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    // Servers end and folders go before the process does.
    drop(stage);
    conclusion.exit_code()
}
