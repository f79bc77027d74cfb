//! Why the service can't start, and why it ended.

use std::error::Error;
use std::io;
use std::iter::successors;
use std::net::SocketAddr;
use std::time::Duration;

use crate::app::descriptors::TooFew;
use crate::app::store::StoreError;
use crate::config::problem::Problem;
use crate::ports::clock::NoEntropy;

/// Why the service can't start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// An address can't be listened on.
    #[error("cannot listen on {address} ({key}): {cause}{}", beside(*held))]
    Listen {
        /// The key that names the address.
        key: String,
        /// The address.
        address: SocketAddr,
        /// The address of a socket with the same port that was handed over for another listener or for none.
        held: Option<SocketAddr>,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// Too few file descriptors.
    #[error(transparent)]
    Descriptors(#[from] TooFew),
    /// The store can't be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No HTTP client for the chain.
    #[error("cannot make an HTTP client for the chain: {}", with_causes(.0))]
    Http(#[from] reqwest::Error),
    /// No threads for the chain.
    #[error("cannot start threads for the chain: {0}")]
    ChainThreads(io::Error),
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
    Traces(Box<dyn Error + Send + Sync>),
    /// The audit log can't be opened.
    #[error("cannot open {path} (log.audit): {cause}")]
    Audit {
        /// The file.
        path: String,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// No randomness for request ids.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
}

/// An error with what it came from: that a machine has no certificates of authorities, say.
fn with_causes(error: &(dyn Error + 'static)) -> String {
    let causes = successors(Some(error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// A socket that may be in the way.
fn beside(held: Option<SocketAddr>) -> String {
    let text = |held| {
        format!(
            "; a socket at {held} was handed over: write one address in the configuration and in tiergate.socket"
        )
    };
    held.map_or_else(String::new, text)
}

/// Why the process ended otherwise than by a signal.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// No thread, or no runtime for one.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// No signal handlers.
    #[error("cannot wait for signals: {0}")]
    Signals(io::Error),
    /// An address that could be bound can't be listened on.
    #[error("cannot listen on {address}: {cause}")]
    Listen {
        /// The address.
        address: String,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// A process that was to replace another one did not become ready.
    #[error("store or chain was not ready within {0:?}: this process does not take over")]
    NotReady(Duration),
    /// The process that replaced this one is gone.
    #[error("the process that replaced this one has failed ({0}), and this one has closed its listeners")]
    SuccessorFailed(String),
    /// A thread that the process can't do without.
    #[error("the thread {0} has ended, and the process with it; please report the line above")]
    DeadThread(&'static str),
}
