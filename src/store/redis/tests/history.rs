//! Histories: three replicas of the product under load while their servers fail, recorded by one monotonic clock.
//!
//! The runs are in `history_admissions.rs` and `history_revocation.rs`. This file has what both need: the servers and their
//! faults. `TG_HISTORIES=20` makes each history so often, and has its figures shown.

use std::io::{Write, stderr};
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::from_redis_value_ref;

use crate::os::Os;
use crate::ports::clock::Clock;
use crate::store::contract::{agent, until};
use crate::store::redis::RedisStore;
use crate::store::redis::names::Shard;
use crate::store::redis::options::Options;
use crate::store::redis::tests::cluster::TestCluster;
use crate::store::redis::tests::real::open;
use crate::store::redis::tests::sentinel::fail_over;
use crate::store::redis::tests::server::{RedisServer, say};
use crate::store::redis::tests::{options, ready};

/// How often each history is made.
const REPEATS_VARIABLE: &str = "TG_HISTORIES";

/// How many replicas of the product there are. They share nothing but Redis.
pub(super) const REPLICAS: usize = 3;

/// How far ahead of a history its signatures are dated: each server that begins meanwhile takes them.
const SIGNED_AHEAD_SECS: u64 = 3_600;

/// How many masters a cluster has. Among its nodes the replica of the first one comes after them.
const MASTERS: usize = 3;

/// When a call began and when it had answered, in microseconds of a monotonic clock. What it did it did in between.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
}

/// The servers of a history.
#[expect(clippy::large_enum_variant, reason = "there is one for each run")]
pub(super) enum Rig {
    /// One that has on its disk all that it has answered.
    Durable(RedisServer),
    /// A master, its replica, and the Sentinel that promotes it.
    Sentinel { master: RedisServer, replica: RedisServer, sentinel: RedisServer },
    /// Three masters with a replica each. The first one fails.
    Cluster(TestCluster),
}

impl Rig {
    pub(super) async fn durable() -> Option<Self> {
        RedisServer::start(&["--appendonly", "yes", "--appendfsync", "always"]).await.map(Self::Durable)
    }

    pub(super) async fn sentinel() -> Option<Self> {
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

    pub(super) async fn cluster() -> Option<Self> {
        TestCluster::form_with_replicas().await.map(Self::Cluster)
    }

    /// The options of a store at these servers.
    pub(super) fn options(&self) -> Options {
        match self {
            Self::Durable(server) => options(&server.url()),
            Self::Sentinel { sentinel, .. } => {
                options(&format!("redis-sentinel://{}/service", sentinel.host))
            }
            Self::Cluster(cluster) => options(&cluster.url()),
        }
    }

    /// The one server.
    pub(super) fn server(&self) -> &RedisServer {
        let Self::Durable(server) = self else { panic!("several servers") };
        server
    }

    /// Kills the one server, and starts it again on what it has on its disk.
    pub(super) async fn restart(&mut self) {
        let Self::Durable(server) = self else { panic!("several servers") };
        server.restart().await;
    }

    /// Takes the replica off its master, waits for what must happen meanwhile, and kills the master. When this answers,
    /// the replica has seen the end of its master and is not promoted yet. Answers when the master was killed.
    pub(super) async fn lose_master(&mut self, os: &Os, unreceived: impl AsyncFnOnce()) -> Span {
        let (master, replica) = self.pair();
        replica_in_step(master, replica).await;
        let frozen = replica.freeze();
        // The replica still finds on its connection all that the master has sent by now, and no more.
        say(&mut master.connected().await, &["CLIENT", "KILL", "TYPE", "replica"]).await.unwrap();
        unreceived().await;
        let start = os.monotonic_micros();
        master.kill();
        let killed = Span { start, end: os.monotonic_micros() };
        drop(frozen);
        let mut connection = replica.connected().await;
        until("the replica has seen the end of its master", async || {
            replication(&mut connection).await.contains("master_link_status:down").then_some(())
        })
        .await;
        killed
    }

    /// The replica of the master that fails.
    pub(super) fn replica(&self) -> &RedisServer {
        match self {
            Self::Durable(_) => panic!("one server"),
            Self::Sentinel { replica, .. } => replica,
            Self::Cluster(cluster) => &cluster.nodes[MASTERS],
        }
    }

    /// Has the replica take the place of its master, which is gone.
    pub(super) async fn promote(&mut self) {
        match self {
            Self::Durable(_) => panic!("one server"),
            Self::Sentinel { master, sentinel, .. } => fail_over(sentinel, master).await,
            Self::Cluster(cluster) => cluster.fail_over(0).await,
        }
    }

    fn pair(&mut self) -> (&mut RedisServer, &RedisServer) {
        match self {
            Self::Durable(_) => panic!("one server"),
            Self::Sentinel { master, replica, .. } => (master, replica),
            Self::Cluster(cluster) => {
                let (masters, replicas) = cluster.nodes.split_at_mut(MASTERS);
                (&mut masters[0], &replicas[0])
            }
        }
    }
}

async fn replica_in_step(master: &RedisServer, replica: &RedisServer) {
    let mut connection = replica.connected().await;
    until("the replica has its master", async || {
        replication(&mut connection).await.contains("master_link_status:up").then_some(())
    })
    .await;
    master.replicated().await;
}

async fn replication(connection: &mut MultiplexedConnection) -> String {
    from_redis_value_ref(&say(connection, &["INFO", "REPLICATION"]).await.unwrap()).unwrap()
}

/// Replicas of the product that work, each with connections of its own, and with the servers' own clock.
pub(super) async fn three(options: &Options) -> Vec<Arc<RedisStore>> {
    let stores: Vec<_> = (0..REPLICAS).map(|_| Arc::new(open(options.clone()))).collect();
    for store in &stores {
        ready(store).await;
    }
    stores
}

/// The time of a history's signatures.
pub(super) fn signed_at_secs(os: &Os) -> u64 {
    os.unix_seconds() + SIGNED_AHEAD_SECS
}

/// How often each history is made: once, unless the variable says otherwise.
pub(super) fn repeats() -> u32 {
    std::env::var(REPEATS_VARIABLE).ok().map_or(1, |times| times.parse().unwrap())
}

/// Shows the figures of a history where many are made. The harness keeps from the reader what a test that passes says
/// through `eprintln!`.
pub(super) fn show(figures: &str) {
    if repeats() > 1 {
        let _ = writeln!(stderr(), "{figures}");
    }
}

/// The master of a cluster at which an agent is.
pub(super) fn home(number: u64) -> usize {
    TestCluster::home(Shard::of_agent(agent(number)).slot())
}

/// Agents of which so many are at each master of a cluster.
pub(super) fn agents(each: usize) -> Vec<u64> {
    (0..MASTERS).flat_map(|master| (1..).filter(move |number| home(*number) == master).take(each)).collect()
}
