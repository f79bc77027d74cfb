//! Two replicas of the service at one Redis: keys, nonces and limits are one, at once.

use serde_json::json;

use crate::support::harness::{Case, cases};
use crate::support::service::{SIGNED_ENDPOINTS, Service};
use crate::support::{agents::key_of, world::World};

pub(crate) const CASES: &[Case<World>] =
    cases![keys_nonces_limits_and_budgets_are_one_at_once, redis_holds_no_key_and_no_signature];

/// How often a key is replaced.
const ROTATIONS: u32 = 10;

// threat: A revoked key opens again
fn keys_nonces_limits_and_budgets_are_one_at_once(world: &World) {
    let settings = world.settings().set("keys.requests_per_hour", 2 * ROTATIONS);
    let [one, other] = [Service::start(settings.clone()), Service::start(settings)];
    let (agent, limited) = (world.agent(4), world.agent(2));
    let mut key = agent.generate(&one);
    for round in 1..=ROTATIONS {
        // It knows the key before it is replaced.
        other.verify(&key).success(200);
        let rotated = one.rotate(&agent.signed());
        other.verify(&key).error(401, "INVALID_API_KEY");
        key = key_of(&rotated.success(200));
        assert_eq!(other.status(&agent.text()).allowance(), rotated.allowance(), "{round}");
    }
    other.verify(&key).success(200);
    let used = agent.signed();
    one.revoke(&used).success(200);
    other.verify(&key).error(401, "INVALID_API_KEY");
    for service in [&other, &one] {
        for endpoint in SIGNED_ENDPOINTS {
            service.signed(endpoint, &used).error(400, "REPLAY_DETECTED");
        }
    }
    for (left, service) in (0..16).rev().zip([&one, &other].into_iter().cycle()) {
        assert_eq!(service.verify_signature(&limited.signed()).allowance(), (16, left));
    }
    for service in [&one, &other] {
        service.verify_signature(&limited.signed()).is_limited(json!(limited.text()), json!(2), 16);
    }
}

// threat: Credentials upstream, in logs, metrics or traces
fn redis_holds_no_key_and_no_signature(world: &World) {
    let database = world.redis().database();
    let service = Service::start(world.settings().set("store.redis.url", database.clone()));
    let agent = world.agent(4);
    let signed = agent.signed();
    let key = key_of(&service.generate(&signed).success(201));
    service.verify(&key).success(200);
    let number = database.rsplit_once('/').unwrap().1.parse().unwrap();
    let held = world.redis().dump(number);
    assert!(held.len() > 2 * 1_024, "more than epochs");
    for secret in [&key[12..], &signed["signature"].as_str().unwrap()[2..]] {
        let raw = alloy::primitives::hex::decode(secret).unwrap();
        for form in [secret.as_bytes(), &raw[..32]] {
            let shows = |piece: &Vec<u8>| piece.windows(form.len()).any(|window| window == form);
            assert!(!held.iter().any(shows), "a secret in Redis");
        }
    }
}
