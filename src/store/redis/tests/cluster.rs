//! A cluster of three masters: the same contract. What goes wrong in a cluster is in `cluster_faults.rs`.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisResult, Value};
use tokio::time::{interval, timeout};

use crate::ports::simulated::SimulatedClock;
use crate::store::contract::{Bench, store_contract};
use crate::store::redis::tests::server::RedisServer;
use crate::store::redis::tests::{PATIENCE, SIGNED_SECS, START_SECS, open, options, ready};

const SLOTS: u16 = 16_384;

/// How long a node may be silent before others take its place, in milliseconds.
const NODE_TIMEOUT_MILLIS: &str = "1000";

/// How often a server is looked at that is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(5);

pub(super) struct TestCluster {
    /// The masters, in the order of their slots; then what replicates them, in the same order.
    pub(super) nodes: Vec<RedisServer>,
    pub(super) connections: Vec<MultiplexedConnection>,
}

impl TestCluster {
    /// Three masters that share the slots; nothing where no server is installed.
    pub(super) async fn form() -> Option<Self> {
        let mut cluster = Self { nodes: Vec::new(), connections: Vec::new() };
        for number in 0..3_u16 {
            cluster.start_node(number + 1).await?;
            let connection = cluster.connections.last_mut().unwrap();
            let slots: Vec<u16> = (0..SLOTS).filter(|slot| slot / 5_462 == number).collect();
            ask(connection, "CLUSTER", &["ADDSLOTS"], &slots).await;
        }
        cluster.meet().await;
        Some(cluster)
    }

    /// The same, and a replica of each, with which a master is in step.
    pub(super) async fn form_with_replicas() -> Option<Self> {
        let mut cluster = Self::form().await?;
        for number in 3..6 {
            cluster.start_node(number + 1).await?;
        }
        cluster.meet().await;
        for number in 0..3 {
            let id = cluster.id(number).await;
            let replica = &mut cluster.connections[number + 3];
            let follows = async { while say(replica, "CLUSTER", &["REPLICATE", &id]).await.is_err() {} };
            timeout(PATIENCE, follows).await.unwrap();
        }
        for number in 0..6 {
            let (section, line) =
                if number < 3 { ("REPLICATION", "state=online") } else { ("REPLICATION", "link_status:up") };
            cluster.says(number, &["INFO", section], line).await;
        }
        Some(cluster)
    }

    async fn start_node(&mut self, epoch: u16) -> Option<()> {
        let node = RedisServer::start(&[
            "--cluster-enabled",
            "yes",
            "--cluster-announce-ip",
            "{ip}",
            "--cluster-node-timeout",
            NODE_TIMEOUT_MILLIS,
            "--repl-diskless-sync-delay",
            "0",
        ])?;
        let client = Client::open(node.url()).unwrap();
        let patient = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
        let connected = async {
            let mut looks = interval(LOOK_EVERY);
            loop {
                looks.tick().await;
                if let Ok(connection) = client.get_multiplexed_async_connection_with_config(&patient).await {
                    return connection;
                }
            }
        };
        let mut connection = timeout(PATIENCE, connected).await.unwrap();
        ask(&mut connection, "CLUSTER", &["SET-CONFIG-EPOCH"], &[epoch]).await;
        self.nodes.push(node);
        self.connections.push(connection);
        Some(())
    }

    /// Lets all nodes know each other, and waits until each of them serves.
    async fn meet(&mut self) {
        let first = self.nodes[0].host.host.clone();
        for connection in &mut self.connections[1..] {
            ask(connection, "CLUSTER", &["MEET", &first], &[6_379]).await;
        }
        let known = format!("cluster_known_nodes:{}", self.nodes.len());
        for number in 0..self.nodes.len() {
            self.says(number, &["CLUSTER", "INFO"], &known).await;
            self.says(number, &["CLUSTER", "INFO"], "cluster_state:ok").await;
        }
    }

    /// Waits until a node's answer holds these words.
    async fn says(&mut self, number: usize, command: &[&str], words: &str) {
        let connection = &mut self.connections[number];
        let said = async {
            let mut looks = interval(LOOK_EVERY);
            while !text(&say(connection, command[0], &command[1..]).await.unwrap()).contains(words) {
                looks.tick().await;
            }
        };
        let in_time = timeout(PATIENCE, said).await;
        assert!(in_time.is_ok(), "node {number} does not say {words}");
    }

    pub(super) async fn id(&mut self, number: usize) -> String {
        text(&say(&mut self.connections[number], "CLUSTER", &["MYID"]).await.unwrap())
    }

    async fn empty(&mut self) {
        for connection in &mut self.connections {
            ask(connection, "FLUSHALL", &[], &[]).await;
        }
    }

    pub(super) fn url(&self) -> String {
        // One of the nodes and a host that is none: the rest is found out.
        format!("redis+cluster://127.0.0.1:1,{}", self.nodes[1].host)
    }
}

pub(super) async fn say(
    connection: &mut MultiplexedConnection,
    name: &str,
    words: &[&str],
) -> RedisResult<Value> {
    redis::cmd(name).arg(words).query_async(connection).await
}

fn text(value: &Value) -> String {
    redis::from_redis_value_ref(value).unwrap()
}

async fn ask(connection: &mut MultiplexedConnection, name: &str, words: &[&str], numbers: &[u16]) {
    let mut command = redis::cmd(name);
    let _: Value = command.arg(words).arg(numbers).query_async(connection).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_keeps_the_contract() {
    let Some(mut cluster) = TestCluster::form().await else { return };
    store_contract!(in_turn: async || {
        let clock = Arc::new(SimulatedClock::new(START_SECS));
        let store = open(options(&cluster.url()), &clock);
        ready(&store).await;
        cluster.empty().await;
        ready(&store).await;
        Bench {
            store: Arc::new(store),
            advance_secs: Box::new(move |secs| clock.advance_secs(secs)),
            signed_at_secs: SIGNED_SECS,
            _keep: Box::new(()),
        }
    });
}
