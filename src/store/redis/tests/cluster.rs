//! A cluster of three masters: the same contract, and slots that move.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{Client, Value};
use tokio::time::timeout;

use crate::ports::simulated::SimulatedClock;
use crate::store::contract::{Bench, store_contract};
use crate::store::redis::tests::server::RedisServer;
use crate::store::redis::tests::{PATIENCE, SIGNED_SECS, START_SECS, open, options, ready};

const SLOTS: u16 = 16_384;

struct TestCluster {
    nodes: Vec<RedisServer>,
    connections: Vec<MultiplexedConnection>,
}

impl TestCluster {
    /// Three masters that share the slots; nothing where no server is installed.
    async fn form() -> Option<Self> {
        let mut cluster = Self { nodes: Vec::new(), connections: Vec::new() };
        for number in 0..3_u16 {
            let node = RedisServer::start(&["--cluster-enabled", "yes", "--cluster-announce-ip", "{ip}"])?;
            let client = Client::open(node.url()).unwrap();
            let connected = async {
                loop {
                    if let Ok(connection) = client.get_multiplexed_async_connection().await {
                        return connection;
                    }
                }
            };
            let mut connection = timeout(PATIENCE, connected).await.unwrap();
            let slots: Vec<u16> = (0..SLOTS).filter(|slot| slot / 5_462 == number).collect();
            ask(&mut connection, "CLUSTER", &["ADDSLOTS"], &slots).await;
            ask(&mut connection, "CLUSTER", &["SET-CONFIG-EPOCH"], &[number + 1]).await;
            cluster.nodes.push(node);
            cluster.connections.push(connection);
        }
        let first = cluster.nodes[0].host.host.clone();
        for connection in &mut cluster.connections[1..] {
            ask(connection, "CLUSTER", &["MEET", &first], &[6_379]).await;
        }
        Some(cluster)
    }

    async fn empty(&mut self) {
        for connection in &mut self.connections {
            ask(connection, "FLUSHALL", &[], &[]).await;
        }
    }

    fn url(&self) -> String {
        // One of the nodes and a host that is none: the rest is found out.
        format!("redis+cluster://127.0.0.1:1,{}", self.nodes[1].host)
    }
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
