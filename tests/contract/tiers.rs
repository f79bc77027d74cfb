//! Trust tiers: at and one unit below each threshold.

use alloy::primitives::U256;
use serde_json::json;

use crate::support::agents::{LIMITS, THRESHOLDS};
use crate::support::harness::{Case, cases};
use crate::support::signing::ALICE;
use crate::support::world::World;

pub(crate) const CASES: &[Case<World>] =
    cases![everyone_who_is_registered_has_the_tier_that_is_written_and_nobody_else_passes,];

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
