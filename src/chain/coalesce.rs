//! One read of a key at a time, however many wait for it, and a bounded number of calls for all keys.
//!
//! An asker is answered only by a read that begins after it asked: an older one may have missed what the asker
//! already knows. So a key has at most one read under way, which nobody joins any more, and one that has not begun,
//! which all join.
//!
//! Calls are tasks that end after [`WAIT_TIME_MAX`], and not with who asked. A read that has not begun is forgotten
//! when all who wait for it have left.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::chain::pool::WAIT_TIME_MAX;

/// The bounds of calls.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// How many are under way at once.
    pub(super) calls: usize,
    /// So many of these begin with however few keys. More begin only when they are full.
    pub(super) calls_unfilled: usize,
    /// How many keys go with one call.
    pub(super) keys: usize,
}

/// Reads of one kind, by key.
pub(super) struct Coalesced<K, V>(Arc<Reads<K, V>>);

struct Reads<K, V> {
    bounds: Bounds,
    runtime: Handle,
    /// Has a value for each key, in order.
    read: Box<dyn Fn(Vec<K>) -> BoxFuture<'static, Vec<V>> + Send + Sync>,
    state: Mutex<State<K, V>>,
}

struct State<K, V> {
    keys: HashMap<K, OfKey<V>>,
    /// Keys whose next read may begin, in the order in which these were asked for.
    ready: BTreeMap<u64, K>,
    asked: u64,
    calls: usize,
}

struct OfKey<V> {
    is_under_way: bool,
    next: Option<Next<V>>,
}

/// A read that has not begun. Those who wait for it are the receivers.
struct Next<V> {
    number: u64,
    result: watch::Sender<Option<V>>,
}

impl<K, V> Coalesced<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Reads of several keys in one call, on this runtime.
    pub(super) fn new(
        runtime: Handle,
        bounds: Bounds,
        read: impl Fn(Vec<K>) -> BoxFuture<'static, Vec<V>> + Send + Sync + 'static,
    ) -> Self {
        let state = State { keys: HashMap::new(), ready: BTreeMap::new(), asked: 0, calls: 0 };
        Self(Arc::new(Reads { bounds, runtime, read: Box::new(read), state: Mutex::new(state) }))
    }

    /// Reads of one key each from `of`, at most so many at once.
    pub(super) fn one_by_one<T: Send + Sync + 'static, F: Future<Output = V> + Send + 'static>(
        runtime: &Handle,
        calls: usize,
        of: &Arc<T>,
        read: impl Fn(Arc<T>, K) -> F + Send + Sync + 'static,
    ) -> Self {
        let (of, bounds) = (Arc::clone(of), Bounds { calls, calls_unfilled: calls, keys: 1 });
        Self::new(runtime.clone(), bounds, move |keys| {
            Box::pin(join_all(keys.into_iter().map(|key| read(Arc::clone(&of), key))))
        })
    }

    /// The result of a read of `key` that began after this call. `None` when its time was over, or it panicked.
    pub(super) async fn get(&self, key: K) -> Option<V> {
        let (read, begins) = self.0.state.lock().join(&key, &self.0.bounds);
        if begins {
            self.0.runtime.spawn(Arc::clone(&self.0).call());
        }
        let mut waiting = Waiting { reads: &self.0, key, read: Some(read) };
        let value = waiting.read.as_mut()?.wait_for(Option::is_some).await.ok()?;
        value.clone()
    }
}

impl<K: Hash + Eq + Clone, V: Clone> Reads<K, V> {
    /// A call, and the next one, for as long as keys are ready.
    async fn call(self: Arc<Self>) {
        let mut ended = Vec::new();
        loop {
            let begun = self.state.lock().next_call(ended, &self.bounds);
            if begun.is_empty() {
                return;
            }
            let (keys, results): (Vec<K>, Vec<_>) = begun.into_iter().unzip();
            let read = async { (self.read)(keys.clone()).await };
            // The log has a panic already. Those who wait notice that nothing comes.
            let read = timeout(WAIT_TIME_MAX, AssertUnwindSafe(read).catch_unwind()).await;
            for (result, value) in results.into_iter().zip(read.ok().and_then(Result::ok).unwrap_or_default())
            {
                // Those who waited may have left.
                let _ = result.send(Some(value));
            }
            ended = keys;
        }
    }
}

impl<K: Hash + Eq + Clone, V: Clone> State<K, V> {
    /// Joins the read of this key that has not begun; true if a call has to begin for it.
    fn join(&mut self, key: &K, bounds: &Bounds) -> (watch::Receiver<Option<V>>, bool) {
        let of_key = self.keys.entry(key.clone()).or_insert(OfKey { is_under_way: false, next: None });
        if let Some(next) = &of_key.next {
            return (next.result.subscribe(), false);
        }
        let (result, read) = watch::channel(None);
        let number = self.asked;
        self.asked += 1;
        of_key.next = Some(Next { number, result });
        if of_key.is_under_way {
            return (read, false);
        }
        self.ready.insert(number, key.clone());
        let begins = self.calls < bounds.calls
            && (self.calls < bounds.calls_unfilled || self.ready.len() >= bounds.keys);
        self.calls += usize::from(begins);
        (read, begins)
    }

    /// Forgets the read of this key if it has not begun and nobody waits for it.
    fn leave(&mut self, key: &K) {
        let Some(of_key) = self.keys.get_mut(key) else { return };
        let Some(next) = of_key.next.take_if(|next| next.result.is_closed()) else { return };
        self.ready.remove(&next.number);
        if !of_key.is_under_way {
            self.keys.remove(key);
        }
    }

    /// A call has ended with these keys. The keys that begin now, each with where its result goes; with none the call's
    /// task is to end.
    fn next_call(&mut self, ended: Vec<K>, bounds: &Bounds) -> Vec<(K, watch::Sender<Option<V>>)> {
        for key in ended {
            let Some(of_key) = self.keys.get_mut(&key) else { continue };
            of_key.is_under_way = false;
            match &of_key.next {
                Some(next) => _ = self.ready.insert(next.number, key),
                None => _ = self.keys.remove(&key),
            }
        }
        let mut begun = Vec::new();
        let has_enough = self.calls <= bounds.calls_unfilled || self.ready.len() >= bounds.keys;
        while has_enough && begun.len() < bounds.keys {
            let Some((_, key)) = self.ready.pop_first() else { break };
            let Some(of_key) = self.keys.get_mut(&key) else { continue };
            match of_key.next.take() {
                Some(next) if !next.result.is_closed() => {
                    of_key.is_under_way = true;
                    begun.push((key, next.result));
                }
                Some(_) | None => _ = self.keys.remove(&key),
            }
        }
        self.calls -= usize::from(begun.is_empty());
        begun
    }
}

/// One who waits for a read.
struct Waiting<'a, K: Hash + Eq + Clone, V: Clone> {
    reads: &'a Reads<K, V>,
    key: K,
    read: Option<watch::Receiver<Option<V>>>,
}

impl<K: Hash + Eq + Clone, V: Clone> Drop for Waiting<'_, K, V> {
    fn drop(&mut self) {
        // Each lets go before it looks, so the last one sees that all have left.
        self.read = None;
        self.reads.state.lock().leave(&self.key);
    }
}

#[cfg(test)]
mod tests;
