//! The reader against nodes over HTTP.

mod answers;
#[cfg(feature = "dev-chain")]
mod development;
mod multicall;
mod secrets;
mod wallets;
