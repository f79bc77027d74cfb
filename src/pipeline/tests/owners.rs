//! Owners and wallets: who changes while a request is judged, profiles that are older than the signature check, and reads of a
//! profile by its owner.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use alloy::primitives::Address;
use alloy::signers::SignerSync;

use super::{
    LIMITS, Reported, STAKES, START_SECS, Scene, agent, client, domain, profile, retry_after, signer, verdict,
};
use crate::domain::{
    AgentId, ClientNet, Denial, Holders, KeyOperation, Quota, SignatureBytes, SignatureFormat, TrustProfile,
    UnixSeconds,
};
use crate::error::Error;
use crate::pipeline::owner::{OwnerProfile, READS, Signatory};
use crate::pipeline::{Credential, ProfileRead, SignedRequest, custody::KeyWish};
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
            domain: Arc::clone(domain().domain()),
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
            verdict(&scene.pipeline.make_key(scene.order(signed), KeyWish::default(), true).await),
            "400 replay"
        );
        let signed = SignedRequest { signature: signature_of(bytes), ..scene.signed() };
        scene.pipeline.make_key(scene.order(signed), KeyWish::default(), true).await.unwrap();
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
        let domain = Arc::clone(domain().domain());
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
    let domain = domain().with_own_types("Hafen");
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
            (rules.contract_max_age_secs, rules.agent_wallet) = (86_400, true);
            if own {
                rules.signing_domain = domain().with_own_types("Hafen");
            }
        });
        scene.clock.advance_secs(age_secs);
        scene
    };
    let rotated = async |scene: &Scene, number, own| {
        let signed = change_by(scene, number, own, START_SECS);
        verdict(&scene.pipeline.make_key(scene.order(signed), KeyWish::default(), true).await)
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
    // A wallet that takes it from the owner's key accepts it all the same.
    scene.chain.accepts.store(true, Ordering::SeqCst);
    *scene.chain.wallet.lock() = Some(signer(8).address());
    assert_eq!(rotated(&scene, 1, true).await, "admitted");
    assert_eq!(scene.by.get().unwrap().signer, signer(8).address());
    *scene.chain.wallet.lock() = None;
    let signed = change_by(&scene, 9, true, START_SECS);
    assert_eq!(
        verdict(&scene.pipeline.make_key(scene.order(signed.clone()), KeyWish::default(), true).await),
        "admitted"
    );
    assert_eq!(
        verdict(&scene.pipeline.make_key(scene.order(signed), KeyWish::default(), true).await),
        "400 replay",
        "once"
    );
    let read = Credential::Signature(scene.signed_by(&signer(1), agent(7), START_SECS));
    assert_eq!(scene.verdict(&read).await, "400 replay", "a verification is no change of a key");
}

/// A scene whose agent has the wallet `signer(1)` and the owner `signer(2)`.
fn scene(format: SignatureFormat, agent_wallet: bool, keys_end_with_signer: bool) -> Scene {
    let scene = Scene::under(format, None, |rules| {
        (rules.agent_wallet, rules.keys_end_with_signer) = (agent_wallet, keys_end_with_signer);
    });
    *scene.chain.owner.lock() = Reported::Is(Some(signer(2).address()));
    scene.has_wallet(Some(signer(1).address()));
    scene
}

impl Scene {
    fn has_wallet(&self, wallet: Option<Address>) {
        *self.chain.wallet.lock() = wallet;
        self.shows_wallet(wallet);
    }

    /// The profile has it, whatever the holders are.
    fn shows_wallet(&self, wallet: Option<Address>) {
        let owner = signer(2).address();
        let held = TrustProfile { holders: Holders { owner, wallet }, ..profile(owner, STAKES[3]) };
        *self.chain.profile.lock() = Reported::Is(Some(Arc::new(held.clone())));
        *self.chain.latest.lock() = Reported::Is(Some(Arc::new(held)));
    }

    fn by(&self, number: u8) -> Credential {
        Credential::Signature(self.signed_by(&signer(number), agent(7), START_SECS))
    }

    async fn key_by(&self, number: u8) -> &'static str {
        let signed = self.signed_by(&signer(number), agent(7), START_SECS);
        verdict(&self.pipeline.make_key(self.order(signed), KeyWish::default(), true).await)
    }

    async fn reads_as(&self, number: u8) -> &'static str {
        let (agent, signed_at) = (agent(7), UnixSeconds(START_SECS));
        let digest = domain().profile_digest(agent, signed_at);
        let signature =
            SignatureBytes::from_bytes(signer(number).sign_hash_sync(&digest).unwrap().as_bytes());
        let read = ProfileRead { agent, signed_at, signature };
        verdict(&self.pipeline.owner_profile(client(1), &read, &self.access.tiers).await)
    }
}

