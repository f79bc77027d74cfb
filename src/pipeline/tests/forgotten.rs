//! Signatures of a time whose nonces may have been lost: refused as replays, with the moment from which on they are
//! accepted, and at no cost to those who sent them.

use super::{START_SECS, Scene, client, retry_after, verdict};
use crate::domain::{Denial, Quota, SignatureFormat, UnixSeconds};
use crate::error::Error;
use crate::pipeline::{credential::Credential, custody::KeyWish, readiness::Readiness};
use crate::ports::Store;

const DAY_SECS: u64 = 86_400;

/// From when on signatures are accepted again.
const ACCEPTED_FROM: u64 = START_SECS + 1 + 60;

/// The store has forgotten a nonce, and then the clock is stepped back: signatures made now are refused for a minute.
pub(super) async fn forgetful(failures: Option<Quota>) -> (Scene, Credential) {
    let scene = Scene::with(SignatureFormat::Keys, failures);
    let key = scene.key(None).await;
    scene.clock.advance_secs(DAY_SECS + 1);
    scene.store.inner.probe().await.unwrap();
    scene.clock.step_wall_secs(-(DAY_SECS as i64));
    (scene, key)
}

#[tokio::test]
async fn an_owner_is_told_when_signatures_are_accepted_again_and_that_is_true() {
    let (scene, key) = forgetful(None).await;
    let signed = scene.signed();
    let refused = scene.admit(&Credential::Signature(signed.clone())).await;
    let Err(Error::Denied(Denial::NonceForgotten { agent, nonce, accepted_from, retry_after })) = refused
    else {
        panic!("{}", verdict(&refused));
    };
    assert_eq!((agent, nonce), (signed.agent, signed.nonce));
    assert_eq!((accepted_from, retry_after.seconds()), (UnixSeconds(ACCEPTED_FROM), 60));
    assert_eq!(scene.verdict(&key).await, "admitted", "keys go on");

    scene.clock.advance_secs(59);
    assert_eq!(scene.verdict(&Credential::Signature(scene.signed())).await, "400 forgotten");
    scene.clock.advance_secs(1);
    assert_eq!(scene.verdict(&Credential::Signature(scene.signed())).await, "admitted");
    assert_eq!(scene.verdict(&Credential::Signature(signed)).await, "400 forgotten", "not the old one");
}

#[tokio::test]
async fn key_management_says_the_same_and_changes_nothing() {
    let (scene, key) = forgetful(None).await;
    let order = || scene.order(scene.signed());
    assert_eq!(retry_after(scene.pipeline.rotate_key(order(), KeyWish::default()).await), 60);
    assert_eq!(retry_after(scene.pipeline.generate_key(order(), KeyWish::default()).await), 60);
    assert_eq!(retry_after(scene.pipeline.revoke_key(order(), None).await), 60);
    assert_eq!(scene.verdict(&key).await, "admitted");
    scene.clock.advance_secs(60);
    assert_eq!(verdict(&scene.pipeline.rotate_key(order(), KeyWish::default()).await), "admitted");
}

#[tokio::test]
async fn honest_owners_who_come_too_early_use_up_no_budget_of_refused_credentials() {
    let (scene, key) = forgetful(Some(Quota::per_minute(2))).await;
    for _ in 0..10 {
        assert_eq!(scene.verdict(&Credential::Signature(scene.signed())).await, "400 forgotten");
    }
    assert_eq!(scene.verdict(&key).await, "admitted");
    assert_eq!(scene.pipeline.failing_clients(), 0);
}

#[tokio::test]
async fn readiness_names_it_for_as_long_as_it_lasts_and_stays_ready() {
    let (scene, _) = forgetful(None).await;
    let readiness = Readiness::new(scene.chain.clone(), scene.store.clone(), scene.clock.clone());
    let report = tokio::select! {
        () = readiness.refresh() => unreachable!("it goes on"),
        report = readiness.first_report() => report,
    };
    assert_eq!(report.signatures_accepted_from, Some(UnixSeconds(ACCEPTED_FROM)));
    assert!(report.is_ready());
    scene.clock.advance_secs(60);
    let report = readiness.report();
    assert!(report.signatures_accepted_from.is_none());
    let status = scene.pipeline.key_status(client(1), scene.signed().agent).await;
    assert!(status.unwrap().has_key);
}
