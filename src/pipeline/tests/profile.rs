//! Reads of a profile by its owner: who may, how often, and at which cost.

use std::sync::Arc;

use alloy::primitives::Address;
use alloy::signers::SignerSync;

use super::{
    Reported, STAKES, START_SECS, Scene, agent, client, domain, profile, retry_after, signer, verdict,
};
use crate::domain::{AgentId, ClientNet, Quota, SignatureBytes, SignatureFormat, UnixSeconds};
use crate::error::Error;
use crate::pipeline::credential::{Credential, ProfileRead};
use crate::pipeline::profile::{OwnerProfile, READS};
use crate::ports::Clock;

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
