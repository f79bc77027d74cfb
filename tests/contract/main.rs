//! The contract, row by row, against the real program: `tiergate run` over HTTP, in front of a real chain.
//!
//! Every case runs in two worlds, with the product's own development chain and with anvil, and is named after the world,
//! the topic and the guarantee. Cases share a service and bring agents of their own; those that need another
//! configuration, or kill something, start a service for themselves.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "what a test does not find where it should be is its failure"
)]

mod support;

mod authentication;
mod crash;
mod errors;
mod faults;
mod health;
mod http;
mod keys_generate;
mod keys_revoke;
mod keys_rotate;
mod keys_status;
mod limits;
mod metrics;
mod misconfigured;
mod secrets;
mod strangers;
mod tiers;
mod validation;
mod verify;
mod verify_signature;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};

use crate::support::case::Case;
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
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(CASES_AT_ONCE);
    let dev = Arc::new(World::new(Kind::Dev));
    let real = Arc::new(World::new(Kind::Anvil));
    let missing = anvil().err();
    if let Some(why) = &missing {
        #[expect(clippy::print_stderr, reason = "one line that says why half of the cases do not run")]
        if !arguments.list {
            eprintln!("{why}");
        }
    }
    let required = std::env::var(REQUIRE_SERVERS).is_ok_and(|value| value == "1");
    let mut trials = Vec::new();
    for (topic, cases) in TOPICS {
        for case in *cases {
            trials.push(trial(&dev, topic, *case));
            trials.push(match &missing {
                None => trial(&real, topic, *case),
                Some(why) => absent(&real, topic, *case, why, required),
            });
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    // Servers end and folders go before the process does.
    drop((dev, real));
    conclusion.exit_code()
}

fn trial(world: &Arc<World>, topic: &str, case: Case) -> Trial {
    let shared = Arc::clone(world);
    Trial::test(name(world, topic, case), move || {
        (case.run)(&shared);
        Ok(())
    })
}

/// A case whose server is not there: ignored, or failed where servers are required.
fn absent(world: &World, topic: &str, case: Case, why: &str, required: bool) -> Trial {
    let why = why.to_owned();
    Trial::test(name(world, topic, case), move || Err(Failed::from(why))).with_ignored_flag(!required)
}

fn name(world: &World, topic: &str, case: Case) -> String {
    format!("{}::{topic}::{}", world.name(), case.name)
}
