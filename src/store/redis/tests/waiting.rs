//! A replica that should acknowledge and does not: changes of keys are faults meanwhile; keys and signatures pass.

use std::{sync::Arc, time::Duration};

use tokio::task::JoinSet;

use crate::ports::{Admission, KeyChange, KeyChanged, Proof, Scope, Store, StoreFault};
use crate::store::contract::{MANY, agent, claim, digest, key, until};
use crate::store::redis::tests::{SIGNED_SECS, clock, connects, opened, options};
use crate::store::{redis::RedisStore, redis::options::Options, redis::tests::server::RedisServer};

/// More than the silences in a row that end a connection.
const CHANGES: u64 = 8;

/// A master with a replica that is in step, and a store that waits for it; agent 1 has a key.
async fn scene(
    timeout: Duration,
    wait_timeout: Duration,
) -> Option<(RedisServer, RedisServer, Arc<RedisStore>)> {
    let master = RedisServer::start(&[]).await?;
    // The first replica that a master ever has begins another life of it, so it is there before the store is.
    let replica = master.replica().await;
    let (options, clock) = (options(&master.url()), clock());
    let patient = opened(options.clone(), &clock).await;
    patient.changed(agent(1), claim(1, SIGNED_SECS), KeyChange::Issue(key(1))).await.unwrap();
    let waiting = Options { wait_replicas: 1, timeout, wait_timeout, ..options };
    Some((master, replica, Arc::new(opened(waiting, &clock).await)))
}

async fn signed(store: &RedisStore, nonce: u64) -> Option<Admission> {
    let proof = Proof::Nonce(claim(nonce, SIGNED_SECS));
    store.admit(agent(2), &Scope::Api, MANY, &proof).await.ok()
}

async fn rotated(store: &RedisStore, number: u64) -> Result<KeyChanged, StoreFault> {
    let change = KeyChange::Rotate(key(number));
    store.changed(agent(number), claim(number, SIGNED_SECS), change).await
}

/// Waits until a key can be changed; numbers from this one on are free.
async fn keys_change(store: &RedisStore, mut number: u64) {
    until("a key is changed", async || {
        number += 1;
        rotated(store, number).await.ok()
    })
    .await;
}

/// Several change keys at once and get faults. Meanwhile every key and every signature passes.
async fn only_key_changes_fail(store: &Arc<RedisStore>, first: u64) {
    let mut changes = JoinSet::new();
    for number in first..first + CHANGES {
        let store = Arc::clone(store);
        changes.spawn(async move { assert!(rotated(&store, number).await.is_err(), "no replica has it") });
    }
    let mut passed = 0;
    until("all have failed", async || {
        // Some are over the limit.
        let by_key = store.admit(agent(1), &Scope::Api, MANY, &Proof::Key(digest(1))).await.ok();
        for admission in [by_key, signed(store, first + passed).await] {
            assert!(
                matches!(admission, Some(Admission::Admitted { .. } | Admission::Limited { .. })),
                "{admission:?}"
            );
        }
        store.probe().await.unwrap();
        passed += 1;
        while let Some(ended) = changes.try_join_next() {
            ended.unwrap();
        }
        changes.is_empty().then_some(())
    })
    .await;
    assert!(passed > 1, "nobody asked meanwhile");
}

/// A wait for the replica takes longer than a request may, or shorter.
async fn a_replica_is_away(timeout: Duration, wait_timeout: Duration) {
    let Some((_master, mut replica, store)) = scene(timeout, wait_timeout).await else { return };
    let frozen = replica.freeze();
    only_key_changes_fail(&store, 10_000).await;
    drop(frozen);
    keys_change(&store, 100).await;
    replica.kill();
    only_key_changes_fail(&store, 20_000).await;
    assert_eq!(connects(&store, "connected"), 1, "the session goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_waited_for_longer_than_a_request_may_take_fails_key_changes_alone() {
    a_replica_is_away(Duration::from_secs(8), Duration::from_secs(9)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_waited_for_briefly_fails_key_changes_alone() {
    a_replica_is_away(Duration::from_secs(10), Duration::from_secs(1)).await;
}
