//! Key management: the order of its checks, and which requests count against which budget.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use futures_util::future::join_all;
use tokio::sync::Semaphore;

use super::{Reported, START_SECS, Scene, agent, client, retry_after, signer, unknown_key, verdict};
use crate::domain::{AgentId, KeyName, Quota, SignatureFormat};
use crate::pipeline::custody::{KeyOrder, KeyWish, Recorder};
use crate::pipeline::{Credential, SignedRequest};
use crate::pipeline::{failures::OWNERS_MAX, owner::Signatory};
use crate::ports::{Clock, Store};

async fn generate(scene: &Scene, signed: &SignedRequest) -> &'static str {
    verdict(&scene.pipeline.make_key(scene.order(signed.clone()), KeyWish::default(), false).await)
}

async fn left(scene: &Scene) -> u32 {
    scene.pipeline.key_status(client(1), agent(7)).await.unwrap().allowance.remaining
}

async fn rotate(scene: &Scene, signed: SignedRequest) -> &'static str {
    verdict(&scene.pipeline.make_key(scene.order(signed), KeyWish::default(), true).await)
}

async fn revoke(scene: &Scene, signed: SignedRequest) -> &'static str {
    verdict(&scene.pipeline.revoke_key(scene.order(signed), None).await)
}

/// A request for agent 7 by a stranger.
fn unproven(scene: &Scene) -> SignedRequest {
    scene.signed_by(&signer(2), agent(7), scene.clock.unix_seconds())
}

#[tokio::test]
async fn window_then_owner_then_signer_then_budget_then_nonce_then_key() {
    let scene = Scene::new();
    let used = scene.signed();
    assert_eq!(generate(&scene, &used).await, "admitted");

    *scene.chain.owner.lock() = Reported::Down;
    let before = scene.chain.all_calls();
    for at in [START_SECS - 301, START_SECS + 61] {
        let stale = scene.signed_by(&signer(2), agent(7), at);
        assert_eq!(generate(&scene, &stale).await, "400 replay");
    }
    assert_eq!(scene.chain.all_calls(), before, "a stale request costs no call");
    let foreign = SignedRequest { signature: scene.signed().signature, ..used.clone() };
    assert_eq!(generate(&scene, &foreign).await, "503");
    *scene.chain.owner.lock() = Reported::Is(None);
    assert_eq!(generate(&scene, &foreign).await, "404");
    *scene.chain.owner.lock() = Reported::Is(Some(signer(1).address()));
    assert_eq!(generate(&scene, &foreign).await, "401 signature", "before the nonce");
    assert_eq!(generate(&scene, &used).await, "400 replay", "before the key that exists");
    assert_eq!(generate(&scene, &scene.signed()).await, "409");
    assert_eq!(left(&scene).await, 10 - 2, "the owner's, but for the replay");

    for _ in 0..8 {
        assert_eq!(generate(&scene, &scene.signed()).await, "409");
    }
    assert_eq!(generate(&scene, &used).await, "429", "before the nonce");
    assert_eq!(generate(&scene, &foreign).await, "401 signature", "before the budget");
    assert_eq!(left(&scene).await, 0);
}

#[tokio::test]
async fn every_proven_request_counts_unless_a_fault_of_ours_ends_it() {
    let scene = Scene::new();
    assert_eq!(rotate(&scene, scene.signed()).await, "admitted");
    assert_eq!(left(&scene).await, 9);
    assert_eq!(generate(&scene, &scene.signed()).await, "409");
    assert_eq!(left(&scene).await, 8);
    *scene.store.broken.lock() = Some("change_key");
    assert_eq!(generate(&scene, &scene.signed()).await, "500 store");
    *scene.store.broken.lock() = None;
    assert_eq!(revoke(&scene, scene.signed()).await, "admitted");
    assert_eq!(left(&scene).await, 7);
    let other_agent = scene.pipeline.key_status(client(1), agent(8)).await.unwrap();
    let other_client = scene.pipeline.key_status(client(2), agent(7)).await.unwrap();
    assert_eq!((other_agent.allowance.remaining, other_client.allowance.remaining), (10, 10));
}

