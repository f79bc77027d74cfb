//! The contract, row by row, against the real program: `tiergate run` over HTTP, in front of a real chain.
//!
//! Every case runs in three worlds, and is named after the world, the topic and the guarantee: with the product's own
//! development chain and with anvil, both over the embedded store; and with the development chain over a real Redis, but
//! for cases about the embedded store's file. Cases share a service and bring agents of their own; those that need
//! another configuration, or kill something, start a service for themselves.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "what a test does not find where it should be is its failure"
)]

#[path = "../support/corpus/heads.rs"]
mod heads;
mod support;

mod authentication;
mod crash;
mod elsewhere;
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
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};

use crate::elsewhere::ABOUT_THE_FILE;
use crate::support::case::Case;
use crate::support::redis::redis_server;
use crate::support::world::{Kind, World, anvil};

/// Set where a missing server is a failure, not a reason to skip.
const REQUIRE_SERVERS: &str = "TIERGATE_REQUIRE_SERVERS";

/// Cases mostly wait for other processes.
const CASES_AT_ONCE: usize = 8;

/// The slow ones first, so that they run beside the others.
const TOPICS: &[(&str, &[Case])] = &[
    ("limits", limits::CASES),
    ("crash", crash::CASES),
    ("strangers", strangers::CASES),
    ("following", following::CASES),
    ("http", http::CASES),
    ("faults", faults::CASES),
    ("health", health::CASES),
    ("misconfigured", misconfigured::CASES),
    ("verify", verify::CASES),
    ("verify_signature", verify_signature::CASES),
    ("keys_generate", keys_generate::CASES),
    ("keys_rotate", keys_rotate::CASES),
    ("keys_revoke", keys_revoke::CASES),
    ("keys_status", keys_status::CASES),
    ("authentication", authentication::CASES),
    ("tiers", tiers::CASES),
    ("validation", validation::CASES),
    ("errors", errors::CASES),
    ("metrics", metrics::CASES),
    ("secrets", secrets::CASES),
    ("provider_keys", provider_keys::CASES),
];

/// What needs a node that can do more, or a store that is shared: these run in one world alone.
const IN_ONE_WORLD: &[(Kind, &str, &[Case])] = &[
    (Kind::Anvil, "following", following::ON_A_REAL_NODE),
    (Kind::Redis, "replicas", replicas::CASES),
    (Kind::Redis, "redis_faults", redis_faults::CASES),
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(CASES_AT_ONCE);
    let worlds = [
        (Arc::new(World::new(Kind::Dev)), None),
        (Arc::new(World::new(Kind::Anvil)), anvil().err()),
        (Arc::new(World::new(Kind::Redis)), redis_server().err()),
    ];
    if !arguments.list {
        say_what_does_not_run(worlds.iter().filter_map(|(_, missing)| missing.as_deref()));
    }
    let required = std::env::var(REQUIRE_SERVERS).is_ok_and(|value| value == "1");
    let mut trials = Vec::new();
    for (topic, cases) in TOPICS {
        for case in *cases {
            for (world, missing) in &worlds {
                trials.push(match (missing, about_the_file(world, topic, case.name)) {
                    (_, Some(why)) => absent(world, topic, *case, why, false),
                    (Some(why), None) => absent(world, topic, *case, why, required),
                    (None, None) => trial(world, topic, *case),
                });
            }
        }
    }
    for (kind, topic, cases) in IN_ONE_WORLD {
        for (world, missing) in worlds.iter().filter(|(world, _)| world.is(*kind)) {
            trials.extend(cases.iter().map(|case| match missing {
                Some(why) => absent(world, topic, *case, why, required),
                None => trial(world, topic, *case),
            }));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    // Servers end and folders go before the process does.
    drop(worlds);
    conclusion.exit_code()
}

/// Why a case does not run in a world: it is about the embedded store's file, and that world has none.
fn about_the_file(world: &World, topic: &str, name: &str) -> Option<&'static str> {
    let excepted = ABOUT_THE_FILE.iter().find(|(in_topic, case, _)| (*in_topic, *case) == (topic, name));
    excepted.filter(|_| world.is(Kind::Redis)).map(|(_, _, why)| *why)
}

#[expect(clippy::print_stderr, reason = "lines that say why some of the cases do not run")]
fn say_what_does_not_run<'a>(missing: impl Iterator<Item = &'a str>) {
    for why in missing {
        eprintln!("{why}");
    }
    for (topic, name, why) in ABOUT_THE_FILE {
        let known = TOPICS.iter().any(|(in_topic, cases)| in_topic == topic && has(cases, name));
        assert!(known, "no case is called {topic}::{name}");
        eprintln!("not over Redis: {topic}::{name}: {why}");
    }
}

fn has(cases: &[Case], name: &str) -> bool {
    cases.iter().any(|case| case.name == name)
}

fn trial(world: &Arc<World>, topic: &str, case: Case) -> Trial {
    let shared = Arc::clone(world);
    Trial::test(name(world, topic, case), move || {
        (case.run)(&shared);
        Ok(())
    })
}

/// A case that can't run in a world: ignored, or failed where what it lacks is required.
fn absent(world: &World, topic: &str, case: Case, why: &str, required: bool) -> Trial {
    let why = why.to_owned();
    Trial::test(name(world, topic, case), move || Err(Failed::from(why))).with_ignored_flag(!required)
}

fn name(world: &World, topic: &str, case: Case) -> String {
    format!("{}::{topic}::{}", world.name(), case.name)
}
