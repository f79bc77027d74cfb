//! Several keys of an agent, and their terms.

use std::sync::Arc;

use super::{Reported, STAKES, Scene, profile, signer, verdict};
use crate::domain::{KeyDigest, KeyName, KeyTerms, SignatureFormat, TenantList};
use crate::pipeline::{credential::Credential, custody::KeyWish};
use crate::ports::{Clock, Scope};

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
        let issued = self.pipeline.generate_key(self.order(self.signed()), wish).await.unwrap();
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
    let signed = scene.signed_by(&signer(2), super::agent(7), scene.clock.unix_seconds());
    let issued = scene.pipeline.generate_key(scene.order(signed), wish("c", |_| {})).await.unwrap();
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
    let rotated =
        scene.pipeline.rotate_key(scene.order(scene.signed()), wish("app", |terms| terms.grace_secs = 60));
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
    let more = scene.pipeline.generate_key(scene.order(scene.signed()), wish("app", |_| {})).await;
    assert_eq!(verdict(&more), "409");
}
