//! A cluster that loses a master, or whose slots move, while verifications go on: limits hold, nothing acknowledged is
//! undone, and it is over by itself.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Value, from_redis_value_ref};
use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout;

use crate::domain::quota::Quota;
use crate::ports::simulated::SimulatedClock;
use crate::ports::store::{Admission, KeyChange, KeyChanged, Proof, Scope, Store};
use crate::store::contract::{MANY, agent, claim, digest, key};
use crate::store::redis::RunningRedisStore;
use crate::store::redis::names::{Shard, epoch, probe};
use crate::store::redis::tests::cluster::{TestCluster, say};
use crate::store::redis::tests::real::refused;
use crate::store::redis::tests::{PATIENCE, SIGNED_SECS, START_SECS, open, options, ready};

/// Agents whose windows are filled: enough for some on every node.
const AGENTS: u64 = 24;

/// How many requests each of them has, more than are made before a fault is over; and how many of those before it.
const LIMIT: u32 = 2_000;
const BEFORE: u32 = 20;

/// What was left after the signature that came next.
const SIGNED_PLACE: u32 = LIMIT - BEFORE - 1;

/// A timestamp that no epoch of a test reaches.
const LATER_SECS: u64 = START_SECS + 1_000;

/// Two replicas of the product at the same cluster, and each place that agents were given in their windows.
struct Scene {
    stores: [Arc<RunningRedisStore>; 2],
    clock: Arc<SimulatedClock>,
    places: Mutex<HashMap<u64, Vec<u32>>>,
    /// How often each agent's key was replaced.
    rotated: Mutex<HashMap<u64, u32>>,
    over: AtomicBool,
}

impl Scene {
    async fn new(cluster: &TestCluster, wait_replicas: u32, agents: impl Iterator<Item = u64>) -> Arc<Self> {
        let clock = Arc::new(SimulatedClock::new(START_SECS));
        let mut options = options(&cluster.url());
        (options.wait_replicas, options.timeout) = (wait_replicas, Duration::from_secs(2));
        let stores = [(), ()].map(|()| Arc::new(open(options.clone(), &clock)));
        for store in &stores {
            ready(store).await;
        }
        for number in agents {
            let change = KeyChange::Issue(key(number));
            let claim = claim(1, SIGNED_SECS);
            assert_eq!(stores[0].change_key(agent(number), claim, change).await.unwrap(), KeyChanged::Done);
        }
        let (places, rotated) = Default::default();
        Arc::new(Self { stores, clock, places, rotated, over: AtomicBool::new(false) })
    }

    /// Asks once at one of the replicas; true when it was answered.
    async fn enter(&self, store: usize, number: u64) -> Option<Admission> {
        let quota = Quota::per_minute(LIMIT);
        let proof = Proof::Key(digest(number));
        let admission = self.stores[store].admit(agent(number), &Scope::Api, quota, &proof).await.ok()?;
        match admission {
            Admission::Admitted { remaining } => {
                self.places.lock().unwrap().entry(number).or_default().push(remaining);
            }
            Admission::Limited { .. } => {}
            Admission::KeyRevoked | Admission::NonceUsed => panic!("{number}: {admission:?}"),
        }
        Some(admission)
    }

