//! Histories: three replicas of the product under load while their servers fail, recorded by one monotonic clock.
//! `history_load.rs` is the load and `history_judge.rs` the judge; this file has the servers and their faults.
//!
//! `TG_HISTORIES=20` makes each history so often, and has its figures shown.

use std::io::{Write, stderr};
use std::{sync::atomic::Ordering, time::Duration};

use redis::aio::MultiplexedConnection;
use redis::from_redis_value_ref;

use crate::os::Os;
use crate::ports::{Clock, KeyChange, Store};
use crate::store::contract::{agent, digest, until};
use crate::store::redis::tests::history_judge::{Failover, Figures, History, Span};
use crate::store::redis::tests::history_load::{LIMIT, Load, MASTERS, REPLICAS, home, slot};
use crate::store::redis::tests::server::{RedisServer, say};
use crate::store::{
    redis::names::Name, redis::options::Options, redis::tests::cluster::TestCluster, redis::tests::options,
    redis::tests::sentinel::fail_over,
};

/// How often each history is made.
const REPEATS_VARIABLE: &str = "TG_HISTORIES";

/// The product's own width. Nobody waits for it to be over.
const MINUTE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The one server is killed, and comes back with what it has on its disk.
    Kill,
    Freeze,
    /// A master dies after the replica that takes its place has been taken off it for a while.
    FailOver,
    /// Slots move to another master, and back.
    Move,
}

/// The servers of a history.
#[expect(clippy::large_enum_variant, reason = "there is one for each run")]
enum Rig {
    Single(RedisServer),
    /// A master, its replica, and the Sentinel that promotes it.
    Sentinel {
        master: RedisServer,
        replica: RedisServer,
        sentinel: RedisServer,
    },
    /// Three masters, of which the first one fails, with a replica each where that is the fault.
    Cluster(TestCluster),
}

impl Rig {
    /// One that has on its disk all that it has answered.
    async fn durable() -> Option<Self> {
        RedisServer::start(&["--appendonly", "yes", "--appendfsync", "always"]).await.map(Self::Single)
    }

    /// A server that nothing happens to, and that waits for no disk.
    async fn plain() -> Option<Self> {
        RedisServer::start(&[]).await.map(Self::Single)
    }

    async fn sentinel() -> Option<Self> {
        let master = RedisServer::start(&[]).await?;
        let replica = master.replica().await;
        let sentinel = RedisServer::start_sentinel(&master.host).await?;
        let mut connection = sentinel.connected().await;
        until("the Sentinel knows the replica", async || {
            let known = say(&mut connection, &["SENTINEL", "REPLICAS", "service"]).await.ok()?;
            known.as_sequence().is_some_and(|replicas| !replicas.is_empty()).then_some(())
        })
        .await;
        Some(Self::Sentinel { master, replica, sentinel })
    }

    async fn cluster() -> Option<Self> {
        TestCluster::form_with_replicas().await.map(Self::Cluster)
    }

    /// The options of a store at these servers.
    fn options(&self) -> Options {
        match self {
            Self::Single(server) => options(&server.url()),
            Self::Sentinel { sentinel, .. } => {
                options(&format!("redis-sentinel://{}/service", sentinel.host))
            }
            Self::Cluster(cluster) => options(&cluster.url()),
        }
    }

    /// The one server.
    fn server(&mut self) -> &mut RedisServer {
        let Self::Single(server) = self else { panic!("several servers") };
        server
    }

    /// The master that fails, and its replica.
    fn pair(&mut self) -> (&mut RedisServer, &RedisServer) {
        match self {
            Self::Single(_) => panic!("one server"),
            Self::Sentinel { master, replica, .. } => (master, replica),
            Self::Cluster(cluster) => {
                let (masters, replicas) = cluster.nodes.split_at_mut(MASTERS);
                (&mut masters[0], &replicas[0])
            }
        }
    }

    /// Takes the replica off its master, waits for what must happen meanwhile, and kills the master. When this answers,
    /// the replica has seen the end of its master and is not promoted yet. Answers when the master was killed.
    async fn lose_master(&mut self, os: &Os, unreceived: impl AsyncFnOnce()) -> Span {
        let (master, replica) = self.pair();
        says(&mut replica.connected().await, "master_link_status:up").await;
        master.replicated().await;
        let frozen = replica.freeze();
        // The replica still finds on its connection all that the master has sent by now, and no more.
        say(&mut master.connected().await, &["CLIENT", "KILL", "TYPE", "replica"]).await.unwrap();
        unreceived().await;
        let start = os.monotonic_micros();
        master.kill();
        let killed = Span { start, end: os.monotonic_micros() };
        drop(frozen);
        says(&mut replica.connected().await, "master_link_status:down").await;
        killed
    }

    /// Has the replica take the place of its master, which is gone.
    async fn promote(&mut self) {
        match self {
            Self::Single(_) => panic!("one server"),
            Self::Sentinel { master, sentinel, .. } => fail_over(sentinel, master).await,
            Self::Cluster(cluster) => cluster.fail_over(0).await,
        }
    }
}

