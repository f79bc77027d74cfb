//! Crowds, of which one misbehaves: tenants beside one that is flooded, and agents behind one address beside one that floods bad
//! keys.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::rig::case::{Case, cases};
use crate::rig::scope::{Running, beside};
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::rig::{crowd, scripts, site::Site, tenants::Tenant};
use crate::support::time::{SOON, until};
use crate::support::wire::{Request, Wire};
use crate::support::{agents::unknown_key, metrics::Samples, world::Kind};

pub(crate) const CASES: &[Case] =
    cases![of_a_hundred_tenants_one_flooded_at_five_times_its_capacity_the_other_99_lose_nothing];

pub(crate) const OF_AGENTS: &[Case] = cases![
    of_a_thousand_clients_behind_one_address_one_floods_bad_keys_and_nobody_with_a_good_key_is_refused
];

pub(crate) const OF_MORE_AGENTS: &[Case] = cases![
    of_ten_thousand_clients_behind_one_address_one_floods_bad_keys_and_nobody_with_a_good_key_is_refused
];

/// The tenant that is flooded. Its upstream answers nothing, and the gateway gives up after some seconds.
const FLOODED: &str = "flooded.test";

/// Requests that may be under way in the process. One tenant gets three quarters of them at most.
const PLACES: usize = 80;
const CAPACITY: usize = PLACES * 3 / 4;

/// The threads of the flood, and the connections of each, all with a request at a time.
const FLOODERS: usize = 6;
const CONNECTIONS: usize = 5 * CAPACITY / FLOODERS;

/// The threads that ask for the other tenants.
const ASKING: usize = 4;

// threat: One client or tenant takes all places
fn of_a_hundred_tenants_one_flooded_at_five_times_its_capacity_the_other_99_lose_nothing(stage: &Stage) {
    let site = Site::of(stage).unlimited().agent(4).set("gateway.max_in_flight", PLACES as i64);
    let flooded =
        |upstream| Tenant::new("flooded", FLOODED, upstream).public().impatient().set("timeouts.read", "3s");
    let others = (1..100).map(|at| (format!("t{at}"), format!("t{at}.test")));
    let (others, hosts): (Vec<String>, Vec<String>) = others.unzip();
    let site = others.iter().zip(&hosts).fold(site.also(flooded), |site, (id, host)| {
        site.also(|upstream| Tenant::new(id, host, upstream).public())
    });
    let site = site.start();
    let path = public_path();
    site.upstream.on(&path, scripts::hang(b"".as_slice()));
    let rounds = AtomicUsize::new(0);
    let flood = |running: &Running| {
        let request = Request::get(FLOODED, &path);
        while running.is_on() {
            let mut wires: Vec<Wire> = (0..CONNECTIONS).map(|_| site.gateway.connect()).collect();
            wires.iter_mut().for_each(|wire| wire.send(&request.bytes()));
            for wire in &mut wires {
                let answer = wire.answer();
                assert!(matches!(answer.status, 503 | 504), "{}", answer.text());
            }
            rounds.fetch_add(1, Ordering::SeqCst);
        }
    };
    let ask_all = || {
        let mut wire = site.gateway.connect();
        for host in &hosts {
            let by_key = Request::get(host, &agents_path()).key(site.key());
            for request in [Request::get(host, &public_path()), by_key] {
                let answer = request.ask_on(&mut wire);
                assert_eq!(answer.status, 200, "{host}: {}", answer.text());
            }
        }
    };
    beside(FLOODERS, flood, |running| {
        let is_full = || (site.upstream.count_at(&path) >= CAPACITY).then_some(());
        until("its places are taken", SOON, || if running.is_on() { is_full() } else { Some(()) });
        let last = rounds.load(Ordering::SeqCst) + 2 * FLOODERS;
        let ask = || {
            while running.is_on() && rounds.load(Ordering::SeqCst) < last {
                ask_all();
            }
        };
        std::thread::scope(|scope| (0..ASKING).for_each(|_| drop(scope.spawn(ask))));
    });
    let samples = Samples::parse(&site.gateway.service.metrics());
    let refused = |tenant: &str| samples.sum("tiergate_overload_total", &[&format!("tenant=\"{tenant}\"")]);
    assert!(refused("flooded") >= (4 * CAPACITY) as f64, "{}", refused("flooded"));
    let lost: BTreeMap<_, _> =
        others.iter().map(|id| (id, refused(id))).filter(|(_, lost)| *lost > 0.0).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

/// How many refused credentials the address may show in a minute.
const BUDGET: usize = 10;

// threat: A neighbour's bad keys
fn of_a_thousand_clients_behind_one_address_one_floods_bad_keys_and_nobody_with_a_good_key_is_refused(
    stage: &Stage,
) {
    one_floods_bad_keys(stage, 1_000);
}

fn of_ten_thousand_clients_behind_one_address_one_floods_bad_keys_and_nobody_with_a_good_key_is_refused(
    stage: &Stage,
) {
    one_floods_bad_keys(stage, 10_000);
}

fn one_floods_bad_keys(stage: &Stage, agents: usize) {
    // A chain of its own: nobody else's gateway follows so many agents.
    let stage = Stage::new(if stage.world().is(Kind::Redis) { Kind::Redis } else { Kind::Dev });
    crowd::mint(stage.world().chain(), agents);
    let site = Site::of(&stage).unlimited().few_registries().set("abuse.failures_per_minute", BUDGET as i64);
    let site = site.start_with(|service| crowd::fill(service, agents));
    let bad = AtomicUsize::new(0);
    let flood = |running: &Running| {
        let mut wire = site.gateway.connect();
        while running.is_on() {
            let key = unknown_key(bad.fetch_add(1, Ordering::SeqCst) as u64);
            let status = Request::get(ACME, "/agents/unknown").key(&key).ask_on(&mut wire).status;
            assert!(matches!(status, 401 | 429), "{status}");
        }
    };
    let path = agents_path();
    let next = AtomicUsize::new(0);
    beside(1, flood, |running| {
        let is_over_budget = || (bad.load(Ordering::SeqCst) > 2 * BUDGET).then_some(());
        until("the budget is used up", SOON, || if running.is_on() { is_over_budget() } else { Some(()) });
        let ask = || {
            let mut wire = site.gateway.connect();
            loop {
                let agent = next.fetch_add(1, Ordering::SeqCst) + 1;
                if agent > agents {
                    break;
                }
                let answer = Request::get(ACME, &path).key(&crowd::key(agent)).ask_on(&mut wire);
                assert_eq!(answer.status, 200, "agent {agent}: {}", answer.text());
            }
        };
        std::thread::scope(|scope| (0..2 * ASKING).for_each(|_| drop(scope.spawn(ask))));
        assert!(running.is_on(), "the flood went on");
    });
    assert_eq!(site.upstream.count_at(&path), agents);
    assert_eq!(site.upstream.count_at("/agents/unknown"), 0);
}
