//! Nonces are forgotten after their time, and no signature whose nonce may have been forgotten is ever accepted again.

use std::{path::Path, sync::Arc};

use redb::Database;
use tokio::task::JoinSet;

use crate::domain::{RetryAfter, UnixSeconds};
use crate::ports::{
    Admission, Clock as _, KeyChange, KeyChanged, NonceRefused, Proof, Scope, Store,
    simulated::SimulatedClock,
};
use crate::store::contract::{MANY, agent, claim, digest, key, named, until};
use crate::store::embedded::tables::{self, Tables};
use crate::store::embedded::tests::platter::Platter;
use crate::store::embedded::tests::{DAY_SECS, START_SECS, clock, on, options, used_nonces};
use crate::store::embedded::{EmbeddedStore, Options};

fn remembered(platter: &Platter) -> u64 {
    used_nonces(&Platter::with(platter.bytes()).open().unwrap().0).len() as u64
}

async fn admit(store: &EmbeddedStore, nonce: u64, signed_at_secs: u64) -> Admission {
    let proof = Proof::Nonce(claim(nonce, signed_at_secs));
    store.admit(agent(nonce), &Scope::Api, MANY, &proof).await.unwrap()
}

async fn rotate(store: &EmbeddedStore, signed_at_secs: u64) -> KeyChanged {
    store.changed(agent(1), claim(1, signed_at_secs), KeyChange::Rotate(key(1))).await.unwrap()
}

/// True when the nonce is refused, as used or as forgotten.
fn refused(admission: Admission) -> bool {
    matches!(admission, Admission::NonceRefused(_))
}

/// The answer to a signature that is too old, `wait_secs` before younger ones are accepted.
fn forgotten(accepted_from_secs: u64, wait_secs: u64) -> Admission {
    let retry_after = RetryAfter::from_micros(wait_secs * 1_000_000);
    Admission::NonceRefused(NonceRefused::Forgotten {
        accepted_from: UnixSeconds(accepted_from_secs),
        retry_after,
    })
}

#[tokio::test]
async fn a_signature_whose_nonce_may_be_forgotten_is_told_from_when_on_signatures_are_accepted() {
    let (platter, clock) = (Platter::with_store(), clock());
    let store = on(&platter, &clock);
    admit(&store, 1, START_SECS).await;
    clock.advance_secs(DAY_SECS + 1);
    store.probe().await.unwrap();
    assert_eq!(store.signatures_accepted_from(), None, "those made now are accepted");
    // The moment a nonce of this age is forgotten: the cut-off, and as far as timestamps may lie ahead.
    let accepted_from = START_SECS + 1 + 60;
    assert_eq!(admit(&store, 1, START_SECS).await, forgotten(accepted_from, 1), "it is over: sign at once");

    clock.step_wall_secs(-(DAY_SECS as i64));
    assert_eq!(store.signatures_accepted_from(), Some(UnixSeconds(accepted_from)));
    for wait_secs in (1..=60).rev() {
        let now = accepted_from - wait_secs;
        assert_eq!(admit(&store, 2, now).await, forgotten(accepted_from, wait_secs));
        let retry_after = RetryAfter::from_micros(wait_secs * 1_000_000);
        let accepted_from = UnixSeconds(accepted_from);
        assert_eq!(
            rotate(&store, now).await,
            KeyChanged::NonceRefused(NonceRefused::Forgotten { accepted_from, retry_after })
        );
        clock.advance_secs(1);
    }
    assert_eq!(store.signatures_accepted_from(), None);
    assert!(matches!(admit(&store, 2, accepted_from).await, Admission::Admitted { .. }));
    assert_eq!(rotate(&store, accepted_from).await, KeyChanged::Done);
    assert_eq!(
        admit(&store, 2, accepted_from).await,
        Admission::NonceRefused(NonceRefused::Used),
        "known for certain"
    );
}

