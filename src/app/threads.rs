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

/// Begins a thread with a runtime of its own, in which these parts run and whatever they spawn, until the sender of `over` is dropped.
pub(super) fn begin(
    name: &'static str,
    parts: Vec<Part>,
    over: watch::Receiver<()>,
) -> Result<(JoinHandle<()>, ThreadEnd), RunError> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(RunError::thread)?;
    let (alive, ended) = watch::channel(());
    let thread = Builder::new().name(name.to_owned()).spawn(move || {
        // Dropped with the thread, also when it panics.
        let _alive = alive;
        runtime.block_on(serve(parts, over));
        runtime.shutdown_background();
    });
    Ok((thread.map_err(RunError::thread)?, Box::pin(end_of(name, ended))))
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

    use tokio::sync::watch;

    use super::{begin, first_end};

    #[tokio::test]
    async fn a_thread_whose_part_panics_or_fails_has_ended_and_one_whose_listener_closes_has_not() {
        let over = watch::Sender::new(());
        let begin = |name, parts| begin(name, parts, over.subscribe()).unwrap();
        let (_, goes_on) = begin("goes-on", vec![Box::pin(async { Ok(()) })]);
        let (_, panics) = begin("panics", vec![Box::pin(async { panic!("as it should") })]);
        assert_eq!(first_end(vec![goes_on, panics]).await, "panics");
        let fails = vec![Box::pin(async { Err(io::ErrorKind::Other.into()) }) as _];
        let (_, fails) = begin("fails", fails);
        assert_eq!(fails.await, "fails");
        let (thread, ends) = begin("ends", Vec::new());
        drop(over);
        thread.join().unwrap();
        assert_eq!(ends.await, "ends");
    }
}
