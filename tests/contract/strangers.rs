//! Whoever has nothing to show costs next to nothing.

use alloy::primitives::U256;
use serde_json::json;

use crate::support::agents::{THRESHOLDS, unknown_key};
use crate::support::harness::{Case, cases};
use crate::support::service::Service;
use crate::support::signing::ALICE;
use crate::support::time::{SOON, Stopwatch, unix_seconds};
use crate::support::world::World;

pub(crate) const CASES: &[Case<World>] = cases![
    fifty_thousand_unknown_keys_leave_memory_flat_and_a_good_agent_passes,
    unminted_agents_leave_memory_flat_and_a_good_agent_passes,
    a_key_made_right_after_a_failed_look_up_works,
    an_agent_minted_right_after_a_404_is_found,
];

/// How many strangers knock before the memory is first looked at.
const WARM_UP: u64 = 2_000;

/// What the allocator and the good agent's own requests may take while strangers knock.
const SLACK_BYTES: u64 = 2 << 20;

/// How much the process may grow while so many strangers knock, in KiB.
///
/// Half of what a hundred bytes for each of them would take, and the slack: more than 42,000 strangers that leave a
/// hundred bytes each do not pass. Of few strangers only bigger traces are found.
fn growth_kib_max(strangers: u64) -> u64 {
    (strangers * 50 + SLACK_BYTES) / 1_024
}

/// Sends `count` bodies over a few connections, which must all be answered with `status`.
fn knock(service: &Service, path: &str, status: u16, count: u64, body: &(dyn Fn(u64) -> String + Sync)) {
    std::thread::scope(|scope| {
        for part in 0..4 {
            scope.spawn(move || {
                let mut connection = service.connect();
                for number in (part..count).step_by(4) {
                    let sent = body(number);
                    let answer = connection.send("POST", path, &[], Some(sent.as_bytes())).unwrap();
                    assert_eq!(answer.status, status, "{}", answer.text());
                }
            });
        }
    });
}

/// How many floods there are until one leaves memory flat. What each stranger leaves is left in all of them; what the
/// allocator takes once is not.
const FLOODS_MAX: u64 = 3;

/// Memory stays flat over a flood, and an agent with a key is served within reason beside it.
fn flood(
    service: &Service,
    key: &str,
    path: &str,
    status: u16,
    count: u64,
    body: &(dyn Fn(u64) -> String + Sync),
) {
    knock(service, path, status, WARM_UP, body);
    let mut grown = Vec::new();
    for round in 0..FLOODS_MAX {
        let first = WARM_UP + round * count;
        let before = service.resident_kib();
        std::thread::scope(|scope| {
            let strangers =
                scope.spawn(|| knock(service, path, status, count, &|number| body(first + number)));
            while !strangers.is_finished() {
                let watch = Stopwatch::start();
                let answer = service.verify(key);
                assert!(matches!(answer.status, 200 | 429), "{}", answer.text());
                assert!(watch.elapsed() < SOON, "{:?}", watch.elapsed());
            }
        });
        assert!(matches!(service.verify(key).status, 200 | 429));
        grown.push(service.resident_kib().saturating_sub(before));
        if grown.last().is_some_and(|grown| *grown <= growth_kib_max(count)) {
            return;
        }
    }
    panic!("{grown:?} KiB for {count} strangers each");
}

fn fifty_thousand_unknown_keys_leave_memory_flat_and_a_good_agent_passes(world: &World) {
    let settings = world.settings().set("tiers.requests_per_minute", vec![1_000_000; 4]);
    let service = Service::start(settings);
    let key = world.agent(4).generate(&service);
    let body = |number| json!({ "apiKey": unknown_key(number) }).to_string();
    flood(&service, &key, "/verify", 401, 50_000, &body);
}

fn unminted_agents_leave_memory_flat_and_a_good_agent_passes(world: &World) {
    let settings = world.settings().set("tiers.requests_per_minute", vec![1_000_000; 4]);
    let service = Service::start(settings);
    let key = world.agent(4).generate(&service);
    let now = unix_seconds();
    let signature = format!("0x{}1b", "11".repeat(64));
    let body = |number: u64| {
        let agent = (5_000_000_000_u64 + number).to_string();
        json!({ "agentId": agent, "signature": signature, "nonce": "1", "timestamp": now }).to_string()
    };
    flood(&service, &key, "/verify/signature", 404, 3_000, &body);
}

fn a_key_made_right_after_a_failed_look_up_works(world: &World) {
    let (service, agent) = (world.service(), world.agent(4));
    let key = agent.generate(service);
    service.revoke(&agent.signed()).success(200);
    for _ in 0..3 {
        service.verify(&key).error(401, "INVALID_API_KEY");
        service.verify(&agent.generate(service)).success(200);
        service.revoke(&agent.signed()).success(200);
    }
}

fn an_agent_minted_right_after_a_404_is_found(world: &World) {
    let (service, chain) = (world.service(), world.chain());
    let base = U256::from(40_000_000_000_u64);
    for offset in 0..3_u64 {
        let agent = world.known_agent(base + U256::from(offset), ALICE);
        chain.stake(agent.id, THRESHOLDS[3]);
        service.verify_signature(&agent.signed()).error(404, "AGENT_NOT_FOUND");
        chain.mint_with_id(ALICE, agent.id);
        service.verify_signature(&agent.signed()).success(200);
    }
}
