//! Floods of credentials that nobody has: they leave no trace in memory, cost good agents nothing, and end at a budget for
//! each client.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use alloy::primitives::U256;
use http::Method;
use serde_json::{Value, json};

use crate::rig::beside::Neighbourhood;
use crate::rig::case::{Case, cases};
use crate::rig::credentials::{signed, signed_with};
use crate::rig::gateway::Gateway;
use crate::rig::h2c::{self, Message};
use crate::rig::refusals::is_unauthenticated;
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::rig::tenants::Tenant;
use crate::rig::upstream::Upstream;
use crate::support::agents::unknown_key;
use crate::support::client::Answer;
use crate::support::signing::{ALICE, BOB};
use crate::support::time::Stopwatch;
use crate::support::wire::{Request, Wire};

pub(crate) const CASES: &[Case] = cases![
    a_flood_of_unknown_keys_leaves_memory_flat_and_a_good_agent_is_served,
    a_flood_of_bad_signatures_leaves_memory_flat_and_a_good_agent_is_served,
    whoever_shows_too_many_bad_credentials_is_429_and_others_are_not,
    the_budget_of_bad_credentials_is_one_for_both_doors_and_both_versions_of_http,
    good_credentials_spend_nothing_of_the_budget_for_bad_ones,
];

/// How long strangers knock.
const FLOOD_TIME: Duration = Duration::from_secs(10);

/// How long they do before the memory is first looked at: everything that this traffic needs has been made by then.
const WARM_UP_TIME: Duration = Duration::from_secs(3);

/// What allocator and good traffic may take meanwhile.
const SLACK_KIB: u64 = 4 * 1_024;

/// How many floods there are until one leaves memory flat.
const FLOODS_MAX: u32 = 3;

/// Half of what a hundred bytes for each stranger would take, and the slack.
const fn growth_kib_max(strangers: u64) -> u64 {
    strangers * 50 / 1_024 + SLACK_KIB
}

/// Has strangers knock for a while, each with a credential of its own, and good requests of all kinds served beside them.
fn knock(
    neighbours: &Neighbourhood,
    numbers: &AtomicU64,
    request: &(dyn Fn(u64) -> Request + Sync),
    status: &[u16],
    time: Duration,
) {
    let watch = Stopwatch::start();
    std::thread::scope(|scope| {
        let strangers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut wire = neighbours.gateway.connect();
                    while watch.elapsed() < time {
                        let answer = request(numbers.fetch_add(1, Ordering::SeqCst)).ask_on(&mut wire);
                        assert!(status.contains(&answer.status), "{}", answer.text());
                    }
                })
            })
            .collect();
        let mut open = neighbours.gateway.connect();
        while strangers.iter().any(|stranger| !stranger.is_finished()) {
            neighbours.is_served(&mut open);
        }
    });
}

/// Memory stays flat over a flood; says how many strangers it was.
fn is_endured(neighbours: &Neighbourhood, status: &[u16], request: &(dyn Fn(u64) -> Request + Sync)) -> u64 {
    let service = &neighbours.gateway.service;
    let numbers = AtomicU64::new(0);
    knock(neighbours, &numbers, request, status, WARM_UP_TIME);
    let mut grown = Vec::new();
    // What each stranger leaves is left by every flood; what the allocator takes once is not.
    for _ in 0..FLOODS_MAX {
        let (before, first) = (service.resident_kib(), numbers.load(Ordering::SeqCst));
        knock(neighbours, &numbers, request, status, FLOOD_TIME);
        let strangers = numbers.load(Ordering::SeqCst) - first;
        grown.push((service.resident_kib().saturating_sub(before), strangers));
        if grown.last().is_some_and(|(grown, strangers)| *grown <= growth_kib_max(*strangers)) {
            return strangers;
        }
    }
    panic!("KiB and strangers of each flood: {grown:?}");
}

fn a_flood_of_unknown_keys_leaves_memory_flat_and_a_good_agent_is_served(stage: &Stage) {
    let neighbours = Neighbourhood::new(stage);
    let strangers = is_endured(&neighbours, &[401], &|number| {
        Request::get(ACME, "/agents/unknown").key(&unknown_key(1_000_000 + number))
    });
    assert!(strangers > 1_000, "that was no flood: {strangers}");
    assert!(neighbours.upstream.seen_at("/agents/unknown").is_empty());
}

fn a_flood_of_bad_signatures_leaves_memory_flat_and_a_good_agent_is_served(stage: &Stage) {
    let neighbours = Neighbourhood::new(stage);
    let signature = format!("0x{}1b", "11".repeat(64));
    let minted = stage.world().agent(4);
    // Half of them for agents that were never minted, half for one that was, each with another nonce.
    let strangers = is_endured(&neighbours, &[401, 404], &|number| {
        let missing = stage.world().known_agent(U256::from(6_000_000_000_u64 + number), ALICE);
        let agent = if number % 2 == 0 { &missing } else { &minted };
        Request::get(ACME, "/agents/unknown").with_all(&signed_with(&agent.draft(), &signature))
    });
    assert!(strangers > 500, "that was no flood: {strangers}");
    assert!(neighbours.upstream.seen_at("/agents/unknown").is_empty());
}

