//! Requests that are signed themselves: which accounts count, what is used up, and what strangers cost.

use std::sync::atomic::Ordering;

use alloy::primitives::{Address, B256};
use alloy::signers::SignerSync;

use super::order::forgetful;
use super::scripted::Reported;
use super::{STAKES, START_SECS, Scene, agent, client, profile, signer, verdict};
use crate::domain::{
    Denial, MessageRefusal, Nonce, NonceClaim, Quota, SignatureBytes, SignatureFormat, SignedMessage,
    UnixSeconds, fixture::wrapped,
};
use crate::error::Error;
use crate::pipeline::{Credential, SignedMessages};
use crate::ports::Asker;

/// A signature by this key that names this account.
fn message(key: u8, account: Address, nonce: &str) -> SignedMessage {
    let digest = B256::repeat_byte(9);
    SignedMessage {
        account,
        digest,
        signature: SignatureBytes::of_message(&signer(key).sign_hash_sync(&digest).unwrap().as_bytes())
            .unwrap(),
        claim: NonceClaim {
            nonce: Nonce::of_message(&account.to_string(), nonce),
            signed_at: UnixSeconds(START_SECS),
        },
    }
}

fn by(key: u8, nonce: &str) -> SignedMessage {
    message(key, signer(key).address(), nonce)
}

fn all(messages: Vec<SignedMessage>) -> Credential {
    Credential::Messages(SignedMessages { agent: agent(7), messages, first_refusal: None })
}

fn one(message: SignedMessage) -> Credential {
    all(vec![message])
}

#[tokio::test]
async fn the_owners_signature_counts_once_and_nobody_elses() {
    let scene = Scene::new();
    assert_eq!(scene.verdict(&one(by(2, "a"))).await, "principal_not_allowed");
    assert_eq!(scene.verdict(&one(message(2, signer(1).address(), "a"))).await, "bad_signature");
    assert_eq!(scene.verdict(&one(by(1, "a"))).await, "admitted", "a refused one uses up nothing");
    assert_eq!(scene.verdict(&one(by(1, "a"))).await, "nonce_reused");
    *scene.chain.owner.lock() = Reported::Is(None);
    assert_eq!(scene.verdict(&one(by(1, "b"))).await, "404");
    *scene.chain.owner.lock() = Reported::Down;
    assert_eq!(scene.verdict(&one(by(1, "b"))).await, "503 unverified");
}

#[tokio::test]
async fn a_wallet_of_the_agent_signs_for_it_where_it_is_heard() {
    for (is_heard, expected) in [(true, "admitted"), (false, "principal_not_allowed")] {
        let scene = Scene::under(SignatureFormat::Keys, None, |rules| rules.agent_wallet = is_heard);
        *scene.chain.wallet.lock() = Some(signer(3).address());
        let mut known = profile(signer(1).address(), STAKES[0]);
        known.holders.wallet = Some(signer(3).address());
        *scene.chain.profile.lock() = Reported::Is(Some(known.into()));
        assert_eq!(scene.verdict(&one(by(3, "a"))).await, expected);
        assert_eq!(scene.verdict(&one(by(2, "a"))).await, "principal_not_allowed");
    }
}

#[tokio::test]
async fn an_account_with_code_is_asked_and_its_key_counts_for_nothing() {
    for (format, without, with) in [
        (SignatureFormat::Keys, "unsupported_account", "unsupported_account"),
        (SignatureFormat::Contracts, "bad_signature", "admitted"),
    ] {
        let scene = Scene::with(format, None);
        scene.chain.has_code.store(true, Ordering::SeqCst);
        assert_eq!(scene.verdict(&one(by(1, "a"))).await, without, "an EIP-7702 account has a key");
        scene.chain.accepts.store(true, Ordering::SeqCst);
        let opaque =
            SignedMessage { signature: SignatureBytes::of_message(&[1; 8_192]).unwrap(), ..by(1, "a") };
        assert_eq!(scene.verdict(&one(opaque)).await, with);
    }
}

#[tokio::test]
async fn a_wrapped_signature_counts_where_its_account_has_code_and_is_unsupported_elsewhere() {
    let signature = SignatureBytes::of_message(&wrapped(&[1; 65])).unwrap();
    let message = || one(SignedMessage { signature: signature.clone(), ..by(1, "a") });
    let scene = Scene::with(SignatureFormat::Contracts, None);
    assert_eq!(scene.verdict(&message()).await, "unsupported_account", "it is not deployed yet");
    scene.chain.has_code.store(true, Ordering::SeqCst);
    assert_eq!(scene.verdict(&message()).await, "bad_signature");
    scene.chain.accepts.store(true, Ordering::SeqCst);
    assert_eq!(scene.verdict(&message()).await, "admitted");
    let keys = Scene::with(SignatureFormat::Keys, None);
    assert_eq!(keys.verdict(&message()).await, "unsupported_account");
}

