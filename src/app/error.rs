//! Why the service can't start, and why it ended.

use std::error::Error;
use std::io;
use std::net::SocketAddr;

/// Why the service can't start, as a sentence.
pub(crate) type StartError = Box<dyn Error + Send + Sync>;

/// An address can't be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} ({key}): {cause}{}", beside(*held))]
pub(crate) struct CannotListen {
    /// The key that names the address.
    pub(crate) key: String,
    pub(crate) address: SocketAddr,
    /// The address of a socket with the same port that was handed over for another listener or for none.
    pub(crate) held: Option<SocketAddr>,
    /// The error of the operating system.
    pub(crate) cause: io::Error,
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
