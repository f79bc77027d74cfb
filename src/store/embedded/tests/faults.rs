//! A disk that fails: nothing is let through, nothing half done is seen, and the store recovers by itself.

use std::sync::mpsc::{TryRecvError, channel};
use std::{path::Path, pin::pin, sync::Arc, thread};

use tokio::runtime::Builder;
use tokio::task::JoinSet;

use crate::domain::ClientNet;
use crate::fair_timeout::poll_once;
use crate::ports::{
    Admission, KeyChange, KeyChanged, NonceRefused, Proof, Scope, Store, simulated::SimulatedClock,
};
use crate::store::contract::{MANY, agent, claim, digest, key};
use crate::store::embedded::tests::{
    DAY_SECS, START_SECS, by_key, by_nonce, clock, on, options, rotate, used_nonces,
};
use crate::store::{contract::seed::seed, embedded::EmbeddedStore, embedded::tests::platter::Platter};

async fn recover(store: &EmbeddedStore, platter: &Platter, clock: &SimulatedClock) {
    platter.heal();
    clock.advance_secs(1);
    store.probe().await.unwrap();
}

#[tokio::test]
async fn a_failed_key_change_is_a_fault_and_happens_as_a_whole_or_not_at_all() {
    let (mut done, mut undone, mut succeeded) = (0, 0, false);
    for operations in 0..100 {
        let (platter, clock) = (Platter::with_store(), clock());
        let store = on(&platter, &clock);
        rotate(&store, 1, 1, 1).await;
        platter.fail_in(operations);
        let answer = store.changed(agent(1), claim(2, START_SECS), KeyChange::Rotate(key(2))).await;
        succeeded = answer.is_ok();
        if succeeded {
            break;
        }
        recover(&store, &platter, &clock).await;
        let changed = by_key(&store, 1, 2).await != Admission::KeyRevoked;
        assert_ne!(
            by_key(&store, 1, 1).await == Admission::KeyRevoked,
            !changed,
            "one key, after {operations}"
        );
        assert_eq!(store.find(&digest(2)).await.unwrap().is_some(), changed);
        assert_eq!(store.find(&digest(1)).await.unwrap().is_some(), !changed);
        assert_eq!(by_nonce(&store, 1, 2).await == Admission::NonceRefused(NonceRefused::Used), changed);
        done += u32::from(changed);
        undone += u32::from(!changed);
    }
    assert!(succeeded, "no fault is left");
    assert!(undone >= 3 && done >= 1, "{undone} undone and {done} done: the faults came at too few places");
}

/// As when a process is killed while it reads the file again after a failed write, at each write that this makes.
#[tokio::test]
async fn a_kill_while_a_failed_file_is_read_again_damages_nothing() {
    let mut kills = 0;
    for full_from in [512, 8_192, 32_768, 65_536, 131_072] {
        let (platter, clock) = (Platter::with_store(), clock());
        let store = on(&platter, &clock);
        rotate(&store, 1, 1, 1).await;
        platter.full_from(full_from);
        if store.changed(agent(1), claim(2, START_SECS), KeyChange::Rotate(key(2))).await.is_ok() {
            continue;
        }
        let left = platter.bytes();
        for operations in 0..100 {
            let killed = Platter::with(left.clone());
            killed.fail_in(operations);
            let is_over = killed.open().is_ok();
            let store = on(&Platter::with(killed.bytes()), &clock);
            let passes = [by_key(&store, 1, 1).await, by_key(&store, 1, 2).await];
            let passes = passes.map(|admission| admission != Admission::KeyRevoked);
            assert_ne!(passes[0], passes[1], "full from {full_from}, killed after {operations}");
            kills += 1;
            if is_over {
                break;
            }
        }
    }
    assert!(kills > 20, "{kills}");
}

#[tokio::test]
async fn a_failed_admission_gives_its_place_back() {
    let (platter, clock) = (Platter::with_store(), clock());
    let store = on(&platter, &clock);
    by_nonce(&store, 1, 1).await;
    platter.fail_in(0);
    let proof = Proof::Nonce(claim(2, START_SECS));
    assert!(store.admit(agent(1), &Scope::Api, MANY, &proof).await.is_err());
    assert_eq!(store.shared.book.census(), (1, 0), "the window of the first admission");
    recover(&store, &platter, &clock).await;
    assert_eq!(by_nonce(&store, 1, 2).await, Admission::Admitted { remaining: 2_698 });
}

