//! Pages for people, in a real Chromium: the operator's page of the admin listener, and the documentation of the API.
//!
//! The service is the real program, with a chain, tenants and upstreams.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "what a test does not find where it should be is its failure"
)]

#[path = "page/browser.rs"]
mod browser;
#[path = "page/docs.rs"]
mod docs;
#[path = "page/operator.rs"]
mod operator;
#[path = "support"]
#[expect(dead_code, reason = "shared with the contract's cases, which need more of it")]
mod support {
    pub(crate) mod chain;
    pub(crate) mod client;
    pub(crate) mod metrics;
    pub(crate) mod process;
    pub(crate) mod secrets;
    pub(crate) mod service;
    pub(crate) mod settings;
    pub(crate) mod signing;
    pub(crate) mod skip;
    pub(crate) mod time;
    pub(crate) mod wire;
}
