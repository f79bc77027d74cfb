//! The contract's rules of authentication, 1 to 6, at every endpoint that takes a signature. What the signature of a verification may be
//! is in the table of `gateway/entry_points.rs`.

use alloy::primitives::U256;
use serde_json::{Value, json};

use crate::support::harness::{Case, cases};
use crate::support::service::{SIGNED_ENDPOINTS, status_of};
use crate::support::signing::{ALICE, BOB};
use crate::support::{agents::Agent, client::with, time::unix_seconds, world::World};

/// Far outside of the window, however busy the machine is.
const HOUR_SECS: u64 = 3_600;

/// Of every signature.
pub(crate) const SIGNATURES: &[Case<World>] = cases![
    rules_1_and_2_a_strangers_signature_and_one_of_another_hour_count_nowhere,
    rule_5_no_endpoint_shows_a_key_again,
];

/// About owners, whom the chain knows.
pub(crate) const OWNERS: &[Case<World>] =
    cases![rule_1_a_transfer_counts_at_once_for_every_endpoint, rule_4_agent_0_and_unminted_agents_are_404,];

/// About nonces, which the store keeps.
pub(crate) const NONCES: &[Case<World>] = cases![rule_2_a_nonce_is_used_up_for_every_endpoint];

fn rules_1_and_2_a_strangers_signature_and_one_of_another_hour_count_nowhere(world: &World) {
    let (service, agent) = (world.service(), world.agent(3));
    let strangers = json!({
        "agentId": agent.text(),
        "owner": "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
        "recoveredSigner": "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC",
    });
    for endpoint in SIGNED_ENDPOINTS {
        let answer = service.signed(endpoint, &agent.draft().by(BOB).body());
        answer.is_error(401, "SIGNATURE_INVALID", strangers.clone());
        for timestamp in [unix_seconds() - HOUR_SECS, unix_seconds() + HOUR_SECS] {
            let draft = agent.draft().timestamp(timestamp);
            let details =
                json!({ "agentId": agent.text(), "nonce": draft.nonce.to_string(), "field": "timestamp" });
            service.signed(endpoint, &draft.body()).is_error(400, "REPLAY_DETECTED", details);
        }
    }
}

// threat: A new owner or a reorganization is not seen
fn rule_1_a_transfer_counts_at_once_for_every_endpoint(world: &World) {
    let (service, agent) = (world.service(), world.agent(4));
    let mut owners = [ALICE, BOB];
    for _ in 0..4 {
        let [old, new] = owners;
        // The profile is cached with the old owner now.
        let body = service.verify_signature(&agent.draft().by(old).body()).success(200);
        assert_eq!(body["owner"], json!(old.address.to_checksum(None)));
        world.chain().transfer(old, new, agent.id);
        service.verify_signature(&agent.draft().by(old).body()).error(401, "SIGNATURE_INVALID");
        let body = service.verify_signature(&agent.draft().by(new).body()).success(200);
        assert_eq!(body["owner"], json!(new.address.to_checksum(None)), "the profile fits the signer");
        owners = [new, old];
    }
    world.chain().transfer(ALICE, BOB, agent.id);
    let details = json!({
        "agentId": agent.text(),
        "owner": BOB.address.to_checksum(None),
        "recoveredSigner": ALICE.address.to_checksum(None),
    });
    for endpoint in SIGNED_ENDPOINTS {
        let answer = service.signed(endpoint, &agent.signed());
        answer.is_error(401, "SIGNATURE_INVALID", details.clone());
        let answer = service.signed(endpoint, &agent.draft().by(BOB).body());
        assert_eq!(answer.status, status_of(endpoint), "{endpoint:?}: {}", answer.text());
    }
}

fn rule_2_a_nonce_is_used_up_for_every_endpoint(world: &World) {
    let service = world.service();
    for used_at in SIGNED_ENDPOINTS {
        let agent = world.agent(4);
        let draft = agent.draft();
        let details = json!({ "agentId": agent.text(), "nonce": draft.nonce.to_string() });
        let used = service.signed(used_at, &draft.body());
        assert_eq!(used.status, status_of(used_at), "{}", used.text());
        for endpoint in SIGNED_ENDPOINTS {
            let replayed = service.signed(endpoint, &draft.body());
            // Also to generate a key for an agent that has one: the nonce is looked at first.
            replayed.is_error(400, "REPLAY_DETECTED", details.clone());
        }
    }
}

fn gone(world: &World, agent: &Agent) {
    for endpoint in SIGNED_ENDPOINTS {
        let answer = world.service().signed(endpoint, &agent.signed());
        answer.is_error(404, "AGENT_NOT_FOUND", json!({ "agentId": agent.text() }));
    }
}

fn rule_4_agent_0_and_unminted_agents_are_404(world: &World) {
    for id in [U256::ZERO, U256::from(888_888_888_u64), U256::MAX] {
        gone(world, &world.known_agent(id, ALICE));
    }
    let zeros = with(&world.known_agent(U256::ZERO, ALICE).signed(), "agentId", json!("000"));
    world.service().verify_signature(&zeros).is_error(404, "AGENT_NOT_FOUND", json!({ "agentId": "0" }));
}

fn rule_5_no_endpoint_shows_a_key_again(world: &World) {
    let (service, agent) = (world.service(), world.agent(4));
    let key = agent.generate(service);
    let secret = key.rsplit('_').next().unwrap();
    let named = |agent_id: Value| json!({ "apiKey": key, "agentId": agent_id });
    let answers = [
        service.verify(&key),
        service.post("/verify", &named(json!("1"))),
        service.post("/verify", &named(json!(key))),
        service.verify(&key.to_uppercase()),
        service.verify_signature(&agent.signed()),
        service.verify_signature(&with(&agent.signed(), "nonce", json!(key))),
        service.generate(&agent.signed()),
        service.status(&agent.text()),
        service.status(&key),
        service.revoke(&agent.signed()),
    ];
    assert_eq!(
        answers.each_ref().map(|answer| answer.status),
        [200, 401, 400, 400, 200, 400, 409, 200, 400, 200]
    );
    for answer in answers {
        assert!(!answer.text().to_lowercase().contains(secret), "{}", answer.text());
    }
}
