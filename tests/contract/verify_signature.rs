//! `POST /verify/signature`: the same result as with a key, one use per nonce, a window of time.

use alloy::primitives::U256;
use serde_json::json;

use crate::support::agents::THRESHOLDS;
use crate::support::client::{Connection, request_bytes, with};
use crate::support::harness::{Case, cases};
use crate::support::time::{SOON, unix_seconds, until};
use crate::support::world::World;

pub(crate) const CASES: &[Case<World>] = cases![
    a_timestamp_of_the_last_minutes_is_accepted_and_one_of_an_hour_ago_is_not,
    a_timestamp_a_little_ahead_is_accepted_and_one_an_hour_ahead_is_not,
    absurd_timestamps_are_a_replay_not_a_failure,
    the_origin_does_not_matter,
];

/// About nonces, which the store keeps.
pub(crate) const NONCES: &[Case<World>] = cases![
    the_result_is_that_of_a_key,
    a_nonce_is_used_once,
    a_nonce_is_one_number_however_it_is_spelled,
    a_used_nonce_is_refused_with_another_timestamp_too,
    the_largest_nonce_is_one_like_any_other,
    an_agent_without_stake_is_403_and_may_use_its_nonce_later,
    a_thousand_identical_requests_at_once_are_admitted_once,
];

fn the_result_is_that_of_a_key(world: &World) {
    let (service, agent) = (world.service(), world.agent(4));
    let key = agent.generate_for(service, "https://app.example");
    let by_key = service.verify(&key).success(200);
    let answer = service.verify_signature(&agent.signed());
    let by_signature = answer.success(200);
    assert_eq!(with(&by_signature, "timestamp", None), with(&by_key, "timestamp", None));
    assert!(by_signature["timestamp"].is_u64());
    assert_eq!(answer.allowance(), (2_700, 2_698), "one budget for both");
}

fn a_nonce_is_used_once(world: &World) {
    let (service, agent) = (world.service(), world.agent(3));
    let draft = agent.draft();
    service.verify_signature(&draft.body()).success(200);
    let details = json!({ "agentId": agent.text(), "nonce": draft.nonce.to_string() });
    for _ in 0..2 {
        service.verify_signature(&draft.body()).is_error(400, "REPLAY_DETECTED", details.clone());
    }
    assert_eq!(service.verify_signature(&agent.signed()).allowance(), (166, 164), "replays cost nothing");
}

fn a_nonce_is_one_number_however_it_is_spelled(world: &World) {
    let (service, agent) = (world.service(), world.agent(3));
    let body = agent.draft().nonce(U256::from(7)).body();
    let spelled = with(&with(&body, "nonce", json!("007")), "agentId", json!(format!("00{}", agent.id)));
    let verified = service.verify_signature(&spelled).success(200);
    assert_eq!(verified["agentId"], json!(agent.text()), "the canonical form");
    for nonce in ["7", "07", "007", "0000000000000000000000007"] {
        let details = json!({ "agentId": agent.text(), "nonce": "7" });
        service.verify_signature(&with(&body, "nonce", json!(nonce))).is_error(
            400,
            "REPLAY_DETECTED",
            details,
        );
    }
}

fn a_used_nonce_is_refused_with_another_timestamp_too(world: &World) {
    let (service, agent) = (world.service(), world.agent(3));
    let draft = agent.draft();
    service.verify_signature(&draft.body()).success(200);
    for timestamp in [draft.timestamp - 100, draft.timestamp + 10] {
        let again = draft.clone().timestamp(timestamp);
        service.verify_signature(&again.body()).error(400, "REPLAY_DETECTED");
    }
}

fn the_largest_nonce_is_one_like_any_other(world: &World) {
    let (service, agent) = (world.service(), world.agent(3));
    for nonce in [U256::ZERO, U256::MAX] {
        let body = agent.draft().nonce(nonce).body();
        service.verify_signature(&body).success(200);
        let details = json!({ "agentId": agent.text(), "nonce": nonce.to_string() });
        service.verify_signature(&body).is_error(400, "REPLAY_DETECTED", details);
    }
}

