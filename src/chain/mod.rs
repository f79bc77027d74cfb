//! Reads agents from the five registries over JSON-RPC (contract, "What the service does").
//!
//! Must not know the pipeline, the doors or the store. Flow: `reader` (the port) → `cache` and `coalesce` →
//! `snapshot` (one profile in one call) → `abi` → `rpc` (time limits, failover) → `transport` (one call to one node) →
//! `redact`.

pub mod fault;
pub mod reader;
pub mod rpc;

mod abi;
mod cache;
mod coalesce;
#[cfg(test)]
mod fixture;
mod redact;
mod snapshot;
mod transport;
