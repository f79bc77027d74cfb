//! A connection for each runtime that asks, beside the one that the store keeps up.
//!
//! A request that goes through a connection of another runtime wakes another thread and is woken by it, which costs more
//! than the request itself. So the first request of a runtime has a connection made that lives there; until it is
//! there, requests go through the store's own. It belongs to one connect of the store and falls with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use redis::aio::MultiplexedConnection;
use tokio::runtime::{Handle, Id};
use tokio::time::timeout;

use crate::store::redis::dial::connect_again;
use crate::store::redis::link::{DIAL_TIME_MAX, Line};
use crate::store::redis::options::Shared;

/// How long to wait before a connection that could not be made is tried again, in microseconds.
const PAUSE_MICROS: u64 = 1_000_000;

/// The connections by runtime. There are as many as doors, and no more.
#[derive(Default)]
pub(super) struct Nearby {
    connections: ArcSwap<Vec<(Id, MultiplexedConnection)>>,
    /// Not before this is another one made, in monotonic microseconds: one at a time, and not again and again.
    next_micros: AtomicU64,
}

impl Nearby {
    /// All of them.
    pub(super) fn all(&self) -> Vec<MultiplexedConnection> {
        self.connections.load().iter().map(|(_, connection)| connection.clone()).collect()
    }

    fn of(&self, runtime: Id) -> Option<MultiplexedConnection> {
        let connections = self.connections.load();
        let (_, connection) = connections.iter().find(|(id, _)| *id == runtime)?;
        Some(connection.clone())
    }

    fn add(&self, runtime: Id, connection: &MultiplexedConnection) {
        self.connections.rcu(|connections| {
            let others = connections.iter().filter(|(id, _)| *id != runtime).cloned();
            others.chain([(runtime, connection.clone())]).collect::<Vec<_>>()
        });
    }

    /// Whether it is this caller's turn to make one.
    fn may_begin(&self, now_micros: u64) -> bool {
        let next = self.next_micros.load(Ordering::Relaxed);
        let after = now_micros.saturating_add(PAUSE_MICROS);
        now_micros >= next
            && self.next_micros.compare_exchange(next, after, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// The connection for requests of the runtime that this is called in.
pub(super) fn nearest(shared: &Arc<Shared>, line: &Arc<Line>) -> MultiplexedConnection {
    let runtime = Handle::current();
    if let Some(connection) = line.nearby.of(runtime.id()) {
        return connection;
    }
    if line.nearby.may_begin(shared.clock.monotonic_micros()) {
        runtime.spawn(make(Arc::clone(shared), Arc::clone(line), runtime.id()));
    }
    line.plain.clone()
}

async fn make(shared: Arc<Shared>, line: Arc<Line>, runtime: Id) {
    let connected = connect_again(&shared, &line.host, &line.identity);
    match timeout(DIAL_TIME_MAX, connected).await {
        Ok(Ok(connection)) => line.nearby.add(runtime, &connection),
        // The store's own serves meanwhile.
        Ok(Err(trouble)) => tracing::debug!(%trouble, "cannot make another connection to Redis"),
        Err(_) => tracing::debug!("another connection to Redis takes too long"),
    }
}
