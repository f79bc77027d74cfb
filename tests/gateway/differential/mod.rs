//! The relay beside the HTTP library: the same exchanges go through two gateways whose requests leave by one way each.
//! Both sides of each see the same, but for the differences that [`rules`] names.
//!
//! `TG_EXCHANGES=N` runs so many exchanges, `TG_SEED=S` those of a run before; a failure says how to see
//! it again.

mod plan;
mod rules;
mod views;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, sync::Mutex};

use crate::differential::plan::{Dice, Plan};
use crate::differential::rules::RULES;
use crate::differential::views::{View, through};
use crate::rig::case::{Case, cases};
use crate::rig::stage::{ACME, Stage, public_path};
use crate::rig::{scope::beside, site::Site, upstream::lock};
use crate::support::seed::seed;

pub(crate) const CASES: &[Case] = cases![the_relay_and_the_library_show_both_sides_the_same];

/// Exchanges of a normal run.
const EXCHANGES: u64 = 300;

/// It goes on until each difference was shown, at most to here.
const EXCHANGES_MAX: u64 = 5_000;

/// Exchanges at once.
const AT_ONCE: usize = 4;

/// How many differences are told of.
const TOLD_MAX: usize = 12;

fn number_of(variable: &str, usual: u64) -> u64 {
    env::var(variable).map_or(usual, |text| text.parse().unwrap())
}

fn site(stage: &Stage, way: &str) -> Site {
    let site = Site::of(stage).way(way).set("gateway.via", "tiergate").unlimited();
    site.tenant(|tenant| tenant.set("health.eject_after", 0).set("timeouts.read", "15s")).agent(4).start()
}

fn the_relay_and_the_library_show_both_sides_the_same(stage: &Stage) {
    let (relay, library) = (site(stage, "relay"), site(stage, "library"));
    let (seed, exchanges) = (seed(), number_of("TG_EXCHANGES", EXCHANGES));
    let only = env::var("TG_EXCHANGE").ok().map(|number| number.parse::<u64>().unwrap());
    let (next, wrong) = (Mutex::new(only.unwrap_or(0)), Mutex::new(Vec::new()));
    let uses: Vec<AtomicUsize> = RULES.iter().map(|_| AtomicUsize::new(0)).collect();
    let unused = || -> Vec<&str> {
        let unused = RULES.iter().zip(&uses).filter(|(_, uses)| uses.load(Ordering::SeqCst) == 0);
        unused.filter(|(rule, _)| rule.is_certain).map(|(rule, _)| rule.name).collect()
    };
    let goes_on = |exchange| match only {
        Some(only) => exchange == only,
        None => exchange < exchanges || exchange < EXCHANGES_MAX && !unused().is_empty(),
    };
    let work = |_: &_| {
        while let Some(exchange) = take(&next, goes_on) {
            let path = public_path();
            let plan = |site: &Site| Plan::of(&mut Dice::of(seed, exchange), ACME, &path, site.key());
            let cuts = || Dice::of(!seed, exchange);
            let (plans, cuts) = ([plan(&relay), plan(&library)], [cuts(), cuts()]);
            let [one, other] = [&relay, &library];
            let [first, second] = cuts;
            let views = (through(one, &plans[0], &path, first), through(other, &plans[1], &path, second));
            if let Some(difference) = differ(&plans[0], views, &uses) {
                let again = format!("TG_SEED={seed} TG_EXCHANGE={exchange}");
                lock(&wrong).push(format!("{again}\n{}\n{difference}", plans[0].shown()));
            }
        }
    };
    beside(AT_ONCE, work, |_| {});
    let wrong = lock(&wrong);
    let shown = wrong.iter().take(TOLD_MAX).cloned().collect::<Vec<_>>().join("\n\n");
    assert!(wrong.is_empty(), "{} exchanges differ:\n{shown}", wrong.len());
    for site in [&relay, &library] {
        assert_eq!(site.upstream.broken(), Vec::<String>::new());
    }
    if only.is_none() {
        assert_eq!(unused(), Vec::<&str>::new(), "no exchange shows these differences");
    }
}

fn take(next: &Mutex<u64>, goes_on: impl Fn(u64) -> bool) -> Option<u64> {
    let mut next = lock(next);
    let number = *next;
    *next += 1;
    goes_on(number).then_some(number)
}

/// What is different, beyond the rules.
fn differ(plan: &Plan, views: (View, View), uses: &[AtomicUsize]) -> Option<String> {
    let (mut relay, mut library) = views;
    for (rule, uses) in RULES.iter().zip(uses) {
        if relay == library {
            return None;
        }
        let before = (relay.clone(), library.clone());
        (rule.levels)(plan, &mut relay, &mut library);
        if before != (relay.clone(), library.clone()) {
            uses.fetch_add(1, Ordering::SeqCst);
        }
    }
    (relay != library).then(|| relay.beside(&library))
}
