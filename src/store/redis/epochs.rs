//! The epochs of a server's shards: begun with each session, and looked at while it goes on. What an epoch is stands in
//! `scripts/nonces.lua`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};

use crate::domain::redis_url::RedisLayout;
use crate::store::redis::answers::number;
use crate::store::redis::error::RedisError;
use crate::store::redis::names::Shard;
use crate::store::redis::server::Server;
use crate::store::redis::session::Session;
use crate::within::within;

/// The shards of a server.
pub(super) struct Shards {
    pub(super) all: Vec<Shard>,
    /// True once their epochs were begun.
    pub(super) begun: bool,
    /// How many looks there were at one of them.
    looks: usize,
}

impl Shards {
    pub(super) const fn new(all: Vec<Shard>) -> Self {
        Self { all, begun: false, looks: 0 }
    }

    /// The next one to look at, and if their epochs were begun.
    fn next(&mut self) -> (Shard, bool) {
        self.looks = self.looks.wrapping_add(1);
        let place = self.looks.checked_rem(self.all.len()).unwrap_or_default();
        (self.all.get(place).copied().unwrap_or(Shard::FIRST), self.begun)
    }
}

impl Server {
    /// One of the server's shards.
    pub(super) fn first_shard(&self) -> Shard {
        self.shards.lock().all.first().copied().unwrap_or(Shard::FIRST)
    }

    /// Replaces the shards whose epochs are begun here.
    pub(super) fn set_shards(&self, shards: Vec<Shard>) {
        let mut before = self.shards.lock();
        if before.all != shards {
            *before = Shards::new(shards);
        }
    }

    /// From which timestamp on signatures are taken in every shard, in Unix seconds.
    pub(super) fn accepted_from_secs(&self) -> u64 {
        self.accepted_from_secs.load(Ordering::Relaxed)
    }

    /// Begins the epochs of all shards of this server where nonces may have been lost. Otherwise each shard's first
    /// signature would begin its own, much later.
    ///
    /// A slot of a cluster that is not wholly with the node keeps nobody from the others. Its epoch is begun by the next
    /// signature there.
    pub(super) async fn begin_epochs(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<(), RedisError> {
        let (shared, shards) = (&self.shared, self.shards.lock().all.clone());
        let mut pipeline = redis::pipe();
        // In front, on the same connection: the server may not know the script.
        pipeline.ignore_errors().add_command(shared.scripts.epoch.load());
        for shard in &shards {
            pipeline.add_command(shared.timed(shared.epoch_of(*shard)).packed().clone());
        }
        let asked = pipeline.query_async::<Vec<RedisResult<Value>>>(connection);
        let time_max = shared.options.connect_timeout();
        let answers = within(time_max, asked).await.ok_or(RedisError::Timeout(time_max))??;
        let is_cluster = matches!(shared.options.url.layout(), RedisLayout::Cluster { .. });
        let mut latest = 0;
        for answer in answers.into_iter().skip(1) {
            match answer.map_err(RedisError::from) {
                Ok(from) => latest = latest.max(number(&from)?),
                Err(RedisError::ClusterDown(_)) => {}
                Err(error) if is_cluster && error.is_elsewhere() => {}
                Err(error) => return Err(error),
            }
        }
        self.accepted_from_secs.store(latest, Ordering::Relaxed);
        let mut now = self.shards.lock();
        if now.all == shards {
            now.begun = true;
        }
        Ok(())
    }

    /// Looks at the epoch of one shard after the other, and begins all where it is a later one: in another life of the
    /// server, after a flush, for longer settings, or with other shards. A failure leaves it to the next look.
    pub(super) async fn look_at_epochs(&self, session: &Arc<Session>) -> Result<(), RedisError> {
        let connection = self.connection(session)?;
        let (shard, begun) = self.shards.lock().next();
        if begun {
            let epoch = self.shared.timed(self.shared.epoch_of(shard));
            let seen = number(&self.ask_on(session, &connection, &epoch).await?)?;
            if seen <= self.accepted_from_secs() {
                return Ok(());
            }
        }
        self.begin_epochs(&mut connection.redis.clone()).await
    }
}
