//! Keeps a background task going: one that panics is begun anew, and the log and a counter say so.
//!
//! Without it a dead task would go unnoticed, and whatever it last said would stand.

use std::time::Duration;

use pingora::server::ShutdownWatch;

use crate::telemetry::metrics::Metrics;

/// How long after its end a task is begun anew.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// A background task.
pub(super) struct Supervised<'a> {
    /// Its name in the log and the metrics.
    pub(super) name: &'static str,
    /// How long after its end it is begun anew.
    pub(super) pause: Duration,
    /// Where its ends are counted.
    pub(super) metrics: &'a Metrics,
}

impl Supervised<'_> {
    /// Runs what `begin` makes until the process is to end. Whenever it ends before, `after_end` is called at once.
    pub(super) async fn run<F>(
        &self,
        mut begin: impl FnMut() -> F,
        after_end: impl Fn(),
        mut shutdown: ShutdownWatch,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        loop {
            let mut task = tokio::spawn(begin());
            tokio::select! {
                ended = &mut task => self.ended(ended.is_err()),
                _ = shutdown.changed() => return task.abort(),
            }
            after_end();
            tokio::select! {
                () = tokio::time::sleep(self.pause) => {}
                _ = shutdown.changed() => return,
            }
        }
    }

    fn ended(&self, has_panicked: bool) {
        self.metrics.task_restarts.with_label_values(&[self.name]).inc();
        tracing::error!(task = self.name, has_panicked, "a background task has ended, and is begun anew");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::Supervised;
    use crate::telemetry::metrics::Metrics;

    #[tokio::test]
    async fn a_task_that_panics_is_begun_anew_and_counted_until_the_process_ends() {
        let metrics = Metrics::new().unwrap();
        let (begun, ended) = (Arc::new(AtomicU32::new(0)), AtomicU32::new(0));
        let (shut_down, shutdown) = tokio::sync::watch::channel(false);
        let begin = || {
            let (count, shut_down) = (begun.fetch_add(1, Ordering::SeqCst), shut_down.clone());
            async move {
                assert!(count == 2, "the first two fail");
                shut_down.send_replace(true);
                std::future::pending().await
            }
        };
        let task = Supervised { name: "follower", pause: Duration::ZERO, metrics: &metrics };
        let after_end = || {
            ended.fetch_add(1, Ordering::SeqCst);
        };
        task.run(begin, after_end, shutdown).await;
        assert_eq!((begun.load(Ordering::SeqCst), ended.load(Ordering::SeqCst)), (3, 2));
        assert_eq!(metrics.task_restarts.with_label_values(&["follower"]).get(), 2);
    }
}
