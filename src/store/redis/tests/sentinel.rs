//! Sentinels: the contract holds behind them, and after a failover nothing that may have been used is used again.

use std::sync::Arc;
use std::time::Duration;

use redis::{Client, Value};
use tokio::time::timeout;

use crate::domain::redis_url::RedisUrl;
use crate::ports::simulated::SimulatedClock;
use crate::ports::store::{Admission, KeyChange, Proof, Scope, Store};
use crate::store::contract::{MANY, agent, claim, digest, key};
use crate::store::redis::RunningRedisStore;
use crate::store::redis::tests::server::RedisServer;
use crate::store::redis::tests::{PATIENCE, SIGNED_SECS, START_SECS, open, options, ready};

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
    ready(&after).await;
    assert!(after.has_key(agent(1)).await.unwrap(), "what a replica acknowledged is there");
    let older = Proof::Nonce(claim(1_000_000, START_SECS + 10 + 60));
    assert_eq!(admit(&after, older).await, Some(Admission::NonceUsed));
    let newer = Proof::Nonce(claim(1_000_001, START_SECS + 10 + 61));
    assert!(matches!(admit(&after, newer).await, Some(Admission::Admitted { .. })));
    // With no replica left, nothing that one should have counts.
    let alone = Proof::Nonce(claim(1_000_002, START_SECS + 10 + 61));
    assert_eq!(admit(&store, alone).await, None);
}
