//! Floods of credentials that nobody has: they leave nothing behind, cost good agents nothing, and end at a budget for
//! each client.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use alloy::primitives::U256;
use http::Method;

use crate::rig::case::{Case, cases};
use crate::rig::credentials::{signed, signed_with};
use crate::rig::h2c::{self, Message};
use crate::rig::scope::{Running, beside};
use crate::rig::site::Site;
use crate::rig::stage::{ACME, Stage, agents_path};
use crate::support::signing::{ALICE, BOB};
use crate::support::{agents::unknown_key, metrics::Samples, wire::Request};

pub(crate) const FLOODS: &[Case] = cases![
    a_flood_of_unknown_keys_leaves_no_entry_and_a_good_agent_is_served,
    a_flood_of_bad_signatures_leaves_no_entry_and_a_good_agent_is_served,
];

pub(crate) const CASES: &[Case] =
    cases![the_budget_of_bad_credentials_is_one_for_both_doors_and_both_versions_of_http,];

/// How many strangers knock at a time.
const AT_ONCE: usize = 16;

/// A good request has been kept waiting when so many strangers were answered before it.
const OVERTAKEN_BY_MAX: usize = 10 * AT_ONCE;

/// How many good requests are made beside strangers, at least, and which of them may be kept waiting: the slowest of
/// ten, because a busy machine lets the good client wait for its turn too.
const GOOD: usize = 300;
const ONE_OF: usize = 10;

/// Turns strangers away, so many at least, each with a credential and a status of its own, and serves good requests beside them. Few of
/// those wait for more strangers than knock at a time. What a stranger leaves in memory is counted to the byte in `allocations`.
fn endures(site: &Site, strangers: usize, request: impl Fn(u64) -> (Request, u16) + Sync) {
    let (next, refused) = (AtomicU64::new(0), AtomicUsize::new(0));
    let knock = |running: &Running| {
        let mut wire = site.gateway.connect();
        while running.is_on() {
            let (request, status) = request(next.fetch_add(1, Ordering::SeqCst));
            let answer = request.ask_on(&mut wire);
            assert_eq!(answer.status, status, "{}", answer.text());
            refused.fetch_add(1, Ordering::SeqCst);
        }
    };
    let mut overtaken_by = Vec::new();
    let before = entries(site);
    beside(AT_ONCE, knock, |running| {
        let mut open = site.gateway.connect();
        while running.is_on() && (refused.load(Ordering::SeqCst) < strangers || overtaken_by.len() < GOOD) {
            let before = refused.load(Ordering::SeqCst);
            assert_eq!(site.by_key().ask_on(&mut open).status, 200);
            overtaken_by.push(refused.load(Ordering::SeqCst) - before);
            site.serves(&mut open);
        }
    });
    let late = overtaken_by.iter().filter(|count| **count > OVERTAKEN_BY_MAX).count();
    assert!(late <= overtaken_by.len() / ONE_OF, "{late} waited for strangers: {overtaken_by:?}");
    assert_eq!(site.upstream.count_at("/agents/unknown"), 0);
    let after = entries(site);
    assert!(after <= before + 1.0, "{before} entries, then {after}");
}

/// How many entries there are in all maps that clients can make grow. The first of refused credentials makes one.
fn entries(site: &Site) -> f64 {
    let samples = Samples::parse(&site.gateway.service.metrics());
    assert!(samples.get("tiergate_entries{kind=\"profiles\"}") > 0.0, "the agent's");
    samples.sum("tiergate_entries", &[])
}

// threat: Made-up keys fill memory
fn a_flood_of_unknown_keys_leaves_no_entry_and_a_good_agent_is_served(stage: &Stage) {
    let site = Site::crowded(stage);
    site.goes_on();
    endures(&site, 4_000, |number| {
        (Request::get(ACME, "/agents/unknown").key(&unknown_key(1_000_000 + number)), 401)
    });
}

// threat: Bad signatures cause work
fn a_flood_of_bad_signatures_leaves_no_entry_and_a_good_agent_is_served(stage: &Stage) {
    let site = Site::crowded(stage);
    let signature = format!("0x{}1b", "11".repeat(64));
    let minted = stage.world().agent(4);
    site.goes_on();
    // Half of them for agents that were never minted, half for one that was, each with another nonce.
    endures(&site, 1_000, |number| {
        let missing = stage.world().known_agent(U256::from(6_000_000_000_u64 + number), ALICE);
        let (agent, status) = if number % 2 == 0 { (&missing, 404) } else { (&minted, 401) };
        (Request::get(ACME, "/agents/unknown").with_all(&signed_with(&agent.draft(), &signature)), status)
    });
}

/// How many refused credentials a client may show in the cases that follow.
const BUDGET: u32 = 10;

/// A site with that budget, and an agent.
fn limited(stage: &Stage) -> Site {
    Site::of(stage).set("abuse.failures_per_minute", i64::from(BUDGET)).agent(4).start()
}

fn stranger(number: u64) -> Request {
    Request::get(ACME, &agents_path()).key(&unknown_key(2_000_000 + number))
}

// threat: Bad signatures cause work
fn the_budget_of_bad_credentials_is_one_for_both_doors_and_both_versions_of_http(stage: &Stage) {
    let site = limited(stage);
    let (gateway, agent) = (&site.gateway, site.agent());
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
