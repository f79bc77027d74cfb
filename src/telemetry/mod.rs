//! What operators see: every metric's name, the log, and which of many equal faults is worth a line.
//!
//! Only the access log and the audit log name agents and clients. Nothing here knows a key.

pub mod access;
pub mod audit;
pub mod faults;
pub mod http;
pub mod log;
pub mod metered_store;
pub mod metrics;
#[cfg(test)]
pub(crate) mod paper;
pub mod traced;
pub mod traces;
