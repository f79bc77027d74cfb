//! Owners that change while a request is judged, and profiles that are older than the signature check.

use std::sync::Arc;

use super::{STAKES, Scene, Word, agent, profile, signer, verdict};
use crate::domain::denial::Denial;
use crate::domain::signature::SignatureBytes;
use crate::pipeline::credential::{Credential, SignedRequest};
use crate::pipeline::refusal::Refusal;
use crate::ports::chain::Asker;
use crate::ports::clock::Clock;

#[tokio::test]
async fn an_owner_who_sold_between_the_two_reads_is_refused_with_the_new_owner() {
    let scene = Scene::new();
    let sold = Arc::new(profile(signer(2).address(), STAKES[3]));
    *scene.chain.profile.lock() = Word::Is(Some(Arc::clone(&sold)));
    *scene.chain.latest.lock() = Word::Is(Some(sold));
    let signed = Credential::Signature(scene.signed());
    let refused = scene.admit(&signed).await;
    let Err(Refusal::Denied(denial)) = &refused else { panic!("{}", verdict(&refused)) };
    assert_eq!(
        *denial,
        Denial::SignatureInvalid {
            agent: agent(7),
            owner: signer(2).address(),
            recovered_signer: Some(signer(1).address()),
            domain: Arc::clone(super::domain().domain()),
        }
    );
    scene.stake(1_000);
    assert_eq!(scene.verdict(&signed).await, "admitted", "the nonce is still there");
}

#[tokio::test]
async fn a_cached_profile_of_another_owner_or_of_nobody_is_read_again() {
    let scene = Scene::new();
    for (count, cached) in (1..).zip([Some(Arc::new(profile(signer(2).address(), 0))), None]) {
        *scene.chain.profile.lock() = Word::Is(cached);
        let permit = scene.admit(&Credential::Signature(scene.signed())).await.unwrap();
        assert_eq!(permit.profile().owner, signer(1).address());
        assert_eq!(permit.tier().number(), 1, "by the stake that was read last");
        let calls = ["owner", "profile", "latest_profile"].map(|verb| scene.chain.calls(verb));
        assert_eq!(calls, [count; 3]);
    }
}

#[tokio::test]
async fn a_cached_profile_of_the_owner_is_good_enough() {
    let scene = Scene::new();
    *scene.chain.latest.lock() = Word::Down;
    assert_eq!(scene.verdict(&Credential::Signature(scene.signed())).await, "admitted");
    let key = scene.key(None).await;
    *scene.chain.owner.lock() = Word::Down;
    assert_eq!(scene.verdict(&key).await, "admitted");
    assert_eq!((scene.chain.calls("owner"), scene.chain.calls("latest_profile")), (1, 0));
}

#[tokio::test]
async fn a_signature_of_the_last_owner_is_vouched_for_and_any_other_is_a_strangers() {
    let scene = Scene::new();
    let now = scene.clock.unix_seconds();
    let by = |number| Credential::Signature(scene.signed_by(&signer(number), agent(7), now));
    let unreadable = SignatureBytes::from_bytes([0x11; 65]);
    let unreadable = Credential::Signature(SignedRequest { signature: unreadable, ..scene.signed() });
    for (last_owner, credential, verdict, asker) in [
        (None, by(1), "admitted", Asker::Stranger),
        (Some(signer(1).address()), by(2), "401 signature", Asker::Stranger),
        (Some(signer(1).address()), unreadable, "401 signature", Asker::Stranger),
        (Some(signer(1).address()), by(1), "admitted", Asker::Vouched),
        // Who owned it once waits for nobody, and is let in no more for that.
        (Some(signer(2).address()), by(2), "401 signature", Asker::Vouched),
        (Some(signer(2).address()), by(1), "429", Asker::Stranger),
    ] {
        *scene.chain.last_owner.lock() = last_owner;
        scene.chain.askers.lock().clear();
        assert_eq!(scene.verdict(&credential).await, verdict);
        assert_eq!(*scene.chain.askers.lock(), [asker], "{verdict}");
    }
}
