//! A tier that everyone has. Thresholds of stakes are in `domain::tier`, agents of each tier in `gateway/entry_points.rs`.

use alloy::primitives::U256;
use serde_json::json;

use crate::support::harness::{Case, cases};
use crate::support::{agents::THRESHOLDS, signing::ALICE, world::World};

pub(crate) const CASES: &[Case<World>] =
    cases![everyone_who_is_registered_has_the_tier_that_is_written_and_nobody_else_passes,];

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
