//! Keys and their terms: several of one agent, and those that end with whoever signed for them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use alloy::primitives::U256;
use alloy::signers::local::PrivateKeySigner;

use super::{Reported, STAKES, Scene, agent, profile, signer, verdict};
use crate::domain::{Denial, KeyDigest, KeyName, KeyTerms, Quota, SignatureFormat, TenantList, TrustProfile};
use crate::error::Error;
use crate::pipeline::standing::{REREAD_KEYS_MAX, REREADS};
use crate::pipeline::{Credential, custody::KeyWish};
use crate::ports::{Asker, Clock, Scope};

fn several(keys_end_with_signer: bool) -> Scene {
    Scene::under(SignatureFormat::Keys, None, |rules| {
        (rules.keys_per_agent_max, rules.keys_end_with_signer) = (3, keys_end_with_signer);
    })
}

fn wish(name: &str, change: impl FnOnce(&mut KeyTerms)) -> KeyWish {
    let mut terms = KeyTerms { name: KeyName::parse(name).ok(), ..KeyTerms::default() };
    change(&mut terms);
    KeyWish { terms, ..KeyWish::default() }
}

impl Scene {
    async fn generated(&self, wish: KeyWish) -> Credential {
        let issued = self.pipeline.make_key(self.order(self.signed()), wish, false).await.unwrap();
        Credential::Key { digest: issued.key.digest(), named: None }
    }
}

// threat: A key of one tenant opens another
#[tokio::test]
async fn a_key_for_one_tenant_is_unknown_at_every_other_and_at_the_api() {
    let mut scene = several(false);
    let tenants = TenantList::parse(["acme"]).ok();
    let one = scene.generated(wish("acme", |terms| terms.tenants = tenants)).await;
    let all = scene.generated(wish("all", |_| {})).await;
    for (scope, expected) in [
        (Scope::Api, "401 key"),
        (Scope::Tenant("acme".into()), "admitted"),
        (Scope::Tenant("other".into()), "401 key"),
    ] {
        scene.access.scope = scope;
        assert_eq!((scene.verdict(&one).await, scene.verdict(&all).await), (expected, "admitted"));
    }
}

// threat: A seller keeps the agent's key
#[tokio::test]
async fn each_key_ends_with_its_own_signer_and_the_buyers_go_on() {
    let scene = several(true);
    let sellers = [scene.generated(wish("a", |_| {})).await, scene.generated(wish("b", |_| {})).await];
    let buyer = signer(2).address();
    *scene.chain.owner.lock() = Reported::Is(Some(buyer));
    let sold = Arc::new(profile(buyer, STAKES[3]));
    *scene.chain.profile.lock() = Reported::Is(Some(Arc::clone(&sold)));
    *scene.chain.latest.lock() = Reported::Is(Some(sold));
    let signed = scene.signed_by(&signer(2), agent(7), scene.clock.unix_seconds());
    let issued = scene.pipeline.make_key(scene.order(signed), wish("c", |_| {}), false).await.unwrap();
    for key in &sellers {
        assert_eq!(scene.verdict(key).await, "401 key");
    }
    let key = Credential::Key { digest: issued.key.digest(), named: None };
    assert_eq!(scene.verdict(&key).await, "admitted");
}

// threat: A replaced key outlives its grace
#[tokio::test]
async fn a_key_with_an_end_or_in_its_grace_passes_to_the_last_second_and_is_401_from_then_on() {
    let scene = several(false);
    let ending = scene.generated(wish("ends", |terms| terms.expires_in_secs = Some(60))).await;
    let replaced = scene.generated(wish("app", |_| {})).await;
    let rotated = scene.pipeline.make_key(
        scene.order(scene.signed()),
        wish("app", |terms| terms.grace_secs = 60),
        true,
    );
    let rotated = rotated.await.unwrap().key.digest();
    scene.clock.advance_secs(59);
    for key in [&ending, &replaced] {
        assert_eq!(scene.verdict(key).await, "admitted");
    }
    scene.clock.advance_secs(1);
    scene.stake(0);
    for key in [&ending, &replaced, &Credential::Key { digest: KeyDigest::from_bytes([9; 32]), named: None }]
    {
        assert_eq!(scene.verdict(key).await, "401 key", "also where the agent would be refused");
    }
    scene.stake(STAKES[3]);
    assert_eq!(scene.verdict(&Credential::Key { digest: rotated, named: None }).await, "admitted");
    let more = scene.pipeline.make_key(scene.order(scene.signed()), wish("app", |_| {}), false).await;
    assert_eq!(verdict(&more), "409");
}