// threat: Bad signatures cause work
#[tokio::test]
async fn each_question_to_a_known_holders_contract_costs_its_client_too() {
    let scene = Scene::with(SignatureFormat::Contracts, Some(Quota::per_minute(2)));
    *scene.chain.last_owner.lock() = Some(signer(1).address());
    scene.chain.has_code.store(true, Ordering::SeqCst);
    for nonce in ["a", "b"] {
        assert_eq!(scene.verdict(&one(by(1, nonce))).await, "bad_signature");
    }
    assert_eq!(scene.verdict(&one(by(1, "c"))).await, "429");
    assert_eq!(scene.chain.calls("ask_holders"), 2);
}

#[tokio::test]
async fn a_keys_signature_has_one_form() {
    let scene = Scene::new();
    let right = by(1, "a");
    let bytes = right.signature.as_bytes().to_vec();
    let v = bytes[64];
    let low = [&bytes[..64], &[v - 27]].concat();
    let longer = [&bytes[..], &[0]].concat();
    for other in [&low[..], &longer] {
        let signature = SignatureBytes::of_message(other).unwrap();
        let message = SignedMessage { signature, ..right.clone() };
        assert_eq!(scene.verdict(&one(message)).await, "bad_signature", "{}", other.len());
    }
    assert_eq!(scene.verdict(&one(right)).await, "admitted");
}

#[tokio::test]
async fn a_later_good_signature_counts_and_only_its_nonce_is_used_up() {
    let scene = Scene::new();
    let [foreign, wrong] = [by(2, "a"), message(2, signer(1).address(), "b")];
    assert_eq!(scene.verdict(&all(vec![foreign.clone(), wrong.clone(), by(1, "c")])).await, "admitted");
    assert_eq!(scene.chain.calls("holders"), 1, "keys are judged by one read");
    assert_eq!(scene.verdict(&one(by(1, "b"))).await, "admitted");
    assert_eq!(scene.verdict(&all(vec![foreign, wrong])).await, "principal_not_allowed", "the first stands");
    let first_refusal = Some(MessageRefusal::InvalidTime);
    let signed = SignedMessages { agent: agent(7), messages: vec![by(2, "d")], first_refusal };
    assert_eq!(scene.verdict(&Credential::Messages(signed)).await, "invalid_time");
}

#[tokio::test]
async fn a_refusal_for_tier_or_limit_uses_up_no_nonce() {
    let scene = Scene::new();
    scene.stake(STAKES[0] - 1);
    assert_eq!(scene.verdict(&one(by(1, "a"))).await, "403");
    scene.stake(STAKES[0]);
    assert_eq!(scene.verdict(&one(by(1, "a"))).await, "admitted");
    scene.fill_window().await;
    assert_eq!(scene.verdict(&one(by(1, "b"))).await, "429");
    scene.clock.advance_secs(61);
    assert_eq!(scene.verdict(&one(by(1, "b"))).await, "admitted");
}

#[tokio::test]
async fn an_agent_that_is_sold_between_two_reads_is_no_longer_the_signers() {
    let scene = Scene::new();
    let sold = std::sync::Arc::new(profile(signer(2).address(), STAKES[0]));
    *scene.chain.profile.lock() = Reported::Is(Some(sold.clone()));
    *scene.chain.latest.lock() = Reported::Is(Some(sold));
    assert_eq!(scene.verdict(&one(by(1, "a"))).await, "principal_not_allowed");
}

#[tokio::test]
async fn strangers_pay_for_each_question_to_a_contract() {
    let scene = Scene::with(SignatureFormat::Contracts, Some(Quota::per_minute(4)));
    scene.chain.has_code.store(true, Ordering::SeqCst);
    let three = || all((0..3).map(|number| by(1, &number.to_string())).collect());
    assert_eq!(scene.verdict(&three()).await, "bad_signature");
    assert_eq!(scene.chain.calls("ask_holders"), 3);
    assert_eq!(scene.verdict(&three()).await, "429", "and the fourth is the last");
    assert_eq!(scene.chain.calls("ask_holders"), 4);
    let other = scene.admit_from(client(2), &three(), None).await;
    assert_eq!(verdict(&other), "bad_signature");
}

