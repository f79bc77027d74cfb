//! The connections to one server, one for each runtime that asks.
//!
//! A request that goes through a connection of another runtime wakes another thread and is woken by it, which costs more
//! than the request itself. So the first request of a runtime has a connection made that lives there; until it is
//! there, requests go through another one. Silence is counted per connection: one that is dead is dropped and made anew
//! while the others answer. A session without connections is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use redis::aio::MultiplexedConnection;
use tokio::runtime::{Handle, Id};

use crate::domain::redis_url::RedisHost;
use crate::store::redis::connect::{Login, connect, in_time};
use crate::store::redis::error::RedisError;
use crate::store::redis::info::Info;
use crate::store::redis::options::Shared;

/// So many requests in a row without an answer end a connection.
const SILENCES_MAX: u32 = 4;

/// How long to wait before a connection that could not be made is tried again, in microseconds.
const PAUSE_MICROS: u64 = 1_000_000;

/// The connections to one process of a server that may be used.
pub(super) struct Session {
    pub(super) host: RedisHost,
    /// The server, as it was when the session began.
    info: Info,
    pub(super) connections: ArcSwap<Vec<Arc<Connection>>>,
    /// Before this moment none is made, in monotonic microseconds: they are made one at a time.
    next_connect_micros: AtomicU64,
    /// By how many microseconds the server's clock is ahead of this machine's; [`i64::MIN`] until that is known.
    pub(super) clock_offset_micros: AtomicI64,
}

/// One connection.
pub(super) struct Connection {
    pub(super) redis: MultiplexedConnection,
    runtime: Id,
    silences: AtomicU32,
}

impl Connection {
    pub(super) fn new(redis: MultiplexedConnection) -> Arc<Self> {
        Arc::new(Self { redis, runtime: Handle::current().id(), silences: AtomicU32::new(0) })
    }

    /// A request was answered.
    pub(super) fn answered(&self) {
        // Nearly always 0 already: a look costs less than a write to what other threads look at.
        if self.silences.load(Ordering::Relaxed) > 0 {
            self.silences.store(0, Ordering::Relaxed);
        }
    }

    /// A request was not answered in time. True when that was one too many.
    pub(super) fn silent(&self) -> bool {
        self.silences.fetch_add(1, Ordering::Relaxed) + 1 >= SILENCES_MAX
    }
}

impl Session {
    /// With a first connection, made in the current runtime.
    pub(super) fn new(host: RedisHost, info: Info, first: MultiplexedConnection) -> Self {
        Self {
            host,
            info,
            connections: ArcSwap::from_pointee(vec![Connection::new(first)]),
            next_connect_micros: AtomicU64::new(0),
            clock_offset_micros: AtomicI64::new(i64::MIN),
        }
    }

    /// The current runtime's connection. Until there is one, another that is not silent; `None` where there is none.
    pub(super) fn connection(self: &Arc<Self>, shared: &Arc<Shared>) -> Option<Arc<Connection>> {
        let runtime = Handle::current();
        let connections = self.connections.load();
        if let Some(own) = connections.iter().find(|connection| connection.runtime == runtime.id()) {
            return Some(Arc::clone(own));
        }
        let now = shared.clock.monotonic_micros();
        let later = |next| (now >= next).then_some(now.saturating_add(PAUSE_MICROS));
        if self.next_connect_micros.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later).is_ok() {
            runtime.spawn(Arc::clone(self).add(Arc::clone(shared)));
        }
        connections.iter().find(|other| other.silences.load(Ordering::Relaxed) == 0).cloned()
    }

    /// Drops a connection. True when it was the last one.
    pub(super) fn remove(&self, dead: &Arc<Connection>) -> bool {
        self.connections.rcu(|connections| {
            let others = connections.iter().filter(|other| !Arc::ptr_eq(other, dead)).cloned();
            others.collect::<Vec<_>>()
        });
        self.connections.load().is_empty()
    }

    /// Succeeds when the server may still be used, and is the process that the session began with. At one address there
    /// may be another one a moment later.
    pub(super) fn check(&self, info: &Info) -> Result<(), RedisError> {
        info.check_usable(&self.info)?;
        info.check_same(&self.info)
    }

    /// Makes another connection to the same process, or none.
    pub(super) async fn connect(&self, shared: &Shared) -> Result<MultiplexedConnection, RedisError> {
        let connected = async {
            let mut connection = connect(shared, &self.host, Login::Server).await?;
            self.check(&Info::of(&mut connection).await?)?;
            Ok(connection)
        };
        in_time(shared.options.connect_timeout(), connected).await
    }

    /// Makes a connection that lives in the current runtime.
    async fn add(self: Arc<Self>, shared: Arc<Shared>) {
        match self.connect(&shared).await {
            Ok(redis) => {
                let made = Connection::new(redis);
                self.connections.rcu(|connections| {
                    let others = connections.iter().filter(|other| other.runtime != made.runtime).cloned();
                    others.chain([Arc::clone(&made)]).collect::<Vec<_>>()
                });
            }
            // Others serve meanwhile.
            Err(error) => tracing::debug!(%error, "cannot make another connection to Redis"),
        }
    }
}
