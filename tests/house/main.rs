//! The tree as it is read: the rules of the house, pages that tell the truth, artifacts that are those of their sources, and the
//! scripts that run the tests.
#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a tree that can't be read can't be judged, and neither can a script that can't be started"
)]

mod architecture;
mod artifacts;
mod docs;
#[path = "../support/limit.rs"]
mod limit;
#[cfg(feature = "dev-chain")]
#[path = "../support/loopback.rs"]
mod loopback;
mod need;
#[path = "../support/skip.rs"]
mod skip;
mod threats;
mod time_limit;
