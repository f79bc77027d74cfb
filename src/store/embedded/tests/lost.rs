//! A disk that can't be read, and one that forgets what it failed to sync: the next sync succeeds, and the pages before it
//! never reach the disk, whether they are still seen or not.

use std::path::Path;

use crate::ports::{Admission, KeyChange, NonceRefused, Proof, Scope, Store};
use crate::store::contract::{MANY, agent, claim, digest, key};
use crate::store::embedded::tests::{START_SECS, by_key, by_nonce, clock, on, options, rotate};
use crate::store::{embedded::EmbeddedStore, embedded::file::OpenError, embedded::tests::platter::Platter};

const ROUNDS: u64 = 8;

/// Changes agent 1's key in each round, over a sync that fails. The last change that was acknowledged is the last one of
/// all, and what a power cut leaves holds all that were.
async fn change_over_a_lost_sync(syncs: u64, are_seen: bool) -> bool {
    let (platter, clock) = (&Platter::with_store(), &clock());
    let store = on(platter, clock);
    platter.lose_in(syncs, are_seen);
    let (mut acknowledged, mut failed) = (Vec::new(), false);
    for round in 1..=ROUNDS {
        let change = KeyChange::Rotate(key(round));
        if store.changed(agent(1), claim(round, START_SECS), change).await.is_ok() {
            acknowledged.push(round);
        } else {
            failed = true;
            clock.advance_secs(1);
            store.probe().await.unwrap();
            let current = [round - 1, round].map(async |number| by_key(&store, 1, number).await);
            let [before, after] = current;
            let passes = [before.await, after.await].map(|seen| seen != Admission::KeyRevoked);
            assert!(passes[0] != passes[1] || round == 1, "one key of round {round}: {passes:?}");
        }
        for seed in 0..3 {
            let cut = on(&platter.after_power_cut(seed), clock);
            for nonce in &acknowledged {
                assert_eq!(
                    by_nonce(&cut, 1, *nonce).await,
                    Admission::NonceRefused(NonceRefused::Used),
                    "round {round}"
                );
            }
            if acknowledged.last() == Some(&round) {
                assert!(matches!(by_key(&cut, 1, round).await, Admission::Admitted { .. }), "round {round}");
            }
        }
    }
    assert_eq!(acknowledged.last(), Some(&ROUNDS), "it goes on");
    failed
}

// threat: A sick disk
#[tokio::test]
async fn pages_that_a_failed_sync_dropped_take_nothing_with_them_that_was_acknowledged() {
    for are_seen in [true, false] {
        let mut failures = 0;
        for syncs in 0..2 * (ROUNDS - 1) {
            failures += u32::from(change_over_a_lost_sync(syncs, are_seen).await);
        }
        assert!(failures >= 8, "{failures} of the syncs were of changes");
    }
}

// threat: A sick disk
#[tokio::test]
async fn a_disk_that_cannot_be_read_at_the_start_is_named_and_not_taken_for_damage() {
    let platter = Platter::with_store();
    let store = on(&platter, &clock());
    for number in 0..100 {
        rotate(&store, number, 1, number).await;
    }
    drop(store);
    let (image, mut refused) = (platter.bytes(), 0);
    for reads in 0.. {
        let disk = Platter::with(image.clone());
        disk.fail_reads_in(reads);
        let options = options(Path::new("platter"));
        let opened = EmbeddedStore::on(Box::new(disk.clone()), options, clock());
        if !disk.cannot_be_read() {
            opened.unwrap();
            break;
        }
        if let Err(error) = opened {
            assert!(matches!(error, OpenError::Unusable { .. }), "after {reads} reads: {error}");
            refused += 1;
        }
        disk.heal();
        let store = on(&disk, &clock());
        for number in 0..100 {
            assert!(store.find(&digest(number)).await.unwrap().is_some(), "after {reads} reads");
        }
    }
    assert!(refused > 3, "{refused}");
}

#[tokio::test]
async fn a_failed_file_that_cannot_be_read_again_is_tried_until_it_can_and_keys_go_on() {
    let mut refused = 0;
    for reads in 0..50 {
        let (platter, clock) = (Platter::with_store(), clock());
        let store = on(&platter, &clock);
        rotate(&store, 1, 1, 1).await;
        by_nonce(&store, 1, 2).await;
        platter.fail_in(0);
        let lost = Proof::Nonce(claim(3, START_SECS));
        assert!(store.admit(agent(1), &Scope::Api, MANY, &lost).await.is_err());
        platter.heal();
        platter.fail_reads_in(reads);
        for _ in 0..3 {
            clock.advance_secs(1);
            refused += u32::from(store.probe().await.is_err());
            let used = Proof::Nonce(claim(2, START_SECS));
            let again = store.admit(agent(1), &Scope::Api, MANY, &used).await;
            assert!(
                matches!(again, Ok(Admission::NonceRefused(NonceRefused::Used)) | Err(_)),
                "after {reads} reads: {again:?}"
            );
            assert!(matches!(by_key(&store, 1, 1).await, Admission::Admitted { .. }), "after {reads} reads");
        }
        let is_over = !platter.cannot_be_read();
        platter.heal();
        clock.advance_secs(1);
        store.probe().await.unwrap();
        assert_eq!(
            by_nonce(&store, 1, 2).await,
            Admission::NonceRefused(NonceRefused::Used),
            "after {reads} reads"
        );
        assert!(matches!(by_nonce(&store, 1, 3).await, Admission::Admitted { .. }), "after {reads} reads");
        if is_over {
            assert!(refused > 10, "{refused}");
            return;
        }
    }
    panic!("no number of reads is enough");
}
