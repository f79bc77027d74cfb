//! Reads agents from the registries over JSON-RPC (contract, "What the service does").
//!
//! Must not know the pipeline, the listeners or the store. Flow: `reader` (the port) → `single_flight` (who waits for which
//! read) → `reads` (of all that decides, and of details, and what is cached of them) → `registries` and `measures` (calls and their
//! decoding) → `dated` (reads that prove their block, with as much gas as nodes take) → `pool` (which node, until when). Beside
//! it `follower` keeps the cache in step with the chain, and `contracts` looks for the contracts, and for all that is needed in
//! `check --online`.

mod contracts;
mod follower;
mod pool;
pub mod reader;
mod registries;

mod block;
mod cache;
mod dated;
mod fault;
mod measures;
mod reads;
mod redact;
mod single_flight;

/// Up to a quarter less, so that what happened at once does not happen at once again. `grain` is any number.
const fn spread(whole: u64, grain: u64) -> u64 {
    let grain = grain.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    whole - grain % (whole / 4 + 1)
}

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;

pub(crate) use contracts::{FIRST_AGENTS, LatestState};
pub use follower::Follower;
pub use pool::Pool;
pub(crate) use pool::{IDLE_MAX, PLACES_MAX};
pub use reader::ChainReader;
