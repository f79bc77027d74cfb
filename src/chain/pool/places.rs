//! Bounded concurrency, so that whoever has shown nothing can't keep those waiting who have.

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::ports::chain::Asker;

/// Calls under way at once, over all nodes.
pub(crate) const PLACES_MAX: usize = 128;

/// The most connections to a node that wait unused for the next call.
pub(crate) const IDLE_MAX: usize = 32;

/// How many of these strangers may hold. The rest is never theirs.
pub(in crate::chain) const STRANGERS_MAX: usize = PLACES_MAX / 4;

/// The places.
pub(super) struct Places {
    all: Semaphore,
    strangers: Semaphore,
}

/// A place; it is free again when this is dropped.
pub(super) type Place<'a> = (SemaphorePermit<'a>, Option<SemaphorePermit<'a>>);

impl Places {
    pub(super) fn new() -> Self {
        Self { all: Semaphore::new(PLACES_MAX), strangers: Semaphore::new(STRANGERS_MAX) }
    }

    /// A place for this asker. Waits as long as it takes: the caller sets the limit. A stranger queues for a stranger's
    /// place first, so that at most [`STRANGERS_MAX`] of them stand before anybody else.
    ///
    /// `None` comes only of semaphores that are closed, and nobody closes them.
    pub(super) async fn take(&self, asker: Asker) -> Option<Place<'_>> {
        let stranger = match asker {
            Asker::Vouched => None,
            Asker::Stranger => Some(self.strangers.acquire().await.ok()?),
        };
        Some((self.all.acquire().await.ok()?, stranger))
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::{PLACES_MAX, Place, Places, STRANGERS_MAX};
    use crate::ports::chain::Asker;

    /// A place, if there is one now.
    async fn now(places: &Places, asker: Asker) -> Option<Place<'_>> {
        let mut take = std::pin::pin!(tokio::task::unconstrained(places.take(asker)));
        std::future::poll_fn(|context| match take.as_mut().poll(context) {
            Poll::Ready(place) => Poll::Ready(place),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    #[tokio::test]
    async fn strangers_hold_a_quarter_at_most_and_the_known_whatever_is_free() {
        let places = Places::new();
        let mut strangers = Vec::new();
        while let Some(place) = now(&places, Asker::Stranger).await {
            strangers.push(place);
        }
        assert_eq!(strangers.len(), STRANGERS_MAX);
        let mut known = Vec::new();
        while let Some(place) = now(&places, Asker::Vouched).await {
            known.push(place);
        }
        assert_eq!(known.len(), PLACES_MAX - STRANGERS_MAX);
        strangers.clear();
        while let Some(place) = now(&places, Asker::Vouched).await {
            known.push(place);
        }
        assert_eq!(known.len(), PLACES_MAX);
        assert!(now(&places, Asker::Stranger).await.is_none());
        known.pop();
        assert!(now(&places, Asker::Stranger).await.is_some());
    }

    #[tokio::test]
    async fn a_crowd_of_waiting_strangers_does_not_stand_before_the_known() {
        let places = Places::new();
        let mut held = Vec::new();
        for _ in 0..STRANGERS_MAX {
            held.push(now(&places, Asker::Stranger).await.unwrap());
        }
        let mut waiting: Vec<_> = (0..1_000).map(|_| Box::pin(places.take(Asker::Stranger))).collect();
        std::future::poll_fn(|context| {
            assert!(waiting.iter_mut().all(|waiting| waiting.as_mut().poll(context).is_pending()));
            Poll::Ready(())
        })
        .await;
        assert!(now(&places, Asker::Vouched).await.is_some());
    }
}