#[tokio::test]
async fn a_forgotten_nonce_stays_refused_when_the_clock_is_stepped_back() {
    let platter = Platter::with_store();
    let clock = clock();
    let mut store = on(&platter, &clock);
    for nonce in 0..50 {
        admit(&store, nonce, START_SECS + 60).await;
    }
    clock.advance_secs(DAY_SECS + 60);
    store.probe().await.unwrap();
    assert_eq!(remembered(&platter), 50, "remembered for the whole time from the timestamp on");
    clock.advance_secs(1);
    store.probe().await.unwrap();
    assert_eq!(remembered(&platter), 0);

    clock.step_wall_secs(-(DAY_SECS as i64) - 61);
    for _ in 0..2 {
        for nonce in 0..50 {
            assert!(refused(admit(&store, nonce, START_SECS + 60).await));
        }
        drop(store);
        store = on(&platter, &clock);
    }
    assert!(matches!(admit(&store, 1, START_SECS + 121).await, Admission::Admitted { .. }));
}

// threat: A replaced key outlives its grace
#[tokio::test]
async fn a_key_that_has_ended_stays_so_when_the_clock_is_stepped_back() {
    let clock = clock();
    let store = on(&Platter::with_store(), &clock);
    let issue = async |number, nonce| {
        let mut new = named(number, "", 1);
        new.terms.expires_in_secs = Some(60);
        store.changed(agent(1), claim(nonce, START_SECS), KeyChange::Issue(new)).await.unwrap()
    };
    let is_good = async |number| {
        let listed = store.keys(agent(1)).await.unwrap().iter().any(|key| key.digest == digest(number));
        let found = store.find(&digest(number)).await.unwrap().is_some();
        assert_eq!((listed, store.has_key(agent(1)).await.unwrap()), (found, found));
        found
    };
    assert_eq!(issue(1, 1).await, KeyChanged::Done);
    clock.advance_secs(60);
    assert!(!is_good(1).await);
    clock.step_wall_secs(-3_600);
    assert!(!is_good(1).await);
    // One that is made now has its whole life, and no more.
    assert_eq!(issue(2, 2).await, KeyChanged::Done);
    clock.advance_secs(59);
    assert!(is_good(2).await);
    clock.advance_secs(1);
    assert!(!is_good(2).await);
}

#[tokio::test]
async fn a_step_of_the_clock_between_check_and_use_forgets_nothing_too_early() {
    let platter = Platter::with_store();
    let clock = clock();
    let store = on(&platter, &clock);
    // Found fresh by a clock that was then stepped back by an hour.
    clock.step_wall_secs(-3_600);
    admit(&store, 1, START_SECS + 60).await;
    clock.advance_secs(DAY_SECS + 3_600 + 60);
    store.probe().await.unwrap();
    assert_eq!(remembered(&platter), 1);
    clock.advance_secs(1);
    store.probe().await.unwrap();
    assert_eq!(remembered(&platter), 0);
    assert!(refused(admit(&store, 1, START_SECS + 60).await));
}

#[tokio::test]
async fn a_clock_that_runs_years_ahead_for_a_while_forgets_nothing() {
    let platter = Platter::with_store();
    let clock = clock();
    let store = on(&platter, &clock);
    admit(&store, 1, START_SECS).await;
    clock.step_wall_secs(10 * 365 * DAY_SECS as i64);
    for _ in 0..10 {
        clock.advance_secs(600);
        store.probe().await.unwrap();
    }
    clock.step_wall_secs(-10 * 365 * DAY_SECS as i64);
    assert_eq!(remembered(&platter), 1);
    assert!(matches!(admit(&store, 2, START_SECS + 6_000).await, Admission::Admitted { .. }));
}

#[tokio::test]
async fn forgetting_keeps_pace_with_a_store_that_is_never_idle() {
    let platter = Platter::with_store();
    let clock = clock();
    let store = on(&platter, &clock);
    for nonce in 0..300 {
        admit(&store, nonce, START_SECS).await;
    }
    clock.advance_secs(2 * DAY_SECS);
    for nonce in 1_000..1_005 {
        admit(&store, nonce, START_SECS + 2 * DAY_SECS).await;
    }
    assert_eq!(remembered(&platter), 5);
}