fn scene(keys_end_with_signer: bool) -> Scene {
    Scene::under(SignatureFormat::Keys, None, |rules| rules.keys_end_with_signer = keys_end_with_signer)
}

impl Scene {
    /// The chain says that the agent is this signer's now, and the cached profile that it is another's.
    fn sold(&self, cached: &PrivateKeySigner, now: &PrivateKeySigner) {
        let of =
            |signer: &PrivateKeySigner| Reported::Is(Some(Arc::new(profile(signer.address(), STAKES[0]))));
        *self.chain.profile.lock() = of(cached);
        *self.chain.latest.lock() = of(now);
        *self.chain.owner.lock() = Reported::Is(Some(now.address()));
    }

    /// A key that this signer makes.
    pub(super) async fn made_by(&self, signer: &PrivateKeySigner) -> Credential {
        let signed = self.signed_by(signer, agent(7), super::START_SECS);
        let issued = self.pipeline.make_key(self.order(signed), KeyWish::default(), true).await.unwrap();
        Credential::Key { digest: issued.key.digest(), named: Some(agent(7)) }
    }

    fn reads(&self) -> usize {
        self.chain.calls("latest_profile")
    }

    /// How often it was asked who holds the agent.
    fn looks(&self) -> usize {
        self.chain.calls("holders")
    }
}

// threat: A seller keeps the agent's key
#[tokio::test]
async fn a_key_ends_when_its_signer_no_longer_holds_the_agent_and_costs_a_look_a_minute_at_most() {
    let scene = scene(true);
    let (seller, buyer) = (signer(1), signer(2));
    let key = scene.made_by(&seller).await;
    let made = scene.looks();
    assert_eq!((scene.verdict(&key).await, scene.looks() - made), ("admitted", 0));
    scene.sold(&buyer, &buyer);
    for _ in 0..3 {
        let refused = scene.admit(&key).await;
        let Err(Error::Denied(denial)) = &refused else { panic!("{}", verdict(&refused)) };
        assert_eq!(*denial, Denial::InvalidApiKey { agent: Some(agent(7)) });
        assert_eq!(scene.looks() - made, 1);
    }
    scene.clock.advance_secs(60);
    assert_eq!((scene.verdict(&key).await, scene.looks() - made), ("401 key", 2));
    // Of no stake either, it learns nothing of that.
    *scene.chain.profile.lock() = Reported::Is(Some(Arc::new(profile(buyer.address(), 0))));
    assert_eq!(scene.verdict(&key).await, "401 key");
    // It is the seller's key as long as it is the seller's agent.
    scene.sold(&seller, &seller);
    assert_eq!((scene.verdict(&key).await, scene.looks() - made), ("admitted", 2));
    assert_eq!(scene.reads(), 0, "no profile is read for a key that has ended");
}

#[tokio::test]
async fn without_the_setting_a_key_outlives_the_sale_of_its_agent() {
    let scene = scene(false);
    let key = scene.made_by(&signer(1)).await;
    scene.sold(&signer(2), &signer(2));
    let permit = scene.admit(&key).await.unwrap();
    assert_eq!((permit.profile().holders.owner, scene.reads()), (signer(2).address(), 0));
}

#[tokio::test]
async fn a_buyers_key_counts_at_once_also_where_the_cached_profile_is_the_sellers() {
    let scene = scene(true);
    let (seller, buyer) = (signer(1), signer(2));
    let old = scene.made_by(&seller).await;
    scene.sold(&seller, &buyer);
    assert_eq!(scene.verdict(&old).await, "admitted", "as fresh as the profile is");
    let new = scene.made_by(&buyer).await;
    let permit = scene.admit(&new).await.unwrap();
    assert_eq!((permit.profile().holders.owner, scene.reads()), (buyer.address(), 1));
    assert!(!scene.chain.askers.lock().contains(&Asker::Vouched), "a look is a stranger's");
    assert_eq!(scene.verdict(&old).await, "401 key");
    // Sold again between the look and the read of the profile.
    scene.sold(&seller, &buyer);
    *scene.chain.latest.lock() = Reported::Is(Some(Arc::new(profile(seller.address(), STAKES[0]))));
    scene.clock.advance_secs(60);
    assert_eq!(scene.verdict(&new).await, "401 key");
}

