//! All servers of the store: finds the one that has a shard, and asks it.

use std::sync::Arc;

use redis::Value;

use crate::store::redis::cluster::Cluster;
use crate::store::redis::error::RedisError;
use crate::store::redis::names::{self, Shard};
use crate::store::redis::options::Shared;
use crate::store::redis::scripts::Request;
use crate::store::redis::server::Server;

/// The servers.
pub(super) struct Servers {
    shared: Arc<Shared>,
    pub(super) layout: Layout,
}

/// How shards are spread over them.
pub(super) enum Layout {
    /// One has them all.
    One(Arc<Server>),
    /// Several have some each.
    Cluster(Arc<Cluster>),
}

impl Servers {
    pub(super) const fn new(shared: Arc<Shared>, layout: Layout) -> Self {
        Self { shared, layout }
    }

    /// Asks the server that has the shard.
    pub(super) async fn ask(&self, shard: Shard, request: Request<'_>) -> Result<Value, RedisError> {
        self.send(shard, request, None).await
    }

    /// The same for a write that `store.redis.wait_replicas` replicas must have, if `is_write` finds one in the answer.
    pub(super) async fn ask_acknowledged(
        &self,
        shard: Shard,
        request: Request<'_>,
        is_write: fn(&Value) -> bool,
    ) -> Result<Value, RedisError> {
        self.send(shard, request, Some(is_write)).await
    }

    async fn send(
        &self,
        shard: Shard,
        request: Request<'_>,
        is_write: Option<fn(&Value) -> bool>,
    ) -> Result<Value, RedisError> {
        let request = self.shared.timed(request);
        let answer = self.server(shard)?.ask(&request, is_write).await;
        let moved_to = match (&self.layout, &answer) {
            (Layout::Cluster(cluster), Err(error)) => cluster.moved_to(error),
            _ => None,
        };
        // A node that only redirected the request has not done it.
        match moved_to {
            Some(server) => server.ask(&request, is_write).await,
            None => answer,
        }
    }

    /// Writes to every server, to see whether it can be. A node whose slot is on its way is one that answers.
    pub(super) async fn probe(&self) -> Result<(), RedisError> {
        for server in self.all()? {
            let probe = self.shared.command("SET", names::probe(server.first_shard())).arg("");
            match (&self.layout, server.ask(&probe.arg("EX").arg(60), None).await) {
                (Layout::Cluster(_), Err(error)) if error.is_elsewhere() => {}
                (Layout::One(_) | Layout::Cluster(_), written) => drop(written?),
            }
        }
        Ok(())
    }

    /// From which timestamp on signatures are taken everywhere, in Unix seconds, as far as is known.
    pub(super) fn accepted_from_secs(&self) -> u64 {
        let servers = self.all().unwrap_or_default();
        servers.iter().map(|server| server.accepted_from_secs()).max().unwrap_or_default()
    }

    /// By how many microseconds a server's clock is ahead of this machine's: of the server for which that is most.
    pub(super) fn clock_offset_micros(&self) -> Option<i64> {
        let servers = self.all().unwrap_or_default();
        servers.iter().filter_map(|server| server.clock_offset_micros()).max_by_key(|offset| offset.abs())
    }

    /// How many replicas a server lacks of those that must acknowledge writes: the server that lacks most.
    pub(super) fn replicas_missing(&self) -> Option<u32> {
        self.all().unwrap_or_default().iter().filter_map(|server| server.replicas_missing()).max()
    }

    fn all(&self) -> Result<Vec<Arc<Server>>, RedisError> {
        match &self.layout {
            Layout::One(server) => Ok(vec![Arc::clone(server)]),
            Layout::Cluster(cluster) => cluster.nodes(),
        }
    }

    fn server(&self, shard: Shard) -> Result<Arc<Server>, RedisError> {
        match &self.layout {
            Layout::One(server) => Ok(Arc::clone(server)),
            Layout::Cluster(cluster) => cluster.server(shard),
        }
    }
}
