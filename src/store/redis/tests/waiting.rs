//! A replica that should acknowledge and does not: signatures are faults for as long as that lasts, and API keys pass.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::ports::store::{Admission, KeyChange, Proof, Scope, Store};
use crate::store::contract::{MANY, agent, claim, digest, key, until};
use crate::store::redis::RunningRedisStore;
use crate::store::redis::options::Options;
use crate::store::redis::tests::server::RedisServer;
use crate::store::redis::tests::{SIGNED_SECS, clock, connects, link, opened, options};

/// More than the silences in a row that a server is given up for.
const SIGNERS: u64 = 8;

/// A master with a replica that is in step, and a store that wants its word; agent 1 has a key.
async fn scene(
    timeout: Duration,
    wait_timeout: Duration,
) -> Option<(RedisServer, RedisServer, Arc<RunningRedisStore>)> {
    let master = RedisServer::start(&[]).await?;
    // The first replica that a master ever has begins another life of it, so it is there before the store is.
    let replica = master.replica().await;
    let (options, clock) = (options(&master.url()), clock());
    let patient = opened(options.clone(), &clock).await;
    patient.change_key(agent(1), claim(1, SIGNED_SECS), KeyChange::Issue(key(1))).await.unwrap();
    let waiting = Options { wait_replicas: 1, timeout, wait_timeout, ..options };
    Some((master, replica, Arc::new(opened(waiting, &clock).await)))
}

async fn signed(store: &RunningRedisStore, nonce: u64) -> Option<Admission> {
    let proof = Proof::Nonce(claim(nonce, SIGNED_SECS));
    store.admit(agent(2), &Scope::Api, MANY, &proof).await.ok()
}

/// Waits until a signature passes; nonces from this one on are good.
async fn signatures_pass(store: &RunningRedisStore, mut nonce: u64) {
    until("a signature passes", async || {
        nonce += 1;
        matches!(signed(store, nonce).await, Some(Admission::Admitted { .. })).then_some(())
    })
    .await;
}

/// Several sign at once and get faults. Meanwhile every key passes.
async fn only_keys_pass(store: &Arc<RunningRedisStore>, first_nonce: u64) {
    let mut signers = JoinSet::new();
    for nonce in first_nonce..first_nonce + SIGNERS {
        let store = Arc::clone(store);
        signers.spawn(async move { assert_eq!(signed(&store, nonce).await, None, "no replica has it") });
    }
    let mut keys = 0;
    until("all have signed", async || {
        // Some are over the limit.
        let admission = store.admit(agent(1), &Scope::Api, MANY, &Proof::Key(digest(1))).await;
        assert!(
            matches!(admission, Ok(Admission::Admitted { .. } | Admission::Limited { .. })),
            "{admission:?}"
        );
        store.probe().await.unwrap();
        keys += 1;
        while let Some(ended) = signers.try_join_next() {
            ended.unwrap();
        }
        signers.is_empty().then_some(())
    })
    .await;
    assert!(keys > 1, "nobody asked meanwhile");
}

/// A wait for the replica takes longer than a request may, or shorter.
async fn a_replica_is_away(timeout: Duration, wait_timeout: Duration) {
    let Some((_master, mut replica, store)) = scene(timeout, wait_timeout).await else { return };
    let frozen = replica.freeze();
    only_keys_pass(&store, 1_000).await;
    drop(frozen);
    signatures_pass(&store, 1).await;
    replica.kill();
    only_keys_pass(&store, 2_000).await;
    assert_eq!(connects(&store, "connected"), 1, "the server was never given up");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_waited_for_longer_than_a_request_may_take_makes_signatures_faults_and_no_key() {
    a_replica_is_away(Duration::from_secs(5), Duration::from_secs(6)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_waited_for_briefly_makes_signatures_faults_and_no_key() {
    a_replica_is_away(Duration::from_secs(10), Duration::from_millis(100)).await;
}

#[tokio::test]
async fn a_connection_that_replicas_keep_waiting_too_long_is_made_anew_alone() {
    let scene = scene(Duration::from_secs(1), Duration::from_millis(500)).await;
    let Some((_master, _replica, store)) = scene else { return };
    let line = link(&store).line().unwrap();
    let acknowledged = line.acknowledged.as_ref().unwrap();
    let before = acknowledged.current().unwrap();
    // Longer than a wait may take; whoever reads what the server says here reads nothing.
    let mut connection = before.connection.clone();
    let mut blocked = JoinSet::new();
    blocked.spawn(async move {
        let mut pop = redis::cmd("BLPOP");
        pop.arg("tg1:{0}nothing").arg(0).exec_async(&mut connection).await
    });
    until("another connection", async || {
        acknowledged.current().is_ok_and(|now| !Arc::ptr_eq(&now, &before)).then_some(())
    })
    .await;
    signatures_pass(&store, 1).await;
    assert!(Arc::ptr_eq(&link(&store).line().unwrap(), &line), "the rest stays");
}
