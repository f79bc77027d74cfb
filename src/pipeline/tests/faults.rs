//! A fault of chain or store is never an admission, and never a verdict about the agent.

use std::future::{pending, ready};

use super::{Reported, Scene, agent, client, verdict};
use crate::pipeline::{credential::Credential, custody::KeyWish, read_time::ReadTime};

// threat: A failure admits somebody, or looks like an answer
#[tokio::test]
async fn a_store_that_fails_admits_nobody_and_recovers() {
    let scene = Scene::new();
    let key = scene.key(None).await;
    let signed = Credential::Signature(scene.signed());
    for (verb, credential) in [("find", &key), ("admit", &key), ("admit", &signed)] {
        *scene.store.broken.lock() = Some(verb);
        assert_eq!(scene.verdict(credential).await, "500 store", "{verb}");
    }
    for verb in ["charge", "change_key"] {
        *scene.store.broken.lock() = Some(verb);
        let order = scene.order(scene.signed());
        assert_eq!(
            verdict(&scene.pipeline.rotate_key(order, KeyWish::default()).await),
            "500 store",
            "{verb}"
        );
    }
    *scene.store.broken.lock() = Some("status");
    assert_eq!(verdict(&scene.pipeline.key_status(client(1), agent(7)).await), "500 store");
    *scene.store.broken.lock() = None;
    assert_eq!(scene.verdict(&key).await, "admitted", "the key is still the old one");
    assert_eq!(scene.verdict(&signed).await, "admitted");
}

// threat: A failure admits somebody, or looks like an answer
#[tokio::test]
async fn a_chain_that_fails_admits_nobody_and_recovers() {
    let scene = Scene::new();
    let key = scene.key(None).await;
    let signed = Credential::Signature(scene.signed());
    let (owner, profile) = (scene.chain.owner.lock().clone(), scene.chain.profile.lock().clone());

    *scene.chain.profile.lock() = Reported::Down;
    assert_eq!((scene.verdict(&key).await, scene.verdict(&signed).await), ("503", "503"));
    *scene.chain.profile.lock() = Reported::Is(None);
    *scene.chain.latest.lock() = Reported::Down;
    assert_eq!(scene.verdict(&signed).await, "503", "the cache knows nobody, and the chain can't be asked");
    *scene.chain.owner.lock() = Reported::Down;
    assert_eq!(scene.verdict(&signed).await, "503");
    let order = scene.order(scene.signed());
    assert_eq!(verdict(&scene.pipeline.revoke_key(order, None).await), "503");

    *scene.chain.owner.lock() = owner;
    *scene.chain.profile.lock() = profile;
    assert_eq!((scene.verdict(&key).await, scene.verdict(&signed).await), ("admitted", "admitted"));
}

#[tokio::test]
async fn a_read_beyond_the_requests_time_is_a_fault_and_one_that_needs_none_is_answered() {
    let scene = Scene::new();
    let ports = &scene.pipeline.ports;
    let over = ReadTime::begin(ports);
    scene.clock.advance_secs(6);
    let fault = over.bound::<()>(ports, Box::pin(pending())).await.unwrap_err();
    assert_eq!(&*fault.cause, "out of time");
    assert_eq!(over.bound(ports, Box::pin(ready(Ok(7)))).await.unwrap(), 7);
}
