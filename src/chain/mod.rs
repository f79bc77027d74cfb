//! Reads agents from the registries over JSON-RPC (contract, "What the service does").
//!
//! Must not know the pipeline, the listeners or the store. Flow: `reader` (the port) → `coalesce` (who waits for which
//! read) → `agents` (the reads, and what is cached of them) → `graded` (all that decides) and `details` → `source` (dated reads, with as much `gas` as nodes take) → `registries` and `measures` (calls and their decoding) → `answer` (dates
//! each answer and judges it) → `pool` (which node, until when). Beside it `follower` keeps the cache in step with the
//! chain, `contract_check` looks for the contracts, and `look` is what `check --online` asks.

pub mod follower;
pub(crate) mod look;
pub mod pool;
pub mod reader;
mod registries;

mod agents;
mod answer;
mod block;
mod cache;
mod coalesce;
mod contract_check;
mod details;
mod fault;
mod gas;
mod graded;
mod measures;
mod redact;
mod source;

/// Up to a quarter less, so that what happened at once does not happen at once again. `grain` is any number.
const fn spread(whole: u64, grain: u64) -> u64 {
    let grain = grain.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    whole - grain % (whole / 4 + 1)
}

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;
