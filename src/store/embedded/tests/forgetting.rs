//! Nonces are forgotten after their time, and no signature whose nonce may have been forgotten is ever accepted again.

use redb::ReadableDatabase;
use redb::{ReadableTableMetadata, TableDefinition};

use crate::ports::store::{Admission, Proof, Scope, Store};
use crate::store::contract::{MANY, agent, claim};
use crate::store::embedded::EmbeddedStore;
use crate::store::embedded::tests::{DAY_SECS, START_SECS, clock, open};

fn remembered(store: &EmbeddedStore) -> u64 {
    let guard = store.shared.database.read();
    let transaction = guard.as_ref().unwrap().begin_read().unwrap();
    transaction.open_table(TableDefinition::<[u8; 64], u64>::new("nonces")).unwrap().len().unwrap()
}

async fn admit(store: &EmbeddedStore, nonce: u64, signed_at_secs: u64) -> Admission {
    let proof = Proof::Nonce(claim(nonce, signed_at_secs));
    store.admit(agent(nonce), &Scope::Api, MANY, &proof).await.unwrap()
}

#[tokio::test]
async fn a_forgotten_nonce_stays_refused_when_the_clock_is_stepped_back() {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock();
    let mut store = open(folder.path(), &clock).unwrap();
    for nonce in 0..50 {
        admit(&store, nonce, START_SECS + 60).await;
    }
    clock.advance_secs(DAY_SECS);
    store.probe().await.unwrap();
    assert_eq!(remembered(&store), 50, "remembered for the whole time");
    clock.advance_secs(1);
    store.probe().await.unwrap();
    assert_eq!(remembered(&store), 0);

    clock.step_wall_secs(-(DAY_SECS as i64) - 1);
    for _ in 0..2 {
        for nonce in 0..50 {
            assert_eq!(admit(&store, nonce, START_SECS + 60).await, Admission::NonceUsed);
        }
        drop(store);
        store = open(folder.path(), &clock).unwrap();
    }
    assert!(matches!(admit(&store, 1, START_SECS + 61).await, Admission::Admitted { .. }));
}

#[tokio::test]
async fn a_step_of_the_clock_between_check_and_use_forgets_nothing_too_early() {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock();
    let store = open(folder.path(), &clock).unwrap();
    // Found fresh by a clock that was then stepped back by an hour.
    clock.step_wall_secs(-3_600);
    admit(&store, 1, START_SECS + 60).await;
    clock.advance_secs(DAY_SECS + 3_599);
    store.probe().await.unwrap();
    assert_eq!(remembered(&store), 1);
    clock.advance_secs(2);
    store.probe().await.unwrap();
    assert_eq!(remembered(&store), 0);
    assert_eq!(admit(&store, 1, START_SECS + 60).await, Admission::NonceUsed);
}

#[tokio::test]
async fn a_clock_that_runs_years_ahead_for_a_while_forgets_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock();
    let store = open(folder.path(), &clock).unwrap();
    admit(&store, 1, START_SECS).await;
    clock.step_wall_secs(10 * 365 * DAY_SECS as i64);
    for _ in 0..10 {
        clock.advance_secs(600);
        store.probe().await.unwrap();
    }
    clock.step_wall_secs(-10 * 365 * DAY_SECS as i64);
    assert_eq!(remembered(&store), 1);
    assert!(matches!(admit(&store, 2, START_SECS + 6_000).await, Admission::Admitted { .. }));
}

#[tokio::test]
async fn forgetting_keeps_pace_with_a_store_that_is_never_idle() {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock();
    let store = open(folder.path(), &clock).unwrap();
    for nonce in 0..300 {
        admit(&store, nonce, START_SECS).await;
    }
    clock.advance_secs(2 * DAY_SECS);
    for nonce in 1_000..1_005 {
        admit(&store, nonce, START_SECS + 2 * DAY_SECS).await;
    }
    assert_eq!(remembered(&store), 5);
}

#[tokio::test]
async fn a_start_with_a_clock_that_is_years_ahead_forgets_nothing_and_locks_nobody_out_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock();
    drop({
        let store = open(folder.path(), &clock).unwrap();
        admit(&store, 1, START_SECS).await;
        store
    });
    clock.step_wall_secs(10 * 365 * DAY_SECS as i64);
    let store = open(folder.path(), &clock).unwrap();
    for _ in 0..10 {
        clock.advance_secs(600);
        store.probe().await.unwrap();
    }
    assert_eq!(remembered(&store), 1);
    clock.step_wall_secs(-10 * 365 * DAY_SECS as i64);
    assert_eq!(admit(&store, 1, START_SECS).await, Admission::NonceUsed);
    assert!(matches!(admit(&store, 2, START_SECS + 6_000).await, Admission::Admitted { .. }));
}
