//! Reads agents from the five registries over JSON-RPC (contract, "What the service does").
//!
//! Must not know the pipeline, the doors or the store. Flow: `reader` (the port) → `cache` and `coalesce` →
//! `snapshot` (one profile in one call) → `abi` → `rpc` (nodes, time limits, failover).

pub mod fault;
pub mod reader;
pub mod rpc;

mod abi;
mod cache;
mod coalesce;
mod snapshot;