/// Sends a signature with the one timestamp, which must pass, and one with the other, which must not and leaves its nonce.
fn is_the_window(world: &World, inside: u64, outside: u64) {
    let (service, agent) = (world.service(), world.agent(4));
    service.verify_signature(&agent.draft().timestamp(inside).body()).success(200);
    let refused = agent.draft().timestamp(outside);
    let details =
        json!({ "agentId": agent.text(), "nonce": refused.nonce.to_string(), "field": "timestamp" });
    service.verify_signature(&refused.body()).is_error(400, "REPLAY_DETECTED", details);
    service.verify_signature(&agent.draft().nonce(refused.nonce).body()).success(200);
}

/// The edges of the window are those of `domain::freshness`; here minutes lie between them and the timestamps.
fn a_timestamp_of_the_last_minutes_is_accepted_and_one_of_an_hour_ago_is_not(world: &World) {
    is_the_window(world, unix_seconds() - 120, unix_seconds() - 3_600);
}

fn a_timestamp_a_little_ahead_is_accepted_and_one_an_hour_ahead_is_not(world: &World) {
    is_the_window(world, unix_seconds() + 55, unix_seconds() + 3_600);
}

fn absurd_timestamps_are_a_replay_not_a_failure(world: &World) {
    let (service, agent) = (world.service(), world.agent(3));
    for timestamp in [0, 1, u64::MAX] {
        let answer = service.verify_signature(&agent.draft().timestamp(timestamp).body());
        answer.error(400, "REPLAY_DETECTED");
    }
    let milliseconds = agent.draft().timestamp(unix_seconds() * 1_000);
    service.verify_signature(&milliseconds.body()).error(400, "REPLAY_DETECTED");
    let huge = with(&agent.signed(), "timestamp", json!(1e300));
    service.verify_signature(&huge).error(400, "REPLAY_DETECTED");
}

fn an_agent_without_stake_is_403_and_may_use_its_nonce_later(world: &World) {
    let (service, agent) = (world.service(), world.agent(0));
    let body = agent.signed();
    let details = json!({
        "agentId": agent.text(),
        "currentTier": 0,
        "requiredTier": 1,
        "requiredStake": "1000000000000000000000",
    });
    service.verify_signature(&body).is_error(403, "TIER_BLOCKED", details);
    world.chain().stake(agent.id, THRESHOLDS[0]);
    let admitted = until("the stake shows", SOON, || {
        Some(service.verify_signature(&body)).filter(|answer| answer.status != 403)
    });
    assert_eq!(admitted.success(200)["trustTier"], json!(1));
    assert_eq!(admitted.allowance(), (1, 0), "refusals cost nothing");
}

fn a_thousand_identical_requests_at_once_are_admitted_once(world: &World) {
    let (service, agent) = (world.service(), world.agent(4));
    let body = agent.signed().to_string();
    let bytes = request_bytes(service.api, "POST", "/verify/signature", &[], Some(body.as_bytes()));
    // Each connection is given five of them at once.
    let mut connections: Vec<Connection> = (0..200).map(|_| service.connect()).collect();
    std::thread::scope(|scope| {
        for part in connections.chunks_mut(50) {
            scope
                .spawn(|| part.iter_mut().for_each(|connection| connection.write(&bytes.repeat(5)).unwrap()));
        }
    });
    let answers =
        connections.iter_mut().flat_map(|connection| [(); 5].map(|()| connection.read(false).unwrap()));
    let (admitted, refused): (Vec<_>, Vec<_>) = answers.partition(|answer| answer.status == 200);
    assert_eq!(admitted.len(), 1);
    for answer in refused {
        answer.error(400, "REPLAY_DETECTED");
    }
    assert_eq!(service.verify_signature(&agent.signed()).allowance(), (2_700, 2_698), "one was charged");
}

fn the_origin_does_not_matter(world: &World) {
    let (service, agent) = (world.service(), world.agent(3));
    agent.generate_for(service, "https://app.example");
    let body = with(&agent.signed(), "origin", json!("https://other.example"));
    assert_eq!(service.verify_signature(&body).success(200)["endpointMismatch"], json!(false));
}
