//! A cluster: which node has which shard, followed in the background.
//!
//! A node that has a slot no longer says so and does nothing; the request then goes to the one it names, once. While a
//! slot is on its way from one node to another its agents get a fault: no script runs on half of its keys.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use redis::Value;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::domain::redis_url::RedisHost;
use crate::store::redis::answers::{array, bytes, number};
use crate::store::redis::connect::{Login, connect, in_time};
use crate::store::redis::error::RedisError;
use crate::store::redis::names::{SHARDS, Shard};
use crate::store::redis::options::Shared;
use crate::store::redis::scripts::Request;
use crate::store::redis::server::{Address, Server};
use crate::supervision::keep_going;

/// How often the nodes are asked which slots they have.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How long to wait before they are asked again when one said that a slot has moved, or none answered.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A cluster.
pub(super) struct Cluster {
    shared: Arc<Shared>,
    seeds: Vec<RedisHost>,
    /// The runtime of the connections.
    runtime: Handle,
    map: ArcSwap<Map>,
    outdated: Notify,
}

/// Which node has which shard.
#[derive(Default)]
struct Map {
    by_shard: Vec<Option<Arc<Server>>>,
    nodes: HashMap<RedisHost, Node>,
}

/// A node, and the task that keeps its connection up.
#[derive(Clone)]
struct Node {
    server: Arc<Server>,
    keeper: AbortHandle,
}

impl Cluster {
    pub(super) fn new(shared: Arc<Shared>, seeds: Vec<RedisHost>, runtime: Handle) -> Arc<Self> {
        let map = ArcSwap::default();
        Arc::new(Self { shared, seeds, runtime, map, outdated: Notify::new() })
    }

    /// The node that has a shard.
    pub(super) fn server(&self, shard: Shard) -> Result<Arc<Server>, RedisError> {
        let map = self.map.load();
        let server = map.by_shard.get(shard.place()).and_then(Option::as_ref);
        server.cloned().ok_or_else(|| RedisError::Down("no node of the cluster has the slot".to_owned()))
    }

    /// The node that another one named for a slot. The map is drawn anew soon.
    pub(super) fn moved_to(&self, error: &RedisError) -> Option<Arc<Server>> {
        if error.is_elsewhere() || matches!(error, RedisError::ClusterDown(_)) {
            self.outdated.notify_one();
        }
        let RedisError::Moved(host) = error else { return None };
        self.map.load().nodes.get(host).map(|node| Arc::clone(&node.server))
    }

    /// The nodes that have shards, if together they have all.
    pub(super) fn nodes(&self) -> Result<Vec<Arc<Server>>, RedisError> {
        let map = self.map.load();
        if map.by_shard.len() < usize::from(SHARDS) || map.by_shard.iter().any(Option::is_none) {
            return Err(RedisError::Down("not every slot of the cluster has a node".to_owned()));
        }
        Ok(map.nodes.values().map(|node| Arc::clone(&node.server)).collect())
    }

    /// Follows the cluster for as long as the runtime lives.
    pub(super) async fn follow(self: Arc<Self>) {
        keep_going("redis-cluster", &self.shared.metrics, || self.keep_map()).await;
    }

    async fn keep_map(&self) {
        let mut why = String::new();
        loop {
            match self.look().await {
                Ok(ranges) => {
                    self.draw(&ranges);
                    why.clear();
                    tokio::select! {
                        () = sleep(LOOK_EVERY) => {}
                        () = self.outdated.notified() => sleep(LOOK_AGAIN).await,
                    }
                }
                Err(error) => {
                    if why != error.to_string() {
                        why = error.to_string();
                        tracing::warn!(why, "no node of the Redis cluster can be asked; it is tried again");
                    }
                    sleep(LOOK_AGAIN * 5).await;
                }
            }
        }
    }

