//! Many at once: commits are shared, and a caller who goes away leaves nothing half done.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use tokio::task::JoinSet;

use crate::ports::store::{Admission, KeyChange, KeyChanged, Proof, Scope, Store};
use crate::store::contract::{ONE, agent, claim, digest, key};
use crate::store::embedded::WAITING_STEPS_MAX;
use crate::store::embedded::tests::faults::on;
use crate::store::embedded::tests::platter::Platter;
use crate::store::embedded::tests::{START_SECS, by_nonce, clock, rotate};
use crate::store::embedded::writer::{Queued, Step};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_key_changes_at_once_share_their_commits() {
    let platter = Platter::with_store();
    let store = Arc::new(on(&platter, &clock()));
    let before = platter.syncs();
    let mut changes = JoinSet::new();
    for number in 0..1_000 {
        let store = Arc::clone(&store);
        changes.spawn(async move { rotate(&store, number, 1, number).await });
    }
    assert!(changes.join_all().await.into_iter().all(|changed| changed == KeyChanged::Done));
    let syncs = platter.syncs() - before;
    println!("1,000 key changes took {syncs} syncs");
    assert!(syncs < 500, "{syncs} syncs");
}

#[test]
fn a_caller_who_has_gone_before_the_step_is_taken_leaves_nothing() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let platter = Platter::with_store();
    let store = Arc::new(on(&platter, &clock()));
    // The writer is held up in somebody else's commit.
    platter.stop();
    let first = Arc::clone(&store);
    let first = runtime.spawn(async move { rotate(&first, 9, 1, 9).await });
    platter.wait_until_stopped();
    {
        let scope = Scope::Api;
        let proof = Proof::Nonce(claim(1, START_SECS));
        let mut admission = pin!(store.admit(agent(1), &scope, ONE, &proof));
        let mut change = pin!(store.change_key(agent(2), claim(1, START_SECS), KeyChange::Issue(key(2))));
        let mut context = Context::from_waker(Waker::noop());
        assert!(admission.as_mut().poll(&mut context).is_pending());
        assert!(change.as_mut().poll(&mut context).is_pending());
        assert_eq!(store.shared.book.census(), (1, 0, 1), "a place is held and a nonce in flight");
    }
    platter.go_on();
    runtime.block_on(async {
        first.await.unwrap();
        store.probe().await.unwrap();
        assert_eq!(store.shared.book.census(), (1, 1, 0), "only agent 9, who has a key");
        assert!(!store.has_key(agent(2)).await.unwrap());
        let proof = Proof::Nonce(claim(1, START_SECS));
        let again = store.admit(agent(1), &Scope::Api, ONE, &proof).await.unwrap();
        assert_eq!(again, Admission::Admitted { remaining: 0 });
        let issued =
            store.change_key(agent(2), claim(1, START_SECS), KeyChange::Issue(key(2))).await.unwrap();
        assert_eq!(issued, KeyChanged::Done);
    });
    drop(runtime.block_on(store.places.acquire_many(WAITING_STEPS_MAX as u32)).unwrap());
}

#[test]
fn a_caller_who_goes_during_the_commit_has_made_the_whole_step() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let platter = Platter::with_store();
    let store = Arc::new(on(&platter, &clock()));
    platter.stop();
    {
        let mut change = pin!(store.change_key(agent(1), claim(1, START_SECS), KeyChange::Issue(key(1))));
        assert!(change.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        platter.wait_until_stopped();
    }
    platter.go_on();
    runtime.block_on(async {
        store.probe().await.unwrap();
        assert!(store.find(&digest(1)).await.unwrap().is_some());
        assert_eq!(by_nonce(&store, 1, 1).await, Admission::NonceUsed);
    });
}

#[tokio::test]
async fn a_used_nonce_in_a_batch_hurts_nobody_else_in_it() {
    let platter = Platter::with_store();
    let store = Arc::new(on(&platter, &clock()));
    rotate(&store, 1, 1, 1).await;
    platter.stop();
    let mut steps = JoinSet::new();
    for (agent_number, nonce) in [(7, 1), (1, 1), (2, 1), (1, 2), (2, 1), (3, 1)] {
        let store = Arc::clone(&store);
        steps.spawn(async move {
            let change = KeyChange::Issue(key(agent_number));
            store.change_key(agent(agent_number), claim(nonce, START_SECS), change).await.unwrap()
        });
    }
    while steps.len() > store.places_taken() {
        tokio::task::yield_now().await;
    }
    platter.go_on();
    let mut answers = steps.join_all().await;
    answers.sort_by_key(|answer| *answer as u8);
    use KeyChanged::{Done, KeyExists, NonceUsed};
    assert_eq!(answers, [Done, Done, Done, KeyExists, NonceUsed, NonceUsed]);
}

#[tokio::test]
async fn closing_finishes_what_waits() {
    let (platter, clock) = (Platter::with_store(), clock());
    let store = on(&platter, &clock);
    platter.stop();
    let mut answers = Vec::new();
    for number in 0..100 {
        let (answer, answered) = tokio::sync::oneshot::channel();
        let change = KeyChange::Issue(key(number));
        let step = Step::Change { agent: agent(number), claim: claim(1, START_SECS), change, answer };
        let place = Arc::clone(&store.places).try_acquire_owned().unwrap();
        store.send(Queued { step, _place: place }).unwrap();
        answers.push(answered);
    }
    platter.go_on();
    drop(store);
    for answered in answers {
        assert_eq!(answered.await.unwrap().unwrap(), KeyChanged::Done);
    }
    assert_eq!(on(&platter, &clock).shared.book.census(), (100, 100, 0));
}