/// Waits until a server says this of its replication.
async fn says(connection: &mut MultiplexedConnection, words: &str) {
    until(words, async || {
        let info: String =
            from_redis_value_ref(&say(connection, &["INFO", "REPLICATION"]).await.unwrap()).unwrap();
        info.contains(words).then_some(())
    })
    .await;
}

/// Makes a history as often as is wanted, on servers anew each time, and judges each.
async fn judged(name: &str, rig: impl AsyncFn() -> Option<Rig>, one: impl AsyncFn(Rig, u32, &mut Figures)) {
    let mut figures = Figures::default();
    let repeats = std::env::var(REPEATS_VARIABLE).ok().map_or(1, |times| times.parse().unwrap());
    for run in 0..repeats {
        let Some(rig) = rig().await else { return };
        one(rig, run, &mut figures).await;
    }
    if repeats > 1 {
        // The harness keeps from the reader what a test that passes says through `eprintln!`.
        let _ = writeln!(stderr(), "{name}: {figures:?}");
    }
}

/// The same for histories with a fault.
async fn beside(fault: Fault, name: &str, rig: impl AsyncFn() -> Option<Rig>) {
    judged(name, rig, async |rig, run, figures| figures.add(&history(fault, rig, run).await)).await;
}

async fn history(fault: Fault, mut rig: Rig, run: u32) -> History {
    let usual = rig.options();
    let (options, width) = match fault {
        Fault::Kill => (usual, Duration::from_secs(2)),
        Fault::Freeze => (Options { timeout: Duration::from_secs(1), ..usual }, Duration::from_secs(2)),
        Fault::FailOver => {
            (Options { wait_replicas: 1, wait_timeout: Duration::from_millis(200), ..usual }, MINUTE)
        }
        Fault::Move => (usual, MINUTE),
    };
    let load = Load::new(&options, width).await;
    let tasks = load.begin();
    let now = || load.os.monotonic_micros();
    let mut failover = None;
    match fault {
        Fault::Kill | Fault::Freeze => {
            for times in [1 + 7 * run % LIMIT, LIMIT] {
                load.goes_on().await;
                load.fill(times).await;
                load.fill_on();
                if fault == Fault::Kill {
                    rig.server().restart().await;
                    continue;
                }
                let (frozen, since) = (rig.server().freeze(), now());
                load.answers(200, since, |asked| asked.answer.is_none()).await;
                load.changes(&load.agents, 5, since, |change| !change.done).await;
                drop(frozen);
            }
            load.goes_on().await;
            load.admits(2 * LIMIT).await;
            load.forgets(|_| fault == Fault::Kill).await;
        }
        Fault::FailOver => {
            load.goes_on().await;
            load.fill(LIMIT / 2).await;
            let unreceived = async || {
                let since = now();
                load.fill(LIMIT * 3 / 4).await;
                load.changes(&load.agents, 1, since, |change| change.key.is_none()).await;
                load.held.store(true, Ordering::SeqCst);
            };
            let killed = rig.lose_master(&load.os, unreceived).await;
            let received = load.received_by(rig.pair().1).await;
            assert!(!received.is_empty());
            load.fill_on();
            rig.promote().await;
            // Before anything else kills a key that the promoted replica brings back.
            load.verify_all().await;
            load.held.store(false, Ordering::SeqCst);
            // In a cluster keys change on at the other masters.
            let is_lost = |number: u64| matches!(rig, Rig::Sentinel { .. }) || home(number) == 0;
            let (_replica, go_on) = match &rig {
                Rig::Sentinel { replica, .. } => (Some(replica.replica().await), load.agents.clone()),
                Rig::Single(_) | Rig::Cluster(_) => {
                    (None, load.agents.iter().copied().filter(|number| !is_lost(*number)).collect())
                }
            };
            load.changes(&go_on, 3, killed.end, |change| change.done).await;
            load.all_full(killed.end).await;
            load.forgets(is_lost).await;
            failover = Some(Failover { killed, received });
        }
        Fault::Move => {
            let Rig::Cluster(cluster) = &mut rig else { panic!("no cluster") };
            let slots = [load.windows[0].0, load.agents[0]].map(slot);
            load.goes_on().await;
            load.fill(LIMIT / 2).await;
            let moves = async |cluster: &mut TestCluster, from, to| {
                for slot in slots {
                    cluster.move_slot(slot, from, to).await;
                }
            };
            tokio::join!(load.fill(LIMIT * 3 / 4), moves(cluster, 0, 1));
            load.goes_on().await;
            load.fill_on();
            load.all_full(0).await;
            moves(cluster, 1, 0).await;
            load.goes_on().await;
            load.all_full(now()).await;
            load.forgets(|number| slots.contains(&slot(number))).await;
        }
    }
    let history = load.end(tasks, failover).await;
    for window in history.failover.iter().flat_map(|failover| failover.received.keys()) {
        assert!(history.lost(window) > 0, "{window:?}: the replica had everything");
    }
    history
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_killed_and_comes_back_with_its_disk_breaks_no_rule() {
    beside(Fault::Kill, "kill", Rig::durable).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_frozen_breaks_no_rule() {
    beside(Fault::Freeze, "freeze", Rig::durable).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_by_sentinel_undoes_only_admissions_that_the_promoted_replica_had_not_received() {
    beside(Fault::FailOver, "Sentinel", Rig::sentinel).await;
}

// threat: A store forgets
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_of_a_cluster_undoes_only_admissions_that_the_promoted_replica_had_not_received() {
    beside(Fault::FailOver, "cluster", Rig::cluster).await;
}

// threat: A store forgets
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_under_load_breaks_no_rule() {
    beside(Fault::Move, "slots", async || TestCluster::form().await.map(Rig::Cluster)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failover_that_lost_changes_every_replica_says_the_same_of_each_key() {
    let Some(mut rig) = Rig::cluster().await else { return };
    let load = Load::new(&rig.options(), MINUTE).await;
    let agents: Vec<u64> = (1_000..).filter(|number| home(*number) == 0).take(8).collect();
    for number in &agents {
        assert!(load.change(0, *number, Some(KeyChange::Issue)).await);
    }
    let kept = load.shown.lock().unwrap().clone();
    for key in &kept {
        // The last replica has never heard of it.
        assert_eq!((load.verify(0, *key).await, load.verify(1, *key).await), (Some(true), Some(true)));
    }
    rig.lose_master(&load.os, async || {
        for number in &agents {
            assert!(load.change(0, *number, Some(KeyChange::Rotate)).await);
        }
        let lost = load.shown.lock().unwrap().split_off(kept.len());
        for key in &lost {
            assert_eq!(load.verify(1, *key).await, Some(true));
        }
        load.shown.lock().unwrap().extend(lost);
    })
    .await;
    rig.promote().await;
    let shown = load.shown.lock().unwrap().clone();
    for key in shown {
        for store in 0..REPLICAS {
            let passed = until("it is answered", async || load.verify(store, key).await).await;
            assert_eq!(passed, kept.contains(&key), "{key:x} at {store}");
        }
    }
}

/// An agent that nobody else asks for.
const RACED: u64 = 1_000;

/// An agent's key is issued at the first replica, and revoked there while the second one looks it up and the third one
/// verifies it, both for the first time. The revocation comes so many requests later. Answers how many replicas still know
/// the key after that.
async fn a_revoke_that_is_raced(load: &Load, later: usize) -> usize {
    assert!(load.change(0, RACED, Some(KeyChange::Issue)).await);
    let key = *load.shown.lock().unwrap().last().unwrap();
    let revoke = async {
        for _ in 0..later {
            assert!(load.stores[0].has_key(agent(RACED)).await.unwrap());
        }
        assert!(load.change(0, RACED, None).await);
    };
    let look_up = async {
        for _ in 0..8 {
            load.stores[1].find(&digest(key)).await.unwrap();
        }
    };
    let verify = async {
        for _ in 0..8 {
            load.verify(2, key).await;
        }
    };
    tokio::join!(look_up, revoke, verify);
    let mut known = 0;
    for store in 0..REPLICAS {
        known += usize::from(load.stores[store].find(&digest(key)).await.unwrap().is_some());
        load.verify(store, key).await;
    }
    known
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_that_is_filled_while_a_key_is_revoked_lets_nobody_in() {
    judged("cache filled too late", Rig::plain, async |rig, _, figures| {
        let load = Load::new(&rig.options(), MINUTE).await;
        let mut known = 0;
        for round in 0..100 {
            known += a_revoke_that_is_raced(&load, round % 5).await;
        }
        assert!(known > 0, "no cache was ever filled too late");
        load.end_into(figures).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_that_outlives_its_key_is_read_again_and_lets_nobody_in() {
    judged("key known again", Rig::plain, async |mut rig, _, figures| {
        let load = Load::new(&rig.options(), MINUTE).await;
        let mut connection = rig.server().connected().await;
        for _ in 0..100 {
            assert!(load.change(0, RACED, Some(KeyChange::Issue)).await);
            let key = *load.shown.lock().unwrap().last().unwrap();
            let name = Name::Entry(&digest(key));
            let entry: Vec<u8> = redis::cmd("GET").arg(name).query_async(&mut connection).await.unwrap();
            assert_eq!(load.verify(1, key).await, Some(true));
            assert!(load.change(0, RACED, None).await);
            // As another store of keys at the same Redis might leave it.
            redis::cmd("SET").arg(name).arg(entry).exec_async(&mut connection).await.unwrap();
            // A refusal drops the key from a cache. The next look-up takes it in again.
            for store in (0..REPLICAS).cycle().take(3 * REPLICAS) {
                assert!(load.stores[store].find(&digest(key)).await.unwrap().is_some(), "it is known again");
                load.verify(store, key).await;
            }
        }
        load.end_into(figures).await;
    })
    .await;
}
