//! Trust tiers: at and one unit below each threshold.

use alloy::primitives::U256;
use serde_json::{Value, json};

use crate::support::agents::{LIMITS, THRESHOLDS};
use crate::support::harness::{Case, cases};
use crate::support::signing::ALICE;
use crate::support::time::{SOON, until};
use crate::support::world::World;

pub(crate) const CASES: &[Case<World>] = cases![
    thresholds_and_limits_come_from_the_configuration,
    everyone_who_is_registered_has_the_tier_that_is_written_and_nobody_else_passes,
];

/// About stake, which the chain knows.
pub(crate) const STAKES: &[Case<World>] = cases![each_threshold_opens_its_tier_and_one_unit_less_does_not];

fn each_threshold_opens_its_tier_and_one_unit_less_does_not(world: &World) {
    let (service, chain) = (world.service(), world.chain());
    for (index, threshold) in THRESHOLDS.into_iter().enumerate() {
        let below = chain.mint(ALICE, "");
        chain.stake(below, threshold - U256::from(1));
        let answer = service.verify_signature(&world.known_agent(below, ALICE).signed());
        match index.checked_sub(1) {
            None => {
                assert_eq!(answer.error(403, "TIER_BLOCKED")["currentTier"], json!(0));
            }
            Some(lower) => {
                let body = answer.success(200);
                assert_eq!(body["trustTier"], json!(index));
                assert_eq!(body["stakedAmount"], json!((threshold - U256::from(1)).to_string()));
                assert_eq!(answer.allowance(), (LIMITS[lower], LIMITS[lower] - 1));
            }
        }
        let agent = world.agent(index + 1);
        let answer = service.verify_signature(&agent.signed());
        let body = answer.success(200);
        assert_eq!(body["trustTier"], json!(index + 1));
        assert_eq!(body["stakedAmount"], json!(threshold.to_string()));
        assert_eq!(answer.allowance(), (LIMITS[index], LIMITS[index] - 1));
    }
}

fn thresholds_and_limits_come_from_the_configuration(world: &World) {
    let texts = |texts: &[&str]| texts.iter().map(|text| toml::Value::from(*text)).collect::<Vec<_>>();
    let settings = world
        .settings()
        .set("tiers.token_decimals", 6)
        .set("tiers.stake", texts(&["0.5", "2", "3", "4"]))
        .set("tiers.requests_per_minute", vec![2, 3, 4, 5]);
    let service = crate::support::service::Service::start(settings);
    let (chain, agent) = (world.chain(), world.agent(0));
    chain.stake(agent.id, U256::from(499_999));
    let details = service.verify_signature(&agent.signed()).error(403, "TIER_BLOCKED");
    assert_eq!(details["requiredStake"], json!("500000"));
    chain.stake(agent.id, U256::from(1));
    let answer = until("tier 1", SOON, || {
        Some(service.verify_signature(&agent.signed())).filter(|answer| answer.status == 200)
    });
    assert_eq!(answer.json()["trustTier"], json!(1));
    assert_eq!(answer.allowance(), (2, 1));
    chain.stake(agent.id, U256::from(3_500_000));
    let answer = until("tier 4", SOON, || {
        let answer = service.verify_signature(&agent.signed());
        Some(answer).filter(|answer| answer.json().get("trustTier") == Some(&Value::from(4)))
    });
    assert_eq!(answer.allowance().0, 5);
}

fn everyone_who_is_registered_has_the_tier_that_is_written_and_nobody_else_passes(world: &World) {
    let settings = world.settings().set("tiers.source", "everyone").set("tiers.tier", 2);
    let settings = settings.set("tiers.requests_per_minute", vec![1, 5, 6, 7]);
    let settings = settings.without("chain.contracts.stake_vault");
    let service = crate::support::service::Service::start(settings);
    let (chain, agent) = (world.chain(), world.agent(0));
    let answer = service.verify_signature(&agent.signed());
    let body = answer.json();
    assert_eq!((&body["trustTier"], &body["tierSource"]), (&json!(2), &json!("everyone")));
    assert_eq!((body.get("stakedAmount"), answer.allowance().0), (None, 5));
    chain.stake(agent.id, THRESHOLDS[3]);
    let body = service.verify_signature(&agent.signed()).success(200);
    assert_eq!(body["trustTier"], json!(2), "a stake gives no tier");
    let unknown = world.known_agent(U256::from(999_999), ALICE);
    service.verify_signature(&unknown.signed()).error(404, "AGENT_NOT_FOUND");
}
