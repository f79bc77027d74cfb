//! Why the service can't start.

use std::net::SocketAddr;

use crate::app::descriptors::TooFew;
use crate::app::store::StoreError;
use crate::config::problem::Problem;
use crate::ports::clock::NoEntropy;

/// Why the service can't start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// An address can't be listened on.
    #[error("cannot listen on {address} ({key}): {cause}")]
    Listen {
        /// The key that names the address.
        key: String,
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        cause: std::io::Error,
    },
    /// Too few file descriptors.
    #[error(transparent)]
    Descriptors(#[from] TooFew),
    /// The store can't be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No HTTP client for the chain.
    #[error("cannot make an HTTP client for the chain: {0}")]
    Http(#[from] reqwest::Error),
    /// No threads for the chain.
    #[error("cannot start threads for the chain: {0}")]
    ChainThreads(std::io::Error),
    /// Headers for nodes that can't be read from their files, each with its file.
    #[error("headers for RPC nodes can't be used:\n  {}", .0.join("\n  "))]
    Headers(Vec<String>),
    /// The gateway would serve nobody, or none of a folder.
    #[error("{0}")]
    NoTenants(Box<Problem>),
    /// Two metrics of one name.
    #[error("cannot register the metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    /// Certificates that can't be used, each with its file.
    #[error("certificates can't be used:\n  {}", .0.join("\n  "))]
    Certificates(Vec<String>),
    /// No way to the collector of traces.
    #[error("cannot trace requests: {0}")]
    Traces(Box<dyn std::error::Error + Send + Sync>),
    /// The audit log can't be opened.
    #[error("cannot open {path} (log.audit): {cause}")]
    Audit {
        /// The file.
        path: String,
        /// The error of the operating system.
        cause: std::io::Error,
    },
    /// No randomness for request ids.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
}
