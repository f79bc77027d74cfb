//! The budget of refused credentials: whom it stops, for how long, and whom it leaves alone.

use std::{sync::Arc, sync::atomic::Ordering, thread, time::Duration};

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::sync::Semaphore;

use super::owners::owned_by_a_wallet;
use super::{Reported, STAKES, Scene, agent, named, retry_after, signer, unknown_key, verdict};
use crate::domain::{Denial, Quota, SignatureFormat};
use crate::error::Error;
use crate::pipeline::custody::KeyWish;
use crate::pipeline::failures::{FailureBudget, LOOK_UPS_MAX, WAIT_MAX, WAITING_MAX};
use crate::pipeline::{Ask, Credential};
use crate::ports::simulated::SimulatedClock;
use crate::serve::Timer;

const BUDGET: u32 = 300;

fn scene() -> Scene {
    Scene::with(SignatureFormat::Keys, Some(Quota::per_minute(BUDGET)))
}

#[tokio::test]
async fn after_300_refused_credentials_a_client_waits_as_long_as_it_is_told() {
    let scene = scene();
    for _ in 0..BUDGET {
        assert_eq!(scene.verdict(&unknown_key()).await, "401 key");
        scene.clock.advance_micros(1_001);
    }
    let refused = scene.admit(&unknown_key()).await;
    let Err(Error::Denied(Denial::RateLimited { agent: whom, tier, limit, .. })) = &refused else {
        panic!("{}", verdict(&refused));
    };
    assert_eq!((*whom, *tier, *limit), (Some(agent(7)), None, BUDGET));
    let secs = retry_after(refused);
    assert_eq!(scene.verdict(&Credential::Signature(scene.signed())).await, "429");
    let order = scene.order(scene.signed());
    assert_eq!(verdict(&scene.pipeline.make_key(order, KeyWish::default(), true).await), "429");
    assert_eq!(
        (scene.store.calls("charge"), scene.chain.all_calls()),
        (0, 0),
        "and costs neither server nor node a call"
    );

    scene.clock.advance_secs(secs - 1);
    assert_eq!(scene.verdict(&unknown_key()).await, "429");
    scene.clock.advance_secs(1);
    assert_eq!(scene.verdict(&unknown_key()).await, "401 key");
}

/// A scene whose client has used its budget up.
async fn spent() -> Scene {
    let scene = scene();
    for _ in 0..BUDGET {
        assert_eq!(scene.verdict(&unknown_key()).await, "401 key");
    }
    scene
}

// threat: A neighbour's bad keys
#[tokio::test]
async fn a_known_key_is_looked_at_before_the_budget() {
    let scene = spent().await;
    let key = scene.key(None).await;
    assert_eq!(scene.verdict(&key).await, "admitted");
    assert_eq!(scene.verdict(&named(&key, agent(7))).await, "admitted");
    assert_eq!(scene.verdict(&unknown_key()).await, "429");
    assert_eq!(scene.verdict(&named(&key, agent(8))).await, "429", "it is not that agent's");
    scene.stake(999);
    assert_eq!(scene.verdict(&key).await, "403", "and is judged as ever");
}

// threat: A neighbour's bad keys
#[tokio::test]
async fn a_signature_of_an_owner_who_was_seen_before_is_looked_at_before_the_budget() {
    let scene = spent().await;
    *scene.chain.last_owner.lock() = Some(signer(1).address());
    assert_eq!(scene.verdict(&Credential::Signature(scene.signed())).await, "admitted");
    let order = scene.order(scene.signed());
    assert_eq!(verdict(&scene.pipeline.make_key(order, KeyWish::default(), true).await), "admitted");
    let called = scene.chain.all_calls();
    let foreign = scene.signed_by(&signer(2), agent(7), super::START_SECS);
    assert_eq!(scene.verdict(&Credential::Signature(foreign)).await, "429");
    let stale = scene.signed_by(&signer(1), agent(7), 0);
    assert_eq!(scene.verdict(&Credential::Signature(stale)).await, "429");
    assert_eq!(scene.chain.all_calls(), called, "and costs no call");
}

