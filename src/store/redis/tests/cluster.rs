//! A cluster of three masters: the same contract. What goes wrong in a cluster is in `cluster_faults.rs`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::future::Either;
use redis::aio::MultiplexedConnection;
use redis::{Value, from_redis_value_ref};

use crate::domain::{AgentId, ClientNet, HeldKey, KeyDigest, NonceClaim, Quota, Verdict};
use crate::ports::{
    Admission, Budget, KeyBudget, KeyChange, KeyChanged, KeyOwner, KeySeen, MadeKey, NewKey, Proof, Reply,
    Scope, Store, StoreFault,
};
use crate::store::contract::{Bench, store_contract, until};
use crate::store::redis::tests::server::{RedisServer, say};
use crate::store::redis::tests::{SIGNED_SECS, clock, opened, options};
use crate::store::{redis::RedisStore, redis::info::Info, redis::names::Shard};

const SLOTS: u16 = 16_384;

/// How many slots in a row each master has.
const SLOTS_EACH: u16 = 5_462;

/// How long a node may be silent before others take it for dead, in milliseconds: on a busy machine it is silent for
/// seconds. A test that kills one makes them impatient.
const PATIENT: &str = "60000";
const IMPATIENT: &str = "500";

pub(super) struct TestCluster {
    /// The masters, in the order of their slots; then what replicates them, in the same order.
    pub(super) nodes: Vec<RedisServer>,
    pub(super) connections: Vec<MultiplexedConnection>,
}

impl TestCluster {
    /// Three masters that share the slots; nothing where no server is installed.
    pub(super) async fn form() -> Option<Self> {
        Self::form_of(3).await
    }

    /// The same, and a replica of each, with which a master is in step.
    pub(super) async fn form_with_replicas() -> Option<Self> {
        let mut cluster = Self::form_of(6).await?;
        for master in 0..3 {
            let id = cluster.id(master).await;
            cluster.say(master + 3, &["CLUSTER", "REPLICATE", &id]).await;
        }
        for master in 0..3 {
            cluster.nodes[master].replicated().await;
            says(&mut cluster.connections[master + 3], &["INFO", "REPLICATION"], "link_status:up").await;
        }
        Some(cluster)
    }

