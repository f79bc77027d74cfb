//! Background tasks: one that ends is begun anew, and the log and a counter say so.
//!
//! Without it a dead task would go unnoticed, and its last results would stand.

use std::{panic::AssertUnwindSafe, time::Duration};

use futures_util::FutureExt;
use tokio::time::sleep;

use crate::telemetry::Metrics;

/// How long after its end a task is begun anew.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs the task that `begin` makes, and the next one when it has ended or panicked, for as long as it is polled. `name` stands
/// in log and metrics.
pub(crate) async fn keep_going<F: Future<Output = ()>>(
    name: &'static str,
    metrics: &Metrics,
    begin: impl Fn() -> F,
) {
    loop {
        let has_panicked = AssertUnwindSafe(async { begin().await }).catch_unwind().await.is_err();
        metrics.task_restarts.with_label_values(&[name]).inc();
        tracing::error!(task = name, has_panicked, "a background task has ended, and is begun anew");
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::time::timeout;

    use super::{PAUSE, keep_going};
    use crate::telemetry::Metrics;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_or_ends_is_begun_anew_a_second_later_and_counted_under_its_name() {
        let (metrics, begun) = (Metrics::new().unwrap(), AtomicU32::new(0));
        let begin = || {
            let number = begun.fetch_add(1, Ordering::SeqCst);
            assert_ne!(number, 0, "the first panics before it is a future");
            async move {
                assert_ne!(number, 1, "the second panics when it is polled");
                if number > 2 {
                    std::future::pending().await
                }
            }
        };
        let mut going = pin!(keep_going("sweeper", &metrics, begin));
        let counts =
            || (begun.load(Ordering::SeqCst), metrics.task_restarts.with_label_values(&["sweeper"]).get());
        timeout(PAUSE * 5 / 2, &mut going).await.unwrap_err();
        assert_eq!(counts(), (3, 3), "the third has ended, and the fourth is not begun yet");
        timeout(PAUSE * 10, going).await.unwrap_err();
        assert_eq!(counts(), (4, 3), "the fourth goes on");
    }
}