/// How many refused credentials a client may show in the cases that follow.
const BUDGET: u32 = 10;

fn limited_gateway(stage: &Stage) -> (Gateway, Upstream) {
    let upstream = Upstream::start();
    let settings = stage.settings().set("abuse.failures_per_minute", i64::from(BUDGET));
    let tenant = Tenant::new("t", ACME, upstream.address).public();
    (Gateway::start_with(settings, &[tenant], &[]), upstream)
}

fn stranger(number: u64) -> Request {
    Request::get(ACME, &agents_path()).key(&unknown_key(2_000_000 + number))
}

#[track_caller]
fn is_over_budget(answer: &Answer) {
    let seconds = answer.is_limited(Value::Null, Value::Null, BUDGET);
    assert!(seconds <= 60, "{seconds}");
}

fn whoever_shows_too_many_bad_credentials_is_429_and_others_are_not(stage: &Stage) {
    let (gateway, upstream) = limited_gateway(stage);
    let key = stage.world().agent(4).generate(&gateway.service);
    let (one, other) = ("127.0.0.101".parse().unwrap(), "127.0.0.102".parse().unwrap());
    let mut wire = Wire::open_from(one, gateway.address);
    for number in 0..u64::from(BUDGET) {
        is_unauthenticated(&stranger(number).ask_on(&mut wire));
    }
    for number in 0..20 {
        // The same client on other connections too.
        is_over_budget(&stranger(100 + number).ask_on(&mut wire));
        is_over_budget(&stranger(200 + number).ask_on(&mut Wire::open_from(one, gateway.address)));
    }
    let good = Request::get(ACME, &agents_path()).key(&key);
    assert_eq!(good.ask_on(&mut Wire::open_from(other, gateway.address)).status, 200);
    assert_eq!(good.ask(gateway.address).status, 200);
    is_unauthenticated(&stranger(300).ask_on(&mut Wire::open_from(other, gateway.address)));
    let public = Request::get(ACME, &public_path());
    assert_eq!(public.ask_on(&mut wire).status, 200, "what is public needs no credential");
    assert_eq!(upstream.seen_with("/agents/").len(), 2);
}

fn the_budget_of_bad_credentials_is_one_for_both_doors_and_both_versions_of_http(stage: &Stage) {
    let (gateway, _upstream) = limited_gateway(stage);
    let agent = stage.world().agent(4);
    // Each way in turn, until the budget is used up.
    let ways: [&dyn Fn(u64) -> u16; 4] = [
        &|number| gateway.ask(&stranger(number)).status,
        &|number| {
            let request = Message::request(Method::GET, ACME, &agents_path());
            h2c::ask(gateway.address, &request.with("x-api-key", &unknown_key(number))).unwrap().status
        },
        &|number| gateway.service.verify(&unknown_key(number)).status,
        &|_| {
            let draft = agent.draft().by(BOB);
            gateway.ask(&Request::get(ACME, &agents_path()).with_all(&signed(&draft))).status
        },
    ];
    let statuses: Vec<u16> = (0..BUDGET + 8)
        .map(|number| ways[usize::try_from(number).unwrap() % ways.len()](u64::from(number)))
        .collect();
    let budget = usize::try_from(BUDGET).unwrap();
    assert_eq!(statuses[..budget], vec![401; budget]);
    assert_eq!(statuses[budget..], [429; 8]);
}

fn good_credentials_spend_nothing_of_the_budget_for_bad_ones(stage: &Stage) {
    let (gateway, _upstream) = limited_gateway(stage);
    let agent = stage.world().agent(4);
    let key = agent.generate(&gateway.service);
    let mut wire = gateway.connect();
    for _ in 0..3 * BUDGET {
        assert_eq!(Request::get(ACME, &agents_path()).key(&key).ask_on(&mut wire).status, 200);
        assert_eq!(Request::get(ACME, &public_path()).ask_on(&mut wire).status, 200);
    }
    // An agent at its own limit, or of no tier, has shown a good credential.
    let (limited, unstaked) = (stage.world().agent(1), stage.world().agent(0));
    let keys = [limited.generate(&gateway.service), unstaked.generate(&gateway.service)];
    assert_eq!(Request::get(ACME, &agents_path()).key(&keys[0]).ask_on(&mut wire).status, 200);
    for _ in 0..BUDGET {
        let answer = Request::get(ACME, &agents_path()).key(&keys[0]).ask_on(&mut wire);
        answer.is_limited(json!(limited.text()), json!(1), 1);
        let answer = Request::get(ACME, &agents_path()).key(&keys[1]).ask_on(&mut wire);
        assert_eq!(answer.status, 403, "{}", answer.text());
    }
    for number in 0..u64::from(BUDGET) {
        is_unauthenticated(&stranger(number).ask_on(&mut wire));
    }
    is_over_budget(&stranger(1_000).ask_on(&mut wire));
}