/// Older builds wrote the time of use, which may lie before the signature's timestamp.
#[tokio::test]
async fn a_nonce_that_an_older_build_used_ahead_of_its_timestamp_stays_refused_once_it_is_forgotten() {
    let (platter, clock) = (Platter::with_store(), clock());
    let database = Database::builder().create_with_backend(platter.clone()).unwrap();
    let transaction = tables::begin(&database).unwrap();
    let mut tables = Tables::open(&transaction).unwrap();
    tables.insert_nonce(agent(1), &claim(1, START_SECS + 60), START_SECS).unwrap();
    drop(tables);
    transaction.commit().unwrap();
    drop(database);
    let store = on(&platter, &clock);
    clock.advance_secs(DAY_SECS + 1);
    store.probe().await.unwrap();
    assert_eq!(remembered(&platter), 0);
    assert!(refused(admit(&store, 1, START_SECS + 60).await));
    assert!(matches!(admit(&store, 1, START_SECS + 61).await, Admission::Admitted { .. }));
}

/// For how long signatures are good, how far ahead they may lie, and how long nonces are kept: as settings allow it.
#[derive(Debug, Clone, Copy)]
struct Settings {
    max_age_secs: u64,
    max_ahead_secs: u64,
    retention_secs: u64,
}

const SETTINGS: [Settings; 4] = [
    Settings { max_age_secs: 5, max_ahead_secs: 2, retention_secs: 7 },
    Settings { max_age_secs: 5, max_ahead_secs: 2, retention_secs: 90 },
    Settings { max_age_secs: 30, max_ahead_secs: 10, retention_secs: 40 },
    Settings { max_age_secs: 30, max_ahead_secs: 60, retention_secs: 90 },
];

const LONG: Settings = Settings { max_age_secs: 300, max_ahead_secs: 60, retention_secs: DAY_SECS };

impl Settings {
    fn open(self, platter: &Platter, clock: &Arc<SimulatedClock>) -> EmbeddedStore {
        let options = Options {
            nonce_retention_secs: self.retention_secs,
            max_ahead_secs: self.max_ahead_secs,
            ..options(Path::new("platter"))
        };
        EmbeddedStore::on(Box::new(platter.clone()), options, Arc::clone(clock) as _).unwrap()
    }

    fn is_fresh(self, signed_at_secs: u64, now_secs: u64) -> bool {
        now_secs <= signed_at_secs + self.max_age_secs && signed_at_secs <= now_secs + self.max_ahead_secs
    }
}

#[tokio::test]
async fn a_signature_stays_used_when_nonces_are_kept_for_longer_afterwards() {
    // Before it is forgotten, in the moment when it is, and after.
    for pause_secs in [0, 1, 7, 8, 20, 100] {
        let platter = Platter::with_store();
        let clock = clock();
        let before = SETTINGS[0].open(&platter, &clock);
        assert!(matches!(admit(&before, 1, START_SECS).await, Admission::Admitted { .. }));
        clock.advance_secs(pause_secs);
        before.probe().await.unwrap();
        assert_eq!(remembered(&platter), u64::from(pause_secs <= 7), "{pause_secs}");
        drop(before);

        let after = LONG.open(&platter, &clock);
        for _ in 0..20 {
            assert!(refused(admit(&after, 1, START_SECS).await), "{pause_secs}");
            let changed = rotate(&after, START_SECS).await;
            assert!(matches!(changed, KeyChanged::NonceRefused(_)));
            clock.advance_secs(10);
            after.probe().await.unwrap();
        }
        // Signatures that the old settings could not have admitted are good.
        let signed_at_secs = START_SECS + pause_secs + 1;
        assert!(matches!(admit(&after, 2, signed_at_secs).await, Admission::Admitted { .. }), "{pause_secs}");
    }
}

// threat: A nonce passes twice, or a stranger burns it
#[tokio::test]
async fn a_signature_that_was_used_under_some_settings_is_never_good_again_under_others() {
    for before in SETTINGS {
        for after in SETTINGS {
            for signed_at_secs in
                [START_SECS - before.max_age_secs, START_SECS, START_SECS + before.max_ahead_secs]
            {
                let platter = Platter::with_store();
                let clock = clock();
                let store = before.open(&platter, &clock);
                assert!(matches!(admit(&store, 1, signed_at_secs).await, Admission::Admitted { .. }));
                drop(store);
                let store = after.open(&platter, &clock);
                for passed_secs in (0..160).step_by(5) {
                    store.probe().await.unwrap();
                    if after.is_fresh(signed_at_secs, START_SECS + passed_secs) {
                        let admission = admit(&store, 1, signed_at_secs).await;
                        assert!(refused(admission), "{passed_secs} s: {before:?}, {after:?}");
                    }
                    clock.advance_secs(5);
                }
                assert_eq!(remembered(&platter), 0, "it has been forgotten: {before:?}, {after:?}");
            }
        }
    }
}