// threat: A sick disk
// threat: A failure admits somebody, or looks like an answer
#[tokio::test]
async fn after_a_failed_key_change_every_verb_fails_for_its_agent_until_the_file_is_read_again() {
    let (platter, clock) = (Platter::with_store(), clock());
    let store = on(&platter, &clock);
    // The file has grown before the failure: a change that fails while it grows is in doubt for nobody.
    for number in [2, 3, 1] {
        rotate(&store, number, 1, number).await;
    }
    platter.fail_in(0);
    let client = ClientNet::of([192, 0, 2, 1].into());
    let change = || KeyChange::Rotate(key(4));
    assert!(store.changed(agent(1), claim(2, START_SECS), change()).await.is_err());
    for _ in 0..3 {
        assert!(store.find(&digest(1)).await.is_err());
        for proof in [Proof::Key(digest(1)), Proof::Nonce(claim(3, START_SECS))] {
            assert!(store.admit(agent(1), &Scope::Api, MANY, &proof).await.is_err());
        }
        assert!(store.changed(agent(1), claim(2, START_SECS), change()).await.is_err());
        assert!(store.has_key(agent(1)).await.is_err());
        assert!(store.status(client, agent(1), MANY).await.is_err());
        assert!(store.probe().await.is_err());
        clock.advance_secs(2);
    }
    recover(&store, &platter, &clock).await;
    assert!(matches!(by_key(&store, 1, 1).await, Admission::Admitted { .. }));
    assert_eq!(rotate(&store, 1, 2, 4).await, KeyChanged::Done);
}

/// Any owner can order changes while the disk is full: the keys of others go on meanwhile.
// threat: A sick disk
#[tokio::test]
async fn a_failed_key_change_takes_no_other_agents_key_down() {
    let client = ClientNet::of([192, 0, 2, 1].into());
    let (mut doubtful, mut known) = (0, 0);
    for operations in 0..100 {
        let (platter, clock) = (Platter::with_store(), clock());
        let store = on(&platter, &clock);
        rotate(&store, 1, 1, 1).await;
        rotate(&store, 2, 1, 2).await;
        platter.fail_in(operations);
        let mut failed = 0;
        for nonce in 2..6 {
            let change = KeyChange::Rotate(key(100 + nonce));
            failed += u32::from(store.changed(agent(2), claim(nonce, START_SECS), change).await.is_err());
            let found = store.find(&digest(1)).await.unwrap();
            assert_eq!(found.map(|owner| owner.agent), Some(agent(1)), "after {operations}");
            assert!(matches!(by_key(&store, 1, 1).await, Admission::Admitted { .. }), "after {operations}");
            assert!(store.status(client, agent(1), MANY).await.unwrap().has_key);
            let of_changed = store.status(client, agent(2), MANY).await;
            doubtful += u32::from(of_changed.is_err());
            known += u32::from(of_changed.is_ok());
            clock.advance_secs(1);
        }
        if failed == 0 {
            break;
        }
        recover(&store, &platter, &clock).await;
        assert!(store.find(&digest(1)).await.unwrap().is_some() && store.has_key(agent(2)).await.unwrap());
    }
    assert!(doubtful > 0 && known > 0, "{doubtful} in doubt and {known} not");
}

#[tokio::test]
async fn a_failed_file_is_read_again_at_most_once_a_second() {
    let (platter, clock) = (Platter::with_store(), clock());
    let store = on(&platter, &clock);
    platter.fail_in(0);
    assert!(store.changed(agent(1), claim(1, START_SECS), KeyChange::Revoke(None)).await.is_err());
    for tries in 1..4 {
        for _ in 0..50 {
            assert!(store.probe().await.is_err());
        }
        assert_eq!(platter.opens(), 1 + tries);
        clock.advance_secs(1);
    }
}

/// Where the failed commit is on the disk all the same, the nonce is no longer in the file.
#[tokio::test]
async fn a_nonce_that_a_failed_commit_has_forgotten_stays_refused() {
    let (mut forgotten, mut succeeded) = (0, false);
    for operations in 0..100 {
        let (platter, clock) = (Platter::with_store(), clock());
        let store = on(&platter, &clock);
        by_nonce(&store, 1, 1).await;
        clock.advance_secs(2 * DAY_SECS);
        platter.fail_in(operations);
        succeeded = store.probe().await.is_ok();
        if succeeded {
            break;
        }
        recover(&store, &platter, &clock).await;
        let again = by_nonce(&store, 1, 1).await;
        assert!(matches!(again, Admission::NonceRefused(_)), "after {operations}: {again:?}");
        forgotten += u32::from(again != Admission::NonceRefused(NonceRefused::Used));
    }
    assert!(succeeded && forgotten > 0, "{forgotten}");
}

