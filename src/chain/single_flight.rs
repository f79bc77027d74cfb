//! One read of a key at a time, however many wait for it, and a bounded number of calls for all keys.
//!
//! An asker is answered only by a read that begins after it asked: an older one may have missed what the asker
//! already knows. So a key has at most one read under way, which nobody joins any more, and one that is pending,
//! which all join.
//!
//! Calls are tasks that end after [`WAIT_TIME_MAX`], and not with who asked. A call answers its keys one by one. A pending read
//! that nobody waits for does not begin.

use std::collections::{HashMap, VecDeque};
use std::{hash::Hash, panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
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
pub(super) struct SingleFlight<K: Key, V: Value> {
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
    reads: Arc<SingleFlight<K, V>>,
}

impl<K: Key, V: Value> Wanted<K, V> {
    pub(super) fn answer(self, value: V) {
        // Those who waited may have left.
        let _ = self.result.send(Some(value));
    }
}

impl<K: Key, V: Value> Drop for Wanted<K, V> {
    fn drop(&mut self) {
        let mut state = self.reads.state.lock();
        state.end(&self.key);
        self.reads.start(&mut state);
    }
}

struct State<K, V> {
    keys: HashMap<K, KeyState<V>>,
    /// Keys whose pending read may begin, in order.
    ready: VecDeque<K>,
    calls: usize,
}

struct KeyState<V> {
    is_under_way: bool,
    /// The read that has not begun. Those who wait for it are the receivers.
    pending: Option<watch::Sender<Option<V>>>,
}

impl<V> KeyState<V> {
    /// The pending read, if somebody waits for it.
    fn begin(&mut self) -> Option<watch::Sender<Option<V>>> {
        let begun = self.pending.take().filter(|result| !result.is_closed());
        self.is_under_way = begun.is_some();
        begun
    }
}

impl<K: Key, V: Value> SingleFlight<K, V> {
    /// Reads of several keys in one call, on this runtime.
    pub(super) fn new(
        runtime: Handle,
        bounds: Bounds,
        read: impl Fn(Vec<Wanted<K, V>>) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let state = State { keys: HashMap::new(), ready: VecDeque::new(), calls: 0 };
        Arc::new(Self { bounds, runtime, read: Box::new(read), state: Mutex::new(state) })
    }

    /// The result of a read of `key` that began after this call. `None` when its time was over, or it panicked.
    pub(super) async fn get(self: &Arc<Self>, key: K) -> Option<V> {
        let mut read = {
            let mut state = self.state.lock();
            let read = state.join(key);
            self.start(&mut state);
            read
        };
        let value = read.wait_for(Option::is_some).await.ok()?;
        value.clone()
    }

    /// Begins a call if keys are ready for one.
    fn start(self: &Arc<Self>, state: &mut State<K, V>) {
        let Bounds { calls, calls_unfilled, keys } = self.bounds;
        let is_enough = state.ready.len() >= if state.calls < calls_unfilled { 1 } else { keys };
        if is_enough && state.calls < calls {
            state.calls += 1;
            self.runtime.spawn(Arc::clone(self).call());
        }
    }

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

impl<K: Key, V> State<K, V> {
    /// Joins the pending read of this key.
    fn join(&mut self, key: K) -> watch::Receiver<Option<V>> {
        let state = self.keys.entry(key.clone()).or_insert(KeyState { is_under_way: false, pending: None });
        if let Some(pending) = &state.pending {
            return pending.subscribe();
        }
        let (result, read) = watch::channel(None);
        state.pending = Some(result);
        if !state.is_under_way {
            self.make_ready(key);
        }
        read
    }

    /// Before there is room for more keys, those are forgotten that nobody waits for any more.
    fn make_ready(&mut self, key: K) {
        if self.ready.len() == self.ready.capacity() {
            self.ready.retain(|key| {
                let pending = self.keys.get(key).and_then(|state| state.pending.as_ref());
                let is_waited_for = pending.is_some_and(|result| !result.is_closed());
                is_waited_for || self.keys.remove(key).is_none()
            });
            self.ready.reserve(self.ready.len() + 1);
        }
        self.ready.push_back(key);
    }

    /// The read of this key has ended.
    fn end(&mut self, key: &K) {
        let Some(state) = self.keys.get_mut(key) else { return };
        state.is_under_way = false;
        if state.pending.is_none() {
            self.keys.remove(key);
        } else {
            self.make_ready(key.clone());
        }
    }

    /// The keys that begin now, each with where its result goes; with none the call's task is to end.
    fn next_call(&mut self, bounds: &Bounds) -> Vec<(K, watch::Sender<Option<V>>)> {
        let mut begun = Vec::new();
        let has_enough = self.calls <= bounds.calls_unfilled || self.ready.len() >= bounds.keys;
        while has_enough && begun.len() < bounds.keys {
            let Some(key) = self.ready.pop_front() else { break };
            match self.keys.get_mut(&key).and_then(KeyState::begin) {
                Some(result) => begun.push((key, result)),
                None => _ = self.keys.remove(&key),
            }
        }
        self.calls -= usize::from(begun.is_empty());
        begun
    }
}

#[cfg(test)]
mod tests;