#[tokio::test]
async fn a_key_that_may_have_ended_is_503_as_long_as_the_chain_is_down_and_no_other_key_is() {
    let scene = scene(true);
    let key = scene.made_by(&signer(1)).await;
    *scene.chain.latest.lock() = Reported::Down;
    assert_eq!(scene.verdict(&key).await, "admitted");
    *scene.chain.profile.lock() = Reported::Is(Some(Arc::new(profile(signer(2).address(), STAKES[0]))));
    *scene.chain.owner.lock() = Reported::Down;
    for _ in 0..3 {
        assert_eq!(scene.verdict(&key).await, "503");
    }
    // Its agent was sold, and the buyer's answer was late.
    *scene.chain.owner.lock() = Reported::Is(Some(signer(2).address()));
    assert_eq!(scene.verdict(&key).await, "401 key");
}

#[tokio::test]
async fn a_key_has_ended_where_the_agents_details_can_not_be_read_too() {
    let scene = scene(true);
    let (seller, buyer) = (signer(1), signer(2));
    let key = scene.made_by(&seller).await;
    for (holder, expected) in [(&seller, "503"), (&buyer, "401 key")] {
        scene.sold(holder, holder);
        let bare = TrustProfile { details: None, ..profile(holder.address(), STAKES[0]) };
        *scene.chain.profile.lock() = Reported::Is(Some(Arc::new(bare.clone())));
        *scene.chain.latest.lock() = Reported::Is(Some(Arc::new(bare)));
        assert_eq!(scene.verdict(&key).await, expected);
    }
}

// threat: A seller keeps the agent's key
#[tokio::test]
async fn a_key_of_nobody_known_is_refused_with_the_setting_and_admitted_without() {
    for (ends, expected) in [(true, "401 key"), (false, "admitted")] {
        let scene = scene(ends);
        scene.store.knows_no_signers.store(true, Ordering::SeqCst);
        assert_eq!(scene.verdict(&scene.key(None).await).await, expected);
        scene.store.knows_no_signers.store(false, Ordering::SeqCst);
        assert_eq!(scene.verdict(&scene.made_by(&signer(1)).await).await, "admitted", "once it is replaced");
    }
}

#[tokio::test]
async fn keys_that_have_ended_are_remembered_within_bounds() {
    let scene = scene(true);
    for number in 0..3 * REREAD_KEYS_MAX {
        let digest = KeyDigest::from_bytes(U256::from(number).to_be_bytes());
        scene.pipeline.rereads.hit(&digest, REREADS, scene.pipeline.now());
    }
    assert!((1..=REREAD_KEYS_MAX).contains(&scene.pipeline.rereads.len()));
    scene.clock.advance_secs(120);
    scene.pipeline.sweep();
    assert_eq!(scene.pipeline.rereads.len(), 0);
}

#[tokio::test]
async fn keys_that_have_ended_cost_a_client_its_budget_of_refused_credentials_and_then_no_look() {
    let scene = Scene::under(SignatureFormat::Keys, Some(Quota::per_minute(2)), |rules| {
        rules.keys_end_with_signer = true;
    });
    let (seller, buyer) = (signer(1), signer(2));
    let first = scene.made_by(&seller).await;
    let made = scene.looks();
    scene.sold(&buyer, &buyer);
    for _ in 0..2 {
        assert_eq!(scene.verdict(&first).await, "401 key");
    }
    scene.clock.advance_secs(59);
    let looks = scene.looks() - made;
    for _ in 0..3 {
        assert_eq!(scene.verdict(&first).await, "401 key");
    }
    assert_eq!((looks, scene.looks() - made), (1, 1));
    // A look is due again, and other refused keys have used up the budget.
    scene.clock.advance_secs(1);
    let unknown = Credential::Key { digest: KeyDigest::from_bytes([9; 32]), named: None };
    for _ in 0..2 {
        assert_eq!(scene.verdict(&unknown).await, "401 key");
    }
    assert_eq!((scene.verdict(&first).await, scene.looks() - made), ("401 key", 1));
}
