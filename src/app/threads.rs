//! Threads that the process can't do without, and the end of the process when one of them ends.
//!
//! Without this a dead worker would leave its accept queue open: one connection in as many as there are workers would hang.

use std::thread::{Builder, JoinHandle};
use std::{future::Future, io, pin::Pin};

use futures_util::future::select_all;
use tokio::runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::app::RunError;

/// Returns when a thread has ended, with its name.
pub(super) type ThreadEnd = Pin<Box<dyn Future<Output = &'static str> + Send>>;

/// A listener's part of a thread. Returns without an error when its listener is to close.
pub(super) type Part = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

/// The threads of listeners.
pub(super) struct Threads {
    running: Vec<JoinHandle<()>>,
    /// Dropped when they are to end.
    over: watch::Sender<()>,
}

impl Threads {
    pub(super) fn new() -> Self {
        Self { running: Vec::new(), over: watch::Sender::new(()) }
    }

    /// Begins a thread with a runtime of its own, in which these parts run and whatever they spawn.
    pub(super) fn begin(&mut self, name: &'static str, parts: Vec<Part>) -> Result<ThreadEnd, RunError> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let (runtime, over) = (runtime.map_err(RunError::thread)?, self.over.subscribe());
        let (alive, ended) = watch::channel(());
        let thread = Builder::new().name(name.to_owned()).spawn(move || {
            // Dropped with the thread, also when it panics.
            let _alive = alive;
            runtime.block_on(serve(parts, over));
            runtime.shutdown_background();
        });
        self.running.push(thread.map_err(RunError::thread)?);
        Ok(Box::pin(end_of(name, ended)))
    }

    /// Ends all of them, with whatever they are doing.
    pub(super) fn end(self) {
        drop(self.over);
        for thread in self.running {
            // A panic has been reported.
            let _ = thread.join();
        }
    }
}

/// Returns when the holder of the other end is gone, with the name of its thread.
pub(super) async fn end_of(name: &'static str, mut ended: watch::Receiver<()>) -> &'static str {
    while ended.changed().await.is_ok() {}
    name
}

/// Returns when the first of these threads has ended.
pub(super) async fn first_end(ends: Vec<ThreadEnd>) -> &'static str {
    if ends.is_empty() { std::future::pending().await } else { select_all(ends).await.0 }
}

/// Runs the parts of a thread until it is to end, or one of them fails.
async fn serve(parts: Vec<Part>, mut over: watch::Receiver<()>) {
    let mut running: JoinSet<io::Result<()>> = parts.into_iter().collect();
    let fails = async {
        while let Some(ended) = running.join_next().await {
            match ended {
                // Its listener is closed; its connections go on.
                Ok(Ok(())) => {}
                Ok(Err(error)) => return tracing::error!("cannot accept connections: {error}"),
                // A panic, which has been reported.
                Err(_) => return,
            }
        }
        std::future::pending().await
    };
    tokio::select! {
        _ = over.changed() => {}
        () = fails => {}
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::{Threads, first_end};

    #[tokio::test]
    async fn a_thread_whose_part_panics_or_fails_has_ended_and_one_whose_listener_closes_has_not() {
        let mut threads = Threads::new();
        let goes_on = threads.begin("goes-on", vec![Box::pin(async { Ok(()) })]).unwrap();
        let panics = threads.begin("panics", vec![Box::pin(async { panic!("as it should") })]).unwrap();
        assert_eq!(first_end(vec![goes_on, panics]).await, "panics");
        let fails = vec![Box::pin(async { Err(io::ErrorKind::Other.into()) }) as _];
        let fails = threads.begin("fails", fails).unwrap();
        assert_eq!(fails.await, "fails");
        let ends = threads.begin("ends", Vec::new()).unwrap();
        threads.end();
        assert_eq!(ends.await, "ends");
    }
}
