//! The service beside programs of others: browsers with its pages, client libraries, Schemathesis, a balancer before replicas.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "what a test does not find where it should be is its failure"
)]

mod clients;
mod compose;
mod console;
mod openapi;
mod page;
#[path = "support"]
#[expect(dead_code, reason = "shared with the contract's cases, which need more of it")]
mod support {
    pub(crate) mod chain;
    pub(crate) mod client;
    pub(crate) mod metrics;
    pub(crate) mod process;
    pub(crate) mod secrets;
    pub(crate) mod seed;
    pub(crate) mod service;
    pub(crate) mod settings;
    pub(crate) mod signing;
    pub(crate) mod skip;
    pub(crate) mod stop;
    pub(crate) mod time;
    pub(crate) mod whole;
    pub(crate) mod wire;
}