#[tokio::test]
async fn an_owner_that_was_seen_before_passes_beside_a_strangers_flood() {
    let scene = Scene::with(SignatureFormat::Keys, Some(Quota::per_minute(2)));
    for number in 0..2 {
        assert_eq!(scene.verdict(&one(by(2, &number.to_string()))).await, "principal_not_allowed");
    }
    assert_eq!(scene.verdict(&one(by(2, "2"))).await, "429");
    assert_eq!(scene.verdict(&one(by(1, "a"))).await, "429", "nobody knows this owner yet");
    *scene.chain.last_owner.lock() = Some(signer(1).address());
    let forged = message(2, signer(1).address(), "b");
    assert_eq!(scene.verdict(&one(forged)).await, "429", "its name alone is no proof");
    assert_eq!(scene.verdict(&one(by(1, "a"))).await, "admitted");
}

#[tokio::test]
async fn a_known_holders_key_is_read_apart_from_strangers_and_asks_no_contract() {
    for format in [SignatureFormat::Keys, SignatureFormat::Contracts] {
        let scene = Scene::with(format, Some(Quota::per_minute(2)));
        *scene.chain.last_owner.lock() = Some(signer(1).address());
        assert_eq!(scene.verdict(&one(by(1, "a"))).await, "admitted");
        assert_eq!(*scene.chain.askers.lock(), [Asker::Vouched], "{format:?}");
        assert_eq!(scene.chain.calls("ask_holders"), 0);
        // Whoever only names the account is a stranger, and pays.
        for nonce in ["b", "c"] {
            let forged = one(message(2, signer(1).address(), nonce));
            assert_eq!(scene.verdict(&forged).await, "bad_signature");
        }
        let vouched = scene.chain.askers.lock().iter().filter(|asker| **asker == Asker::Vouched).count();
        assert_eq!((vouched, scene.verdict(&one(by(2, "d"))).await), (1, "429"), "{format:?}");
        // Sold since: one read says so.
        *scene.chain.owner.lock() = Reported::Is(Some(signer(3).address()));
        assert_eq!(scene.verdict(&one(by(1, "e"))).await, "principal_not_allowed");
    }
}

#[tokio::test]
async fn a_known_holder_with_code_is_asked_as_a_strangers_contract_is() {
    let scene = Scene::with(SignatureFormat::Contracts, None);
    *scene.chain.last_owner.lock() = Some(signer(1).address());
    scene.chain.has_code.store(true, Ordering::SeqCst);
    assert_eq!(scene.verdict(&one(by(1, "a"))).await, "bad_signature", "its key counts for nothing");
    scene.chain.accepts.store(true, Ordering::SeqCst);
    assert_eq!(scene.verdict(&one(by(1, "a"))).await, "admitted");
    assert_eq!([scene.chain.calls("holders"), scene.chain.calls("ask_holders")], [2, 2]);
}

#[tokio::test]
async fn without_contracts_no_question_depends_on_the_signature() {
    let scene = Scene::new();
    let all_of = |nonces: [&str; 2]| all(nonces.map(|nonce| by(2, nonce)).into());
    assert_eq!(scene.verdict(&all_of(["a", "b"])).await, "principal_not_allowed");
    assert_eq!([scene.chain.calls("holders"), scene.chain.calls("ask_holders")], [1, 0]);
}

#[tokio::test]
async fn a_profile_that_cannot_be_read_is_no_doubt_about_the_signature() {
    let scene = Scene::new();
    *scene.chain.profile.lock() = Reported::Down;
    assert_eq!(scene.verdict(&one(by(1, "a"))).await, "503");
    *scene.chain.profile.lock() =
        Reported::Is(Some(std::sync::Arc::new(profile(signer(1).address(), STAKES[0]))));
    assert_eq!(scene.verdict(&one(by(1, "a"))).await, "admitted", "and its nonce is unused");
}

#[tokio::test]
async fn an_agent_that_the_registries_do_not_have_is_404_and_costs_no_read() {
    let scene = Scene::new();
    let signed = SignedMessages { agent: agent(0), messages: vec![by(1, "a")], first_refusal: None };
    assert_eq!(scene.verdict(&Credential::Messages(signed)).await, "404");
    assert_eq!(scene.chain.calls("ask_holders"), 0);
}

#[tokio::test]
async fn a_nonce_that_may_have_been_forgotten_is_to_be_made_anew_later_and_costs_no_budget() {
    let (scene, _) = forgetful(Some(Quota::per_minute(2))).await;
    *scene.chain.last_owner.lock() = Some(signer(1).address());
    for _ in 0..4 {
        let refused = scene.admit(&one(by(1, "a"))).await;
        let Err(Error::Denied(Denial::MessageRefused { refusal, retry_after, .. })) = refused else {
            panic!("{}", verdict(&refused));
        };
        assert_eq!(refusal.code(), "signature_verification_unavailable");
        assert_eq!(retry_after.map(|after| after.seconds()), Some(60));
    }
    assert_eq!(scene.pipeline.failing_clients(), 0);
}
