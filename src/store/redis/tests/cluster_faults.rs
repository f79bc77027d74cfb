//! A cluster that loses a master, or whose slots move, while verifications go on: limits hold, nothing acknowledged is
//! undone, and it is over by itself.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::from_redis_value_ref;
use tokio::task::JoinSet;
use tokio::time::interval;

use crate::domain::quota::Quota;
use crate::ports::simulated::SimulatedClock;
use crate::ports::store::{Admission, KeyChange, KeyChanged, Proof, Scope, Store};
use crate::store::contract::{LOOK_EVERY, MANY, agent, claim, digest, key, until};
use crate::store::redis::RedisStore;
use crate::store::redis::names::{Name, Shard};
use crate::store::redis::options::Options;
use crate::store::redis::tests::cluster::TestCluster;
use crate::store::redis::tests::server::say;
use crate::store::redis::tests::{
    SIGNED_SECS, START_SECS, clock, connected_after, connects, fitting, is_forgotten, nonce_is_refused, open,
    opened, options, ready, refused,
};

/// Agents whose windows are filled: enough for some on every node.
const AGENTS: u64 = 24;

/// How many requests each of them has; how many of those are made before there is any load, and how many before a fault.
const LIMIT: u32 = 600;
const BEFORE: u32 = 20;
const BEFORE_FAULT: usize = 300;

/// The place of the signature that comes after those.
const SIGNED_PLACE: u32 = LIMIT - BEFORE - 1;

/// A timestamp that no epoch of a test reaches.
const LATER_SECS: u64 = START_SECS + 1_000;

/// Two replicas of the product at the same cluster, and each place that agents were given in their windows.
struct Scene {
    stores: [Arc<RedisStore>; 2],
    /// A third one, which wants no replica's word: it sets the scene and looks at it afterwards.
    patient: RedisStore,
    clock: Arc<SimulatedClock>,
    places: Mutex<HashMap<u64, Vec<u32>>>,
    /// How often each agent's key was replaced.
    rotated: Mutex<HashMap<u64, u32>>,
    /// Until the fault comes windows are filled so far and no further, however fast that goes.
    fault: AtomicBool,
    over: AtomicBool,
}

impl Scene {
    async fn new(cluster: &TestCluster, wait_replicas: u32, agents: impl Iterator<Item = u64>) -> Arc<Self> {
        let (clock, options) = (clock(), options(&cluster.url()));
        let patient = opened(options.clone(), &clock).await;
        let options = Options { wait_replicas, wait_timeout: Duration::from_secs(1), ..options };
        let stores = [(), ()].map(|()| Arc::new(open(options.clone(), &clock)));
        for store in &stores {
            ready(store).await;
        }
        for number in agents {
            let (claim, change) = (claim(1, SIGNED_SECS), KeyChange::Issue(key(fitting(number, 0))));
            assert_eq!(patient.change_key(agent(number), claim, change).await.unwrap(), KeyChanged::Done);
        }
        let (places, rotated, fault, over) = Default::default();
        Arc::new(Self { stores, patient, clock, places, rotated, fault, over })
    }

    /// Asks once at one of the replicas; nothing: a fault.
    async fn enter(&self, store: usize, number: u64) -> Option<Admission> {
        let quota = Quota::per_minute(LIMIT);
        let proof = Proof::Key(digest(fitting(number, 0)));
        let admission = self.stores[store].admit(agent(number), &Scope::Api, quota, &proof).await.ok()?;
        match admission {
            Admission::Admitted { remaining } => {
                self.places.lock().unwrap().entry(number).or_default().push(remaining);
            }
            Admission::Limited { .. } => {}
            Admission::KeyRevoked | Admission::NonceRefused(_) => {
                panic!("{number}: {admission:?}")
            }
        }
        Some(admission)
    }

    /// Looks at an agent's nonce.
    async fn by_nonce(&self, number: u64, nonce: u64) -> Admission {
        let proof = Proof::Nonce(claim(nonce, SIGNED_SECS));
        self.patient.admit(agent(number), &Scope::Api, MANY, &proof).await.unwrap()
    }