    /// Asks the known nodes, in an order that changes with each map: one that was cut off may know an old one. Asks a seed
    /// only while no node answers.
    async fn look(&self) -> Result<Vec<Range>, RedisError> {
        let mut last = RedisError::Down("no node is named".to_owned());
        let known = self.map.load_full();
        for (host, node) in &known.nodes {
            let answer = node.server.ask(&Request::command("CLUSTER").arg("SLOTS"), None).await;
            match answer.and_then(|answer| ranges(&answer, host)) {
                Ok(ranges) => return Ok(ranges),
                Err(error) => last = error,
            }
        }
        for host in &self.seeds {
            let asked = async {
                let mut connection = connect(&self.shared, host, Login::Server).await?;
                let answer = redis::cmd("CLUSTER").arg("SLOTS").query_async(&mut connection).await?;
                ranges(&answer, host)
            };
            match in_time(self.shared.options.timeout, asked).await {
                Ok(ranges) => return Ok(ranges),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The masters that a node names, if together they have all slots.
    pub(super) async fn masters(&self) -> Result<Vec<RedisHost>, RedisError> {
        let ranges = self.look().await?;
        let has_all = Shard::all()
            .all(|shard| ranges.iter().any(|range| (range.first..=range.last).contains(&shard.slot())));
        if !has_all {
            return Err(RedisError::Down("not every slot of the cluster has a node".to_owned()));
        }
        Ok(ranges.into_iter().map(|range| range.master).collect::<HashSet<_>>().into_iter().collect())
    }

    /// Makes the map that the ranges say, with the connections that there are.
    fn draw(&self, ranges: &[Range]) {
        let mut shards: HashMap<RedisHost, Vec<Shard>> = HashMap::new();
        for shard in Shard::all() {
            let slot = shard.slot();
            if let Some(range) = ranges.iter().find(|range| (range.first..=range.last).contains(&slot)) {
                shards.entry(range.master.clone()).or_default().push(shard);
            }
        }
        let before = self.map.load_full();
        let mut map = Map { by_shard: vec![None; usize::from(SHARDS)], nodes: HashMap::new() };
        for (host, shards) in shards {
            let node = before.nodes.get(&host).cloned().unwrap_or_else(|| self.begin(&host, shards.clone()));
            for shard in &shards {
                if let Some(place) = map.by_shard.get_mut(shard.place()) {
                    *place = Some(Arc::clone(&node.server));
                }
            }
            node.server.set_shards(shards);
            map.nodes.insert(host, node);
        }
        for (host, node) in &before.nodes {
            if !map.nodes.contains_key(host) {
                node.keeper.abort();
            }
        }
        self.map.store(Arc::new(map));
    }

    fn begin(&self, host: &RedisHost, shards: Vec<Shard>) -> Node {
        let server = Server::new(Arc::clone(&self.shared), Address::Fixed(host.clone()), shards);
        let keeper = self.runtime.spawn(Arc::clone(&server).keep()).abort_handle();
        Node { server, keeper }
    }
}

/// Reads the answer to `CLUSTER SLOTS`, as the node at `asked` gives it.
fn ranges(answer: &Value, asked: &RedisHost) -> Result<Vec<Range>, RedisError> {
    let ranges: Option<Vec<Range>> = array(answer)?.iter().map(|row| Range::read(row, asked)).collect();
    ranges.filter(|ranges| !ranges.is_empty()).ok_or(RedisError::Unreadable)
}

/// Slots in a row, and the node that has them.
#[derive(Debug, PartialEq, Eq)]
struct Range {
    first: u16,
    last: u16,
    master: RedisHost,
}

impl Range {
    /// A row of `CLUSTER SLOTS`, as the node at `asked` says it. A node may not know its own address.
    fn read(row: &Value, asked: &RedisHost) -> Option<Self> {
        let [first, last, master, ..] = array(row).ok()? else { return None };
        let [host, port, ..] = array(master).ok()? else { return None };
        let number = |value| number(value).ok().and_then(|number| u16::try_from(number).ok());
        let host = match bytes(host) {
            Ok(host) if !host.is_empty() => String::from_utf8(host.to_vec()).ok()?,
            Ok(_) | Err(_) => asked.host.clone(),
        };
        let master = RedisHost { host, port: number(port)? };
        Some(Self { first: number(first)?, last: number(last)?, master })
    }
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::Range;
    use crate::domain::redis_url::RedisHost;

    fn row(first: i64, last: i64, host: &str, port: i64) -> Value {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node = |host, port| Value::Array(vec![text(host), Value::Int(port), text("id")]);
        Value::Array(vec![Value::Int(first), Value::Int(last), node(host, port), node("replica", 9)])
    }

    #[test]
    fn a_row_names_slots_and_their_master() {
        let asked = RedisHost { host: "asked".to_owned(), port: 1 };
        let master = |host: &str, port| RedisHost { host: host.to_owned(), port };
        let read = |row: &Value| Range::read(row, &asked);
        let range = Range { first: 0, last: 5_460, master: master("10.0.0.1", 7_000) };
        assert_eq!(read(&row(0, 5_460, "10.0.0.1", 7_000)), Some(range));
        let range = Range { first: 1, last: 1, master: master("asked", 7) };
        assert_eq!(read(&row(1, 1, "", 7)), Some(range));
        for wrong in [Value::Nil, row(-1, 0, "a", 1), row(0, 70_000, "a", 1), row(0, 1, "a", 70_000)] {
            assert_eq!(read(&wrong), None);
        }
    }
}
