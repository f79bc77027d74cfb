//! All servers of the store: one that has all shards, or the nodes of a cluster, which is followed in the background.
//!
//! A node that has a slot no longer says so and does nothing; the request then goes to the one it names, once. While a
//! slot is on its way from one node to another its agents get a fault: no script runs on half of its keys.

use std::collections::{HashMap, HashSet};
use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use redis::Value;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::domain::{RedisHost, RedisLayout};
use crate::store::redis::answers::{number, read};
use crate::store::redis::connect::{Login, connect, in_time};
use crate::store::redis::names::{SHARDS, Shard};
use crate::store::redis::server::{Address, Server};
use crate::store::{
    redis::error::RedisError, redis::options::Shared, redis::scripts::Request, redis::sentinels::Sentinels,
};
use crate::supervision::keep_going;

/// How often the nodes of a cluster are asked which slots they have.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How long to wait before they are asked again when one said that a slot has moved, or none answered.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The servers.
pub(super) struct Servers {
    pub(super) shared: Arc<Shared>,
    /// The runtime of the connections.
    runtime: Handle,
    map: ArcSwap<Map>,
    outdated: Notify,
}

/// Which server has which shard.
#[derive(Default)]
struct Map {
    by_shard: Vec<Option<Arc<Server>>>,
    nodes: Vec<Node>,
}

/// A server, and the task that keeps its connection up.
#[derive(Clone)]
struct Node {
    server: Arc<Server>,
    keeper: AbortHandle,
}

impl Servers {
    /// Begins to connect in the background.
    pub(super) fn begin(shared: Arc<Shared>, runtime: Handle) -> Arc<Self> {
        let layout = shared.options.url.layout.clone();
        let servers = Arc::new(Self { shared, runtime, map: ArcSwap::default(), outdated: Notify::new() });
        let address = match layout {
            RedisLayout::Single(host) => Address::Fixed(host),
            RedisLayout::Sentinel { sentinels, service } => {
                Address::Sentinel(Sentinels::new(sentinels, service))
            }
            RedisLayout::Cluster { seeds } => {
                let following = Arc::clone(&servers);
                servers.runtime.spawn(async move {
                    keep_going("redis-cluster", &following.shared.metrics, || following.keep_map(&seeds))
                        .await;
                });
                return servers;
            }
        };
        let node = servers.node(address, Shard::all().collect());
        let by_shard = vec![Some(Arc::clone(&node.server)); usize::from(SHARDS)];
        servers.map.store(Arc::new(Map { by_shard, nodes: vec![node] }));
        servers
    }

    /// Asks the server that has the request's shard.
    pub(super) async fn ask(&self, request: Request<'_>) -> Result<Value, RedisError> {
        let request = self.shared.timed(request);
        let server = self.map.load().by_shard.get(request.shard.place()).and_then(Clone::clone);
        let no_node = || RedisError::Down("no node of the cluster has the slot".to_owned());
        let answer = server.ok_or_else(no_node)?.ask(&request).await;
        // A node that only redirected the request has not done it.
        match answer.as_ref().err().and_then(|error| self.moved_to(error)) {
            Some(server) => server.ask(&request).await,
            None => answer,
        }
    }

    /// The node that another one named for a slot. The map is drawn anew soon.
    fn moved_to(&self, error: &RedisError) -> Option<Arc<Server>> {
        if error.is_elsewhere() || matches!(error, RedisError::ClusterDown(_)) {
            self.outdated.notify_one();
        }
        let RedisError::Moved(host) = error else { return None };
        self.map.load().at(host).map(|node| Arc::clone(&node.server))
    }

    /// Writes to every server, to see whether it can be. A node whose slot is on its way is one that answers.
    pub(super) async fn probe(&self) -> Result<(), RedisError> {
        for server in self.all()? {
            let Some(shard) = server.shards.lock().first().copied() else { continue };
            match server.ask(&self.shared.probe(shard)).await {
                Err(error) if error.is_elsewhere() && self.shared.is_cluster() => {}
                written => drop(written?),
            }
        }
        Ok(())
    }

    /// The known servers, unless a shard has none.
    pub(super) fn known(&self) -> Vec<Arc<Server>> {
        self.all().unwrap_or_default()
    }

    /// The servers, if together they have all shards.
    pub(super) fn all(&self) -> Result<Vec<Arc<Server>>, RedisError> {
        let map = self.map.load();
        if map.by_shard.is_empty() || map.by_shard.iter().any(Option::is_none) {
            return Err(not_every_slot());
        }
        Ok(map.nodes.iter().map(|node| Arc::clone(&node.server)).collect())
    }