    /// Asks for these agents at both replicas, several at once, until it is over.
    fn hammer(self: &Arc<Self>, agents: &[u64]) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for task in 0..6 {
            let (scene, agents) = (Arc::clone(self), agents.to_vec());
            tasks.spawn(async move {
                while !scene.over.load(Ordering::SeqCst) {
                    for number in &agents {
                        scene.enter(task % 2, *number).await;
                    }
                    yield_now().await;
                }
            });
        }
        tasks
    }

    /// Waits until each agent's window is full and both replicas say so.
    async fn all_full(&self, agents: &[u64]) {
        let full = async {
            for number in agents {
                for store in 0..2 {
                    while !matches!(self.enter(store, *number).await, Some(Admission::Limited { .. })) {
                        yield_now().await;
                    }
                }
            }
        };
        assert!(timeout(2 * PATIENCE, full).await.is_ok(), "it is not over by itself");
    }

    /// Waits until the key of each of these was replaced twice more.
    async fn all_rotate(&self, agents: &[u64]) {
        let count = |number: &u64| self.rotated.lock().unwrap().get(number).copied().unwrap_or(0);
        let before: Vec<u32> = agents.iter().map(count).collect();
        let rotated = async {
            while agents.iter().map(count).zip(&before).any(|(now, before)| now < before + 2) {
                yield_now().await;
            }
        };
        assert!(timeout(2 * PATIENCE, rotated).await.is_ok(), "keys can't be changed any more");
    }

    /// In a window that was full at the end each place was given once. Where a replica took over, what it had not seen
    /// yet may have been given once more, and nothing else.
    fn no_place_came_back(&self, number: u64, lost_its_master: bool) {
        let places = self.places_of(number);
        let count = |place| places.iter().filter(|other| **other == place).count();
        for place in 0..LIMIT {
            let most = match place {
                // One place went to a signature.
                SIGNED_PLACE => 0,
                place if place < SIGNED_PLACE && lost_its_master => 2,
                _ => 1,
            };
            assert!(count(place) <= most, "{number}: {place} of {places:?}");
        }
        assert!((SIGNED_PLACE + 1..LIMIT).all(|place| count(place) == 1), "{number}: {places:?}");
    }

    /// The fault came while windows were being filled: some of it is done, and some is left to do.
    fn is_being_filled(&self, agents: &[u64]) {
        let given: usize = agents.iter().map(|number| self.places_of(*number).len()).sum();
        let (least, most) = (agents.len() * BEFORE as usize, agents.len() * (LIMIT - 1) as usize);
        assert!((least + 1..most).contains(&given), "{given} of {most}");
    }

    fn places_of(&self, number: u64) -> Vec<u32> {
        let mut places = self.places.lock().unwrap().get(&number).cloned().unwrap_or_default();
        places.sort_unstable();
        places
    }
}

/// Replaces an agent's key again and again. What was replaced and acknowledged must be dead, whatever happens meanwhile.
async fn rotate_on(scene: Arc<Scene>, number: u64) {
    for round in 1.. {
        if scene.over.load(Ordering::SeqCst) {
            break;
        }
        let new = number * 1_000_000 + round;
        let change = KeyChange::Rotate(key(new));
        let done = scene.stores[0].change_key(agent(number), claim(round + 1, LATER_SECS), change).await;
        let Ok(KeyChanged::Done) = done else {
            yield_now().await;
            continue;
        };
        *scene.rotated.lock().unwrap().entry(number).or_default() += 1;
        for old in (number * 1_000_000..new).rev().take(3).chain([number]) {
            let proof = Proof::Key(digest(old));
            let asked = scene.stores[1].admit(agent(number), &Scope::Api, MANY, &proof).await;
            assert!(matches!(asked, Ok(Admission::KeyRevoked) | Err(_)), "{old}: {asked:?}");
        }
    }
}

/// A master and its place among the nodes, and which of the agents are in its slots.
fn agents_of(node: u16, agents: impl Iterator<Item = u64>) -> Vec<u64> {
    agents.filter(|number| Shard::of_agent(agent(*number)).slot() / 5_462 == node).collect()
}

