//! Owners that change while a request is judged, and profiles that are older than the signature check.

use std::{sync::Arc, sync::atomic::Ordering};

use alloy::primitives::Address;
use alloy::signers::SignerSync;

use super::{LIMITS, Reported, STAKES, START_SECS, Scene, agent, profile, signer, verdict};
use crate::domain::{Denial, KeyOperation, Quota, SignatureBytes, SignatureFormat, TrustProfile};
use crate::error::Error;
use crate::pipeline::credential::{Credential, SignedRequest};
use crate::pipeline::{custody::KeyWish, owner::Signatory};
use crate::ports::{Asker, Clock, Parts};

// threat: A new owner or a reorganization is not seen
#[tokio::test]
async fn an_owner_who_sold_between_the_two_reads_is_refused_with_the_new_owner() {
    let scene = Scene::new();
    let sold = Arc::new(profile(signer(2).address(), STAKES[3]));
    *scene.chain.profile.lock() = Reported::Is(Some(Arc::clone(&sold)));
    *scene.chain.latest.lock() = Reported::Is(Some(sold));
    let signed = Credential::Signature(scene.signed());
    let refused = scene.admit(&signed).await;
    let Err(Error::Denied(denial)) = &refused else { panic!("{}", verdict(&refused)) };
    assert_eq!(
        *denial,
        Denial::SignatureInvalid {
            agent: agent(7),
            owner: signer(2).address(),
            recovered_signer: Some(signer(1).address()),
            domain: Arc::clone(super::domain().domain()),
            own_type: None,
        }
    );
    scene.stake(1_000);
    assert_eq!(scene.verdict(&signed).await, "admitted", "the nonce is still there");
}

#[tokio::test]
async fn a_cached_profile_of_another_owner_or_of_nobody_is_read_again() {
    let scene = Scene::new();
    for (count, cached) in (1..).zip([Some(Arc::new(profile(signer(2).address(), 0))), None]) {
        *scene.chain.profile.lock() = Reported::Is(cached);
        let permit = scene.admit(&Credential::Signature(scene.signed())).await.unwrap();
        assert_eq!(permit.profile().holders.owner, signer(1).address());
        assert_eq!(permit.tier().number(), 1, "by the stake that was read last");
        let calls = ["holders", "profile", "latest_profile"].map(|verb| scene.chain.calls(verb));
        assert_eq!(calls, [count; 3]);
    }
}

#[tokio::test]
async fn a_cached_profile_of_the_owner_is_good_enough() {
    let scene = Scene::new();
    *scene.chain.latest.lock() = Reported::Down;
    assert_eq!(scene.verdict(&Credential::Signature(scene.signed())).await, "admitted");
    let key = scene.key(None).await;
    *scene.chain.owner.lock() = Reported::Down;
    assert_eq!(scene.verdict(&key).await, "admitted");
    assert_eq!((scene.chain.calls("holders"), scene.chain.calls("latest_profile")), (1, 0));
}

// threat: Bad signatures cause work
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

/// A scene whose agent is owned by a contract at this address, which contracts are asked in or not.
pub(super) fn owned_by_a_wallet(format: SignatureFormat, failures: Option<Quota>) -> (Scene, Address) {
    let (scene, wallet) = (Scene::with(format, failures), Address::repeat_byte(0xc0));
    let profile = Arc::new(profile(wallet, STAKES[3]));
    *scene.chain.owner.lock() = Reported::Is(Some(wallet));
    *scene.chain.profile.lock() = Reported::Is(Some(Arc::clone(&profile)));
    *scene.chain.latest.lock() = Reported::Is(Some(profile));
    scene.chain.accepts.store(true, Ordering::SeqCst);
    (scene, wallet)
}

fn signature_of(bytes: usize) -> SignatureBytes {
    SignatureFormat::Contracts.parse(&format!("0x{}", "5a".repeat(bytes))).unwrap()
}

