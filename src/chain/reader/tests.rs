//! The reader against nodes over HTTP.

mod answers;
mod details;
#[cfg(feature = "dev-chain")]
mod development;
#[cfg(feature = "dev-chain")]
mod erc8004;
mod multicall;
mod outages;
mod secrets;
mod wallets;
