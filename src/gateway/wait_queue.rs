//! Requests that wait for a slot, in the order in which they came. Without any of them no lock is taken.

use std::{sync::atomic::AtomicU32, sync::atomic::Ordering::SeqCst, time::Duration};

use tokio::sync::{Mutex, Notify};
use tokio::time::timeout;

/// A queue for slots that are counted elsewhere.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    waiting: AtomicU32,
    first: Mutex<()>,
    freed: Notify,
}

/// One that waits, until it is dropped.
struct Waiting<'a>(&'a AtomicU32);

impl WaitQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.load(SeqCst) == 0
    }

    /// A slot was given back.
    pub(super) fn freed(&self) {
        if !self.is_empty() {
            self.freed.notify_one();
        }
    }

    /// The slot that comes free when it is this request's turn; `None` if `most` wait already, or after so long. `take`
    /// must leave everything as it was when it finds no slot: it runs once for each slot that comes free.
    pub(super) async fn wait<T>(
        &self,
        most: u32,
        longest: Duration,
        take: impl Fn() -> Option<T>,
    ) -> Option<T> {
        if !increment_below(&self.waiting, most) {
            return None;
        }
        let _waiting = Waiting(&self.waiting);
        let slot = async {
            let _first = self.first.lock().await;
            loop {
                if let Some(slot) = take() {
                    return slot;
                }
                self.freed.notified().await;
            }
        };
        timeout(longest, slot).await.ok()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// Counts one more, unless there are `max`.
pub(super) fn increment_below(count: &AtomicU32, max: u32) -> bool {
    count.fetch_update(SeqCst, SeqCst, |taken| (taken < max).then_some(taken + 1)).is_ok()
}
