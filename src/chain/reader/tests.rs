//! The reader against nodes over HTTP.

mod answers;
#[cfg(feature = "dev-chain")]
mod development;
mod secrets;
mod wallets;