    /// Asks for these agents at both replicas, several at once, until it is over.
    fn hammer(self: &Arc<Self>, agents: &[u64]) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for task in 0..6 {
            let (scene, agents) = (Arc::clone(self), agents.to_vec());
            tasks.spawn(async move {
                let mut rounds = interval(Duration::from_millis(1));
                while !scene.over.load(Ordering::SeqCst) {
                    rounds.tick().await;
                    for number in &agents {
                        if scene.fault.load(Ordering::SeqCst) || scene.count(*number) < BEFORE_FAULT {
                            scene.enter(task % 2, *number).await;
                        }
                    }
                }
            });
        }
        tasks
    }

    /// Waits until the windows of these are filled so far that the fault may come; they are not full.
    async fn half_full(&self, agents: &[u64]) {
        until("windows are half full", async || {
            agents.iter().all(|number| self.count(*number) >= BEFORE_FAULT).then_some(())
        })
        .await;
        assert!(agents.iter().all(|number| self.count(*number) < LIMIT as usize - 100));
        self.fault.store(true, Ordering::SeqCst);
    }

    /// Waits until each agent's window is full and both replicas say so.
    async fn all_full(&self, agents: &[u64]) {
        for number in agents {
            for store in 0..2 {
                until("the window is full", async || {
                    matches!(self.enter(store, *number).await, Some(Admission::Limited { .. })).then_some(())
                })
                .await;
            }
        }
    }

    /// Waits until the key of each of these was replaced twice more.
    async fn all_rotate(&self, agents: &[u64]) {
        let count = |number: &u64| self.rotated.lock().unwrap().get(number).copied().unwrap_or(0);
        let before: Vec<u32> = agents.iter().map(count).collect();
        until("keys can be changed", async || {
            agents.iter().map(count).zip(&before).all(|(now, before)| now >= before + 2).then_some(())
        })
        .await;
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

    fn count(&self, number: u64) -> usize {
        self.places.lock().unwrap().get(&number).map_or(0, Vec::len)
    }

    fn places_of(&self, number: u64) -> Vec<u32> {
        let mut places = self.places.lock().unwrap().get(&number).cloned().unwrap_or_default();
        places.sort_unstable();
        places
    }
}

/// Replaces an agent's key again and again. What was replaced and acknowledged must be dead, whatever happens meanwhile.
async fn rotate_on(scene: Arc<Scene>, number: u64) {
    let mut rounds = interval(LOOK_EVERY);
    for round in 1.. {
        rounds.tick().await;
        if scene.over.load(Ordering::SeqCst) {
            break;
        }
        let change = KeyChange::Rotate(key(fitting(number, round)));
        let done = scene.stores[0].change_key(agent(number), claim(round + 1, LATER_SECS), change).await;
        let Ok(KeyChanged::Done) = done else { continue };
        *scene.rotated.lock().unwrap().entry(number).or_default() += 1;
        for old in (0..round).rev().take(3).chain([0]) {
            let proof = Proof::Key(digest(fitting(number, old)));
            let asked = scene.stores[1].admit(agent(number), &Scope::Api, MANY, &proof).await;
            assert!(matches!(asked, Ok(Admission::KeyRevoked) | Err(_)), "{old}: {asked:?}");
        }
    }
}

/// Which of the agents are at a master.
fn agents_of(master: usize, agents: &[u64]) -> Vec<u64> {
    let is_at = |number: &u64| TestCluster::home(Shard::of_agent(agent(*number)).slot()) == master;
    agents.iter().copied().filter(is_at).collect()
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
        assert!(matches!(scene.by_nonce(*number, 7).await, Admission::Admitted { .. }));
    }
    cluster.nodes[0].replicated().await;
    scene.clock.advance_secs(10);

    let mut tasks = scene.hammer(&agents);
    for number in &rotating {
        tasks.spawn(rotate_on(Arc::clone(&scene), *number));
    }
    scene.all_rotate(&rotating).await;
    scene.half_full(&agents).await;
    cluster.fail_over(0).await;
    scene.all_full(&agents).await;
    // The promoted one has no replica that could acknowledge a change; the others have theirs.
    let failed_over = agents_of(0, &rotating);
    let acknowledged: Vec<u64> =
        rotating.iter().copied().filter(|number| !failed_over.contains(number)).collect();
    assert!(!failed_over.is_empty() && !acknowledged.is_empty());
    scene.all_rotate(&acknowledged).await;
    for store in scene.stores.iter().map(Arc::as_ref).chain([&scene.patient]) {
        ready(store).await;
    }
    scene.over.store(true, Ordering::SeqCst);
    tasks.join_all().await;
    let failed_over = agents_of(0, &agents);
    assert!(!failed_over.is_empty() && failed_over.len() < agents.len());
    for number in &agents {
        let lost_its_master = failed_over.contains(number);
        scene.no_place_came_back(*number, lost_its_master);
        for nonce in [7, 8] {
            // A promoted replica can't know whether a nonce that it lacks was used.
            let refused = nonce_is_refused(Some(scene.by_nonce(*number, nonce).await));
            assert_eq!(refused, nonce == 7 || lost_its_master, "{number}, nonce {nonce}");
        }
    }
}

