//! Sentinels: after a failover nothing that may have been used is used again, and where they disagree most of them decide.

use std::sync::Arc;
use std::time::Duration;

use redis::{Client, Value};
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::domain::redis_url::{RedisHost, RedisUrl};
use crate::ports::simulated::SimulatedClock;
use crate::ports::store::{Admission, KeyChange, Proof, Scope, Store};
use crate::store::contract::{MANY, agent, claim, digest, key};
use crate::store::redis::RunningRedisStore;
use crate::store::redis::servers::Layout;
use crate::store::redis::tests::real::refused;
use crate::store::redis::tests::server::RedisServer;
use crate::store::redis::tests::{
    FAILOVER_TIME_MAX, PATIENCE, SIGNED_SECS, START_SECS, open, options, ready, ready_within,
};

async fn admit(store: &RunningRedisStore, proof: Proof) -> Option<Admission> {
    store.admit(agent(1), &Scope::Api, MANY, &proof).await.ok()
}

/// Waits until a Sentinel knows whom it could promote.
async fn sees_a_replica(sentinel: &RedisServer) {
    let client = Client::open(sentinel.url()).unwrap();
    let sees = async {
        loop {
            if let Ok(mut connection) = client.get_multiplexed_async_connection().await {
                let mut command = redis::cmd("SENTINEL");
                let known =
                    command.arg("REPLICAS").arg("service").query_async::<Vec<Value>>(&mut connection).await;
                if known.is_ok_and(|replicas| !replicas.is_empty()) {
                    return;
                }
            }
        }
    };
    timeout(PATIENCE, sees).await.unwrap();
}

/// Asks until the answer is a good one: while a server is not there yet, it is none.
async fn changed(store: &RunningRedisStore, nonce: u64, number: u64) {
    for nonce in nonce.. {
        ready(store).await;
        let change = KeyChange::Rotate(key(number + nonce));
        if store.change_key(agent(1), claim(nonce, SIGNED_SECS), change).await.is_ok() {
            let proof = Proof::Key(digest(number + nonce));
            assert!(matches!(admit(store, proof).await, Some(Admission::Admitted { .. })));
            return;
        }
    }
}

#[tokio::test]
async fn after_a_failover_the_promoted_replica_serves_and_refuses_older_signatures() {
    let Some(mut master) = RedisServer::start(&[]) else { return };
    let replica = RedisServer::start(&[
        "--replicaof",
        &master.host.host,
        "6379",
        "--replica-announce-ip",
        "{ip}",
        "--repl-diskless-sync-delay",
        "0",
    ]);
    let _replica = replica.unwrap();
    let clock = Arc::new(SimulatedClock::new(START_SECS));
    let mut options = options(&master.url());
    options.wait_replicas = 1;
    options.timeout = Duration::from_secs(2);
    // A replica that is not in sync yet can't acknowledge: that is a fault and no admission.
    changed(&open(options.clone(), &clock), 1, 0).await;

    let sentinel = RedisServer::start_sentinel(&master.host).unwrap();
    sees_a_replica(&sentinel).await;
    options.url = RedisUrl::parse(&format!("redis-sentinel://{}/service", sentinel.host)).unwrap();
    let store = open(options.clone(), &clock);
    changed(&store, 1_000, 0).await;

    clock.advance_secs(10);
    master.kill();
    assert_eq!(admit(&store, Proof::Key(digest(1))).await, None);
    options.wait_replicas = 0;
    let after = open(options, &clock);
    ready_within(FAILOVER_TIME_MAX, &after).await;
    assert!(after.has_key(agent(1)).await.unwrap(), "what a replica acknowledged is there");
    let older = Proof::Nonce(claim(1_000_000, START_SECS + 10 + 60));
    assert_eq!(admit(&after, older).await, Some(Admission::NonceUsed));
    let newer = Proof::Nonce(claim(1_000_001, START_SECS + 10 + 61));
    assert!(matches!(admit(&after, newer).await, Some(Admission::Admitted { .. })));
    // With no replica left, nothing that one should have counts.
    let alone = Proof::Nonce(claim(1_000_002, START_SECS + 10 + 61));
    assert_eq!(admit(&store, alone).await, None);
}

/// Two masters of the same name, as after a partition, and a Sentinel for each of the names that follow.
struct Torn {
    masters: [RedisServer; 2],
    sentinels: Vec<RedisServer>,
}

impl Torn {
    /// Each number is the place of the master that a Sentinel names.
    fn start(named: &[usize]) -> Option<Self> {
        let masters = [RedisServer::start(&[])?, RedisServer::start(&[])?];
        let watch = |place: &usize| RedisServer::start_sentinel(&masters[*place].host).unwrap();
        let sentinels = named.iter().map(watch).collect();
        Some(Self { masters, sentinels })
    }

    fn store(&self, clock: &Arc<SimulatedClock>) -> RunningRedisStore {
        let hosts: Vec<String> = self.sentinels.iter().map(|sentinel| sentinel.host.to_string()).collect();
        let mut options = options(&format!("redis-sentinel://{}/service", hosts.join(",")));
        options.timeout = Duration::from_secs(1);
        open(options, clock)
    }

    /// Waits until a Sentinel answers, and says something to it.
    async fn tell(&self, sentinel: usize, words: &[&str]) {
        let client = Client::open(self.sentinels[sentinel].url()).unwrap();
        let said = async {
            loop {
                if let Ok(mut connection) = client.get_multiplexed_async_connection().await {
                    let mut command = redis::cmd("SENTINEL");
                    if command.arg(words).query_async::<Value>(&mut connection).await.is_ok() {
                        return;
                    }
                }
                yield_now().await;
            }
        };
        timeout(PATIENCE, said).await.unwrap();
    }

