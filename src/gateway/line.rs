//! Requests that wait for a place, in the order in which they came. Without any of them no lock is taken.

use std::{sync::atomic::AtomicU32, sync::atomic::Ordering::SeqCst, time::Duration};

use tokio::sync::{Mutex, Notify};
use tokio::time::timeout;

/// A line for places that are counted elsewhere.
#[derive(Debug, Default)]
pub(super) struct Line {
    waiting: AtomicU32,
    first: Mutex<()>,
    freed: Notify,
}

/// One that waits, until it is dropped.
struct Waiting<'a>(&'a AtomicU32);

impl Line {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.load(SeqCst) == 0
    }

    /// A place was given back.
    pub(super) fn freed(&self) {
        if !self.is_empty() {
            self.freed.notify_one();
        }
    }

    /// The place that comes free when it is this request's turn; `None` if `most` wait already, or after so long. `take`
    /// must leave everything as it was when it finds no place: it runs once for each place that comes free.
    pub(super) async fn wait<T>(
        &self,
        most: u32,
        longest: Duration,
        take: impl Fn() -> Option<T>,
    ) -> Option<T> {
        if !take_one(&self.waiting, most) {
            return None;
        }
        let _waiting = Waiting(&self.waiting);
        let place = async {
            let _first = self.first.lock().await;
            loop {
                if let Some(place) = take() {
                    return place;
                }
                self.freed.notified().await;
            }
        };
        timeout(longest, place).await.ok()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// Counts one more, unless there are `max`.
pub(super) fn take_one(count: &AtomicU32, max: u32) -> bool {
    count.fetch_update(SeqCst, SeqCst, |taken| (taken < max).then_some(taken + 1)).is_ok()
}
