//! The budget of refused credentials: whom it stops, for how long, and whom it leaves alone.

use std::sync::atomic::Ordering;

use futures_util::future::join_all;

use super::{Scene, agent, named, retry_after, signer, unknown_key, verdict};
use crate::domain::denial::Denial;
use crate::domain::quota::Quota;
use crate::domain::signature::SignatureFormat;
use crate::pipeline::credential::Credential;
use crate::pipeline::failures::LOOK_UPS_MAX;
use crate::pipeline::refusal::Refusal;

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
    let Err(Refusal::Denied(Denial::RateLimited { agent: whom, tier, limit, .. })) = &refused else {
        panic!("{}", verdict(&refused));
    };
    assert_eq!((*whom, *tier, *limit), (Some(agent(7)), None, BUDGET));
    let secs = retry_after(refused);
    assert_eq!(scene.verdict(&Credential::Signature(scene.signed())).await, "429");
    let order = scene.order(scene.signed());
    assert_eq!(verdict(&scene.pipeline.rotate_key(order, None).await), "429");
    assert_eq!(
        (scene.store.calls("hit"), scene.chain.all_calls()),
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

#[tokio::test]
async fn a_signature_of_an_owner_who_was_seen_before_is_looked_at_before_the_budget() {
    let scene = spent().await;
    *scene.chain.last_owner.lock() = Some(signer(1).address());
    assert_eq!(scene.verdict(&Credential::Signature(scene.signed())).await, "admitted");
    let order = scene.order(scene.signed());
    assert_eq!(verdict(&scene.pipeline.rotate_key(order, None).await), "admitted");
    let called = scene.chain.all_calls();
    let foreign = scene.signed_by(&signer(2), agent(7), super::START_SECS);
    assert_eq!(scene.verdict(&Credential::Signature(foreign)).await, "429");
    let stale = scene.signed_by(&signer(1), agent(7), 0);
    assert_eq!(scene.verdict(&Credential::Signature(stale)).await, "429");
    assert_eq!(scene.chain.all_calls(), called, "and costs no call");
}

#[tokio::test]
async fn of_a_client_over_budget_so_many_keys_are_looked_up_at_once_and_none_is_refused_unseen() {
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
async fn the_budget_can_be_switched_off() {
    let scene = Scene::new();
    for _ in 0..=2 * BUDGET {
        assert_eq!(scene.verdict(&unknown_key()).await, "401 key");
    }
}