/// Waits until the replica of a master has all that was written so far.
async fn replicated(connection: &mut MultiplexedConnection) {
    let wait = async {
        while say(connection, "WAIT", &["1", "100"]).await.unwrap() != Value::Int(1) {
            say(connection, "CLUSTER", &["INFO"]).await.unwrap();
        }
    };
    timeout(PATIENCE, wait).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_dies_under_load_undoes_nothing_acknowledged_and_its_replica_goes_on() {
    let Some(mut cluster) = TestCluster::form_with_replicas().await else { return };
    let agents: Vec<u64> = (1..=AGENTS).collect();
    let rotating: Vec<u64> = (AGENTS + 1..=AGENTS + 6).collect();
    let scene = Scene::new(&cluster, 1, agents.iter().chain(&rotating).copied()).await;
    for number in &agents {
        for _ in 0..BEFORE {
            scene.enter(0, *number).await.unwrap();
        }
        let used = Proof::Nonce(claim(7, SIGNED_SECS));
        let spent = scene.stores[1].admit(agent(*number), &Scope::Api, MANY, &used).await.unwrap();
        assert!(matches!(spent, Admission::Admitted { .. }));
    }
    replicated(&mut cluster.connections[0]).await;
    scene.clock.advance_secs(10);

    let tasks = scene.hammer(&agents);
    let rotations: Vec<_> =
        rotating.iter().map(|number| tokio::spawn(rotate_on(Arc::clone(&scene), *number))).collect();
    scene.all_rotate(&rotating).await;
    cluster.nodes[0].kill();
    scene.is_being_filled(&agents_of(0, agents.iter().copied()));
    scene.all_full(&agents).await;
    // The promoted one has no replica that could acknowledge a change; the others have theirs.
    let failed_over = agents_of(0, rotating.iter().copied());
    let acknowledged: Vec<u64> =
        rotating.iter().copied().filter(|number| !failed_over.contains(number)).collect();
    assert!(!failed_over.is_empty() && !acknowledged.is_empty());
    scene.all_rotate(&acknowledged).await;
    for store in &scene.stores {
        ready(store).await;
    }
    scene.over.store(true, Ordering::SeqCst);
    tasks.join_all().await;
    for rotation in rotations {
        rotation.await.unwrap();
    }
    let failed_over = agents_of(0, agents.iter().copied());
    assert!(!failed_over.is_empty() && failed_over.len() < agents.len());
    for number in &agents {
        let lost_its_master = failed_over.contains(number);
        scene.no_place_came_back(*number, lost_its_master);
        for nonce in [7, 8] {
            let proof = Proof::Nonce(claim(nonce, SIGNED_SECS));
            let asked = scene.stores[0].admit(agent(*number), &Scope::Api, MANY, &proof).await.unwrap();
            // A promoted replica can't know whether a nonce that it lacks was used.
            let refused = asked == Admission::NonceUsed;
            assert_eq!(refused, nonce == 7 || lost_its_master, "{number}, nonce {nonce}");
        }
    }
}

/// Moves a slot from one master to another as an operator does, in pieces.
async fn move_slot(cluster: &mut TestCluster, slot: u16, from: usize, to: usize) {
    let (slot, ids) = (slot.to_string(), [cluster.id(from).await, cluster.id(to).await]);
    let host = cluster.nodes[to].host.host.clone();
    say(&mut cluster.connections[to], "CLUSTER", &["SETSLOT", &slot, "IMPORTING", &ids[0]]).await.unwrap();
    say(&mut cluster.connections[from], "CLUSTER", &["SETSLOT", &slot, "MIGRATING", &ids[1]]).await.unwrap();
    loop {
        let keys =
            say(&mut cluster.connections[from], "CLUSTER", &["GETKEYSINSLOT", &slot, "1"]).await.unwrap();
        let keys: Vec<String> = from_redis_value_ref(&keys).unwrap();
        let Some(name) = keys.first() else { break };
        let migrate = [&host, "6379", name, "0", "5000"];
        say(&mut cluster.connections[from], "MIGRATE", &migrate).await.unwrap();
        yield_now().await;
    }
    for node in [to, from, 3 - from - to] {
        say(&mut cluster.connections[node], "CLUSTER", &["SETSLOT", &slot, "NODE", &ids[1]]).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_under_load_keeps_its_limits_and_keys() {
    let Some(mut cluster) = TestCluster::form().await else { return };
    // All of one shard, and so of one slot.
    let agents: Vec<u64> = (0..8).map(|number| 5 + 1_024 * number).collect();
    let scene = Scene::new(&cluster, 0, agents.iter().copied()).await;
    let slot = Shard::of_agent(agent(agents[0])).slot();
    let home = usize::from(slot / 5_462);
    let other = (home + 1) % 3;
    // Some windows there are, some there are not.
    for number in &agents[..4] {
        for _ in 0..2 * BEFORE {
            scene.enter(0, *number).await.unwrap();
        }
    }
    let signed = |nonce| Proof::Nonce(claim(nonce, SIGNED_SECS));
    let by_nonce = async |nonce| {
        scene.stores[1].admit(agent(agents[0]), &Scope::Api, MANY, &signed(nonce)).await.unwrap()
    };
    assert!(matches!(by_nonce(9).await, Admission::Admitted { .. }));
    scene.clock.advance_secs(10);
    let tasks = scene.hammer(&agents);
    for _ in 0..2 {
        move_slot(&mut cluster, slot, home, other).await;
        move_slot(&mut cluster, slot, other, home).await;
    }
    scene.is_being_filled(&agents);
    move_slot(&mut cluster, slot, home, other).await;
    scene.all_full(&agents).await;
    // The slot is with another process: it can't know whether a nonce that it lacks was used.
    for nonce in [9, 10] {
        assert_eq!(by_nonce(nonce).await, Admission::NonceUsed, "{nonce}");
    }
    move_slot(&mut cluster, slot, other, home).await;
    scene.all_full(&agents).await;
    for nonce in [9, 10] {
        assert_eq!(by_nonce(nonce).await, Admission::NonceUsed, "{nonce}");
    }
    scene.over.store(true, Ordering::SeqCst);
    tasks.join_all().await;
    for number in &agents {
        // One of the first agent's places went to its signature.
        let places = (0..LIMIT).filter(|place| *number != agents[0] || *place != LIMIT - 2 * BEFORE - 1);
        assert_eq!(scene.places_of(*number), places.collect::<Vec<_>>(), "{number}: each place once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_is_on_its_way_is_a_fault_for_its_agents_and_for_nobody_else() {
    let Some(mut cluster) = TestCluster::form().await else { return };
    let (moving, resting) = (5, 6);
    let scene = Scene::new(&cluster, 0, [moving, resting].into_iter()).await;
    let slot = Shard::of_agent(agent(moving)).slot();
    let home = usize::from(slot / 5_462);
    let ids = [cluster.id(home).await, cluster.id((home + 1) % 3).await];
    let text = slot.to_string();
    let migrating = ["SETSLOT", &text, "MIGRATING", &ids[1]];
    say(&mut cluster.connections[home], "CLUSTER", &migrating).await.unwrap();
    // Its window is not there yet, and might be on the other side.
    assert_eq!(scene.enter(0, moving).await, None);
    assert!(matches!(scene.enter(0, resting).await, Some(Admission::Admitted { .. })));
    say(&mut cluster.connections[home], "CLUSTER", &["SETSLOT", &text, "STABLE"]).await.unwrap();
    assert_eq!(scene.enter(0, moving).await, Some(Admission::Admitted { remaining: LIMIT - 1 }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_a_slot_on_its_way_is_connected_to_anew_and_is_ready() {
    let Some(mut cluster) = TestCluster::form().await else { return };
    // The shard that its node is probed with.
    let moving = Shard::all().find(|shard| shard.slot() / 5_462 == 0).unwrap();
    let at_node = agents_of(0, 1..=AGENTS);
    let resting = *at_node.iter().find(|number| Shard::of_agent(agent(**number)) != moving).unwrap();
    let scene = Scene::new(&cluster, 0, [resting].into_iter()).await;
    let (slot, id) = (moving.slot().to_string(), cluster.id(1).await);
    let node = &mut cluster.connections[0];
    say(node, "CLUSTER", &["SETSLOT", &slot, "MIGRATING", &id]).await.unwrap();
    // As when they are on the other side already.
    say(node, "DEL", &[&epoch(moving)]).await.unwrap();
    say(node, "DEL", &[&probe(moving)]).await.unwrap();
    let asked = say(node, "SET", &[&probe(moving), ""]).await.unwrap_err();
    assert_eq!(asked.code(), Some("ASK"));
    scene.stores[0].probe().await.unwrap();

    let connects = scene.stores[0].store.shared.metrics.store_connects.with_label_values(&["connected"]);
    let before = connects.get();
    say(node, "CLIENT", &["KILL", "TYPE", "normal", "SKIPME", "yes"]).await.unwrap();
    let again = async {
        while connects.get() == before {
            yield_now().await;
        }
    };
    assert!(timeout(PATIENCE, again).await.is_ok(), "{:?}", scene.stores[0].probe().await);
    ready(&scene.stores[0]).await;
    assert!(matches!(scene.enter(0, resting).await, Some(Admission::Admitted { .. })));
    let signed = Proof::Nonce(claim(2, SIGNED_SECS));
    let spent = scene.stores[0].admit(agent(resting), &Scope::Api, MANY, &signed).await.unwrap();
    assert!(matches!(spent, Admission::Admitted { .. }), "{spent:?}");
}

#[tokio::test]
async fn one_node_of_a_cluster_is_not_taken_for_a_server_that_has_everything() {
    let Some(cluster) = TestCluster::form().await else { return };
    let store = open(options(&cluster.nodes[0].url()), &Arc::new(SimulatedClock::new(START_SECS)));
    refused(&store).await;
    assert!(store.probe().await.is_err());
}
