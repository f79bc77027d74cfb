//! The owner's page, in a real Chromium with a wallet that really signs, in front of `tiergate-dev`.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "what a test does not find where it should be is its failure"
)]

#[path = "page/browser.rs"]
#[expect(dead_code, reason = "shared with the operator's page")]
mod browser;
#[path = "console/elsewhere.rs"]
mod elsewhere;
#[path = "console/late.rs"]
mod late;
#[path = "console/looks.rs"]
mod looks;
#[path = "console/owner.rs"]
mod owner;
#[path = "console/redirects.rs"]
mod redirects;
#[path = "console/stage.rs"]
mod stage;
#[path = "console/trouble.rs"]
mod trouble;
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
