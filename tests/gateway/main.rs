//! The gateway against the real program: `tiergate run` between raw sockets on one side and upstreams that write down
//! every byte on the other.
//!
//! Cases share a chain and, where they can, one gateway; those that need another configuration, or break something,
//! start one for themselves. Each is named after the topic and the guarantee. Topics that the store has a part in run a
//! second time over a real Redis, with its name in front, but for cases about the embedded store's file.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "what a test does not find where it should be is its failure"
)]

#[path = "../support/corpus/heads.rs"]
mod heads;
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
mod outcomes;
mod parity;
mod paths;
mod redis_faults;
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

use libtest_mimic::{Arguments, Failed, Trial};

use crate::rig::case::Case;
use crate::rig::stage::Stage;
use crate::support::redis::redis_server;
use crate::support::world::Kind;

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
    ("outcomes", outcomes::CASES),
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

/// Topics that keys, nonces, limits or revocations are a part of.
const STORED: &[&str] = &["faults", "identity", "limits", "credentials", "secrets", "parity", "unknown_keys"];

/// Cases of those topics that say nothing of Redis, and what of the embedded store's file they are about.
const ABOUT_THE_FILE: &[(&str, &str, &str)] = &[
    ("faults", "a_full_disk_is_500_for_signatures_and_heals_by_itself", "redis_faults fills Redis instead"),
    ("faults", "a_500_spends_neither_nonce_nor_budget", "redis_faults fills Redis instead"),
    (
        "faults",
        "what_passed_on_a_disk_that_is_nearly_full_is_remembered_and_the_rest_is_not",
        "redis_faults fills Redis instead",
    ),
];

/// Set where a missing server is a failure, not a reason to skip.
const REQUIRE_SERVERS: &str = "TIERGATE_REQUIRE_SERVERS";

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(CASES_AT_ONCE);
    let (stage, shared) = (Arc::new(Stage::new(Kind::Dev)), Arc::new(Stage::new(Kind::Redis)));
    let missing = redis_server().err();
    if !arguments.list {
        say_what_does_not_run(missing.as_deref());
    }
    let mut trials = Vec::new();
    for (topic, cases) in TOPICS {
        for case in *cases {
            trials.push(trial(format!("{topic}::{}", case.name), &stage, *case));
            if STORED.contains(topic) {
                trials.push(over_redis(topic, *case, &shared, missing.as_deref()));
            }
        }
    }
    for case in redis_faults::CASES {
        trials.push(over_redis("redis_faults", *case, &shared, missing.as_deref()));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    // Servers end and folders go before the process does.
    drop((stage, shared));
    conclusion.exit_code()
}

fn trial(name: String, stage: &Arc<Stage>, case: Case) -> Trial {
    let shared = Arc::clone(stage);
    Trial::test(name, move || {
        (case.run)(&shared);
        Ok(())
    })
}

/// The case over Redis. Ignored where it is about the embedded store's file; where there is no Redis, ignored too, or
/// failed where servers are required.
fn over_redis(topic: &str, case: Case, shared: &Arc<Stage>, missing: Option<&str>) -> Trial {
    let name = format!("redis::{topic}::{}", case.name);
    let required = std::env::var(REQUIRE_SERVERS).is_ok_and(|value| value == "1");
    let about_the_file = ABOUT_THE_FILE.iter().find(|(of, name, _)| (*of, *name) == (topic, case.name));
    let (why, ignored) = match (about_the_file, missing) {
        (Some((_, _, why)), _) => (*why, true),
        (None, Some(why)) => (why, !required),
        (None, None) => return trial(name, shared, case),
    };
    let why = why.to_owned();
    Trial::test(name, move || Err(Failed::from(why))).with_ignored_flag(ignored)
}

#[expect(clippy::print_stderr, reason = "lines that say why some of the cases do not run")]
fn say_what_does_not_run(missing: Option<&str>) {
    if let Some(why) = missing {
        eprintln!("{why}");
    }
    for (topic, name, why) in ABOUT_THE_FILE {
        let known = TOPICS.iter().filter(|(of, _)| of == topic).flat_map(|(_, cases)| cases.iter());
        assert!(known.into_iter().any(|case| case.name == *name), "no case is called {topic}::{name}");
        eprintln!("not over Redis: {topic}::{name}: {why}");
    }
    for topic in STORED {
        assert!(TOPICS.iter().any(|(of, _)| of == topic), "no topic is called {topic}");
    }
}