    /// Follows a cluster.
    async fn keep_map(&self, seeds: &[RedisHost]) {
        let mut why = String::new();
        loop {
            match self.topology(seeds).await {
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
    async fn topology(&self, seeds: &[RedisHost]) -> Result<Vec<Range>, RedisError> {
        for Node { server, .. } in &self.map.load_full().nodes {
            let Address::Fixed(host) = &server.address else { continue };
            let answer = server.ask(&Request::command("CLUSTER", Shard::FIRST).arg("SLOTS")).await;
            if let Ok(ranges) = answer.and_then(|answer| ranges(&answer, host)) {
                return Ok(ranges);
            }
        }
        slots(&self.shared, seeds).await
    }

    /// Makes the map that the ranges say, with the connections that there are.
    fn draw(&self, ranges: &[Range]) {
        let mut shards: HashMap<&RedisHost, Vec<Shard>> = HashMap::new();
        for shard in Shard::all() {
            if let Some(range) = ranges.iter().find(|range| range.has(shard)) {
                shards.entry(&range.master).or_default().push(shard);
            }
        }
        let before = self.map.load_full();
        let mut map = Map { by_shard: vec![None; usize::from(SHARDS)], nodes: Vec::new() };
        for (host, shards) in shards {
            let begin = || self.node(Address::Fixed(host.clone()), shards.clone());
            let node = before.at(host).cloned().unwrap_or_else(begin);
            for shard in &shards {
                if let Some(place) = map.by_shard.get_mut(shard.place()) {
                    *place = Some(Arc::clone(&node.server));
                }
            }
            *node.server.shards.lock() = shards;
            map.nodes.push(node);
        }
        let is_gone = |node: &&Node| !map.nodes.iter().any(|kept| Arc::ptr_eq(&kept.server, &node.server));
        before.nodes.iter().filter(is_gone).for_each(|node| node.keeper.abort());
        self.map.store(Arc::new(map));
    }

    fn node(&self, address: Address, shards: Vec<Shard>) -> Node {
        let server = Server::new(Arc::clone(&self.shared), address, shards);
        let kept = Arc::clone(&server);
        let keeper = self.runtime.spawn(async move {
            keep_going("redis-server", &kept.shared.metrics, || kept.keep_session()).await;
        });
        let keeper = keeper.abort_handle();
        Node { server, keeper }
    }
}

impl Map {
    fn at(&self, host: &RedisHost) -> Option<&Node> {
        self.nodes.iter().find(|node| matches!(&node.server.address, Address::Fixed(own) if own == host))
    }
}

/// Asks one node after the other for the slots of a cluster, until one answers.
async fn slots(shared: &Shared, seeds: &[RedisHost]) -> Result<Vec<Range>, RedisError> {
    let mut last = RedisError::Down("no node is named".to_owned());
    for host in seeds {
        let asked = async {
            let mut connection = connect(shared, host, Login::Server).await?;
            let answer = redis::cmd("CLUSTER").arg("SLOTS").query_async(&mut connection).await?;
            ranges(&answer, host)
        };
        match in_time(shared.options.timeout, asked).await {
            Ok(ranges) => return Ok(ranges),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The masters that a node names, if together they have all slots.
pub(super) async fn masters(shared: &Shared, seeds: &[RedisHost]) -> Result<HashSet<RedisHost>, RedisError> {
    let ranges = slots(shared, seeds).await?;
    if !Shard::all().all(|shard| ranges.iter().any(|range| range.has(shard))) {
        return Err(not_every_slot());
    }
    Ok(ranges.into_iter().map(|range| range.master).collect())
}

/// The error of a cluster in which a slot has no node.
fn not_every_slot() -> RedisError {
    RedisError::Down("not every slot of the cluster has a node".to_owned())
}

/// Reads the answer to `CLUSTER SLOTS`, as the node at `asked` gives it.
fn ranges(answer: &Value, asked: &RedisHost) -> Result<Vec<Range>, RedisError> {
    let rows: Vec<Vec<Value>> = read(answer)?;
    let ranges = rows.iter().map(|row| Range::read(row, asked)).collect::<Result<Vec<_>, _>>()?;
    if ranges.is_empty() { Err(RedisError::Unreadable) } else { Ok(ranges) }
}

/// Slots in a row, and the node that has them.
#[derive(Debug, PartialEq, Eq)]
struct Range {
    first: u16,
    last: u16,
    master: RedisHost,
}

impl Range {
    fn has(&self, shard: Shard) -> bool {
        (self.first..=self.last).contains(&shard.slot())
    }

    /// A row of `CLUSTER SLOTS`, as the node at `asked` says it. A node may not know its own address.
    fn read(row: &[Value], asked: &RedisHost) -> Result<Self, RedisError> {
        let [first, last, master, ..] = row else { return Err(RedisError::Unreadable) };
        let master: Vec<Value> = read(master)?;
        let [host, port, ..] = master.as_slice() else { return Err(RedisError::Unreadable) };
        let host = read::<Option<String>>(host)?.filter(|host| !host.is_empty());
        let host = host.unwrap_or_else(|| asked.host.clone());
        let number = |value| number::<u16>(read(value)?);
        let master = RedisHost { host, port: number(port)? };
        Ok(Self { first: number(first)?, last: number(last)?, master })
    }
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::{Range, ranges};
    use crate::domain::RedisHost;

    fn row(first: i64, last: i64, host: &str, port: i64) -> Value {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node = |host, port| Value::Array(vec![text(host), Value::Int(port), text("id")]);
        Value::Array(vec![Value::Int(first), Value::Int(last), node(host, port), node("replica", 9)])
    }

    #[test]
    fn a_row_names_slots_and_their_master() {
        let asked = RedisHost { host: "asked".to_owned(), port: 1 };
        let master = |host: &str, port| RedisHost { host: host.to_owned(), port };
        let read = |row: &Value| ranges(&Value::Array(vec![row.clone()]), &asked).ok();
        let range = Range { first: 0, last: 5_460, master: master("10.0.0.1", 7_000) };
        assert_eq!(read(&row(0, 5_460, "10.0.0.1", 7_000)), Some(vec![range]));
        let range = Range { first: 1, last: 1, master: master("asked", 7) };
        assert_eq!(read(&row(1, 1, "", 7)), Some(vec![range]));
        for wrong in [Value::Nil, row(-1, 0, "a", 1), row(0, 70_000, "a", 1), row(0, 1, "a", 70_000)] {
            assert_eq!(read(&wrong), None);
        }
    }
}
