//! What operators see: every metric's name, the log, and which of many equal faults is worth a line.
//!
//! Only the access log and the audit log name agents and clients. Nothing here knows a key.

mod access;
mod audit;
mod faults;
#[cfg(test)]
pub(crate) mod fixture;
mod http;
pub(crate) mod log;
mod metered_store;
pub mod metrics;
mod traces;

#[cfg(test)]
pub(crate) use access::SHOWN_BYTES_MAX;
pub(crate) use access::Shown;
pub(crate) use audit::{Audit, Record};
pub(crate) use faults::FaultLog;
pub(crate) use http::{RouteSeries, TenantSeries};
pub(crate) use log::LogGuard;
pub use metered_store::MeteredStore;
pub use metrics::{Metrics, NO_TENANT, OVERLOAD_LIMITS};
pub(crate) use traces::{Trace, Tracer};
