//! Tiers and their limits through the whole pipeline.

use alloy::primitives::U256;

use super::{LIMITS, STAKES, Scene, agent, retry_after, verdict};
use crate::domain::{Denial, PASSING_TIERS, Tier};
use crate::error::Error;

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
