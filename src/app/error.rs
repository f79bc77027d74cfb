//! Why the service can't start, and why it ended.

use std::{error::Error, io};

/// Why the service can't start, as a sentence.
pub(crate) type StartError = Box<dyn Error + Send + Sync>;

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
