//! A disk that hangs: nobody waits for it for long, and key checks do not wait at all.

use std::{pin::pin, sync::Arc};

use tokio::task::{JoinSet, yield_now};
use tokio::time;

use crate::fair_timeout::poll_once;
use crate::ports::{Admission, KeyChange, Proof, Scope, Store, StoreFault};
use crate::store::contract::{MANY, agent, claim, key};
use crate::store::embedded::tests::platter::Platter;
use crate::store::embedded::tests::{START_SECS, by_key, by_nonce, clock, on, rotate};
use crate::store::embedded::{BRIEFLY, EmbeddedStore, PATIENT_MAX};

/// How many signatures come while the disk hangs.
const SIGNATURES: u64 = 200;

async fn by_nonce_or_fault(store: &EmbeddedStore, nonce: u64) -> Result<Admission, StoreFault> {
    let proof = Proof::Nonce(claim(nonce, START_SECS));
    store.admit(agent(2), &Scope::Api, MANY, &proof).await
}

/// What waits for the disk holds places that key checks need.
// threat: A sick disk
#[tokio::test]
async fn while_a_disk_hangs_few_wait_long_and_nobody_for_ever() {
    let (platter, clock) = (Platter::with_store(), clock());
    let store = Arc::new(on(&platter, &clock));
    rotate(&store, 1, 1, 1).await;
    let held = platter.hold_after(0);
    let first = tokio::spawn({
        let store = Arc::clone(&store);
        async move { by_nonce_or_fault(&store, 9_000).await }
    });
    yield_now().await;
    held.is_met();
    clock.advance_secs(1);
    time::pause();
    let mut waiting = JoinSet::new();
    for nonce in 2..2 + SIGNATURES {
        let store = Arc::clone(&store);
        waiting.spawn(async move { by_nonce_or_fault(&store, nonce).await.unwrap_err().to_string() });
    }
    let changed = Arc::clone(&store);
    waiting.spawn(async move {
        let change = KeyChange::Rotate(key(2));
        changed.changed(agent(3), claim(2, START_SECS), change).await.unwrap_err().to_string()
    });
    let mut faults = Vec::new();
    for step in [BRIEFLY / 2, BRIEFLY * 2] {
        assert!(faults.is_empty(), "nobody gives up at once: {faults:?}");
        time::advance(step).await;
        for _ in 0..20 {
            yield_now().await;
        }
        while let Some(fault) = waiting.try_join_next() {
            faults.push(fault.unwrap());
        }
    }
    assert!(waiting.len() <= PATIENT_MAX, "{} wait", waiting.len());
    assert!(!waiting.is_empty(), "a slow disk is waited for");
    for _ in 0..3 {
        assert!(matches!(by_key(&store, 1, 1).await, Admission::Admitted { .. }));
        let next = pin!(by_nonce_or_fault(&store, 1_000));
        let next = poll_once(next).await;
        assert!(matches!(next, std::task::Poll::Ready(Err(_))), "it waits: {next:?}");
    }
    // Time passes by itself while nothing else is to be done.
    faults.extend(waiting.join_all().await);
    faults.push(first.await.unwrap().unwrap_err().to_string());
    assert_eq!(faults.len() as u64, SIGNATURES + 2);
    assert!(faults.iter().all(|fault| fault.ends_with(": the disk did not take a write in time")));
    time::resume();
    drop(held);
    assert!(matches!(by_nonce(&store, 2, 2_000).await, Admission::Admitted { .. }), "it goes on");
    assert!(matches!(by_key(&store, 1, 1).await, Admission::Admitted { .. }));
}
