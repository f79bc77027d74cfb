//! The seed of what tests make up: another one in each run, shown by a test that fails.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// Names a seed, to repeat a run.
const SEED_VARIABLE: &str = "TG_SEED";

/// The seed of a test. The harness keeps the line from the reader unless the test fails.
#[allow(
    clippy::print_stderr,
    reason = "a run can be repeated by its seed alone; the lint passes over the library's tests"
)]
pub(crate) fn seed() -> u64 {
    let named = std::env::var(SEED_VARIABLE).ok();
    let seed = named.map_or_else(|| RandomState::new().build_hasher().finish(), |text| text.parse().unwrap());
    eprintln!("{SEED_VARIABLE}={seed}");
    seed
}