#[tokio::test]
async fn a_wallets_consent_is_its_signature_for_verification_and_keys_once_a_nonce() {
    let (scene, wallet) = owned_by_a_wallet(SignatureFormat::Contracts, None);
    for bytes in [65, 66, 4096] {
        let signed = SignedRequest { signature: signature_of(bytes), ..scene.signed() };
        let by_wallet = Credential::Signature(signed.clone());
        let permit = scene.admit(&by_wallet).await.unwrap();
        assert_eq!(permit.profile().holders.owner, wallet);
        assert_eq!(scene.verdict(&by_wallet).await, "400 replay");
        assert_eq!(
            verdict(&scene.pipeline.rotate_key(scene.order(signed), KeyWish::default()).await),
            "400 replay"
        );
        let signed = SignedRequest { signature: signature_of(bytes), ..scene.signed() };
        scene.pipeline.rotate_key(scene.order(signed), KeyWish::default()).await.unwrap();
    }
    let by = Signatory { owner: wallet, signer: wallet };
    assert_eq!(scene.by.get(), Some(&by), "the audit log names the wallet");
    let asked = scene.chain.calls("ask_holders");
    let stale = SignedRequest {
        signature: signature_of(99),
        ..scene.signed_by(&signer(1), agent(7), START_SECS - 301)
    };
    assert_eq!(scene.verdict(&Credential::Signature(stale)).await, "400 replay");
    assert_eq!(scene.chain.calls("ask_holders"), asked, "nobody is asked about a stale one");
    assert_eq!(scene.chain.calls("holders"), 0);
}

#[tokio::test]
async fn without_consent_a_wallets_agent_is_nobodys_and_a_silent_node_lets_nobody_in() {
    let (scene, wallet) = owned_by_a_wallet(SignatureFormat::Contracts, None);
    scene.chain.accepts.store(false, Ordering::SeqCst);
    let long = Credential::Signature(SignedRequest { signature: signature_of(200), ..scene.signed() });
    for (credential, recovered_signer) in
        [(long.clone(), None), (Credential::Signature(scene.signed()), Some(signer(1).address()))]
    {
        let refused = scene.admit(&credential).await;
        let Err(Error::Denied(denial)) = &refused else { panic!("{}", verdict(&refused)) };
        let domain = Arc::clone(super::domain().domain());
        let expected = Denial::SignatureInvalid {
            agent: agent(7),
            owner: wallet,
            recovered_signer,
            domain,
            own_type: None,
        };
        assert_eq!(*denial, expected);
    }
    *scene.chain.owner.lock() = Reported::Is(None);
    assert_eq!(scene.verdict(&long).await, "404");
    scene.chain.accepts.store(true, Ordering::SeqCst);
    *scene.chain.owner.lock() = Reported::Down;
    assert_eq!(scene.verdict(&long).await, "503");
}

#[tokio::test]
async fn no_wallet_is_asked_unless_that_is_configured() {
    let (scene, _) = owned_by_a_wallet(SignatureFormat::Keys, None);
    assert_eq!(scene.verdict(&Credential::Signature(scene.signed())).await, "401 signature");
    assert_eq!((scene.chain.calls("holders"), scene.chain.calls("ask_holders")), (1, 0));
}

#[tokio::test]
async fn the_owners_own_key_needs_no_consent_and_costs_the_shared_read_once_it_is_known() {
    let scene = Scene::with(SignatureFormat::Contracts, None);
    let calls = |scene: &Scene| ["holders", "ask_holders"].map(|verb| scene.chain.calls(verb));
    assert_eq!(scene.verdict(&Credential::Signature(scene.signed())).await, "admitted");
    assert_eq!(calls(&scene), [0, 1]);
    *scene.chain.last_owner.lock() = Some(signer(1).address());
    assert_eq!(scene.verdict(&Credential::Signature(scene.signed())).await, "admitted");
    assert_eq!(calls(&scene), [1, 1]);
}

// threat: A contract wallet lies, burns gas, or is replayed
#[tokio::test]
async fn a_key_that_became_the_key_of_the_new_owners_wallet_is_heard() {
    let (scene, wallet) = owned_by_a_wallet(SignatureFormat::Contracts, None);
    *scene.chain.last_owner.lock() = Some(signer(1).address());
    let permit = scene.admit(&Credential::Signature(scene.signed())).await.unwrap();
    assert_eq!(permit.profile().holders.owner, wallet);
    assert_eq!(*scene.chain.askers.lock(), [Asker::Vouched]);
    assert_eq!(scene.chain.calls("ask_holders"), 1);
}

