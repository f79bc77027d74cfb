//! Agents with a wallet of their own, which signs as their owner does where that is configured.

use std::sync::Arc;

use alloy::primitives::Address;
use alloy::signers::SignerSync;

use super::{Reported, STAKES, START_SECS, Scene, agent, profile, signer, verdict};
use crate::domain::{Holders, SignatureBytes, SignatureFormat, TrustProfile, UnixSeconds};
use crate::pipeline::credential::{Credential, ProfileRead};
use crate::pipeline::{custody::KeyWish, owner::Signatory};
use crate::ports::Asker;

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
        verdict(&self.pipeline.rotate_key(self.order(signed), KeyWish::default()).await)
    }

    async fn reads_as(&self, number: u8) -> &'static str {
        let (agent, signed_at) = (agent(7), UnixSeconds(START_SECS));
        let digest = super::domain().profile_digest(agent, signed_at);
        let signature =
            SignatureBytes::from_bytes(signer(number).sign_hash_sync(&digest).unwrap().as_bytes());
        let read = ProfileRead { agent, signed_at, signature };
        verdict(&self.pipeline.owner_profile(super::client(1), &read, &self.access.tiers).await)
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
