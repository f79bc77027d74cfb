//! What operators see: every metric's name, the log, and which of many equal faults is worth a line.
//!
//! Only the access log and the audit log name agents and clients. Nothing here knows a key.

pub(crate) mod access;
pub(crate) mod audit;
pub(crate) mod faults;
#[cfg(test)]
pub(crate) mod fixture;
pub(crate) mod http;
pub(crate) mod log;
pub mod metered_store;
pub mod metrics;
pub(crate) mod traces;