// threat: A neighbour's bad keys
#[tokio::test]
async fn so_many_keys_of_a_client_over_budget_are_looked_up_at_once_and_none_is_refused_unseen() {
    let scene = spent().await;
    let key = scene.key(None).await;
    scene.store.is_far.store(true, Ordering::SeqCst);
    let keys: Vec<Credential> =
        (0..10 * LOOK_UPS_MAX).map(|at| if at % 10 == 9 { key.clone() } else { unknown_key() }).collect();
    scene.stake(999);
    let verdicts = join_all(keys.iter().map(|key| scene.verdict(key))).await;
    assert_eq!(scene.store.most_look_ups.load(Ordering::SeqCst), LOOK_UPS_MAX);
    let expected = |at: usize| if at % 10 == 9 { "403" } else { "429" };
    assert!(verdicts.iter().enumerate().all(|(at, verdict)| *verdict == expected(at)), "{verdicts:?}");
    // A client within its budget does not stand in that queue.
    let others = join_all(keys.iter().map(|key| scene.admit_from(super::client(2), key, None))).await;
    assert!(others.iter().all(|outcome| verdict(outcome) != "429"));
    assert_eq!(scene.store.most_look_ups.load(Ordering::SeqCst), keys.len());
}

// threat: A neighbour's bad keys
#[tokio::test]
async fn the_line_of_keys_that_are_looked_up_ends_at_a_number_and_at_a_time() {
    let (scene, other) = (spent().await, super::client(2));
    for _ in 0..BUDGET {
        let refused = scene.admit_from(other, &unknown_key(), None).await;
        assert_eq!(verdict(&refused), "401 key");
    }
    let (key, failures) = (scene.key(None).await, &scene.pipeline.failures);
    // The store's thread had to have its time until here.
    tokio::time::pause();
    let place = || failures.look_up_slot(super::client(1));
    let mut held: Vec<_> = join_all((0..LOOK_UPS_MAX).map(|_| place())).await;
    assert!(held.iter().all(|place| matches!(place, Ok(Some(_)))));

    let begun = Timer::now();
    let crowd = join_all((0..2 * WAITING_MAX).map(|_| async {
        let found = place().await;
        (found.is_err(), begun.elapsed())
    }));
    let neighbour = async {
        let found = failures.look_up_slot(other).await;
        (found.is_err(), begun.elapsed())
    };
    let within_budget = failures.look_up_slot(super::client(3));
    let (crowd, neighbour, within_budget) = tokio::join!(biased; crowd, neighbour, within_budget);
    assert!(crowd.iter().all(|(is_denied, _)| *is_denied));
    // The runtime's timers go by whole milliseconds.
    let has_waited = |time: &Duration| time.checked_sub(WAIT_MAX).is_some_and(|more| more.as_millis() < 10);
    let waited = crowd.iter().filter(|(_, time)| has_waited(time)).count();
    let at_once = crowd.iter().filter(|(_, time)| time.is_zero()).count();
    assert_eq!((waited, at_once), (WAITING_MAX / 4 * 3, 2 * WAITING_MAX - WAITING_MAX / 4 * 3), "its share");
    assert!(neighbour.0 && has_waited(&neighbour.1), "another network has room in the line: {neighbour:?}");
    assert!(matches!(within_budget, Ok(None)), "and one within its budget does not stand there");

    scene.store.is_far.store(true, Ordering::SeqCst);
    assert_eq!(scene.verdict(&key).await, "429", "its look-up has no place in time");
    let (verdict, ()) = tokio::join!(biased; scene.verdict(&key), async { drop(held.pop()) });
    assert_eq!(verdict, "admitted");
}

#[tokio::test]
async fn refusals_of_those_who_have_shown_who_they_are_do_not_count() {
    let scene = scene();
    let key = scene.key(None).await;
    scene.stake(0);
    for _ in 0..=BUDGET {
        assert_eq!(scene.verdict(&key).await, "403");
    }
    scene.stake(1_000);
    scene.fill_window().await;
    for _ in 0..=BUDGET {
        assert_eq!(scene.verdict(&key).await, "429");
    }
    *scene.store.broken.lock() = Some("admit");
    for _ in 0..=BUDGET {
        assert_eq!(scene.verdict(&key).await, "500 store");
    }
    *scene.store.broken.lock() = None;
    scene.clock.advance_secs(60);
    assert_eq!(scene.verdict(&key).await, "admitted");
}

