//! The budget of refused credentials: whom it stops, for how long, and whom it leaves alone.

use super::{Scene, agent, retry_after, signer, unknown_key, verdict};
use crate::domain::denial::Denial;
use crate::domain::quota::Quota;
use crate::pipeline::credential::Credential;
use crate::pipeline::refusal::Refusal;

const BUDGET: u32 = 300;

fn scene() -> Scene {
    Scene::with_failures(Some(Quota::per_minute(BUDGET)))
}

#[tokio::test]
async fn after_300_refused_credentials_a_client_waits_as_long_as_it_is_told() {
    let scene = scene();
    let key = scene.key(None).await;
    for _ in 0..BUDGET {
        assert_eq!(scene.verdict(&unknown_key()).await, "401 key");
        scene.clock.advance_micros(1_001);
    }
    let (found, called) = (scene.store.calls("find"), scene.chain.all_calls());
    let refused = scene.admit(&unknown_key()).await;
    let Err(Refusal::Denied(Denial::RateLimited { agent: whom, tier, limit, .. })) = &refused else {
        panic!("{}", verdict(&refused));
    };
    assert_eq!((*whom, *tier, *limit), (Some(agent(7)), None, BUDGET));
    let secs = retry_after(refused);
    assert_eq!(scene.verdict(&key).await, "429", "a good key does not help");
    assert_eq!(scene.verdict(&Credential::Signature(scene.signed())).await, "429");
    let order = scene.order(scene.signed());
    assert_eq!(verdict(&scene.pipeline.rotate_key(order, None).await), "429");
    assert_eq!((scene.store.calls("find"), scene.chain.all_calls()), (found, called), "and costs nothing");
    assert_eq!(scene.store.calls("hit"), 0);

    scene.clock.advance_secs(secs - 1);
    assert_eq!(scene.verdict(&key).await, "429");
    scene.clock.advance_secs(1);
    assert_eq!(scene.verdict(&key).await, "admitted");
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
