//! What replicas of Redis must acknowledge: too few of them cost nobody a key, and a key that was shown outlives a failover.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Client, Value};
use tokio::time::timeout;

use crate::ports::simulated::SimulatedClock;
use crate::ports::store::{Admission, KeyChange, KeyChanged, Proof, Scope, Store};
use crate::store::contract::{MANY, agent, claim, digest, key};
use crate::store::redis::RunningRedisStore;
use crate::store::redis::answers::Answer;
use crate::store::redis::names::{self, Shard};
use crate::store::redis::options::Options;
use crate::store::redis::scripts::Request;
use crate::store::redis::tests::server::RedisServer;
use crate::store::redis::tests::{PATIENCE, SIGNED_SECS, START_SECS, open, options, ready};

fn clock() -> Arc<SimulatedClock> {
    Arc::new(SimulatedClock::new(START_SECS))
}

fn waiting(server: &RedisServer) -> Options {
    let wait_timeout = Duration::from_millis(200);
    Options { wait_replicas: 1, wait_timeout, ..options(&server.url()) }
}

async fn admits(store: &RunningRedisStore, number: u64) -> bool {
    let admission = store.admit(agent(1), &Scope::Api, MANY, &Proof::Key(digest(number))).await.unwrap();
    matches!(admission, Admission::Admitted { .. })
}

/// A connection to a server, which may only be starting.
pub(super) async fn connected(server: &RedisServer) -> MultiplexedConnection {
    let client = Client::open(server.url()).unwrap();
    let connected = async {
        loop {
            if let Ok(connection) = client.get_multiplexed_async_connection().await {
                return connection;
            }
        }
    };
    timeout(PATIENCE, connected).await.unwrap()
}

/// A replica of it, which has everything.
pub(super) async fn replica_of(master: &RedisServer) -> RedisServer {
    let more = ["--replicaof", &master.host.host, "6379", "--repl-diskless-sync-delay", "0"];
    let replica = RedisServer::start(&more).unwrap();
    let attached = async {
        let mut connection = connected(master).await;
        loop {
            redis::cmd("SET").arg("seen").arg("").exec_async(&mut connection).await.unwrap();
            let mut wait = redis::cmd("WAIT");
            let count = wait.arg(1).arg(100).query_async::<Value>(&mut connection).await.unwrap();
            if count == Value::Int(1) {
                return;
            }
        }
    };
    timeout(PATIENCE, attached).await.unwrap();
    replica
}

#[tokio::test]
async fn without_the_replicas_that_must_acknowledge_a_key_is_not_replaced_and_no_nonce_is_used() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let clock = clock();
    let alone = open(options(&server.url()), &clock);
    ready(&alone).await;
    let first = KeyChange::Issue(key(1));
    assert_eq!(alone.change_key(agent(1), claim(1, SIGNED_SECS), first).await.unwrap(), KeyChanged::Done);

    let store = open(waiting(&server), &clock);
    ready(&store).await;
    let rotate = || KeyChange::Rotate(key(2));
    assert!(store.change_key(agent(1), claim(2, SIGNED_SECS), rotate()).await.is_err());
    let issue = KeyChange::Issue(key(3));
    assert!(store.change_key(agent(2), claim(2, SIGNED_SECS), issue).await.is_err());
    assert_eq!(store.find(&digest(1)).await.unwrap().unwrap().agent, agent(1));
    assert!(admits(&store, 1).await && !admits(&store, 2).await);
    assert!(!store.has_key(agent(2)).await.unwrap());

    // The same signed request is good once there is a replica.
    let _replica = replica_of(&server).await;
    let changed = store.change_key(agent(1), claim(2, SIGNED_SECS), rotate()).await.unwrap();
    assert_eq!(changed, KeyChanged::Done);
    assert!(admits(&store, 2).await && !admits(&store, 1).await);
}

#[tokio::test]
async fn without_the_replicas_that_must_acknowledge_a_revocation_is_a_fault_and_takes_effect() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let clock = clock();
    let alone = open(options(&server.url()), &clock);
    ready(&alone).await;
    alone.change_key(agent(1), claim(1, SIGNED_SECS), KeyChange::Issue(key(1))).await.unwrap();
    let store = open(waiting(&server), &clock);
    ready(&store).await;
    assert!(store.change_key(agent(1), claim(2, SIGNED_SECS), KeyChange::Revoke).await.is_err());
    assert!(!admits(&store, 1).await && !admits(&alone, 1).await);
}

/// A store at the replica, which is the master now.
async fn promoted(mut master: RedisServer, replica: &RedisServer) -> RunningRedisStore {
    master.kill();
    let mut connection = connected(replica).await;
    redis::cmd("REPLICAOF").arg("NO").arg("ONE").exec_async(&mut connection).await.unwrap();
    let store = open(options(&replica.url()), &clock());
    ready(&store).await;
    store
}

#[tokio::test]
async fn a_failover_after_any_step_leaves_the_key_that_was_shown_last_or_none_that_was_shown_before() {
    for steps in 2..=5 {
        let Some(master) = RedisServer::start(&[]) else { return };
        let replica = replica_of(&master).await;
        let store = open(waiting(&master), &clock());
        ready(&store).await;
        let first = KeyChange::Issue(key(1));
        assert_eq!(store.change_key(agent(1), claim(1, SIGNED_SECS), first).await.unwrap(), KeyChanged::Done);
        let (used, change) = (claim(2, SIGNED_SECS), KeyChange::Rotate(key(2)));
        store.store.note(agent(1), &used).await.unwrap();
        store.store.announce(agent(1), &key(2)).await.unwrap();
        if steps >= 3 {
            store.store.sound(agent(1)).await.unwrap();
        }
        if steps >= 4 {
            assert!(matches!(store.store.swap(agent(1), &used, &change).await.unwrap(), Answer::Done(_)));
        }
        if steps >= 5 {
            store.store.confirm(agent(1), &key(2)).await.unwrap();
        }
        let after = promoted(master, &replica).await;
        let swapped = steps >= 4;
        assert_eq!((admits(&after, 1).await, admits(&after, 2).await), (!swapped, swapped), "{steps}");
        // Whatever had been shown is found, and for good.
        let shown = if steps >= 5 { 2 } else { 1 };
        assert_eq!(after.find(&digest(shown)).await.unwrap().unwrap().agent, agent(1), "{steps}");
        let ttl = Request::command("TTL").arg(names::entry(&digest(shown)));
        let ttl = after.store.servers.ask(Shard::of_digest(&digest(shown)), ttl).await.unwrap();
        assert_eq!(ttl, Value::Int(-1), "{steps}");
    }
}
