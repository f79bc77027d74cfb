//! The time limit of a request whose library has none for reads of its bodies.
//!
//! The request moves its deadline forward with each piece of a body. The task that serves it ends it when one passes.
//!
//! Toward upstreams of HTTP/2 Pingora 0.9.1, the newest release, counts `read_timeout` from the request's head on. With that limit alone
//! an upload that takes longer is ended, and without one a body that stalls is not: `slow::a_body_of_http_2_that_goes_on_moving_is_not_ended`
//! and `slow::a_body_of_http_2_that_stalls_is_ended_after_read_toward_any_upstream` fail.

use std::task::{Poll, ready};
use std::{cell::Cell, future::poll_fn, pin::pin, time::Duration};

use tokio::time::{Instant, Sleep, sleep_until};

use crate::serve::Timer;

tokio::task_local! {
    /// The deadline of the request that a task serves.
    static DUE: Cell<Option<Instant>>;
}

/// Serves a request, and drops it if it stalls.
pub(super) async fn enforce<T>(request: impl Future<Output = Option<T>>) -> Option<T> {
    let (mut request, mut alarm, mut due) = (pin!(request), pin!(None::<Sleep>), None);
    poll_fn(|context| {
        let poll = || (request.as_mut().poll(context), DUE.with(Cell::get));
        let (polled, next) = DUE.sync_scope(Cell::new(due), poll);
        due = next;
        let Some(due) = due.filter(|_| polled.is_pending()) else { return polled };
        loop {
            if let Some(mut alarm) = alarm.as_mut().as_pin_mut()
                && alarm.deadline() <= due
            {
                ready!(alarm.as_mut().poll(context));
                if alarm.deadline() == due {
                    return Poll::Ready(None);
                }
            }
            alarm.set(Some(sleep_until(due)));
        }
    })
    .await
}

/// Gives the request that this task serves so long until its next piece of a body; `None`: any time.
pub(super) fn restart(longest: Option<Duration>) {
    let _ = DUE.try_with(|due| due.set(longest.map(|longest| Timer::now() + longest)));
}

#[cfg(test)]
mod tests {
    use std::{future::pending, time::Duration};

    use tokio::time::timeout;

    use super::{Timer, enforce, restart};

    const LIMIT: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn a_request_that_moves_is_served_and_one_that_stalls_is_dropped_after_its_limit() {
        let begun = Timer::now();
        let pass = async |time| _ = timeout(time, pending::<()>()).await;
        let request = async |pieces: u32, rest: Duration| {
            for _ in 0..pieces {
                restart(Some(LIMIT));
                pass(LIMIT - Duration::from_millis(2)).await;
            }
            restart(None);
            pass(10 * LIMIT).await;
            restart(Some(LIMIT));
            pass(rest).await;
            Some(())
        };
        assert_eq!(enforce(request(10, Duration::ZERO)).await, Some(()));
        assert!(Timer::now() - begun > 19 * LIMIT);
        let begun = Timer::now();
        assert_eq!(enforce(request(0, 10 * LIMIT)).await, None);
        assert_eq!(Timer::now() - begun, 11 * LIMIT);
    }
}
