//! Shared by the suites: processes, a driver for the chain, an HTTP client and a signer, none of them the product's.

pub(crate) mod agents;
pub(crate) mod chain;
pub(crate) mod client;
pub(crate) mod erc8004;
mod erc8004_node;
pub(crate) mod harness;
pub(crate) mod limit;
pub(crate) mod metrics;
pub(crate) mod process;
pub(crate) mod redis;
pub(crate) mod relay;
pub(crate) mod secrets;
pub(crate) mod seed;
pub(crate) mod service;
pub(crate) mod settings;
pub(crate) mod signing;
pub(crate) mod skip;
pub(crate) mod stop;
pub(crate) mod tier_sources;
pub(crate) mod time;
pub(crate) mod whole;
pub(crate) mod wire;
pub(crate) mod world;
