//! What tests of several parts share.

#[cfg(feature = "dev-chain")]
pub(super) mod development;
pub(super) mod stopped_time;
