//! The order of checks: a request that fails two neighbours gets the refusal of the earlier one. And what is refused
//! uses nothing up. Limits of tiers; faults of chain or store, which are never an admission and never a verdict about the agent; and
//! signatures of a time whose nonces may have been lost, which are refused as replays, with the moment from which on they are
//! accepted, and at no cost to those who sent them.

use std::future::{pending, ready};
use std::sync::atomic::Ordering;

use alloy::primitives::U256;

use super::{
    LIMITS, Reported, STAKES, START_SECS, Scene, agent, client, named, retry_after, signer, unknown_key,
    verdict,
};
use crate::domain::{Denial, PASSING_TIERS, Quota, SignatureBytes, SignatureFormat, Tier, UnixSeconds};
use crate::error::Error;
use crate::pipeline::Ask;
use crate::pipeline::{Credential, SignedRequest, custody::KeyWish, owner::ReadTime, readiness::Readiness};
use crate::ports::Store;

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

// threat: A revoked key opens again
#[tokio::test]
async fn a_key_that_is_revoked_between_look_up_and_a_full_place_is_401() {
    let scene = Scene::new();
    let credential = scene.key(None).await;
    let ask = Ask { credential, client: client(1), origin: None, access: &scene.access };
    let refused = async || {
        let standing = scene.pipeline.verify(&ask).await.unwrap();
        let (agent, tier, limit) = (standing.agent(), standing.tier(), standing.quota().limit);
        scene.pipeline.refuse(standing, &ask, Error::TooManyInFlight { agent, tier, limit, max: 1 }).await
    };
    assert!(matches!(refused().await, Error::TooManyInFlight { .. }));
    scene.store.revoked_elsewhere.store(true, Ordering::SeqCst);
    assert!(matches!(refused().await, Error::Denied(Denial::InvalidApiKey { .. })));
}

#[tokio::test]
async fn signatures_window_then_owner_then_signer_then_profile_then_tier_then_nonce_then_limit() {
    let scene = Scene::new();
    let now = START_SECS;
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
    let from = |origin: &'static str| scene.admit_from(client(1), &key, Some(origin));
    assert_eq!(verdict(&from("https://evil.example").await), "403");
    scene.stake(1_000);
    for _ in 0..3 {
        assert_eq!(verdict(&from("https://evil.example").await), "403 endpoint");
    }
    assert_eq!(scene.store.calls("admit"), 0);
    assert_eq!(verdict(&from("https://app.example").await), "admitted", "the one of tier 1 is left");
}

#[tokio::test]
async fn who_waits_exactly_as_long_as_told_is_admitted() {
    let scene = Scene::new();
    let key = scene.key(None).await;
    scene.admit(&key).await.unwrap();
    scene.clock.advance_micros(10_500_001);
    scene.admit(&key).await.unwrap();
    for _ in 0..3 {
        scene.clock.advance_micros(123_457);
        let secs = retry_after(scene.admit(&key).await);
        scene.clock.step_wall_secs(-3_600);
        scene.clock.advance_secs(secs - 1);
        assert_eq!(retry_after(scene.admit(&key).await), 1);
        scene.clock.advance_secs(1);
        let permit = scene.admit(&key).await.unwrap();
        assert_eq!(permit.allowance().remaining, 0);
        scene.clock.step_wall_secs(3_600);
    }
}

// threat: A fresh budget, or another tenant's
#[tokio::test]
async fn each_tier_has_its_limit_and_a_change_of_tier_is_no_fresh_budget() {
    let scene = Scene::new();
    let key = scene.key(None).await;
    let mut admitted = 0;
    for (tier, (stake, limit)) in PASSING_TIERS.into_iter().zip(STAKES.into_iter().zip(LIMITS)) {
        scene.stake(stake);
        while let Ok(permit) = scene.admit(&key).await {
            admitted += 1;
            assert_eq!(permit.tier(), tier);
            assert_eq!((permit.allowance().limit, permit.allowance().remaining), (limit, limit - admitted));
        }
        assert_eq!(admitted, limit, "what was used before is used");
    }
    scene.stake(STAKES[0]);
    let refused = scene.admit(&key).await;
    let Err(Error::Denied(Denial::RateLimited { agent: whom, tier, limit, .. })) = refused else {
        panic!("{}", verdict(&refused));
    };
    assert_eq!((whom, tier, limit), (Some(agent(7)), Some(Tier::Bronze), 2));
}

#[tokio::test]
async fn a_door_may_ask_for_more_than_bronze_and_says_which_stake_opens_it() {
    let mut scene = Scene::new();
    let key = scene.key(None).await;
    for (index, required) in PASSING_TIERS.into_iter().enumerate() {
        scene.access.min_tier = required;
        scene.stake(STAKES[index] - 1);
        let refused = scene.admit(&key).await;
        let Err(Error::Denied(denial)) = &refused else { panic!("{}", verdict(&refused)) };
        let current = index.checked_sub(1).map_or(Tier::Unverified, |below| PASSING_TIERS[below]);
        let required_stake = Some(U256::from(STAKES[index]));
        assert_eq!(*denial, Denial::TierBlocked { agent: agent(7), current, required, required_stake });
        scene.stake(STAKES[index]);
        assert_eq!(scene.verdict(&key).await, "admitted");
        scene.clock.advance_secs(60);
    }
    scene.access.min_tier = Tier::Unverified;
    scene.stake(STAKES[0] - 1);
    let refused = scene.admit(&key).await;
    let Err(Error::Denied(Denial::TierBlocked { required, .. })) = refused else {
        panic!("{}", verdict(&refused));
    };
    assert_eq!(required, Tier::Bronze, "tier 0 never passes, whatever a listener asks for");
}

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
            verdict(&scene.pipeline.make_key(order, KeyWish::default(), true).await),
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
    assert_eq!(retry_after(scene.pipeline.make_key(order(), KeyWish::default(), true).await), 60);
    assert_eq!(retry_after(scene.pipeline.make_key(order(), KeyWish::default(), false).await), 60);
    for _ in 0..20 {
        assert_eq!(retry_after(scene.pipeline.revoke_key(order(), None).await), 60, "however often");
    }
    assert_eq!(scene.verdict(&key).await, "admitted");
    scene.clock.advance_secs(60);
    assert_eq!(verdict(&scene.pipeline.make_key(order(), KeyWish::default(), true).await), "admitted");
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
