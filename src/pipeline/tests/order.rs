//! The order of checks: a request that fails two neighbours gets the refusal of the earlier one. And what is refused
//! uses nothing up.

use std::sync::atomic::Ordering;

use super::{Reported, Scene, agent, named, signer, unknown_key};
use crate::domain::SignatureBytes;
use crate::pipeline::credential::{Credential, SignedRequest};

#[tokio::test]
async fn keys_known_then_named_then_profile_then_tier_then_current_then_limit() {
    let scene = Scene::new();
    let key = scene.key(None).await;

    *scene.chain.profile.lock() = Reported::Down;
    assert_eq!(scene.verdict(&unknown_key()).await, "401 key");
    assert_eq!(scene.verdict(&named(&key, agent(8))).await, "401 key");
    assert_eq!(scene.verdict(&named(&key, agent(0))).await, "401 key");
    assert_eq!(scene.chain.all_calls(), 0, "a bad key costs no call");

    scene.store.revokes_before_admit.store(true, Ordering::SeqCst);
    assert_eq!(scene.verdict(&key).await, "503");
    *scene.chain.profile.lock() = Reported::Is(None);
    assert_eq!(scene.verdict(&key).await, "404");
    scene.stake(999);
    assert_eq!(scene.verdict(&key).await, "403");
    assert_eq!(scene.store.calls("admit"), 0);

    scene.stake(1_000);
    scene.store.revokes_before_admit.store(false, Ordering::SeqCst);
    scene.fill_window().await;
    assert_eq!(scene.verdict(&named(&key, agent(7))).await, "429");
    scene.stake(999);
    assert_eq!(scene.verdict(&key).await, "403", "before the limit");
    scene.stake(1_000);
    scene.store.revokes_before_admit.store(true, Ordering::SeqCst);
    assert_eq!(scene.verdict(&key).await, "401 key", "before the limit");
}

// threat: "Unknown" is remembered
#[tokio::test]
async fn a_key_that_was_refused_before_it_was_made_passes_afterwards() {
    // Each scene makes the same keys.
    let key = Scene::new().key(None).await;
    let scene = Scene::new();
    assert_eq!(scene.verdict(&key).await, "401 key");
    scene.key(None).await;
    assert_eq!(scene.verdict(&key).await, "admitted");
}

#[tokio::test]
async fn a_key_that_another_replica_revoked_is_401_whatever_else_is_wrong() {
    let scene = Scene::new();
    let key = scene.key(None).await;
    scene.store.revoked_elsewhere.store(true, Ordering::SeqCst);
    scene.stake(0);
    assert_eq!(scene.verdict(&key).await, "401 key");
    *scene.chain.profile.lock() = Reported::Is(None);
    assert_eq!(scene.verdict(&key).await, "401 key");
    *scene.chain.profile.lock() = Reported::Down;
    assert_eq!(scene.verdict(&key).await, "401 key");
}

#[tokio::test]
async fn signatures_window_then_owner_then_signer_then_profile_then_tier_then_nonce_then_limit() {
    let scene = Scene::new();
    let now = super::START_SECS;
    let by = |id: u64, who: u8, at: u64| Credential::Signature(scene.signed_by(&signer(who), agent(id), at));

    *scene.chain.owner.lock() = Reported::Is(None);
    for at in [now - 301, now + 61, 0, u64::MAX] {
        assert_eq!(scene.verdict(&by(7, 1, at)).await, "400 replay");
        assert_eq!(scene.verdict(&by(0, 1, at)).await, "400 replay");
    }
    *scene.chain.owner.lock() = Reported::Down;
    assert_eq!(scene.verdict(&by(0, 1, now)).await, "404");
    assert_eq!(scene.chain.all_calls(), 0, "neither a stale request nor agent 0 costs a call");

    assert_eq!(scene.verdict(&by(7, 2, now)).await, "503");
    *scene.chain.owner.lock() = Reported::Is(None);
    assert_eq!(scene.verdict(&by(7, 2, now)).await, "404");

    *scene.chain.owner.lock() = Reported::Is(Some(signer(1).address()));
    *scene.chain.profile.lock() = Reported::Down;
    assert_eq!(scene.verdict(&by(7, 2, now)).await, "401 signature");
    let unreadable = SignatureBytes::from_bytes([0; 65]);
    let unreadable = SignedRequest { signature: unreadable, ..scene.signed() };
    assert_eq!(scene.verdict(&Credential::Signature(unreadable)).await, "401 signature");
    assert_eq!(scene.chain.calls("profile"), 0, "a bad signature costs no profile");

    let used = by(7, 1, now);
    assert_eq!(scene.verdict(&used).await, "503");
    scene.stake(1_000);
    assert_eq!(scene.verdict(&used).await, "admitted");
    scene.stake(999);
    assert_eq!(scene.verdict(&used).await, "403", "before the nonce");
    scene.stake(1_000);
    scene.fill_window().await;
    assert_eq!(scene.verdict(&used).await, "400 replay", "before the limit");
    assert_eq!(scene.verdict(&by(7, 1, now)).await, "429");
}