    /// Starts so many nodes, lets them know each other, and waits until each of them serves.
    async fn form_of(nodes: usize) -> Option<Self> {
        let mut cluster = Self { nodes: Vec::new(), connections: Vec::new() };
        for number in 0..nodes {
            cluster.start_node().await?;
            let slots: Vec<String> =
                (0..SLOTS).filter(|slot| Self::home(*slot) == number).map(|slot| slot.to_string()).collect();
            if !slots.is_empty() {
                let words = ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str));
                cluster.say(number, &words.collect::<Vec<_>>()).await;
            }
            for other in 0..number {
                let host = cluster.nodes[other].host.host.clone();
                cluster.say(number, &["CLUSTER", "MEET", &host, "6379"]).await;
            }
        }
        let known = format!("cluster_known_nodes:{nodes}");
        for connection in &mut cluster.connections {
            for words in [&known, "cluster_state:ok"] {
                says(connection, &["CLUSTER", "INFO"], words).await;
            }
        }
        Some(cluster)
    }

    async fn start_node(&mut self) -> Option<()> {
        let settings = ["--cluster-enabled", "yes", "--cluster-announce-ip", "{ip}"];
        // A master that is only slow keeps its place.
        let calm = ["--cluster-node-timeout", PATIENT, "--cluster-replica-no-failover", "yes"];
        let node = RedisServer::start(&[&settings[..], &calm].concat()).await?;
        self.connections.push(node.connected().await);
        self.nodes.push(node);
        let epoch = self.nodes.len();
        self.say(epoch - 1, &["CLUSTER", "SET-CONFIG-EPOCH", &epoch.to_string()]).await;
        Some(())
    }

    /// Kills a master, waits until the others know that and serve nobody, and has its replica take its place.
    pub(super) async fn fail_over(&mut self, master: usize) {
        self.nodes[master].kill();
        let survivors = || (0..6).filter(|number| *number != master);
        for number in survivors() {
            self.say(number, &["CONFIG", "SET", "cluster-node-timeout", IMPATIENT]).await;
        }
        for number in survivors() {
            says(&mut self.connections[number], &["CLUSTER", "INFO"], "cluster_state:fail").await;
        }
        for number in survivors() {
            self.say(number, &["CONFIG", "SET", "cluster-node-timeout", PATIENT]).await;
        }
        self.say(master + 3, &["CLUSTER", "FAILOVER", "TAKEOVER"]).await;
    }

    /// Moves a slot from one master to another as an operator does, in pieces.
    pub(super) async fn move_slot(&mut self, slot: u16, from: usize, to: usize) {
        let (slot, ids) = (slot.to_string(), [self.id(from).await, self.id(to).await]);
        let host = self.nodes[to].host.host.clone();
        self.say(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &ids[0]]).await;
        self.say(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &ids[1]]).await;
        until("the slot is empty", async || {
            let keys = self.say(from, &["CLUSTER", "GETKEYSINSLOT", &slot, "1"]).await;
            let keys: Vec<String> = from_redis_value_ref(&keys).unwrap();
            let Some(name) = keys.first() else { return Some(()) };
            self.say(from, &["MIGRATE", &host, "6379", name, "0", "60000"]).await;
            None
        })
        .await;
        for node in [to, from, 3 - from - to] {
            self.say(node, &["CLUSTER", "SETSLOT", &slot, "NODE", &ids[1]]).await;
        }
    }

    /// Has a node do something.
    pub(super) async fn say(&mut self, number: usize, words: &[&str]) -> Value {
        say(&mut self.connections[number], words).await.unwrap()
    }

    pub(super) async fn id(&mut self, number: usize) -> String {
        text(&self.say(number, &["CLUSTER", "MYID"]).await)
    }

    /// The master that has a slot.
    pub(super) fn home(slot: u16) -> usize {
        usize::from(slot / SLOTS_EACH)
    }

    pub(super) fn url(&self) -> String {
        // One of the nodes and a host that is none: the rest is found out.
        format!("redis+cluster://127.0.0.1:1,{}", self.nodes[1].host)
    }
}

/// Waits until a node's answer holds these words.
async fn says(connection: &mut MultiplexedConnection, command: &[&str], words: &str) {
    until(words, async || text(&say(connection, command).await.unwrap()).contains(words).then_some(())).await;
}

fn text(value: &Value) -> String {
    from_redis_value_ref(value).unwrap()
}

/// A store whose keys fit their agents, whatever their digests: the contract makes keys for any agent.
struct Fitting {
    store: RedisStore,
    /// The digest that fits, in place of the contract's.
    digests: Mutex<HashMap<KeyDigest, KeyDigest>>,
}

impl Fitting {
    fn known(&self, digest: &KeyDigest) -> KeyDigest {
        self.digests.lock().unwrap().get(digest).copied().unwrap_or(*digest)
    }

    fn fit(&self, agent: AgentId, key: NewKey) -> NewKey {
        let mut bytes = key.digest.to_bytes();
        bytes[..2].copy_from_slice(&u16::try_from(Shard::of_agent(agent).place()).unwrap().to_be_bytes());
        let fitting = KeyDigest::from_bytes(bytes);
        assert!(self.store.fits(agent, &fitting));
        self.digests.lock().unwrap().insert(key.digest, fitting);
        NewKey { digest: fitting, ..key }
    }
}

#[async_trait]
impl Store for Fitting {
    fn find<'a>(&'a self, digest: &'a KeyDigest) -> Reply<'a, Option<KeyOwner>> {
        let digest = self.known(digest);
        Either::Right(Box::pin(async move { self.store.find(&digest).await }))
    }