#[tokio::test]
async fn an_agents_wallet_signs_as_its_owner_does_until_it_is_cleared() {
    for format in [SignatureFormat::Keys, SignatureFormat::Contracts] {
        let scene = scene(format, true, false);
        assert_eq!(scene.verdict(&scene.by(1)).await, "admitted");
        *scene.chain.last_owner.lock() = Some(signer(2).address());
        assert_eq!((scene.key_by(1).await, scene.reads_as(1).await), ("admitted", "admitted"));
        assert!(scene.chain.askers.lock().contains(&Asker::Vouched), "seen as the wallet, it is no stranger");
        let by = Signatory { owner: signer(2).address(), signer: signer(1).address() };
        assert_eq!(scene.by.get(), Some(&by), "the audit log names both");
        // It ends the owner's key as the owner ends its.
        assert_eq!(scene.key_by(2).await, "admitted");
        let signed = scene.signed_by(&signer(1), agent(7), START_SECS);
        scene.pipeline.revoke_key(scene.order(signed), None).await.unwrap();
        // Cleared between the two reads, and then for good.
        scene.shows_wallet(None);
        assert_eq!(scene.verdict(&scene.by(1)).await, "401 signature");
        scene.has_wallet(None);
        assert_eq!(scene.verdict(&scene.by(1)).await, "401 signature");
        assert_eq!((scene.key_by(1).await, scene.reads_as(1).await), ("401 signature", "401 signature"));
        assert_eq!(scene.verdict(&scene.by(2)).await, "admitted");
    }
}

#[tokio::test]
async fn without_the_setting_an_agents_wallet_is_nobody() {
    for format in [SignatureFormat::Keys, SignatureFormat::Contracts] {
        let scene = scene(format, false, false);
        // Seen as the wallet, it is no less a stranger.
        *scene.chain.last_owner.lock() = Some(signer(2).address());
        assert_eq!(scene.verdict(&scene.by(1)).await, "401 signature");
        assert!(!scene.chain.askers.lock().contains(&Asker::Vouched));
        assert_eq!((scene.key_by(1).await, scene.reads_as(1).await), ("401 signature", "401 signature"));
        assert_eq!(scene.by.get(), None);
        assert_eq!(scene.verdict(&scene.by(2)).await, "admitted");
    }
}

#[tokio::test]
async fn a_wallets_key_ends_with_the_wallet_and_the_owners_does_not() {
    let scene = scene(SignatureFormat::Keys, true, true);
    let wallets = scene.made_by(&signer(1)).await;
    assert_eq!(scene.verdict(&wallets).await, "admitted");
    scene.has_wallet(Some(signer(3).address()));
    assert_eq!(scene.verdict(&wallets).await, "401 key");
    let owners = scene.made_by(&signer(2)).await;
    scene.has_wallet(None);
    assert_eq!(scene.verdict(&owners).await, "admitted");
    // The owner is the wallet of an agent that somebody else owns now.
    let buyer = signer(4).address();
    let holders = Holders { owner: buyer, wallet: Some(signer(2).address()) };
    let sold = TrustProfile { holders, ..profile(buyer, STAKES[3]) };
    *scene.chain.profile.lock() = Reported::Is(Some(Arc::new(sold)));
    assert_eq!(scene.verdict(&owners).await, "admitted");
}

#[tokio::test]
async fn a_wallets_key_ends_where_wallets_may_not_sign_any_more() {
    let scene = scene(SignatureFormat::Keys, false, true);
    // Made while they might.
    let key = scene.key(None).await;
    assert_eq!(scene.verdict(&key).await, "401 key");
}

/// A read that this signer signs.
fn read(number: u8, agent: AgentId, at: u64) -> ProfileRead {
    let signed_at = UnixSeconds(at);
    let digest = domain().profile_digest(agent, signed_at);
    let signature = SignatureBytes::from_bytes(signer(number).sign_hash_sync(&digest).unwrap().as_bytes());
    ProfileRead { agent, signed_at, signature }
}

async fn ask(scene: &Scene, number: u8) -> Result<OwnerProfile, Error> {
    ask_from(scene, client(1), number).await
}

async fn ask_from(scene: &Scene, client: ClientNet, number: u8) -> Result<OwnerProfile, Error> {
    let now = scene.clock.unix_seconds();
    scene.pipeline.owner_profile(client, &read(number, agent(7), now), &scene.access.tiers).await
}

fn own(scene: &Scene, owner: Address) {
    *scene.chain.owner.lock() = Reported::Is(Some(owner));
}

