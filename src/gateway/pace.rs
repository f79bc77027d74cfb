//! The pace of a request whose library has no limit for reads of its client's body.
//!
//! The request moves its deadline forward with each piece of a body. The task that serves it ends it when one passes.

use std::future::pending;
use std::time::Duration;

use tokio::sync::watch::{Receiver, Sender, channel};
use tokio::time::{Instant, sleep_until};

use crate::serve::timer::Timer;

tokio::task_local! {
    /// The pace of the request that a task serves.
    static PACE: Pace;
}

/// The deadline of a request.
#[derive(Debug, Clone)]
pub(super) struct Pace(Sender<Option<Instant>>);

impl Pace {
    /// The pace of the request that this task serves; `None` where none is kept.
    pub(super) fn of_task() -> Option<Self> {
        PACE.try_with(Self::clone).ok()
    }

    /// Serves a request, and drops it if it does not keep its pace.
    pub(super) async fn keep<T>(request: impl Future<Output = Option<T>>) -> Option<T> {
        let (sender, deadline) = channel(None);
        tokio::select! {
            biased;
            output = PACE.scope(Self(sender), request) => output,
            () = stalled(deadline) => None,
        }
    }

    /// A piece has arrived. The next one must arrive within `longest`.
    pub(super) fn moved(&self, longest: Duration) {
        self.0.send_replace(Some(Timer::now() + longest));
    }

    /// The request has arrived whole: it has no deadline any more.
    pub(super) fn over(&self) {
        self.0.send_replace(None);
    }
}

/// Ready when a deadline has passed before the next piece arrived.
async fn stalled(mut deadline: Receiver<Option<Instant>>) {
    loop {
        let due = *deadline.borrow_and_update();
        match due {
            Some(due) => {
                sleep_until(due).await;
                if *deadline.borrow() == Some(due) {
                    return;
                }
            }
            None if deadline.changed().await.is_ok() => {}
            None => pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::{Pace, Timer, pending};

    const LIMIT: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn a_request_that_moves_is_served_and_one_that_stalls_is_dropped_after_its_limit() {
        let begun = Timer::now();
        let pass = async |time| _ = timeout(time, pending::<()>()).await;
        let request = async |pieces: u32, rest: Duration| {
            let pace = Pace::of_task().unwrap();
            for _ in 0..pieces {
                pace.moved(LIMIT);
                pass(LIMIT - Duration::from_millis(2)).await;
            }
            pace.over();
            pass(10 * LIMIT).await;
            pace.moved(LIMIT);
            pass(rest).await;
            Some(())
        };
        assert_eq!(Pace::keep(request(10, Duration::ZERO)).await, Some(()));
        assert!(Timer::now() - begun > 19 * LIMIT);
        let begun = Timer::now();
        assert_eq!(Pace::keep(request(0, 10 * LIMIT)).await, None);
        assert_eq!(Timer::now() - begun, 11 * LIMIT);
    }
}
