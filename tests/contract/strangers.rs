//! Floods of strangers: each leaves nothing in memory, and an agent with a key is served beside them.

use serde_json::json;

use crate::support::harness::{Case, cases};
use crate::support::service::Service;
use crate::support::stop::Stop;
use crate::support::time::unix_seconds;
use crate::support::world::World;

pub(crate) const FLOODS: &[Case<World>] = cases![unminted_agents_leave_no_entry_and_a_good_agent_passes,];

/// How many connections strangers share.
const CONNECTIONS: u64 = 4;

/// Sends `count` bodies, which must all be answered with `status`, while an agent with a key is served.
fn flood(world: &World, path: &str, status: u16, count: u64, body: &(dyn Fn(u64) -> String + Sync)) {
    let settings = world.settings().set("tiers.requests_per_minute", vec![1_000_000; 4]);
    let service = &Service::start(settings.set("abuse.failures_per_minute", 1_000_000));
    let key = world.agent(4).generate(service);
    service.verify(&key).success(200);
    // The client of all of them is counted from its first refusal on.
    assert_eq!(service.request("POST", path, &[], Some(body(count).as_bytes())).status, status);
    let entries = || service.samples().sum("tiergate_entries", &[]);
    let before = entries();
    let stop = Stop::default();
    std::thread::scope(|scope| {
        let _stops = stop.at_end();
        let knock = |part: u64| {
            let mut connection = service.connect();
            for number in (part..count).step_by(usize::try_from(CONNECTIONS).unwrap()) {
                if stop.is_set() {
                    return;
                }
                let sent = body(number);
                let answer = connection.send("POST", path, &[], Some(sent.as_bytes())).unwrap();
                assert_eq!(answer.status, status, "{}", answer.text());
            }
        };
        let strangers: Vec<_> = (0..CONNECTIONS).map(|part| scope.spawn(move || knock(part))).collect();
        while strangers.iter().any(|stranger| !stranger.is_finished()) {
            service.verify(&key).success(200);
        }
        strangers.into_iter().for_each(|stranger| stranger.join().unwrap());
    });
    // The good agent's own profile may have been away when they were counted: the log of its stake drops it.
    let after = entries();
    assert!(after <= before + 1.0, "{before}, then {}", service.metrics());
    service.verify(&world.agent(4).generate(service)).success(200);
    assert!(entries() > after, "an agent that was verified is an entry");
}

// threat: Made-up keys fill memory
fn unminted_agents_leave_no_entry_and_a_good_agent_passes(world: &World) {
    let now = unix_seconds();
    let signature = format!("0x{}1b", "11".repeat(64));
    let body = |number: u64| {
        let agent = (5_000_000_000_u64 + number).to_string();
        json!({ "agentId": agent, "signature": signature, "nonce": "1", "timestamp": now }).to_string()
    };
    flood(world, "/verify/signature", 404, 1_000, &body);
}