#[tokio::test]
async fn refused_credentials_count_whatever_is_wrong_with_them() {
    let scene = scene();
    for round in 0..BUDGET / 3 {
        assert_eq!(scene.verdict(&unknown_key()).await, "401 key", "{round}");
        let foreign = scene.signed_by(&signer(2), agent(7), super::START_SECS);
        assert_eq!(scene.verdict(&Credential::Signature(foreign)).await, "401 signature");
        let stale = scene.signed_by(&signer(1), agent(7), 0);
        assert_eq!(scene.verdict(&Credential::Signature(stale)).await, "400 replay");
    }
    assert_eq!(scene.verdict(&unknown_key()).await, "429");
}

#[tokio::test]
async fn a_refused_signature_counts_where_a_key_is_to_be_changed_too() {
    let scene = Scene::with(SignatureFormat::Keys, Some(Quota::per_minute(1)));
    let foreign = scene.signed_by(&signer(2), agent(7), super::START_SECS);
    assert_eq!(verdict(&scene.pipeline.revoke_key(scene.order(foreign), None).await), "401 signature");
    assert_eq!(scene.verdict(&unknown_key()).await, "429");
}

#[tokio::test]
async fn the_budget_can_be_switched_off() {
    let scene = Scene::new();
    for _ in 0..=2 * BUDGET {
        assert_eq!(scene.verdict(&unknown_key()).await, "401 key");
    }
}

/// A scene whose agent has this stake and is owned by a contract that accepts every signature.
fn accepting(stake: u64) -> Scene {
    let (scene, wallet) = owned_by_a_wallet(SignatureFormat::Contracts, Some(Quota::per_minute(BUDGET)));
    *scene.chain.profile.lock() = Reported::Is(Some(Arc::new(super::profile(wallet, stake))));
    scene
}

// threat: A contract wallet lies, burns gas, or is replayed
// threat: A fault locks clients out
#[tokio::test]
async fn a_signature_that_a_contract_accepts_counts_unless_its_request_is_admitted() {
    let scene = accepting(STAKES[3]);
    let by_contract = || Credential::Signature(scene.signed());
    scene.fill_window().await;
    let asked = scene.chain.calls("ask_holders");
    // The window has refused one.
    for _ in 1..BUDGET / 3 {
        assert_eq!(scene.verdict(&by_contract()).await, "429");
    }
    *scene.chain.profile.lock() = accepting(0).chain.profile.lock().clone();
    for _ in 0..BUDGET / 3 {
        assert_eq!(scene.verdict(&by_contract()).await, "403");
    }
    let owner = std::mem::replace(&mut *scene.chain.owner.lock(), Reported::Down);
    for _ in 0..BUDGET {
        assert_eq!(scene.verdict(&by_contract()).await, "503", "a fault counts for nobody");
    }
    *scene.chain.owner.lock() = owner;
    for _ in 0..BUDGET / 3 {
        assert_eq!(scene.verdict(&by_contract()).await, "403");
    }
    let refused = usize::try_from(2 * BUDGET).unwrap() - 1;
    assert_eq!(scene.chain.calls("ask_holders"), asked + refused);
    for _ in 0..3 {
        assert_eq!(scene.verdict(&by_contract()).await, "429");
        let order = scene.order(scene.signed());
        assert_eq!(verdict(&scene.pipeline.make_key(order, KeyWish::default(), true).await), "429");
    }
    assert_eq!(scene.chain.calls("ask_holders"), asked + refused, "the client's budget is used up");
    *scene.chain.last_owner.lock() = Some(signer(1).address());
    *scene.chain.owner.lock() = Reported::Is(Some(signer(1).address()));
    scene.stake(999);
    assert_eq!(scene.verdict(&by_contract()).await, "403", "a signature that is vouched for is looked at");
}

