//! Writes that replicas must acknowledge: too few replicas cost nobody a key.

use std::time::Duration;

use crate::ports::{KeyChange, KeyChanged, Store};
use crate::store::contract::{agent, claim, digest, key};
use crate::store::redis::tests::{SIGNED_SECS, by_key, clock, is_admitted, opened, options, served};
use crate::store::{redis::RedisStore, redis::options::Options, redis::tests::server::RedisServer};

fn waiting(server: &RedisServer) -> Options {
    Options { wait_replicas: 1, ..options(&server.url()) }
}

/// For a store whose replicas are not there.
fn hasty(server: &RedisServer) -> Options {
    Options { wait_timeout: Duration::from_millis(200), ..waiting(server) }
}

async fn admits(store: &RedisStore, number: u64) -> bool {
    let admission = by_key(store, number).await;
    assert!(admission.is_some(), "a fault");
    is_admitted(admission)
}

#[tokio::test]
async fn without_the_replicas_that_must_acknowledge_a_key_is_not_replaced_and_no_nonce_is_used() {
    let Some(server) = RedisServer::start(&[]).await else { return };
    // The first replica that a master ever has begins another life of it, so it was there once.
    let mut replica = server.replica().await;
    let clock = clock();
    let patient = opened(waiting(&server), &clock).await;
    let first = KeyChange::Issue(key(1));
    assert_eq!(patient.changed(agent(1), claim(1, SIGNED_SECS), first).await.unwrap(), KeyChanged::Done);
    replica.kill();
    let store = opened(hasty(&server), &clock).await;
    let rotate = || KeyChange::Rotate(key(2));
    assert!(store.changed(agent(1), claim(2, SIGNED_SECS), rotate()).await.is_err());
    let issue = KeyChange::Issue(key(3));
    assert!(store.changed(agent(2), claim(2, SIGNED_SECS), issue).await.is_err());
    assert_eq!(store.find(&digest(1)).await.unwrap().unwrap().agent, agent(1));
    assert!(admits(&store, 1).await && !admits(&store, 2).await);
    assert!(!store.has_key(agent(2)).await.unwrap());

    // The same signed request is good once there is a replica.
    replica.restart().await;
    server.replicated().await;
    let changed = patient.changed(agent(1), claim(2, SIGNED_SECS), rotate()).await.unwrap();
    assert_eq!(changed, KeyChanged::Done);
    assert!(admits(&store, 2).await && !admits(&store, 1).await);
}

#[tokio::test]
async fn without_the_replicas_that_must_acknowledge_a_revocation_is_a_fault_and_takes_effect() {
    let Some((server, alone, clock)) = served(&[]).await else { return };
    alone.changed(agent(1), claim(1, SIGNED_SECS), KeyChange::Issue(key(1))).await.unwrap();
    assert!(admits(&alone, 1).await);
    let store = opened(hasty(&server), &clock).await;
    assert!(store.changed(agent(1), claim(2, SIGNED_SECS), KeyChange::Revoke(None)).await.is_err());
    assert!(!admits(&store, 1).await && !admits(&alone, 1).await);
}