/// Moves a slot from one master to another as an operator does, in pieces.
async fn move_slot(cluster: &mut TestCluster, slot: u16, from: usize, to: usize) {
    let (slot, ids) = (slot.to_string(), [cluster.id(from).await, cluster.id(to).await]);
    let host = cluster.nodes[to].host.host.clone();
    cluster.say(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &ids[0]]).await;
    cluster.say(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &ids[1]]).await;
    until("the slot is empty", async || {
        let keys = cluster.say(from, &["CLUSTER", "GETKEYSINSLOT", &slot, "1"]).await;
        let keys: Vec<String> = from_redis_value_ref(&keys).unwrap();
        let Some(name) = keys.first() else { return Some(()) };
        cluster.say(from, &["MIGRATE", &host, "6379", name, "0", "60000"]).await;
        None
    })
    .await;
    for node in [to, from, 3 - from - to] {
        cluster.say(node, &["CLUSTER", "SETSLOT", &slot, "NODE", &ids[1]]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_under_load_keeps_its_limits_and_keys() {
    let Some(mut cluster) = TestCluster::form().await else { return };
    // All of one shard, and so of one slot.
    let shard = Shard::of_agent(agent(5));
    let agents: Vec<u64> = (5..).filter(|number| Shard::of_agent(agent(*number)) == shard).take(8).collect();
    let scene = Scene::new(&cluster, 0, agents.iter().copied()).await;
    let slot = Shard::of_agent(agent(agents[0])).slot();
    let home = TestCluster::home(slot);
    let other = (home + 1) % 3;
    let signed = |nonce| scene.by_nonce(agents[0], nonce);
    for _ in 0..BEFORE {
        scene.enter(0, agents[0]).await.unwrap();
    }
    assert!(matches!(signed(9).await, Admission::Admitted { .. }));
    scene.clock.advance_secs(10);
    // Some windows there are, some are only begun.
    let (begun, others) = agents.split_at(4);
    let tasks = scene.hammer(begun);
    scene.half_full(begun).await;
    let more_tasks = scene.hammer(others);
    move_slot(&mut cluster, slot, home, other).await;
    scene.all_full(&agents).await;
    // The slot is with another process: it can't know whether a nonce that it lacks was used.
    for nonce in [9, 10] {
        assert!(is_forgotten(Some(signed(nonce).await)), "{nonce}");
    }
    move_slot(&mut cluster, slot, other, home).await;
    scene.all_full(&agents).await;
    for nonce in [9, 10] {
        assert!(is_forgotten(Some(signed(nonce).await)), "{nonce}");
    }
    scene.over.store(true, Ordering::SeqCst);
    tasks.join_all().await;
    more_tasks.join_all().await;
    for number in &agents {
        // One of the first agent's places went to its signature.
        let places = (0..LIMIT).filter(|place| *number != agents[0] || *place != SIGNED_PLACE);
        assert_eq!(scene.places_of(*number), places.collect::<Vec<_>>(), "{number}: each place once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_is_on_its_way_is_a_fault_for_its_agents_and_for_nobody_else() {
    let Some(mut cluster) = TestCluster::form().await else { return };
    let (moving, resting) = (5, 6);
    assert_ne!(Shard::of_agent(agent(moving)), Shard::of_agent(agent(resting)));
    let scene = Scene::new(&cluster, 0, [moving, resting].into_iter()).await;
    let slot = Shard::of_agent(agent(moving)).slot();
    let (home, text) = (TestCluster::home(slot), slot.to_string());
    let other = cluster.id((home + 1) % 3).await;
    cluster.say(home, &["CLUSTER", "SETSLOT", &text, "MIGRATING", &other]).await;
    // Its window is not there yet, and might be on the other side.
    assert_eq!(scene.enter(0, moving).await, None);
    assert!(matches!(scene.enter(0, resting).await, Some(Admission::Admitted { .. })));
    cluster.say(home, &["CLUSTER", "SETSLOT", &text, "STABLE"]).await;
    assert_eq!(scene.enter(0, moving).await, Some(Admission::Admitted { remaining: LIMIT - 1 }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_a_slot_on_its_way_is_connected_to_anew_and_is_ready() {
    let Some(mut cluster) = TestCluster::form().await else { return };
    // The shard that its node is probed with.
    let moving = Shard::all().find(|shard| TestCluster::home(shard.slot()) == 0).unwrap();
    let at_node = agents_of(0, &(1..=AGENTS).collect::<Vec<_>>());
    let resting = *at_node.iter().find(|number| Shard::of_agent(agent(**number)) != moving).unwrap();
    let scene = Scene::new(&cluster, 0, [resting].into_iter()).await;
    let (slot, id) = (moving.slot().to_string(), cluster.id(1).await);
    cluster.say(0, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id]).await;
    // As when they are on the other side already.
    cluster.say(0, &["DEL", &Name::Epoch(moving).to_string()]).await;
    cluster.say(0, &["DEL", &Name::Probe(moving).to_string()]).await;
    let asked =
        say(&mut cluster.connections[0], &["SET", &Name::Probe(moving).to_string(), ""]).await.unwrap_err();
    assert_eq!(asked.code(), Some("ASK"));
    scene.stores[0].probe().await.unwrap();

    let before = connects(&scene.stores[0], "connected");
    cluster.say(0, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
    connected_after(&scene.stores[0], before).await;
    ready(&scene.stores[0]).await;
    assert!(matches!(scene.enter(0, resting).await, Some(Admission::Admitted { .. })));
    let signed = Proof::Nonce(claim(2, SIGNED_SECS));
    let spent = scene.stores[0].admit(agent(resting), &Scope::Api, MANY, &signed).await.unwrap();
    assert!(matches!(spent, Admission::Admitted { .. }), "{spent:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_change_while_any_other_master_is_gone() {
    for gone in 0..3 {
        let Some(mut cluster) = TestCluster::form().await else { return };
        let clock = clock();
        let store = opened(options(&cluster.url()), &clock).await;
        let elsewhere: Vec<u64> = (1..=AGENTS)
            .filter(|number| TestCluster::home(Shard::of_agent(agent(*number)).slot()) != gone)
            .collect();
        for number in &elsewhere {
            let change = KeyChange::Issue(key(fitting(*number, 1)));
            store.change_key(agent(*number), claim(1, SIGNED_SECS), change).await.unwrap();
        }
        cluster.nodes[gone].kill();
        for number in &elsewhere {
            let rotate = KeyChange::Rotate(key(fitting(*number, 2)));
            for (nonce, change) in [(2, rotate), (3, KeyChange::Revoke)] {
                let changed = store.change_key(agent(*number), claim(nonce, SIGNED_SECS), change).await;
                assert_eq!(changed.unwrap(), KeyChanged::Done, "{number} without {gone}");
            }
            for old in [1, 2] {
                assert_eq!(store.find(&digest(fitting(*number, old))).await.unwrap(), None);
                let proof = Proof::Key(digest(fitting(*number, old)));
                let asked = store.admit(agent(*number), &Scope::Api, MANY, &proof).await;
                assert_eq!(asked.unwrap(), Admission::KeyRevoked);
            }
        }
    }
}

#[tokio::test]
async fn one_node_of_a_cluster_is_not_taken_for_a_server_that_has_everything() {
    let Some(cluster) = TestCluster::form().await else { return };
    let store = open(options(&cluster.nodes[0].url()), &clock());
    refused(&store).await;
    assert!(store.probe().await.is_err());
}