// threat: A contract wallet lies, burns gas, or is replayed
#[tokio::test]
async fn a_signature_that_a_contract_accepts_counts_if_its_request_is_given_up() {
    let scene = accepting(STAKES[3]);
    let ask = |signed| Ask {
        credential: Credential::Signature(signed),
        client: super::client(1),
        origin: None,
        access: &scene.access,
    };
    for _ in 0..BUDGET / 2 {
        let standing = scene.pipeline.verify(&ask(scene.signed())).await;
        drop(standing.unwrap());
    }
    let gate = Arc::new(Semaphore::new(0));
    *scene.chain.gate.lock() = Some(Arc::clone(&gate));
    for _ in 0..BUDGET / 2 {
        assert!(scene.verdict(&Credential::Signature(scene.signed())).now_or_never().is_none());
    }
    gate.add_permits(1);
    assert_eq!(scene.verdict(&Credential::Signature(scene.signed())).await, "429");
}

// threat: A fault locks clients out
#[tokio::test]
async fn time_that_runs_out_counts_for_nobody() {
    let scene = accepting(STAKES[3]);
    let ask = |signed| Ask {
        credential: Credential::Signature(signed),
        client: super::client(1),
        origin: None,
        access: &scene.access,
    };
    *scene.chain.gate.lock() = Some(Arc::new(Semaphore::new(0)));
    for _ in 0..=BUDGET {
        assert!(scene.pipeline.verify_within(&ask(scene.signed()), Duration::ZERO).await.is_err());
    }
    *scene.chain.gate.lock() = None;
    assert_eq!(scene.verdict(&Credential::Signature(scene.signed())).await, "admitted");
}

// threat: A contract wallet lies, burns gas, or is replayed
#[tokio::test]
async fn contracts_are_asked_for_a_client_at_once_as_often_as_its_budget_allows() {
    let scene = accepting(0);
    for _ in 0..BUDGET - 5 {
        assert_eq!(scene.verdict(&unknown_key()).await, "401 key");
    }
    let gate = Arc::new(Semaphore::new(0));
    *scene.chain.gate.lock() = Some(Arc::clone(&gate));
    let signed: Vec<_> = (0..20).map(|_| Credential::Signature(scene.signed())).collect();
    let release = async {
        assert_eq!(scene.chain.calls("ask_holders"), 5);
        gate.add_permits(signed.len());
    };
    let verdicts = join_all(signed.iter().map(|signed| scene.verdict(signed)));
    let (verdicts, ()) = tokio::join!(biased; verdicts, release);
    assert_eq!(verdicts, [["403"; 5].as_slice(), ["429"; 15].as_slice()].concat());
    assert_eq!(scene.chain.calls("ask_holders"), 5);
    assert_eq!(scene.verdict(&Credential::Signature(scene.signed())).await, "429", "all five have counted");
}

#[tokio::test]
async fn a_contracts_good_signatures_spend_nothing_of_the_budget() {
    let scene = accepting(STAKES[3]);
    for _ in 0..=BUDGET {
        assert_eq!(scene.verdict(&Credential::Signature(scene.signed())).await, "admitted");
        scene.clock.advance_secs(61);
    }
    *scene.store.broken.lock() = Some("admit");
    for _ in 0..=BUDGET {
        assert_eq!(
            scene.verdict(&Credential::Signature(scene.signed())).await,
            "500 store",
            "no fault of its own"
        );
    }
    *scene.store.broken.lock() = None;
    assert_eq!(scene.verdict(&Credential::Signature(scene.signed())).await, "admitted");
}

/// A reserved failure that is not given back counts as one refused credential.
#[test]
fn deposits_that_are_taken_and_counted_at_once_never_exceed_the_budget() {
    for round in 0..2_000 {
        let clock = Arc::new(SimulatedClock::new(super::START_SECS));
        let budget = Arc::new(FailureBudget::new(Some(Quota::per_minute(8)), clock));
        let counted: usize = thread::scope(|scope| {
            let reserved = || (0..8).filter(|_| budget.reserve(super::client(1), agent(7)).is_ok()).count();
            let racers: Vec<_> = (0..3).map(|_| scope.spawn(reserved)).collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).sum()
        });
        assert!(counted <= 8, "{counted} in round {round}");
    }
}
