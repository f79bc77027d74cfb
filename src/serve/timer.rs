//! One timer for a whole connection: deadlines move with each step, and the runtime's timer is set again only when one
//! comes before the moment that it is set to.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::{future::poll_fn, time::Duration};

use tokio::time::{Instant, Sleep, sleep};

/// The moment that a timer is set to while nothing is waited for.
const FAR: Duration = Duration::from_secs(24 * 60 * 60);

/// The timer of a connection.
pub(crate) struct Timer {
    sleep: Pin<Box<Sleep>>,
}

impl Timer {
    pub(crate) fn new() -> Self {
        Self { sleep: Box::pin(sleep(FAR)) }
    }

    /// The runtime's time. Tests simulate it.
    pub(crate) fn now() -> Instant {
        Instant::now()
    }

    /// Ready when the deadline has passed.
    pub(crate) fn poll_until(&mut self, deadline: Instant, context: &mut Context<'_>) -> Poll<()> {
        if deadline < self.sleep.deadline() {
            self.sleep.as_mut().reset(deadline);
        }
        loop {
            ready!(self.sleep.as_mut().poll(context));
            let now = Self::now();
            if deadline <= now {
                self.sleep.as_mut().reset(now + FAR);
                return Poll::Ready(());
            }
            self.sleep.as_mut().reset(deadline);
        }
    }

    /// The output of a future; `None` if it is not ready before the deadline.
    pub(crate) async fn until<T>(&mut self, deadline: Instant, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        let next = |context: &mut Context<'_>| match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => self.poll_until(deadline, context).map(|()| None),
        };
        poll_fn(next).await
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, time::Duration};

    use super::Timer;

    #[tokio::test(start_paused = true)]
    async fn each_deadline_is_met_whether_it_moves_closer_or_further_away() {
        let mut timer = Timer::new();
        for seconds in [5, 60, 1, 600, 2] {
            let (begun, waited) = (Timer::now(), Duration::from_secs(seconds));
            poll_fn(|context| timer.poll_until(begun + waited, context)).await;
            let late = Timer::now() - begun - waited;
            assert!(late < Duration::from_millis(2), "{seconds}: {late:?}");
        }
    }
}
