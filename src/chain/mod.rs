//! Reads agents from the five registries over JSON-RPC (contract, "What the service does").
//!
//! Must not know the pipeline, the doors or the store. Flow: `reader` (the port) → `cache` and `coalesce` →
//! `contracts` (what is called; `survey`: whether it is there) → `snapshot` (one profile in one call) → `abi` → `rpc` (which node, for how long, how
//! many at once) → `redact`. Beside it `follower` keeps the cache in step with the chain.

pub mod fault;
pub mod follower;
pub mod reader;
pub mod rpc;

mod abi;
mod cache;
mod coalesce;
mod contracts;
#[cfg(test)]
mod fixture;
mod redact;
mod snapshot;
mod survey;
#[cfg(test)]
mod tests;
