//! The development chain: an EVM in this process, spoken to over JSON-RPC like any node.
//!
//! Knows nothing of the product. Nothing here is meant to guard anything: its accounts are public.

pub(crate) mod accounts;
pub(crate) mod chain;
pub(crate) mod erc8004;
#[cfg(test)]
#[expect(dead_code, reason = "shared with the suites, which use what these tests do not")]
#[path = "../../tests/support/erc8004.rs"]
pub(crate) mod erc8004_rig;
#[cfg(test)]
pub(crate) mod fixture;
mod methods;
mod params;
mod rpc;
pub(crate) mod samples;
pub(crate) mod service;