    fn admit<'a>(
        &'a self,
        agent: AgentId,
        scope: &'a Scope,
        quota: Quota,
        proof: &'a Proof,
    ) -> Reply<'a, Admission> {
        let proof = match proof {
            Proof::Key(digest) => Proof::Key(self.known(digest)),
            Proof::Nonce(claim) => Proof::Nonce(*claim),
        };
        Either::Right(Box::pin(async move { self.store.admit(agent, scope, quota, &proof).await }))
    }

    fn count<'a>(&'a self, budget: &'a Budget, quota: Quota) -> Reply<'a, Verdict> {
        self.store.count(budget, quota)
    }

    fn fits(&self, _agent: AgentId, _digest: &KeyDigest) -> bool {
        true
    }

    async fn change_key(
        &self,
        agent: AgentId,
        claim: NonceClaim,
        change: KeyChange,
    ) -> Result<(KeyChanged, Option<MadeKey>), StoreFault> {
        let change = match change {
            KeyChange::Issue(key) => KeyChange::Issue(self.fit(agent, key)),
            KeyChange::Rotate(key) => KeyChange::Rotate(self.fit(agent, key)),
            KeyChange::Revoke(name) => KeyChange::Revoke(name),
        };
        self.store.change_key(agent, claim, change).await
    }

    async fn is_current(&self, agent: AgentId, digest: &KeyDigest) -> Result<bool, StoreFault> {
        self.store.is_current(agent, &self.known(digest)).await
    }

    async fn keys(&self, agent: AgentId) -> Result<Vec<HeldKey>, StoreFault> {
        let held = self.store.keys(agent).await?;
        let digests = self.digests.lock().unwrap();
        let asked = |fitting| digests.iter().find(|(_, one)| **one == fitting).map(|(asked, _)| *asked);
        Ok(held
            .into_iter()
            .map(|key| HeldKey { digest: asked(key.digest).unwrap_or(key.digest), ..key })
            .collect())
    }

    async fn note_uses(&self) {
        self.store.note_uses().await;
    }

    async fn give_back(&self, client: ClientNet, agent: AgentId, of: KeyBudget) {
        self.store.give_back(client, agent, of).await;
    }

    async fn status(&self, client: ClientNet, agent: AgentId, quota: Quota) -> Result<KeySeen, StoreFault> {
        self.store.status(client, agent, quota).await
    }

    async fn probe(&self) -> Result<(), StoreFault> {
        self.store.probe().await
    }
}

#[tokio::test]
async fn nodes_are_asked_for_the_slots_again_and_again_over_the_connections_there_are() {
    let Some(mut cluster) = TestCluster::form().await else { return };
    let store = opened(options(&cluster.url()), &clock()).await;
    until("each node has a connection of this runtime and one of the store's", async || {
        store.probe().await.unwrap();
        let nodes = store.servers.all().unwrap();
        nodes.iter().all(|node| node.session().unwrap().connections.load().len() == 2).then_some(())
    })
    .await;
    let mut counts = async || {
        let (mut asked, mut made) = (0, 0);
        for number in 0..3 {
            let info = Info::read(&text(&cluster.say(number, &["INFO", "EVERYTHING"]).await));
            made += info.value("total_connections_received").parse::<u64>().unwrap();
            let calls = info.value("cmdstat_cluster|slots").split(',').next().unwrap_or_default();
            asked += calls.strip_prefix("calls=").map_or(0, |calls| calls.parse::<u64>().unwrap());
        }
        (asked, made)
    };
    let (asked, made) = counts().await;
    until("a node is asked again", async || (counts().await.0 >= asked + 2).then_some(())).await;
    assert_eq!(counts().await.1, made);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_keeps_the_contract() {
    let Some(mut cluster) = TestCluster::form().await else { return };
    store_contract!(in_turn: async || {
        for number in 0..3 {
            cluster.say(number, &["FLUSHALL"]).await;
        }
        let clock = clock();
        Bench {
            store: Arc::new(Fitting { store: opened(options(&cluster.url()), &clock).await, digests: Mutex::default() }),
            advance_secs: Box::new(move |secs| clock.advance_secs(secs)),
            signed_at_secs: SIGNED_SECS,
            _keep: Box::new(()),
        }
    });
}
