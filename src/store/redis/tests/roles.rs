//! Masters that become replicas and masters again, and masters that get their first replica: whatever may have lost a nonce
//! is another life, and so is what can't be told from it.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::ports::simulated::SimulatedClock;
use crate::ports::store::{Admission, KeyChange, Proof, Scope, Store};
use crate::store::contract::{MANY, agent, claim, digest, key};
use crate::store::redis::RunningRedisStore;
use crate::store::redis::house::{Info, info};
use crate::store::redis::servers::Layout;
use crate::store::redis::tests::acknowledged::{connected, replica_of};
use crate::store::redis::tests::server::RedisServer;
use crate::store::redis::tests::{PATIENCE, SIGNED_SECS, START_SECS, open, options, ready};

async fn store(server: &RedisServer, clock: &Arc<SimulatedClock>) -> RunningRedisStore {
    let store = open(options(&server.url()), clock);
    ready(&store).await;
    store
}

fn clock() -> Arc<SimulatedClock> {
    Arc::new(SimulatedClock::new(START_SECS))
}

async fn by_nonce(store: &RunningRedisStore, nonce: u64, signed_at_secs: u64) -> Option<Admission> {
    let proof = Proof::Nonce(claim(nonce, signed_at_secs));
    store.admit(agent(1), &Scope::Api, MANY, &proof).await.ok()
}

fn is_admitted(admission: Option<Admission>) -> bool {
    matches!(admission, Some(Admission::Admitted { .. }))
}

/// Which life of which process the store is connected to.
fn identity(store: &RunningRedisStore) -> Option<String> {
    let Layout::One(link) = &store.store.servers.layout else { panic!("a single server") };
    link.line().ok().map(|line| line.identity.clone())
}

async fn say(connection: &mut MultiplexedConnection, words: &[&str]) {
    let (name, rest) = words.split_first().unwrap();
    redis::cmd(name).arg(rest).exec_async(connection).await.unwrap();
}

/// Waits until a server says this of itself.
async fn until(connection: &mut MultiplexedConnection, is: impl Fn(&Info) -> bool) {
    let says = async {
        while !is(&info(connection).await.unwrap()) {
            yield_now().await;
        }
    };
    timeout(PATIENCE, says).await.unwrap();
}

fn remembers_no_promotion(info: &Info) -> bool {
    info.value("master_replid2").bytes().all(|digit| digit == b'0')
}

/// A store at a master that took a nonce which its replica, a master since then, does not have.
async fn torn() -> Option<(RedisServer, RedisServer, RunningRedisStore)> {
    let master = RedisServer::start(&[])?;
    let replica = replica_of(&master).await;
    let clock = clock();
    let store = store(&master, &clock).await;
    let mut of_replica = connected(&replica).await;
    say(&mut of_replica, &["REPLICAOF", "NO", "ONE"]).await;
    clock.advance_secs(10);
    assert!(is_admitted(by_nonce(&store, 1, SIGNED_SECS).await));
    Some((master, replica, store))
}

/// Makes a master a replica, which takes what the other has, and a master again.
async fn turn(connection: &mut MultiplexedConnection, other: &RedisServer) {
    say(connection, &["REPLICAOF", &other.host.host, "6379"]).await;
    until(connection, |info| info.value("master_link_status") == "up").await;
    say(connection, &["REPLICAOF", "NO", "ONE"]).await;
}

#[tokio::test]
async fn a_master_that_was_a_replica_in_between_is_another_life_though_nobody_asked_it_meanwhile() {
    let Some((master, replica, store)) = torn().await else { return };
    let before = identity(&store).unwrap();
    turn(&mut connected(&master).await, &replica).await;
    let noticed = async {
        while identity(&store).is_none_or(|now| now == before) {
            yield_now().await;
        }
    };
    timeout(PATIENCE, noticed).await.unwrap();
    assert_eq!(by_nonce(&store, 1, SIGNED_SECS).await, Some(Admission::NonceUsed), "it is lost, and refused");
}

#[tokio::test]
async fn the_first_replica_is_another_life_for_who_connects_and_none_for_who_is_connected() {
    let Some(master) = RedisServer::start(&[]) else { return };
    let clock = clock();
    let one = store(&master, &clock).await;
    one.change_key(agent(2), claim(1, SIGNED_SECS), KeyChange::Issue(key(2))).await.unwrap();
    let before = identity(&one).unwrap();
    let _replica = replica_of(&master).await;
    assert!(is_admitted(by_nonce(&one, 1, SIGNED_SECS).await));
    assert_eq!(identity(&one).as_ref(), Some(&before));

    clock.advance_secs(10);
    let other = store(&master, &clock).await;
    assert_ne!(identity(&other).as_ref(), Some(&before));
    assert_eq!(by_nonce(&other, 2, SIGNED_SECS).await, Some(Admission::NonceUsed));
    assert!(is_admitted(by_nonce(&other, 2, SIGNED_SECS + 10).await));
    let by_key = other.admit(agent(2), &Scope::Api, MANY, &Proof::Key(digest(2))).await.unwrap();
    assert!(is_admitted(Some(by_key)));
}

/// Why a first replica is another life: what Redis says of its history is the same after a loss.
#[tokio::test]
async fn a_master_that_lost_nonces_says_the_same_of_its_history_as_one_that_got_its_first_replica() {
    let Some(alone) = RedisServer::start(&[]) else { return };
    let mut of_alone = connected(&alone).await;
    let before = info(&mut of_alone).await.unwrap();
    let _replica = replica_of(&alone).await;
    let after = info(&mut of_alone).await.unwrap();
    assert_eq!(before.value("run_id"), after.value("run_id"));
    assert_ne!(before.value("master_replid"), after.value("master_replid"));
    assert!(remembers_no_promotion(&after));

    let Some((master, replica, store)) = torn().await else { return };
    drop(store);
    let mut of_master = connected(&master).await;
    say(&mut of_master, &["CONFIG", "SET", "repl-backlog-ttl", "1"]).await;
    let before = info(&mut of_master).await.unwrap();
    turn(&mut of_master, &replica).await;
    until(&mut of_master, remembers_no_promotion).await;
    let after = info(&mut of_master).await.unwrap();
    assert_eq!(before.value("run_id"), after.value("run_id"));
    assert_ne!(before.value("master_replid"), after.value("master_replid"));
}