#[tokio::test]
async fn timestamp_then_owner_then_signer_then_profile_then_key() {
    let scene = Scene::new();
    *scene.chain.owner.lock() = Reported::Down;
    for at in [START_SECS - 301, START_SECS + 61] {
        let refused =
            scene.pipeline.owner_profile(client(1), &read(2, agent(7), at), &scene.access.tiers).await;
        assert_eq!(verdict(&refused), "400 replay");
    }
    let nobody =
        scene.pipeline.owner_profile(client(1), &read(1, agent(0), START_SECS), &scene.access.tiers).await;
    assert_eq!(verdict(&nobody), "404");
    assert_eq!(scene.chain.all_calls(), 0, "neither costs a call");
    assert_eq!(verdict(&ask(&scene, 2).await), "503");
    *scene.chain.owner.lock() = Reported::Is(None);
    assert_eq!(verdict(&ask(&scene, 2).await), "404");
    own(&scene, signer(1).address());
    assert_eq!(verdict(&ask(&scene, 2).await), "401 signature");
    *scene.chain.profile.lock() = Reported::Down;
    assert_eq!(verdict(&ask(&scene, 1).await), "503");
    scene.stake(0);
    *scene.store.broken.lock() = Some("status");
    assert_eq!(verdict(&ask(&scene, 1).await), "500 store");
    *scene.store.broken.lock() = None;
    let shown = ask(&scene, 1).await.unwrap();
    assert_eq!((shown.agent(), shown.grade.tier.number(), shown.keys), (agent(7), 0, Vec::new()));
    scene.key(None).await;
    assert_eq!(ask(&scene, 1).await.unwrap().keys.len(), 1);
}

// threat: A profile for strangers, or its signature spent on a key
#[tokio::test]
async fn an_owner_who_sold_between_the_two_reads_sees_nothing() {
    let scene = Scene::new();
    let sold = Arc::new(profile(signer(2).address(), STAKES[3]));
    *scene.chain.profile.lock() = Reported::Is(Some(Arc::clone(&sold)));
    *scene.chain.latest.lock() = Reported::Is(Some(sold));
    assert_eq!(verdict(&ask(&scene, 1).await), "401 signature");
}

#[tokio::test]
async fn sixty_reads_a_minute_for_each_client_and_agent_and_then_no_call() {
    let scene = Scene::new();
    let now = START_SECS;
    for _ in 0..100 {
        assert_eq!(verdict(&ask(&scene, 2).await), "401 signature", "strangers use nothing up");
    }
    *scene.store.broken.lock() = Some("status");
    for _ in 0..100 {
        assert_eq!(verdict(&ask(&scene, 1).await), "500 store", "nor do faults");
    }
    *scene.store.broken.lock() = None;
    for left in (0..READS.limit).rev() {
        let allowance = ask(&scene, 1).await.unwrap().allowance;
        assert_eq!((allowance.limit, allowance.remaining), (60, left));
        scene.clock.advance_micros(1_003);
    }
    let before = (scene.chain.all_calls(), scene.store.calls("status"));
    let refused = ask(&scene, 1).await;
    assert_eq!(verdict(&refused), "429");
    assert_eq!((scene.chain.all_calls(), scene.store.calls("status")), before, "a full window costs no call");
    assert_eq!(verdict(&ask_from(&scene, client(2), 1).await), "admitted", "another client");
    let other = scene.pipeline.owner_profile(client(1), &read(1, agent(8), now), &scene.access.tiers).await;
    assert_eq!(verdict(&other), "admitted", "another agent");
    let secs = retry_after(refused);
    scene.clock.advance_secs(secs - 1);
    assert_eq!(retry_after(ask(&scene, 1).await), 1);
    scene.clock.advance_secs(1);
    assert_eq!(verdict(&ask(&scene, 1).await), "admitted");
}

#[tokio::test]
async fn a_read_charges_neither_the_agents_window_nor_key_management() {
    let scene = Scene::new();
    for _ in 0..READS.limit {
        ask(&scene, 1).await.unwrap();
    }
    let permit = scene.admit(&Credential::Signature(scene.signed())).await.unwrap();
    assert_eq!(permit.allowance().remaining, 1, "of two");
    let status = scene.pipeline.key_status(client(1), agent(7)).await.unwrap();
    assert_eq!(status.allowance.remaining, 10);
}

#[tokio::test]
async fn a_client_over_its_budget_of_refused_credentials_reads_nothing_unless_it_is_vouched_for() {
    let scene = Scene::with(SignatureFormat::Keys, Some(Quota::per_minute(3)));
    for _ in 0..3 {
        assert_eq!(verdict(&ask(&scene, 2).await), "401 signature");
    }
    let before = scene.chain.all_calls();
    assert_eq!(verdict(&ask(&scene, 2).await), "429");
    assert_eq!(verdict(&ask(&scene, 1).await), "429");
    assert_eq!(scene.chain.all_calls(), before);
    *scene.chain.last_owner.lock() = Some(signer(1).address());
    assert_eq!(verdict(&ask(&scene, 1).await), "admitted");
}

#[tokio::test]
async fn idle_readers_are_forgotten() {
    let scene = Scene::new();
    ask(&scene, 1).await.unwrap();
    assert_eq!(scene.pipeline.profile_reads.len(), 1);
    scene.clock.advance_secs(61);
    scene.pipeline.sweep();
    assert_eq!(scene.pipeline.profile_reads.len(), 0);
}
