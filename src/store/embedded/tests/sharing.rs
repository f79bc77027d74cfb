//! Many at once: commits are shared, and a caller who goes away leaves nothing half done.

use std::{pin::pin, sync::Arc};

use tokio::task::JoinSet;

use crate::domain::Quota;
use crate::fair_timeout::poll_once;
use crate::ports::{Admission, KeyChange, KeyChanged, NonceRefused, Proof, Scope, Store};
use crate::store::contract::{ONE, agent, claim, digest, key, until};
use crate::store::embedded::tests::platter::Platter;
use crate::store::embedded::tests::{START_SECS, by_nonce, clock, on, rotate};
use crate::store::embedded::writer::{Answer, Queued, Step};
use crate::store::embedded::{EmbeddedStore, WAITING_STEPS_MAX};

/// Waits until so many steps are in the queue or being made.
async fn queued(store: &EmbeddedStore, steps: usize) {
    until("steps are queued", async || {
        (WAITING_STEPS_MAX - store.places.available_permits() == steps).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_thousand_key_changes_at_once_share_one_commit() {
    let platter = Platter::with_store();
    let store = Arc::new(on(&platter, &clock()));
    let begun = platter.syncs();
    rotate(&store, 1, 1, 1).await;
    let of_one = platter.syncs() - begun;
    assert!(of_one > 0, "a change is on the disk");
    // The writer is held up in somebody else's commit.
    let held = platter.hold_after(0);
    let mut first = pin!(rotate(&store, 2, 1, 2));
    assert!(poll_once(first.as_mut()).await.is_pending());
    held.is_met();
    let mut changes = JoinSet::new();
    for number in 3..1_003 {
        let store = Arc::clone(&store);
        changes.spawn(async move { rotate(&store, number, 1, number).await });
    }
    queued(&store, 1_001).await;
    drop(held);
    first.await;
    assert!(changes.join_all().await.into_iter().all(|changed| changed == KeyChanged::Done));
    // Three commits, and a few syncs more because the file grows.
    assert!(platter.syncs() - begun < 6 * of_one, "{} of {of_one}", platter.syncs() - begun);
}

#[tokio::test]
async fn a_caller_who_has_gone_before_the_step_is_taken_leaves_nothing() {
    let platter = Platter::with_store();
    let store = on(&platter, &clock());
    let held = platter.hold_after(0);
    let mut first = pin!(rotate(&store, 9, 1, 9));
    assert!(poll_once(first.as_mut()).await.is_pending());
    held.is_met();
    let proof = Proof::Nonce(claim(1, START_SECS));
    let change = || store.changed(agent(2), claim(1, START_SECS), KeyChange::Issue(key(2)));
    {
        let mut admission = pin!(store.admit(agent(1), &Scope::Api, ONE, &proof));
        let mut change = pin!(change());
        assert!(poll_once(admission.as_mut()).await.is_pending());
        assert!(poll_once(change.as_mut()).await.is_pending());
    }
    drop(held);
    first.await;
    store.probe().await.unwrap();
    assert_eq!(store.shared.book.census(), (1, 1), "only agent 9, who has a key");
    assert!(!store.has_key(agent(2)).await.unwrap());
    let again = store.admit(agent(1), &Scope::Api, ONE, &proof).await.unwrap();
    assert_eq!(again, Admission::Admitted { remaining: 0 });
    assert_eq!(change().await.unwrap(), KeyChanged::Done);
    queued(&store, 0).await;
}

#[tokio::test]
async fn a_refused_nonce_takes_no_place_in_the_window() {
    let platter = Platter::with_store();
    let store = on(&platter, &clock());
    let (scope, two) = (Scope::Api, Quota::per_minute(2));
    let [one, other] = [1, 2].map(|nonce| Proof::Nonce(claim(nonce, START_SECS)));
    let held = platter.hold_after(0);
    let mut first = pin!(store.admit(agent(1), &scope, two, &one));
    assert!(poll_once(first.as_mut()).await.is_pending());
    held.is_met();
    // Its twin comes before the next request, while the nonce is being written.
    let mut twin = pin!(store.admit(agent(1), &scope, two, &one));
    assert!(poll_once(twin.as_mut()).await.is_pending());
    let mut second = pin!(store.admit(agent(1), &scope, two, &other));
    assert!(poll_once(second.as_mut()).await.is_pending());
    drop(held);
    assert_eq!(first.await.unwrap(), Admission::Admitted { remaining: 1 });
    assert_eq!(twin.await.unwrap(), Admission::NonceRefused(NonceRefused::Used));
    assert_eq!(second.await.unwrap(), Admission::Admitted { remaining: 0 });
}

#[tokio::test]
async fn a_caller_who_goes_during_the_commit_has_made_the_whole_step() {
    let platter = Platter::with_store();
    let store = on(&platter, &clock());
    let held = platter.hold_after(0);
    {
        let mut change = pin!(store.changed(agent(1), claim(1, START_SECS), KeyChange::Issue(key(1))));
        assert!(poll_once(change.as_mut()).await.is_pending());
        held.is_met();
    }
    drop(held);
    store.probe().await.unwrap();
    assert!(store.find(&digest(1)).await.unwrap().is_some());
    assert_eq!(by_nonce(&store, 1, 1).await, Admission::NonceRefused(NonceRefused::Used));
}

#[tokio::test]
async fn a_used_nonce_in_a_batch_fails_no_other_step_of_it() {
    let platter = Platter::with_store();
    let store = Arc::new(on(&platter, &clock()));
    rotate(&store, 1, 1, 1).await;
    let held = platter.hold_after(0);
    let mut steps = JoinSet::new();
    for (agent_number, nonce) in [(7, 1), (1, 1), (2, 1), (1, 2), (2, 1), (3, 1)] {
        let step = Arc::clone(&store);
        steps.spawn(async move {
            let change = KeyChange::Issue(key(agent_number));
            step.changed(agent(agent_number), claim(nonce, START_SECS), change).await.unwrap()
        });
        queued(&store, steps.len()).await;
        // The first one is in a commit of its own, behind which the others wait.
        held.is_met();
    }
    drop(held);
    let mut answers = steps.join_all().await;
    answers.sort_by_key(|answer| format!("{answer:?}"));
    use KeyChanged::{Done, KeyExists};
    let used = KeyChanged::NonceRefused(NonceRefused::Used);
    assert_eq!(answers, [Done, Done, Done, KeyExists, used, used]);
}

#[tokio::test]
async fn dropping_the_store_finishes_the_steps_that_wait() {
    let (platter, clock) = (Platter::with_store(), clock());
    let store = on(&platter, &clock);
    let held = platter.hold_after(0);
    let mut answers = Vec::new();
    for number in 0..100 {
        let (answer, answered) = Answer::new();
        let change = KeyChange::Issue(key(number));
        let (claim, keys) = (claim(1, START_SECS), Vec::new());
        let step = Step::ChangeKey { agent: agent(number), claim, change, keys, answer };
        let place = Arc::clone(&store.places).try_acquire_owned().unwrap();
        store.queue.as_ref().unwrap().send(Queued { step, _place: place }).unwrap();
        answers.push(answered);
    }
    drop(held);
    drop(store);
    for answered in answers {
        assert_eq!(answered.await.unwrap().0, KeyChanged::Done);
    }
    assert_eq!(on(&platter, &clock).shared.book.census(), (100, 100));
}