    /// Has a Sentinel name the other master from now on.
    async fn turn(&self, sentinel: usize, place: usize) {
        let RedisHost { host, port } = &self.masters[place].host;
        self.tell(sentinel, &["REMOVE", "service"]).await;
        self.tell(sentinel, &["MONITOR", "service", host, &port.to_string(), "1"]).await;
    }

    /// Waits until the store serves from this master.
    async fn serves_from(&self, store: &RunningRedisStore, place: usize) {
        let serves = async {
            while at(store).as_ref() != Some(&self.masters[place].host) {
                yield_now().await;
            }
        };
        let in_time = timeout(PATIENCE, serves).await;
        assert!(in_time.is_ok(), "{:?}", store.probe().await);
    }
}

/// Where the store serves from.
fn at(store: &RunningRedisStore) -> Option<RedisHost> {
    let Layout::One(link) = &store.store.servers.layout else { panic!("one master") };
    link.line().ok().map(|line| line.host.clone())
}

fn clock() -> Arc<SimulatedClock> {
    Arc::new(SimulatedClock::new(START_SECS))
}

async fn key_is_looked_at(store: &RunningRedisStore) -> bool {
    admit(store, Proof::Key(digest(1))).await == Some(Admission::KeyRevoked)
}

/// For how long nothing must happen: several looks at the Sentinels.
const QUIET: Duration = Duration::from_secs(7);

#[tokio::test]
async fn of_sentinels_that_disagree_the_majority_is_believed_whatever_their_order() {
    for deposed in 0..3 {
        let named: Vec<usize> = (0..3).map(|place| usize::from(place == deposed)).collect();
        let Some(torn) = Torn::start(&named) else { return };
        let store = torn.store(&clock());
        torn.serves_from(&store, 0).await;
        assert!(key_is_looked_at(&store).await);
    }
}

#[tokio::test]
async fn where_no_majority_of_the_sentinels_names_a_master_nobody_is_served() {
    let Some(mut torn) = Torn::start(&[1, 0, 0]) else { return };
    torn.sentinels[2].kill();
    torn.tell(0, &["MASTERS"]).await;
    torn.tell(1, &["MASTERS"]).await;
    let store = torn.store(&clock());
    refused(&store).await;
    let said = format!("{:?}", store.has_key(agent(1)).await.unwrap_err());
    assert!(said.contains("the Sentinels name different masters"), "{said}");
    torn.sentinels[0].kill();
    let alone = torn.store(&clock());
    refused(&alone).await;
    let said = format!("{:?}", alone.has_key(agent(1)).await.unwrap_err());
    assert!(said.contains("only 1 of 3 Sentinels names a master"), "{said}");
    torn.sentinels[2].restart();
    torn.serves_from(&alone, 0).await;
    torn.serves_from(&store, 0).await;
}

#[tokio::test]
async fn a_silent_minority_of_sentinels_is_harmless() {
    let Some(mut torn) = Torn::start(&[0, 0, 0, 0, 0]) else { return };
    torn.sentinels[0].freeze(true);
    torn.sentinels[4].kill();
    let store = torn.store(&clock());
    ready(&store).await;
    let served = async {
        loop {
            assert!(key_is_looked_at(&store).await);
            yield_now().await;
        }
    };
    assert!(timeout(QUIET, served).await.is_err(), "it never ends by itself");
}

#[tokio::test]
async fn a_master_that_most_sentinels_deposed_is_left_and_one_that_a_minority_deposed_is_not() {
    let Some(torn) = Torn::start(&[0, 0, 0]) else { return };
    let store = torn.store(&clock());
    torn.serves_from(&store, 0).await;
    torn.turn(0, 1).await;
    let stays = async {
        loop {
            assert_eq!(at(&store).as_ref(), Some(&torn.masters[0].host));
            yield_now().await;
        }
    };
    assert!(timeout(QUIET, stays).await.is_err(), "it never ends by itself");
    torn.turn(1, 1).await;
    torn.serves_from(&store, 1).await;
}

#[tokio::test]
async fn a_master_that_no_majority_confirms_any_more_is_served_from_a_little_longer_and_then_not() {
    let Some(torn) = Torn::start(&[0, 0, 0]) else { return };
    let store = torn.store(&clock());
    ready(&store).await;
    torn.sentinels[0].freeze(true);
    torn.sentinels[1].freeze(true);
    let mut served = 0_u32;
    let ends = async {
        while key_is_looked_at(&store).await {
            served += 1;
        }
    };
    timeout(PATIENCE, ends).await.unwrap();
    assert!(served > 0);
    torn.sentinels[0].freeze(false);
    torn.serves_from(&store, 0).await;
    ready(&store).await;
}

#[tokio::test]
async fn a_process_that_was_stopped_asks_the_sentinels_before_it_serves_again() {
    let Some(torn) = Torn::start(&[0]) else { return };
    let clock = clock();
    let store = torn.store(&clock);
    ready(&store).await;
    let Layout::One(link) = &store.store.servers.layout else { panic!("one master") };
    let line = link.line().unwrap();
    torn.sentinels[0].freeze(true);
    clock.advance_secs(60);
    // The server itself answers, and might have been deposed meanwhile.
    assert_eq!(admit(&store, Proof::Key(digest(1))).await, None);
    let said = format!("{:?}", store.has_key(agent(1)).await.unwrap_err());
    assert!(said.contains("it is still the master"), "{said}");
    torn.sentinels[0].freeze(false);
    torn.serves_from(&store, 0).await;
    assert!(key_is_looked_at(&store).await);
    assert_eq!(link.line().unwrap().identity, line.identity);
}
