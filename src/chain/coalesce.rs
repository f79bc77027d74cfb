//! One read of a key at a time, however many wait for it, and a bounded number of calls for all keys.
//!
//! An asker is answered only by a read that begins after it asked: an older one may have missed what the asker
//! already knows. So a key has at most one read under way, which nobody joins any more, and one that has not begun,
//! which all join.
//!
//! Calls are tasks that end after [`WAIT_TIME_MAX`], and not with who asked. A call answers its keys one by one. A read that has
//! not begun is forgotten when all who wait for it have left.

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

pub(super) trait Key: Hash + Eq + Clone + Send + Sync + 'static {}
impl<K: Hash + Eq + Clone + Send + Sync + 'static> Key for K {}

pub(super) trait Value: Clone + Send + Sync + 'static {}
impl<V: Clone + Send + Sync + 'static> Value for V {}

/// Reads of one kind, by key.
pub(super) struct Coalesced<K: Key, V: Value>(Arc<Reads<K, V>>);

struct Reads<K: Key, V: Value> {
    bounds: Bounds,
    runtime: Handle,
    read: Call<K, V>,
    state: Mutex<State<K, V>>,
}

/// Answers each of these.
type Call<K, V> = Box<dyn Fn(Vec<Wanted<K, V>>) -> BoxFuture<'static, ()> + Send + Sync>;

/// A key whose read has begun. Who waits for it hears nothing if this is dropped.
pub(super) struct Wanted<K: Key, V: Value> {
    pub(super) key: K,
    result: watch::Sender<Option<V>>,
    reads: Arc<Reads<K, V>>,
}

impl<K: Key, V: Value> Wanted<K, V> {
    pub(super) fn answer(self, value: V) {
        // Those who waited may have left.
        let _ = self.result.send(Some(value));
    }
}

impl<K: Key, V: Value> Drop for Wanted<K, V> {
    fn drop(&mut self) {
        if self.reads.state.lock().end(&self.key, &self.reads.bounds) {
            self.reads.runtime.spawn(Arc::clone(&self.reads).call());
        }
    }
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

impl<K: Key, V: Value> Coalesced<K, V> {
    /// Reads of several keys in one call, on this runtime.
    pub(super) fn new(
        runtime: Handle,
        bounds: Bounds,
        read: impl Fn(Vec<Wanted<K, V>>) -> BoxFuture<'static, ()> + Send + Sync + 'static,
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
        Self::new(runtime.clone(), bounds, move |wanted| {
            let reads: Vec<_> =
                wanted.into_iter().map(|one| (read(Arc::clone(&of), one.key.clone()), one)).collect();
            Box::pin(join_all(reads.into_iter().map(async |(read, one)| one.answer(read.await))).map(drop))
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

impl<K: Key, V: Value> Reads<K, V> {
    /// A call, and the next one, for as long as keys are ready.
    async fn call(self: Arc<Self>) {
        loop {
            let begun = self.state.lock().next_call(&self.bounds);
            if begun.is_empty() {
                return;
            }
            let wanted = |(key, result)| Wanted { key, result, reads: Arc::clone(&self) };
            let wanted = begun.into_iter().map(wanted).collect();
            let read = async { (self.read)(wanted).await };
            // The log has a panic already. Those who wait notice that nothing comes.
            let _ = timeout(WAIT_TIME_MAX, AssertUnwindSafe(read).catch_unwind()).await;
        }
    }
}

impl<K: Key, V: Value> State<K, V> {
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
        (read, self.begins(bounds))
    }

    /// True if a call has to begin for a key that is ready now.
    fn begins(&mut self, bounds: &Bounds) -> bool {
        let begins = self.calls < bounds.calls
            && (self.calls < bounds.calls_unfilled || self.ready.len() >= bounds.keys);
        self.calls += usize::from(begins);
        begins
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

    /// The read of this key has ended; true if a call has to begin for the next one.
    fn end(&mut self, key: &K, bounds: &Bounds) -> bool {
        let Some(of_key) = self.keys.get_mut(key) else { return false };
        of_key.is_under_way = false;
        let Some(next) = &of_key.next else {
            self.keys.remove(key);
            return false;
        };
        self.ready.insert(next.number, key.clone());
        self.begins(bounds)
    }

    /// The keys that begin now, each with where its result goes; with none the call's task is to end.
    fn next_call(&mut self, bounds: &Bounds) -> Vec<(K, watch::Sender<Option<V>>)> {
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
struct Waiting<'a, K: Key, V: Value> {
    reads: &'a Reads<K, V>,
    key: K,
    read: Option<watch::Receiver<Option<V>>>,
}

impl<K: Key, V: Value> Drop for Waiting<'_, K, V> {
    fn drop(&mut self) {
        // Each lets go before it looks, so the last one sees that all have left.
        self.read = None;
        self.reads.state.lock().leave(&self.key);
    }
}

#[cfg(test)]
mod tests;