#[tokio::test]
async fn a_probe_finds_a_disk_that_fails_at_any_step_of_a_commit() {
    for operations in 0..4 {
        let (platter, clock) = (Platter::with_store(), clock());
        let store = on(&platter, &clock);
        store.probe().await.unwrap();
        platter.fail_in(operations);
        assert!(store.probe().await.is_err(), "after {operations}");
    }
}

#[tokio::test]
async fn a_fault_names_the_verb_that_failed() {
    let (platter, clock) = (Platter::with_store(), clock());
    let store = on(&platter, &clock);
    platter.fail_in(0);
    let fault = store.changed(agent(1), claim(1, START_SECS), KeyChange::Revoke(None)).await.unwrap_err();
    assert!(fault.to_string().starts_with("the store failed to change a key: "), "{fault}");
}

#[tokio::test]
async fn acknowledged_changes_survive_a_power_cut_at_any_moment() {
    let (platter, clock) = (Platter::with_store(), clock());
    let store = on(&platter, &clock);
    let (mut undone, mut done, seed) = (0, 0, seed());
    for round in 1..12 {
        assert_eq!(rotate(&store, 1, round, round).await, KeyChanged::Done);
        assert!(matches!(by_nonce(&store, 2, round).await, Admission::Admitted { .. }));
        // The next commit waits in its first sync, then in its second: the power may go at either.
        for phase in 0..2 {
            let held = platter.hold_after(phase);
            let mut next = pin!(by_nonce(&store, 3, round * 2 + phase));
            assert!(poll_once(next.as_mut()).await.is_pending());
            held.is_met();
            // Each has its own seed: cuts of one seed may agree in every round.
            let cut = |cut| platter.after_power_cut(seed.wrapping_add((round * 2 + phase) * 6 + cut));
            let cuts: Vec<_> = (0..6).map(cut).collect();
            drop(held);
            assert!(matches!(next.await, Admission::Admitted { .. }));
            for cut in cuts {
                let store = on(&cut, &clock);
                assert!(matches!(by_key(&store, 1, round).await, Admission::Admitted { .. }));
                for nonce in 1..=round {
                    assert_eq!(by_nonce(&store, 1, nonce).await, Admission::NonceRefused(NonceRefused::Used));
                    assert_eq!(by_nonce(&store, 2, nonce).await, Admission::NonceRefused(NonceRefused::Used));
                }
                // The change that waited may be there or not.
                let there = by_nonce(&store, 3, round * 2 + phase).await
                    == Admission::NonceRefused(NonceRefused::Used);
                (undone, done) = (undone + u32::from(!there), done + u32::from(there));
            }
        }
    }
    assert!(undone > 0 && done > 0, "{undone} undone and {done} done: the power went at too few places");
}

/// The probe is public, and any owner can send signatures: neither may take the keys of others down.
#[tokio::test]
async fn key_checks_go_on_when_the_disk_is_full_for_nonces_and_probes() {
    for operations in 0..6 {
        let (platter, clock) = (Platter::with_store(), clock());
        let store = on(&platter, &clock);
        rotate(&store, 1, 1, 1).await;
        platter.fail_in(operations);
        let mut failed = 0;
        for nonce in 2..5 {
            let proof = Proof::Nonce(claim(nonce, START_SECS));
            failed += u32::from(store.admit(agent(2), &Scope::Api, MANY, &proof).await.is_err());
            failed += u32::from(store.probe().await.is_err());
            assert!(matches!(by_key(&store, 1, 1).await, Admission::Admitted { .. }), "after {operations}");
            assert!(store.find(&digest(1)).await.unwrap().is_some(), "after {operations}");
            clock.advance_secs(1);
        }
        assert!(failed >= 4, "after {operations}: {failed}");
        recover(&store, &platter, &clock).await;
        rotate(&store, 1, 2, 2).await;
        assert_eq!(by_key(&store, 1, 1).await, Admission::KeyRevoked);
        assert!(matches!(by_nonce(&store, 2, 9).await, Admission::Admitted { .. }));
    }
}

