//! Reads agents from the registries over JSON-RPC (contract, "What the service does").
//!
//! Must not know the pipeline, the listeners or the store. Flow: `reader` (the port) → `cache`, `coalesce`, `batch` →
//! `registries` (calls and their decoding) → `answer` (dates each answer and judges it) → `pool` (which node, until
//! when). Beside it `follower` keeps the cache in step with the chain, and `contract_check` looks for the contracts.

pub mod fault;
pub mod follower;
pub mod pool;
pub mod reader;
pub mod registries;

mod answer;
mod batch;
mod block;
mod cache;
mod coalesce;
mod contract_check;
mod redact;
mod source;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;
