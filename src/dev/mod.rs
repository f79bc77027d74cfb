//! The development chain: an EVM in this process, spoken to over JSON-RPC like any node.
//!
//! Knows nothing of the product. Nothing here is meant to guard anything: its accounts are public.

pub(crate) mod accounts;
mod calls;
pub(crate) mod chain;
pub(crate) mod erc8004;
#[cfg(test)]
#[expect(dead_code, reason = "shared with the suites, which use what these tests do not")]
#[path = "../../tests/support/erc8004.rs"]
pub(crate) mod erc8004_rig;
pub(crate) mod evm;
#[cfg(test)]
pub(crate) mod fixture;
mod ledger;
mod methods;
mod params;
mod rpc;
pub(crate) mod samples;
pub(crate) mod service;
mod state;
pub(crate) mod upstream;
mod wire;
