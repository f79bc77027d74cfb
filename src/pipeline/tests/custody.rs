//! Key management: the order of its checks, and that every well-formed request counts.

use std::sync::atomic::Ordering;

use super::{START_SECS, Scene, Word, agent, client, retry_after, signer, verdict};
use crate::domain::quota::Quota;
use crate::domain::signature::SignatureFormat;
use crate::pipeline::credential::{Credential, SignedRequest};
use crate::ports::store::Store;

async fn generate(scene: &Scene, signed: &SignedRequest) -> &'static str {
    verdict(&scene.pipeline.generate_key(scene.order(signed.clone()), None).await)
}

async fn left(scene: &Scene) -> u32 {
    scene.pipeline.key_status(client(1), agent(7)).await.unwrap().allowance.remaining
}

#[tokio::test]
async fn budget_then_window_then_owner_then_signer_then_nonce_then_key() {
    let scene = Scene::new();
    let used = scene.signed();
    assert_eq!(generate(&scene, &used).await, "admitted");

    *scene.chain.owner.lock() = Word::Down;
    let before = scene.chain.all_calls();
    for at in [START_SECS - 301, START_SECS + 61] {
        let stale = scene.signed_by(&signer(2), agent(7), at);
        assert_eq!(generate(&scene, &stale).await, "400 replay");
    }
    assert_eq!(scene.chain.all_calls(), before, "a stale request costs no call");
    let foreign = SignedRequest { signature: scene.signed().signature, ..used.clone() };
    assert_eq!(generate(&scene, &foreign).await, "503");
    *scene.chain.owner.lock() = Word::Is(None);
    assert_eq!(generate(&scene, &foreign).await, "404");
    *scene.chain.owner.lock() = Word::Is(Some(signer(1).address()));
    assert_eq!(generate(&scene, &foreign).await, "401 signature", "before the nonce");
    assert_eq!(generate(&scene, &used).await, "400 replay", "before the key that exists");
    assert_eq!(generate(&scene, &scene.signed()).await, "409");
    assert_eq!(left(&scene).await, 10 - 8);

    assert_eq!(generate(&scene, &scene.signed()).await, "409");
    assert_eq!(generate(&scene, &scene.signed()).await, "409");
    let before = scene.chain.all_calls();
    assert_eq!(generate(&scene, &scene.signed_by(&signer(2), agent(7), 0)).await, "429", "before the window");
    assert_eq!((scene.chain.all_calls(), left(&scene).await), (before, 0));
}

#[tokio::test]
async fn every_well_formed_request_counts_whatever_becomes_of_it() {
    let scene = Scene::new();
    scene.pipeline.rotate_key(scene.order(scene.signed()), None).await.unwrap();
    assert_eq!(left(&scene).await, 9);
    let refused = [
        (scene.signed_by(&signer(2), agent(7), START_SECS), "401 signature"),
        (scene.signed_by(&signer(1), agent(7), 0), "400 replay"),
        (scene.signed(), "409"),
    ];
    for (count, (signed, expected)) in (1..).zip(refused) {
        assert_eq!(generate(&scene, &signed).await, expected);
        assert_eq!(left(&scene).await, 9 - count);
    }
    *scene.store.broken.lock() = Some("change_key");
    assert_eq!(generate(&scene, &scene.signed()).await, "500 store");
    *scene.store.broken.lock() = None;
    scene.pipeline.revoke_key(scene.order(scene.signed())).await.unwrap();
    assert_eq!(left(&scene).await, 4);
    let other_agent = scene.pipeline.key_status(client(1), agent(8)).await.unwrap();
    let other_client = scene.pipeline.key_status(client(2), agent(7)).await.unwrap();
    assert_eq!((other_agent.allowance.remaining, other_client.allowance.remaining), (10, 10));
}

#[tokio::test]
async fn a_refused_order_keeps_its_nonce() {
    let scene = Scene::new();
    let signed = scene.signed();
    *scene.chain.owner.lock() = Word::Down;
    assert_eq!(generate(&scene, &signed).await, "503");
    *scene.chain.owner.lock() = Word::Is(Some(signer(1).address()));
    *scene.store.broken.lock() = Some("change_key");
    assert_eq!(generate(&scene, &signed).await, "500 store");
    *scene.store.broken.lock() = None;
    scene.entropy.is_empty.store(true, Ordering::SeqCst);
    assert_eq!(generate(&scene, &signed).await, "500 entropy");
    scene.entropy.is_empty.store(false, Ordering::SeqCst);
    assert_eq!(generate(&scene, &signed).await, "admitted");

    let exists = scene.signed();
    assert_eq!(generate(&scene, &exists).await, "409");
    assert_eq!(
        scene.verdict(&Credential::Signature(exists.clone())).await,
        "admitted",
        "one space of nonces"
    );
    assert_eq!(verdict(&scene.pipeline.revoke_key(scene.order(exists)).await), "400 replay");
}

#[tokio::test]
async fn keys_are_made_until_one_fits_the_store() {
    let scene = Scene::new();
    let before = scene.entropy.next.load(Ordering::SeqCst);
    for _ in 0..10 {
        let issued = scene.pipeline.rotate_key(scene.order(scene.signed()), None).await.unwrap();
        assert!(scene.store.fits(issued.agent, &issued.key.digest()));
    }
    assert!(scene.entropy.next.load(Ordering::SeqCst) > before + 10, "one in two fits");
}

#[tokio::test]
async fn a_client_that_waits_as_long_as_told_may_ask_for_the_state_of_keys_again() {
    let scene = Scene::with(SignatureFormat::Keys, Some(Quota::per_minute(2)));
    let ask = async |from| scene.pipeline.key_status(client(from), agent(7)).await;
    for _ in 0..2 {
        ask(1).await.unwrap();
        scene.clock.advance_secs(10);
    }
    let asked = scene.store.calls("status");
    let secs = retry_after(ask(1).await);
    assert_eq!((secs, scene.store.calls("status")), (40, asked), "the store is not asked");
    ask(2).await.unwrap();
    scene.clock.advance_secs(secs - 1);
    assert_eq!(retry_after(ask(1).await), 1);
    scene.clock.advance_secs(1);
    ask(1).await.unwrap();
    scene.clock.advance_secs(60);
    scene.pipeline.sweep();
    assert_eq!(scene.pipeline.status_reads.len(), 0);
}

#[tokio::test]
async fn who_waits_as_long_as_told_may_manage_keys_again() {
    let scene = Scene::new();
    for _ in 0..10 {
        scene.pipeline.rotate_key(scene.order(scene.signed()), None).await.unwrap();
        scene.clock.advance_micros(1_234_567);
    }
    let secs = retry_after(scene.pipeline.rotate_key(scene.order(scene.signed()), None).await);
    scene.clock.advance_secs(secs - 1);
    assert_eq!(retry_after(scene.pipeline.rotate_key(scene.order(scene.signed()), None).await), 1);
    scene.clock.advance_secs(1);
    scene.pipeline.rotate_key(scene.order(scene.signed()), None).await.unwrap();
}

#[tokio::test]
async fn a_key_does_not_expire() {
    let scene = Scene::new();
    let key = scene.key(None).await;
    scene.clock.advance_secs(20 * 365 * 86_400);
    assert_eq!(scene.verdict(&key).await, "admitted");
}