// threat: An agent's data are unreadable or heavy
#[tokio::test]
async fn an_agent_without_details_passes_where_they_are_not_shown_and_is_503_at_no_charge_where_they_are() {
    let mut scene = Scene::new();
    let bare = TrustProfile { details: None, ..profile(signer(1).address(), STAKES[0]) };
    let credentials = [scene.key(None).await, Credential::Signature(scene.signed())];
    let whole = scene.chain.profile.lock().clone();
    *scene.chain.profile.lock() = Reported::Is(Some(Arc::new(bare.clone())));
    *scene.chain.latest.lock() = Reported::Is(Some(Arc::new(bare)));
    for _ in 0..3 {
        for credential in &credentials {
            assert_eq!(scene.verdict(credential).await, "503");
        }
    }
    scene.access.parts = Parts::Gate;
    let read = scene.chain.calls("latest_profile");
    let permit = scene.admit(&credentials[0]).await.unwrap();
    assert_eq!(permit.allowance().remaining + 1, LIMITS[0], "and nothing was charged before");
    assert_eq!(scene.chain.calls("latest_profile"), read, "no call for details that are not shown");
    scene.access.parts = Parts::Whole;
    *scene.chain.latest.lock() = whole;
    scene.clock.advance_secs(60);
    assert_eq!(scene.verdict(&credentials[1]).await, "admitted", "its nonce is unused");
}

/// A change of a key of this kind that `signer(number)` signed at this time, as an own type or as a verification.
fn change_by(scene: &Scene, number: u8, own: bool, at: u64) -> SignedRequest {
    let signed = scene.signed_by(&signer(number), agent(7), at);
    let domain = super::domain().with_own_types("Hafen");
    let own_type = domain.own_type(KeyOperation::Rotate).filter(|_| own);
    let Some(own_type) = own_type else { return signed };
    let digest = domain.own_digest(&own_type, signed.agent, signed.nonce, signed.signed_at);
    let signature = signer(number).sign_hash_sync(&digest).unwrap().as_bytes();
    SignedRequest { signature: SignatureBytes::from_bytes(signature), ..signed }
}

// threat: An old signature of a key is taken because a contract's may be older
#[tokio::test]
async fn only_own_types_that_a_contract_accepts_may_be_older_than_others() {
    let aged = |format, own: bool, age_secs| {
        let scene = Scene::under(format, None, |rules| {
            rules.contract_max_age_secs = 86_400;
            if own {
                rules.signing_domain = super::domain().with_own_types("Hafen");
            }
        });
        scene.clock.advance_secs(age_secs);
        scene
    };
    let rotated = async |scene: &Scene, number, own| {
        let signed = change_by(scene, number, own, START_SECS);
        verdict(&scene.pipeline.rotate_key(scene.order(signed), KeyWish::default()).await)
    };
    let (keys, contracts) = (SignatureFormat::Keys, SignatureFormat::Contracts);
    for (format, own, age_secs, accepts, expected) in [
        (contracts, true, 86_400, true, "admitted"),
        (contracts, true, 86_401, true, "400 replay"),
        (contracts, false, 301, true, "400 replay"),
        (contracts, true, 301, false, "401 signature"),
        (keys, true, 301, true, "400 replay"),
    ] {
        let scene = aged(format, own, age_secs);
        scene.chain.accepts.store(accepts, Ordering::SeqCst);
        assert_eq!(rotated(&scene, 9, own).await, expected, "{own} {age_secs} {accepts}");
    }
    // The owner's own key, seen or not: nobody gathers signatures for it.
    let scene = aged(contracts, true, 301);
    for last in [None, Some(signer(1).address())] {
        *scene.chain.last_owner.lock() = last;
        assert_eq!(rotated(&scene, 1, true).await, "400 replay");
    }
    scene.chain.accepts.store(true, Ordering::SeqCst);
    let signed = change_by(&scene, 9, true, START_SECS);
    assert_eq!(
        verdict(&scene.pipeline.rotate_key(scene.order(signed.clone()), KeyWish::default()).await),
        "admitted"
    );
    assert_eq!(
        verdict(&scene.pipeline.rotate_key(scene.order(signed), KeyWish::default()).await),
        "400 replay",
        "once"
    );
    let read = Credential::Signature(scene.signed_by(&signer(1), agent(7), START_SECS));
    assert_eq!(scene.verdict(&read).await, "400 replay", "a verification is no change of a key");
}
