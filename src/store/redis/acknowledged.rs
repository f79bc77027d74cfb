//! The connection for writes that replicas must acknowledge.
//!
//! Waiting for replicas holds up everything behind it on the same connection. So its silences say nothing of the server,
//! and when it is silent for too long, it alone is made anew: what is queued up on it goes with it. Must not know what is
//! written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::ArcSwapOption;
use redis::aio::MultiplexedConnection;

use crate::domain::redis_url::RedisHost;
use crate::store::redis::trouble::Trouble;

/// The connection, or nothing while it is being made anew.
pub(super) struct Acknowledged {
    current: ArcSwapOption<Waiting>,
}

/// A connection on which replicas are waited for.
pub(super) struct Waiting {
    pub(super) connection: MultiplexedConnection,
    waits: AtomicU32,
}

/// Somebody waits for replicas, until this is dropped.
pub(super) struct Wait<'a>(&'a AtomicU32);

impl Acknowledged {
    pub(super) fn new(connection: MultiplexedConnection) -> Self {
        let acknowledged = Self { current: ArcSwapOption::empty() };
        acknowledged.set(connection);
        acknowledged
    }

    pub(super) fn current(&self) -> Result<Arc<Waiting>, Trouble> {
        let gone = || Trouble::Down("that which replicas acknowledge on is made anew".to_owned());
        self.current.load_full().ok_or_else(gone)
    }

    pub(super) fn set(&self, connection: MultiplexedConnection) {
        self.current.store(Some(Arc::new(Waiting { connection, waits: AtomicU32::new(0) })));
    }

    /// Gives this connection up, if it is still the current one.
    pub(super) fn give_up(&self, waiting: &Arc<Waiting>, server: &RedisHost) {
        let given_up = self.current.compare_and_swap(waiting, None);
        if given_up.as_ref().is_some_and(|current| Arc::ptr_eq(current, waiting)) {
            tracing::warn!(%server, "replicas keep a connection to Redis waiting for too long; it is made anew");
        }
    }
}

impl Waiting {
    /// Begins to wait.
    pub(super) fn wait(&self) -> Wait<'_> {
        self.waits.fetch_add(1, Ordering::Relaxed);
        Wait(&self.waits)
    }

    /// Whether nobody waits.
    pub(super) fn is_idle(&self) -> bool {
        self.waits.load(Ordering::Relaxed) == 0
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
