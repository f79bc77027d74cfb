//! The program as it is typed, and as it reads its tenants again under load. Needs no server, and little of it a chain.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "what a test does not find where it should be is its failure"
)]

mod cli;
mod reload;
#[path = "support"]
#[expect(dead_code, reason = "shared with the contract's cases, which need more of it")]
mod support {
    pub(crate) mod client;
    pub(crate) mod metrics;
    pub(crate) mod process;
    pub(crate) mod secrets;
    pub(crate) mod skip;
    pub(crate) mod stop;
    pub(crate) mod time;
    pub(crate) mod whole;
    pub(crate) mod wire;
}
