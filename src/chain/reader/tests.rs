//! The reader against nodes over HTTP.

mod answers;
mod details;
#[cfg(feature = "dev-chain")]
mod development;
mod multicall;
mod outages;
mod secrets;
mod wallets;
