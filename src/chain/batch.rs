//! Reads of several keys in one call, when there are many at once: a few calls in flight, and whoever waits meanwhile goes
//! with the next one. After a restart of the follower all active agents are read again; this paces them.

use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};

/// How many calls are in flight at once.
const CALLS_MAX: usize = 4;

/// How many keys go with one call.
const KEYS_MAX: usize = 16;

pub(super) struct Batches<K, V> {
    waiting: Mutex<Vec<(K, oneshot::Sender<V>)>>,
    calls: Semaphore,
}

impl<K: Copy, V> Batches<K, V> {
    pub(super) fn new() -> Self {
        Self { waiting: Mutex::new(Vec::new()), calls: Semaphore::new(CALLS_MAX) }
    }

    /// The value of a key, from a read that began after this call. `read` has one for each key, in order. `None` when the
    /// caller whose call this key went with gave up.
    pub(super) async fn get<F>(&self, key: K, read: impl Fn(Vec<K>) -> F) -> Option<V>
    where
        F: Future<Output = Vec<V>>,
    {
        let (sender, mut value) = oneshot::channel();
        self.waiting.lock().push((key, sender));
        loop {
            let _call = tokio::select! {
                biased;
                value = &mut value => return value.ok(),
                call = self.calls.acquire() => call.ok()?,
            };
            let taken: Vec<_> = {
                let mut waiting = self.waiting.lock();
                waiting.retain(|(_, sender)| !sender.is_closed());
                let count = waiting.len().min(KEYS_MAX);
                waiting.drain(..count).collect()
            };
            if taken.is_empty() {
                drop(_call);
                return value.await.ok();
            }
            let values = read(taken.iter().map(|(key, _)| *key).collect()).await;
            for ((_, sender), value) in taken.into_iter().zip(values) {
                // A caller that gave up needs no value.
                let _ = sender.send(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Semaphore;

    use super::{Batches, CALLS_MAX, KEYS_MAX};
    use crate::chain::tests::clock::until;

    #[tokio::test]
    async fn a_crowd_of_keys_is_read_by_few_calls_and_each_gets_its_own_value() {
        let batches = Arc::new(Batches::<usize, usize>::new());
        let (calls, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let crowd: Vec<_> = (0..CALLS_MAX + 10 * KEYS_MAX)
            .map(|key| {
                let (batches, calls, gate) = (batches.clone(), calls.clone(), gate.clone());
                tokio::spawn(async move {
                    let read = |keys: Vec<usize>| {
                        calls.fetch_add(1, Ordering::SeqCst);
                        let gate = gate.clone();
                        async move {
                            gate.acquire().await.unwrap().forget();
                            keys.into_iter().map(|key| key * 2).collect()
                        }
                    };
                    assert_eq!(batches.get(key, read).await, Some(key * 2));
                })
            })
            .collect();
        until(|| calls.load(Ordering::SeqCst) >= CALLS_MAX).await;
        gate.add_permits(1_000);
        for member in crowd {
            member.await.unwrap();
        }
        assert!(calls.load(Ordering::SeqCst) <= CALLS_MAX + 10, "{calls:?}");
    }

    #[tokio::test]
    async fn who_went_with_a_caller_that_gave_up_is_told() {
        let batches = Arc::new(Batches::<usize, usize>::new());
        let hung: Vec<_> = (0..CALLS_MAX)
            .map(|key| {
                let batches = batches.clone();
                tokio::spawn(async move { batches.get(key, |_| std::future::pending()).await })
            })
            .collect();
        until(|| batches.calls.available_permits() == 0).await;
        let waiting = tokio::spawn({
            let batches = batches.clone();
            async move { batches.get(9, |keys| async move { keys }).await }
        });
        for caller in &hung {
            caller.abort();
        }
        assert_eq!(waiting.await.unwrap(), Some(9));
    }
}
