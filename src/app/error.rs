//! Why the service can't start, and why it ended.

use std::error::Error;
use std::io;
use std::iter::successors;
use std::net::SocketAddr;

use crate::app::descriptors::TooFew;
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
    /// No HTTP client for the chain.
    #[error("cannot make an HTTP client for the chain: {}", with_causes(.0))]
    Http(#[from] reqwest::Error),
    /// Two metrics of one name.
    #[error("cannot register the metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    /// No randomness for request ids.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
    /// Anything else, as a sentence.
    #[error("{0}")]
    Other(String),
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
    /// A sentence for people.
    #[error("{0}")]
    Failed(String),
    /// A thread that the process can't do without.
    #[error("the thread {0} has ended, and the process with it; please report the line above")]
    DeadThread(&'static str),
}

impl RunError {
    /// No thread, or no runtime for one.
    pub(super) fn thread(cause: io::Error) -> Self {
        Self::Failed(format!("cannot start a thread: {cause}"))
    }
}
