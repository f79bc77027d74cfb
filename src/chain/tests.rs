//! The promise as a model, and what tests of several parts share.

mod actions;
mod blocks;
pub(super) mod clock;
#[cfg(feature = "dev-chain")]
pub(super) mod development;
mod model;
pub(super) mod results;
mod world;
