//! Several replicas of the product at one Redis: a replaced key is dead on all of them, and limits are one.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::domain::quota::Quota;
use crate::ports::store::{Admission, KeyChange, Proof, Scope, Store};
use crate::store::contract::{agent, claim, digest, key};
use crate::store::redis::tests::{SIGNED_SECS, by_key, opened, options, served};

#[tokio::test]
async fn each_of_a_hundred_rotations_is_seen_by_the_other_replica_at_once() {
    let Some((server, one, clock)) = served(&[]).await else { return };
    let other = opened(options(&server.url()), &clock).await;
    one.change_key(agent(1), claim(0, SIGNED_SECS), KeyChange::Issue(key(0))).await.unwrap();
    for round in 1..=100 {
        // The other one knows whose it is before it is replaced.
        assert_eq!(other.find(&digest(round - 1)).await.unwrap().unwrap().agent, agent(1));
        one.change_key(agent(1), claim(round, SIGNED_SECS), KeyChange::Rotate(key(round))).await.unwrap();
        assert!(!other.is_current(agent(1), &digest(round - 1)).await.unwrap());
        assert!(other.is_current(agent(1), &digest(round)).await.unwrap());
        assert_eq!(by_key(&other, round - 1).await, Some(Admission::KeyRevoked), "{round}");
        assert_eq!(other.find(&digest(round - 1)).await.unwrap(), None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_replicas_that_are_hammered_at_once_admit_exactly_the_limit() {
    let Some((server, one, clock)) = served(&[]).await else { return };
    let stores = [Arc::new(one), Arc::new(opened(options(&server.url()), &clock).await)];
    stores[0].change_key(agent(1), claim(0, SIGNED_SECS), KeyChange::Issue(key(0))).await.unwrap();
    let quota = Quota::per_minute(166);
    let mut requests = JoinSet::new();
    for number in 0..1_000 {
        let store = Arc::clone(&stores[number % 2]);
        requests.spawn(async move {
            let proof = Proof::Key(digest(0));
            store.admit(agent(1), &Scope::Api, quota, &proof).await.unwrap()
        });
    }
    let mut left: Vec<u32> = Vec::new();
    for admission in requests.join_all().await {
        if let Admission::Admitted { remaining } = admission {
            left.push(remaining);
        }
    }
    left.sort_unstable();
    assert_eq!(left, (0..166).collect::<Vec<_>>());
}