#[tokio::test]
async fn what_is_refused_burns_neither_nonce_nor_window() {
    let scene = Scene::new();
    let signed = Credential::Signature(scene.signed());
    let good_owner = scene.chain.owner.lock().clone();

    *scene.chain.owner.lock() = Reported::Down;
    assert_eq!(scene.verdict(&signed).await, "503");
    *scene.chain.owner.lock() = Reported::Is(None);
    assert_eq!(scene.verdict(&signed).await, "404");
    *scene.chain.owner.lock() = Reported::Is(Some(signer(2).address()));
    assert_eq!(scene.verdict(&signed).await, "401 signature");
    *scene.chain.owner.lock() = good_owner;
    *scene.chain.profile.lock() = Reported::Down;
    assert_eq!(scene.verdict(&signed).await, "503");
    *scene.chain.profile.lock() = Reported::Is(None);
    *scene.chain.latest.lock() = Reported::Is(None);
    assert_eq!(scene.verdict(&signed).await, "404", "burnt after the owner was read");
    scene.stake(0);
    assert_eq!(scene.verdict(&signed).await, "403");
    *scene.store.broken.lock() = Some("admit");
    scene.stake(1_000);
    assert_eq!(scene.verdict(&signed).await, "500 store");
    *scene.store.broken.lock() = None;

    let permit = scene.admit(&signed).await.unwrap();
    assert_eq!((permit.allowance().limit, permit.allowance().remaining), (2, 1), "the first in the window");
    assert_eq!(scene.verdict(&signed).await, "400 replay");

    let second = Credential::Signature(scene.signed());
    let limited = Credential::Signature(scene.signed());
    assert_eq!(scene.verdict(&second).await, "admitted", "a replay takes no place");
    for _ in 0..5 {
        assert_eq!(scene.verdict(&limited).await, "429");
    }
    scene.clock.advance_secs(60);
    assert_eq!(scene.verdict(&limited).await, "admitted", "a limited request keeps its nonce");
}

// threat: A revoked key opens again
#[tokio::test]
async fn a_key_that_is_revoked_between_look_up_and_admission_is_refused() {
    let scene = Scene::new();
    let key = scene.key(None).await;
    scene.store.revokes_before_admit.store(true, Ordering::SeqCst);
    assert_eq!(scene.verdict(&key).await, "401 key");
    assert_eq!((scene.store.calls("find"), scene.store.calls("admit")), (1, 1));
    scene.store.revokes_before_admit.store(false, Ordering::SeqCst);
    let permit = scene.admit(&scene.key(None).await).await.unwrap();
    assert_eq!(permit.allowance().remaining, 1, "and took no place");
}

#[tokio::test]
async fn where_a_mismatch_is_denied_it_comes_after_the_tier_and_uses_nothing_up() {
    let mut scene = Scene::new();
    scene.access.denies_endpoint_mismatch = true;
    scene.stake(999);
    let key = scene.key(Some("https://app.example/hook")).await;
    let from = |origin: &'static str| scene.admit_from(super::client(1), &key, Some(origin));
    assert_eq!(super::verdict(&from("https://evil.example").await), "403");
    scene.stake(1_000);
    for _ in 0..3 {
        assert_eq!(super::verdict(&from("https://evil.example").await), "403 endpoint");
    }
    assert_eq!(scene.store.calls("admit"), 0);
    assert_eq!(super::verdict(&from("https://app.example").await), "admitted", "the one of tier 1 is left");
}
