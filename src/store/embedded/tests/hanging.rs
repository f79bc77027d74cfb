//! A disk that hangs: nobody waits for it for long, and key checks do not wait at all.

use std::{pin::pin, sync::Arc, task::Poll};

use tokio::task::{JoinSet, yield_now};
use tokio::time;

use crate::fair_timeout::poll_once;
use crate::ports::{Admission, KeyChange, Proof, Scope, Store, StoreFault};
use crate::store::contract::{MANY, agent, claim, key, until};
use crate::store::embedded::tests::platter::Platter;
use crate::store::embedded::tests::{START_SECS, by_key, clock, on, rotate};
use crate::store::embedded::{ANSWER_TIME_MAX, EmbeddedStore};

/// How many signatures come when the disk begins to hang.
const SIGNATURES: u64 = 200;

async fn by_nonce_or_fault(store: &EmbeddedStore, nonce: u64) -> Result<Admission, StoreFault> {
    let proof = Proof::Nonce(claim(nonce, START_SECS));
    store.admit(agent(2), &Scope::Api, MANY, &proof).await
}

/// What waits for the disk holds places that key checks need.
// threat: A sick disk
#[tokio::test]
async fn while_a_disk_hangs_nobody_waits_for_long_and_whoever_comes_later_not_at_all() {
    let (platter, clock) = (Platter::with_store(), clock());
    let store = Arc::new(on(&platter, &clock));
    rotate(&store, 1, 1, 1).await;
    let held = platter.hold_after(0);
    let mut waiting = JoinSet::new();
    let first = Arc::clone(&store);
    waiting.spawn(async move { by_nonce_or_fault(&first, 9_000).await.unwrap_err().to_string() });
    yield_now().await;
    held.is_met();
    time::pause();
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
    for step in [ANSWER_TIME_MAX / 2, ANSWER_TIME_MAX * 2] {
        assert!(faults.is_empty(), "a slow disk is waited for: {faults:?}");
        time::advance(step).await;
        for _ in 0..20 {
            yield_now().await;
        }
        while let Some(fault) = waiting.try_join_next() {
            faults.push(fault.unwrap());
        }
    }
    assert_eq!((waiting.len(), faults.len() as u64), (0, SIGNATURES + 2));
    for _ in 0..3 {
        assert!(matches!(by_key(&store, 1, 1).await, Admission::Admitted { .. }));
        let next = pin!(by_nonce_or_fault(&store, 1_000));
        let Poll::Ready(Err(fault)) = poll_once(next).await else { panic!("it waits") };
        faults.push(fault.to_string());
    }
    assert!(faults.iter().all(|fault| fault.ends_with(": the disk did not take a write in time")));
    time::resume();
    drop(held);
    let admitted = until("it goes on", async || by_nonce_or_fault(&store, 2_000).await.ok()).await;
    assert!(matches!(admitted, Admission::Admitted { .. }));
    assert!(matches!(by_key(&store, 1, 1).await, Admission::Admitted { .. }));
}