// threat: A used signature is sent again
#[tokio::test]
async fn a_replay_of_a_used_signature_spends_no_budget_of_the_owner_and_is_429_after_ten_an_hour() {
    let scene = Scene::new();
    let (rotated, revoked) = (scene.signed(), scene.signed());
    assert_eq!(rotate(&scene, rotated.clone()).await, "admitted");
    assert_eq!(revoke(&scene, revoked.clone()).await, "admitted");
    for expected in [["400 replay"; 2]; 5].into_iter().chain([["429"; 2]; 10]) {
        let replayed = [rotate(&scene, revoked.clone()).await, revoke(&scene, rotated.clone()).await];
        assert_eq!((replayed, left(&scene).await), (expected, 8));
    }
    for _ in 0..8 {
        assert_eq!(rotate(&scene, scene.signed()).await, "admitted");
    }
    for _ in 0..9 {
        assert_eq!(revoke(&scene, scene.signed()).await, "admitted");
    }
    assert_eq!(revoke(&scene, scene.signed()).await, "429");
}

/// Counts the lines that were begun.
#[derive(Default)]
struct CountedLog(AtomicUsize);

#[async_trait]
impl Recorder for CountedLog {
    async fn begin(&self, _: AgentId, _: Signatory, _: Option<&KeyName>) -> Result<(), String> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

// threat: A used signature is sent again
#[tokio::test]
async fn a_signature_that_is_sent_again_and_again_gets_to_the_audit_and_the_store_once_more() {
    let (scene, log) = (Scene::new(), CountedLog::default());
    let used = scene.signed();
    let send = async |client_number| {
        let by = OnceLock::new();
        let order = KeyOrder {
            client: client(client_number),
            by: &by,
            recorder: Some(&log),
            ..scene.order(used.clone())
        };
        (verdict(&scene.pipeline.make_key(order, KeyWish::default(), true).await), by.get().is_some())
    };
    assert_eq!(send(1).await, ("admitted", true));
    assert_eq!(send(2).await, ("400 replay", true));
    for number in 3..30 {
        assert_eq!(send(number).await, ("400 replay", false), "nobody's line in the audit is the owner's");
    }
    assert_eq!(log.0.load(Ordering::SeqCst), 2);
}

/// A line of the audit log can't be written.
struct FullLog;

#[async_trait]
impl Recorder for FullLog {
    async fn begin(&self, _: AgentId, _: Signatory, _: Option<&KeyName>) -> Result<(), String> {
        Err("disk full".to_owned())
    }
}

// threat: A fault spends an owner's budget
#[tokio::test]
async fn faults_of_store_log_and_randomness_spend_no_budget_of_the_owner() {
    let scene = Scene::new();
    for _ in 0..3 {
        assert_eq!(rotate(&scene, scene.signed()).await, "admitted");
    }
    for _ in 0..12 {
        *scene.store.broken.lock() = Some("change_key");
        assert_eq!(revoke(&scene, scene.signed()).await, "500 store");
        assert_eq!(rotate(&scene, scene.signed()).await, "500 store");
        *scene.store.broken.lock() = None;
        let unrecorded = || KeyOrder { recorder: Some(&FullLog), ..scene.order(scene.signed()) };
        assert_eq!(verdict(&scene.pipeline.revoke_key(unrecorded(), None).await), "500 unrecorded");
        assert_eq!(
            verdict(&scene.pipeline.make_key(unrecorded(), KeyWish::default(), true).await),
            "500 unrecorded"
        );
        scene.entropy.is_empty.store(true, Ordering::SeqCst);
        assert_eq!(rotate(&scene, scene.signed()).await, "500 entropy");
        scene.entropy.is_empty.store(false, Ordering::SeqCst);
        assert_eq!(left(&scene).await, 7);
    }
    for _ in 0..7 {
        assert_eq!(rotate(&scene, scene.signed()).await, "admitted");
    }
    assert_eq!(rotate(&scene, scene.signed()).await, "429");
    // Over the other budget a revocation counts against its own alone, and takes nothing back of the other.
    *scene.store.broken.lock() = Some("change_key");
    for _ in 0..12 {
        assert_eq!(revoke(&scene, scene.signed()).await, "500 store");
    }
    *scene.store.broken.lock() = None;
    assert_eq!(rotate(&scene, scene.signed()).await, "429");
    for _ in 0..10 {
        assert_eq!(revoke(&scene, scene.signed()).await, "admitted");
    }
    assert_eq!(revoke(&scene, scene.signed()).await, "429");
}

// threat: An owner is kept from revoking
#[tokio::test]
async fn requests_that_prove_nothing_are_429_after_ten_an_hour_and_spend_nothing_of_the_owners() {
    let scene = Scene::new();
    for _ in 0..4 {
        assert_eq!(rotate(&scene, unproven(&scene)).await, "401 signature");
        assert_eq!(revoke(&scene, unproven(&scene)).await, "401 signature");
    }
    assert_eq!(generate(&scene, &scene.signed_by(&signer(2), agent(7), 0)).await, "400 replay");
    *scene.chain.owner.lock() = Reported::Down;
    assert_eq!(rotate(&scene, unproven(&scene)).await, "503", "this may have been the owner");
    *scene.chain.owner.lock() = Reported::Is(Some(signer(1).address()));
    assert_eq!(rotate(&scene, unproven(&scene)).await, "401 signature");
    for _ in 0..3 {
        assert_eq!(rotate(&scene, unproven(&scene)).await, "429");
        assert_eq!(revoke(&scene, unproven(&scene)).await, "429");
    }
    assert_eq!((scene.store.calls("charge"), left(&scene).await), (0, 10));
    assert_eq!(revoke(&scene, scene.signed()).await, "admitted");
    assert_eq!(rotate(&scene, scene.signed()).await, "admitted");
    let elsewhere = KeyOrder { client: client(2), ..scene.order(unproven(&scene)) };
    assert_eq!(verdict(&scene.pipeline.revoke_key(elsewhere, None).await), "401 signature", "another client");
    scene.clock.advance_secs(3_600);
    assert_eq!(rotate(&scene, unproven(&scene)).await, "401 signature");
    scene.clock.advance_secs(3_600);
    scene.pipeline.sweep();
    assert_eq!(scene.pipeline.unproven.len(), 0);
}

// threat: An owner is kept from revoking
#[tokio::test]
async fn ten_other_changes_keep_no_owner_from_revoking_and_the_eleventh_revocation_is_429() {
    let scene = Scene::new();
    for _ in 0..10 {
        assert_eq!(rotate(&scene, scene.signed()).await, "admitted");
    }
    assert_eq!(rotate(&scene, scene.signed()).await, "429");
    for _ in 0..10 {
        let revoked = scene.pipeline.revoke_key(scene.order(scene.signed()), None).await.unwrap();
        assert_eq!(revoked.remaining, 0);
    }
    assert_eq!(retry_after(scene.pipeline.revoke_key(scene.order(scene.signed()), None).await), 3_600);
    scene.clock.advance_secs(3_600);
    for remaining in (0..10).rev() {
        let revoked = scene.pipeline.revoke_key(scene.order(scene.signed()), None).await.unwrap();
        assert_eq!(revoked.remaining, remaining);
    }
    for refused in [revoke(&scene, scene.signed()).await, rotate(&scene, scene.signed()).await] {
        assert_eq!(refused, "429", "revocations count against both budgets");
    }
}

/// A scene whose client has spent its budget of refused credentials, and whose agent's owner was never seen.
async fn spent(format: SignatureFormat) -> Scene {
    let scene = Scene::with(format, Some(Quota::per_minute(3)));
    for _ in 0..3 {
        assert_eq!(scene.verdict(&unknown_key()).await, "401 key");
    }
    scene
}

// threat: An owner is kept from revoking
#[tokio::test]
async fn a_client_over_its_budget_of_refused_credentials_keeps_no_owner_behind_it_from_revoking() {
    for format in [SignatureFormat::Keys, SignatureFormat::Contracts] {
        let scene = spent(format).await;
        assert_eq!(revoke(&scene, unproven(&scene)).await, "429");
        assert_eq!(rotate(&scene, scene.signed()).await, "429");
        assert_eq!(scene.chain.all_calls(), 1, "one read");
        let refused = [
            scene.signed_by(&signer(1), agent(7), 0),
            scene.signed_by(&signer(1), agent(0), scene.clock.unix_seconds()),
        ];
        for refused in refused {
            assert_eq!(revoke(&scene, refused).await, "429");
        }
        assert_eq!(
            (scene.chain.all_calls(), scene.chain.calls("ask_holders")),
            (1, 0),
            "no read, no contract"
        );
        let signed = scene.signed();
        assert_eq!(revoke(&scene, signed.clone()).await, "admitted");
        assert_eq!(revoke(&scene, signed).await, "400 replay");
        *scene.chain.owner.lock() = Reported::Is(None);
        assert_eq!(revoke(&scene, scene.signed()).await, "429");
        *scene.chain.owner.lock() = Reported::Down;
        assert_eq!(revoke(&scene, scene.signed()).await, "503");
    }
}

// threat: An owner is kept from revoking
#[tokio::test]
async fn a_flood_of_revocations_over_budget_reads_few_owners_at_once_and_the_owner_in_it_passes() {
    let scene = spent(SignatureFormat::Keys).await;
    let gate = Arc::new(Semaphore::new(0));
    *scene.chain.gate.lock() = Some(Arc::clone(&gate));
    let flood = join_all((0..300).map(|at| {
        let signed = if at == 200 { scene.signed() } else { unproven(&scene) };
        revoke(&scene, signed)
    }));
    let release = async {
        assert_eq!(scene.chain.calls("holders"), OWNERS_MAX);
        gate.add_permits(1_000);
    };
    let (verdicts, ()) = tokio::join!(biased; flood, release);
    let expected = |at: usize| if at == 200 { "admitted" } else { "429" };
    assert!(verdicts.iter().enumerate().all(|(at, verdict)| *verdict == expected(at)), "{verdicts:?}");
}

#[tokio::test]
async fn a_refused_order_keeps_its_nonce() {
    let scene = Scene::new();
    let signed = scene.signed();
    *scene.chain.owner.lock() = Reported::Down;
    assert_eq!(generate(&scene, &signed).await, "503");
    *scene.chain.owner.lock() = Reported::Is(Some(signer(1).address()));
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
    assert_eq!(verdict(&scene.pipeline.revoke_key(scene.order(exists), None).await), "400 replay");
}

#[tokio::test]
async fn keys_are_made_until_one_fits_the_store() {
    let scene = Scene::new();
    let before = scene.entropy.next.load(Ordering::SeqCst);
    for _ in 0..10 {
        let issued =
            scene.pipeline.make_key(scene.order(scene.signed()), KeyWish::default(), true).await.unwrap();
        assert!(scene.store.fits(issued.agent, &issued.key.digest()));
    }
    assert!(scene.entropy.next.load(Ordering::SeqCst) > before + 10, "one in two fits");
}

#[tokio::test]
async fn a_client_that_waits_as_long_as_told_may_ask_for_the_state_of_keys_again() {
    let scene = Scene::with(SignatureFormat::Keys, Some(Quota::per_minute(2)));
    let ask = async |from| scene.pipeline.key_status(client(from), agent(7)).await;
    *scene.store.broken.lock() = Some("status");
    let told = [ask(3).await, ask(3).await, ask(3).await].map(|outcome| verdict(&outcome));
    assert_eq!(told, ["500 store", "500 store", "429"], "a store that fails is asked no more often");
    *scene.store.broken.lock() = None;
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
