//! One read per agent at a time, however many wait for it.
//!
//! Whoever asks is answered only by a read that began after it asked: an older one may have missed what the asker
//! already knows. So at most two reads follow each other for any crowd, and none is older than its asker.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Reads of one kind, by key.
pub(super) struct Coalesced<K, V> {
    under_way: Mutex<HashMap<K, Arc<Turn<V>>>>,
    tickets: AtomicU64,
}

/// One key's place: whoever holds the lock reads, the others wait.
struct Turn<V> {
    /// The last read's result and the ticket it was begun with.
    last: tokio::sync::Mutex<Option<(u64, V)>>,
}

impl<K: Hash + Eq + Copy, V: Clone> Coalesced<K, V> {
    pub(super) fn new() -> Self {
        Self { under_way: Mutex::new(HashMap::new()), tickets: AtomicU64::new(0) }
    }

    /// The result of a read of `key` that began after this call: somebody else's, or `read`'s own.
    pub(super) async fn get<F>(&self, key: K, read: impl FnOnce() -> F) -> V
    where
        F: Future<Output = V>,
    {
        let asked = self.tickets.fetch_add(1, Ordering::Relaxed);
        let turn = self.join(key);
        let place = Leaving { all: self, key, turn: &turn };
        let mut last = place.turn.last.lock().await;
        if let Some((begun, value)) = last.as_ref()
            && *begun > asked
        {
            return value.clone();
        }
        let begun = self.tickets.fetch_add(1, Ordering::Relaxed);
        let value = read().await;
        *last = Some((begun, value.clone()));
        value
    }

    fn join(&self, key: K) -> Arc<Turn<V>> {
        let mut under_way = self.under_way.lock();
        let turn =
            under_way.entry(key).or_insert_with(|| Arc::new(Turn { last: tokio::sync::Mutex::new(None) }));
        Arc::clone(turn)
    }
}

/// Takes the key's place away when the last one leaves, also when a caller gives up half-way.
struct Leaving<'a, K: Hash + Eq + Copy, V> {
    all: &'a Coalesced<K, V>,
    key: K,
    turn: &'a Arc<Turn<V>>,
}

impl<K: Hash + Eq + Copy, V> Drop for Leaving<'_, K, V> {
    fn drop(&mut self) {
        let mut under_way = self.all.under_way.lock();
        // Two hold it when nobody else does: the map and this caller. Joining needs the lock that is held here.
        if Arc::strong_count(self.turn) == 2 {
            under_way.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::Notify;

    use super::Coalesced;
    use crate::chain::tests::clock::until;

    #[tokio::test]
    async fn a_crowd_is_served_by_two_reads_and_nobody_by_one_that_began_before_it_asked() {
        let reads = Arc::new(Coalesced::<u8, u32>::new());
        let (count, gate, begun) =
            (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()), Arc::new(Notify::new()));

        let first = tokio::spawn({
            let (reads, count, gate, begun) = (reads.clone(), count.clone(), gate.clone(), begun.clone());
            async move {
                reads
                    .get(1, || async move {
                        let value = count.fetch_add(1, Ordering::SeqCst);
                        begun.notify_one();
                        gate.notified().await;
                        value
                    })
                    .await
            }
        });
        begun.notified().await;

        let crowd: Vec<_> = (0..1_000)
            .map(|_| {
                let (reads, count) = (reads.clone(), count.clone());
                tokio::spawn(async move {
                    reads.get(1, || async move { count.fetch_add(1, Ordering::SeqCst) }).await
                })
            })
            .collect();
        until(|| Arc::strong_count(reads.under_way.lock().get(&1).unwrap()) == 1_002).await;
        gate.notify_one();

        assert_eq!(first.await.unwrap(), 0);
        for member in crowd {
            assert_eq!(member.await.unwrap(), 1, "served by the second read, which began after it asked");
        }
        assert_eq!(count.load(Ordering::SeqCst), 2);
        assert!(reads.under_way.lock().is_empty(), "nothing is kept once everybody has left");
    }

    #[tokio::test]
    async fn a_caller_that_gives_up_leaves_the_others_a_read_and_nothing_behind() {
        let reads = Arc::new(Coalesced::<u8, u32>::new());
        let hung = tokio::spawn({
            let reads = reads.clone();
            async move { reads.get(1, std::future::pending).await }
        });
        until(|| !reads.under_way.lock().is_empty()).await;
        let waiting = tokio::spawn({
            let reads = reads.clone();
            async move { reads.get(1, || async { 7 }).await }
        });
        until(|| Arc::strong_count(reads.under_way.lock().get(&1).unwrap()) == 3).await;
        hung.abort();
        assert_eq!(waiting.await.unwrap(), 7);
        assert!(hung.await.is_err());
        assert!(reads.under_way.lock().is_empty());
    }
}
