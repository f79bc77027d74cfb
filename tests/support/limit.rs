//! The time limit of a case. Knows no worlds.

use std::{any::Any, sync::mpsc, thread, time::Duration};

/// How a case ends that does not pass.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It panicked, with this message.
    Panicked(String),
    /// It is not done in time. Its thread goes on.
    Hung,
}

/// Runs a case on a thread of its own, and fails when it panics or is not done in time.
pub(crate) fn run_limited(
    limit: Duration,
    name: String,
    run: impl FnOnce() + Send + 'static,
) -> Result<(), Failure> {
    let (done, is_done) = mpsc::channel();
    let case = thread::Builder::new().name(name).spawn(move || {
        // Dropped when the case ends, and when it panics.
        let _done: mpsc::Sender<()> = done;
        run();
    });
    if is_done.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
        return Err(Failure::Hung);
    }
    let ended = case.map_err(|error| Failure::Panicked(error.to_string()))?.join();
    ended.map_err(|panic| Failure::Panicked(message(panic.as_ref())))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref().copied()).unwrap_or("panicked").to_owned()
}