#[tokio::test]
async fn several_changes_of_one_key_in_a_failed_commit_leave_the_key_that_is_in_the_file() {
    let mut failed_together = 0;
    for round in 0..60_u64 {
        let (platter, clock) = (Platter::with_store(), clock());
        let store = Arc::new(on(&platter, &clock));
        rotate(&store, 1, 1, 1).await;
        platter.fail_in(round % 6);
        let mut changes = JoinSet::new();
        for nonce in 2..18 {
            let store = Arc::clone(&store);
            changes.spawn(async move {
                let change = KeyChange::Rotate(key(nonce));
                store.changed(agent(1), claim(nonce, START_SECS), change).await.is_err()
            });
        }
        failed_together +=
            u32::from(changes.join_all().await.into_iter().filter(|failed| *failed).count() > 1);
        recover(&store, &platter, &clock).await;
        assert!(store.has_key(agent(1)).await.unwrap(), "round {round}");
        let opened = on(&Platter::with(platter.bytes()), &clock);
        for number in 1..18 {
            let found = store.find(&digest(number)).await.unwrap();
            assert_eq!(found, opened.find(&digest(number)).await.unwrap(), "round {round}, key {number}");
        }
    }
    assert!(failed_together > 0);
}

/// Looks into memory itself, as a key check does that began before the failure.
#[test]
fn keys_that_did_not_change_are_found_all_the_while_a_failed_file_is_read_again() {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let (platter, clock) = (Platter::with_store(), clock());
    let store = on(&platter, &clock);
    runtime.block_on(async {
        for number in 1..500 {
            rotate(&store, number, 1, number).await;
        }
    });
    let ((running, over), (begins, begun)) = (channel::<()>(), channel::<()>());
    let missed = thread::scope(|scope| {
        let running = running;
        let (over, store, mut begins) = (over, &store, Some(begins));
        let looks = scope.spawn(move || {
            let mut missed = 0_u64;
            while over.try_recv() == Err(TryRecvError::Empty) {
                missed += u64::from(store.shared.book.find(&digest(1), || 0).is_none());
                drop(begins.take());
            }
            missed
        });
        // The first look, or a failure, drops the other side.
        begun.recv().unwrap_err();
        runtime.block_on(async {
            for nonce in 2..200 {
                platter.fail_in(0);
                // Agent 1's own change fails too, and leaves its key as it was.
                let change = KeyChange::Rotate(key(1_000));
                assert!(store.changed(agent(1), claim(nonce, START_SECS), change).await.is_err());
                recover(store, &platter, &clock).await;
            }
        });
        drop(running);
        looks.join().unwrap()
    });
    assert_eq!(missed, 0);
}

/// The start moves the content to the front of the file. The process is killed at each write of that, or loses power.
#[tokio::test]
async fn a_crash_while_the_file_is_made_smaller_loses_nothing() {
    let (platter, clock) = (Platter::with_store(), clock());
    let store = on(&platter, &clock);
    for number in 0..400 {
        by_nonce(&store, 1, number).await;
    }
    clock.advance_secs(DAY_SECS + 1);
    for number in 0..20 {
        let claim = claim(1_000, START_SECS + DAY_SECS);
        store.changed(agent(number), claim, KeyChange::Rotate(key(number))).await.unwrap();
    }
    let grown = platter.bytes();
    drop(store);
    let mut crashes = 0;
    for operations in 0.. {
        let killed = Platter::with(grown.clone());
        killed.fail_in(operations);
        let options = options(Path::new("platter"));
        drop(EmbeddedStore::on(Box::new(killed.clone()), options, Arc::clone(&clock) as _));
        let left = Platter::with(killed.bytes());
        for crashed in [left, killed.after_power_cut(operations), killed.after_power_cut(operations + 1_000)]
        {
            let (database, loaded) = crashed.open().unwrap();
            assert_eq!((loaded.keys.len(), used_nonces(&database).len()), (20, 20), "after {operations}");
        }
        if !killed.is_dead() {
            assert!(killed.bytes().len() < grown.len(), "{} of {}", killed.bytes().len(), grown.len());
            break;
        }
        crashes += 1;
    }
    assert!(crashes > 10, "{crashes}");
}