/// Seconds for which nonces are kept by default.
const KEPT: Settings = Settings { max_age_secs: 300, max_ahead_secs: 60, retention_secs: 900 };

/// Uses a nonce a minute for two hours; how many are remembered then.
async fn after_two_busy_hours(platter: &Platter, clock: &Arc<SimulatedClock>) -> u64 {
    let store = KEPT.open(platter, clock);
    for nonce in 1_000..1_120 {
        assert!(matches!(admit(&store, nonce, clock.unix_seconds()).await, Admission::Admitted { .. }));
        clock.advance_secs(60);
        store.probe().await.unwrap();
    }
    remembered(platter)
}

#[tokio::test]
async fn after_a_stop_of_days_nonces_are_forgotten_after_their_time_as_before_it() {
    for stopped_days in [0, 2, 30] {
        let (platter, clock) = (Platter::with_store(), clock());
        let store = KEPT.open(&platter, &clock);
        // More than one purge takes.
        for nonce in 0..600 {
            admit(&store, nonce, START_SECS).await;
        }
        drop(store);
        clock.advance_secs(stopped_days * DAY_SECS);
        let remembered = after_two_busy_hours(&platter, &clock).await;
        assert!((15..=16).contains(&remembered), "{remembered} after {stopped_days} days");
    }
}

#[tokio::test]
async fn a_start_with_a_clock_that_is_years_ahead_keeps_earlier_nonces_for_their_time_and_locks_nobody_out() {
    const YEARS: i64 = 10 * 365 * DAY_SECS as i64;
    // One, and more than one purge takes.
    for (settings, nonces) in [(LONG, 1), (KEPT, 600)] {
        let (platter, clock) = (Platter::with_store(), clock());
        let store = settings.open(&platter, &clock);
        for nonce in 0..nonces {
            admit(&store, nonce, START_SECS).await;
        }
        drop(store);
        clock.step_wall_secs(YEARS);
        let store = settings.open(&platter, &clock);
        clock.advance_secs(900);
        store.probe().await.unwrap();
        assert_eq!(remembered(&platter), nonces);
        for _ in 0..100 {
            clock.advance_secs(60);
            store.probe().await.unwrap();
        }
        clock.step_wall_secs(-YEARS);
        assert!(refused(admit(&store, 0, START_SECS).await));
        let now = clock.unix_seconds();
        assert!(matches!(admit(&store, 1, now).await, Admission::Admitted { .. }), "{settings:?}");
    }
}

#[tokio::test]
async fn the_room_of_forgotten_nonces_is_given_back_at_the_next_start() {
    const NONCES: u64 = 10_000;
    let (platter, clock) = (Platter::with_store(), clock());
    let store = Arc::new(on(&platter, &clock));
    let key = key(1);
    store.changed(agent(1), claim(NONCES, START_SECS), KeyChange::Issue(key)).await.unwrap();
    let admitted = |admission: &Admission| matches!(admission, Admission::Admitted { .. });
    // All at once would take longer than the store lets one wait, on a machine that others use.
    for first in (0..NONCES).step_by(5_000) {
        let mut admissions = JoinSet::new();
        for nonce in first..first + 5_000 {
            let store = Arc::clone(&store);
            admissions.spawn(async move { admit(&store, nonce, START_SECS).await });
        }
        assert!(admissions.join_all().await.iter().all(admitted));
    }
    assert!(platter.bytes().len() > 1_000_000, "{}", platter.bytes().len());
    clock.advance_secs(DAY_SECS + 1);
    store.probe().await.unwrap();
    until("they are forgotten", async || (remembered(&platter) == 0).then_some(())).await;
    drop(store);
    let store = on(&platter, &clock);
    assert!(platter.bytes().len() < 100_000, "{}", platter.bytes().len());
    assert!(matches!(admit(&store, 1, START_SECS + DAY_SECS).await, Admission::Admitted { .. }));
    assert_eq!(remembered(&platter), 1);
}
