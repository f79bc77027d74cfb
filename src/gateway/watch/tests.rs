//! Rounds over more upstreams than there are places, in simulated time.

use std::sync::{Arc, atomic::AtomicUsize, atomic::Ordering};
use std::{collections::BTreeMap, future::pending, time::Duration};

use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::{Kind, RESOLVE_EVERY, TASKS_MAX, Watch, says_gone};
use crate::addresses::AddressRules;
use crate::domain::{Agents, PerTier, Quota, Tenant, TierSources, Tiers, Upstream, fixture};
use crate::gateway::site::{LiveTable, Table};
use crate::gateway::site::{Site, SiteBuilder};
use crate::gateway::upstreams::Member;
use crate::ports::Clock;
use crate::serve::Timer;
use crate::telemetry::Metrics;
use crate::tls::UpstreamIdentity;

/// How often upstreams are checked.
const EVERY: Duration = Duration::from_secs(1);

/// The runtime's time, which stands still while anything can run.
struct RuntimeClock(Instant);

impl Clock for RuntimeClock {
    fn unix_millis(&self) -> u64 {
        self.monotonic_micros() / 1_000
    }

    fn monotonic_micros(&self) -> u64 {
        // An hour after the process began.
        u64::try_from((self.0.elapsed() + Duration::from_secs(3_600)).as_micros()).unwrap()
    }
}

/// Lets time pass.
async fn pass(time: Duration) {
    timeout(time, pending::<()>()).await.unwrap_err();
}

/// A watch over so many tenants with one upstream each, which is named and has a path for its checks.
fn watch(tenants: usize) -> Watch {
    watch_of(&vec![1; tenants])
}

/// The same over tenants with so many upstreams.
fn watch_of(upstreams: &[usize]) -> Watch {
    let metrics = Metrics::new().unwrap();
    let quota = Quota::per_minute(1);
    let quotas = PerTier([quota; 4]);
    let tenants = upstreams.iter().enumerate().map(|(number, count)| {
        let mut tenant: Tenant = fixture::tenant();
        tenant.id = number.to_string().into();
        tenant.hosts = Vec::new();
        let name = |at| Upstream::parse(&format!("u{at}.t{number}.example:80")).unwrap();
        tenant.upstreams = (0..*count).map(name).collect();
        tenant.proxy.health.interval = Some(EVERY);
        tenant.proxy.health.path = Some("/".into());
        (Arc::new(tenant), UpstreamIdentity { ca: None, client: None, pool: 0 })
    });
    let addresses = AddressRules::default();
    let tiers = Tiers::new(TierSources::default(), Arc::new(Agents::new()));
    let builder =
        SiteBuilder { quotas, metrics: &metrics, addresses: &addresses, issuer: None, tiers: &tiers };
    let table = Table::new(tenants, &[], &builder, &Table::default());
    let clock = Arc::new(RuntimeClock(Timer::now()));
    Watch::new(Arc::new(LiveTable::from_pointee(table.unwrap_or_default())), clock)
}

/// When the tasks of each tenant began within `time`. Each takes as long as `takes` says of its tenant's number.
async fn begun(
    watch: &Watch,
    kind: &Arc<Kind>,
    time: Duration,
    takes: impl Fn(usize) -> Duration,
) -> BTreeMap<usize, Vec<Duration>> {
    begun_by(watch, kind, time, |site, _| site.tenant.id.parse().unwrap(), takes).await
}

/// The same of whatever has a number.
async fn begun_by(
    watch: &Watch,
    kind: &Arc<Kind>,
    time: Duration,
    number: impl Fn(&Site, &Member) -> usize,
    takes: impl Fn(usize) -> Duration,
) -> BTreeMap<usize, Vec<Duration>> {
    let (start, begun) = (Timer::now(), Arc::new(Mutex::new(BTreeMap::<usize, Vec<Duration>>::new())));
    let task = |site: &Site, member: &Member| {
        let (number, begun) = (number(site, member), Arc::clone(&begun));
        let takes = takes(number);
        move || {
            begun.lock().entry(number).or_default().push(start.elapsed());
            pass(takes).boxed()
        }
    };
    timeout(time, watch.keep(kind, task)).await.unwrap_err();
    std::mem::take(&mut *begun.lock())
}

/// The longest time that a task was not begun, from the start on.
fn longest_gap(begun: &[Duration], end: Duration) -> Duration {
    let ends = begun.iter().copied().chain([end]);
    let gaps = std::iter::once(Duration::ZERO).chain(begun.iter().copied()).zip(ends);
    gaps.map(|(from, to)| to - from).max().unwrap()
}

// threat: A tenant takes what is another's or shared
#[tokio::test(start_paused = true)]
async fn more_upstreams_than_places_are_each_checked_and_looked_up_at_their_interval() {
    const COUNT: usize = 150;
    let watch = watch(COUNT);
    for (kind, every) in [(&watch.checks, EVERY), (&watch.look_ups, RESOLVE_EVERY)] {
        let time = 8 * every;
        let begun = begun(&watch, kind, time, |_| Duration::from_millis(50)).await;
        assert_eq!(begun.len(), COUNT, "{}: each has its turn", kind.name);
        for (number, times) in begun {
            let gap = longest_gap(&times, time);
            assert!(gap <= every + Duration::from_millis(300), "{} {number}: {times:?}", kind.name);
            assert!(times.len() <= 9, "{} {number}: {times:?}", kind.name);
        }
    }
}

// threat: A tenant takes what is another's or shared
#[tokio::test(start_paused = true)]
async fn while_more_hang_than_there_are_places_each_is_still_watched_in_its_turn() {
    const COUNT: usize = 200;
    let (watch, hang) = (watch(COUNT), Duration::from_secs(5));
    // The first in the table's order hang, more of them than there are places.
    let takes = |number| if number < 2 * TASKS_MAX { hang } else { Duration::from_millis(1) };
    let time = Duration::from_secs(60);
    let begun = begun(&watch, &watch.checks, time, takes).await;
    assert_eq!(begun.len(), COUNT);
    // All that hang are through in two times five seconds.
    let late = begun.iter().find(|(_, times)| longest_gap(times, time) > 2 * hang + 2 * EVERY);
    assert!(late.is_none(), "{late:?}");
    // One kind's hang takes no place of the other's.
    assert_eq!(watch.look_ups.places.available_permits(), TASKS_MAX / 2);
}

// threat: A tenant takes what is another's or shared
#[tokio::test(start_paused = true)]
async fn a_tenant_whose_upstreams_all_hang_delays_no_other_tenants_checks_and_look_ups() {
    // Enough of the first tenant's for every place, and of the others' for what is left.
    let watch = watch_of(&[&[64][..], &vec![1; 40]].concat());
    for (kind, every) in [(&watch.checks, EVERY), (&watch.look_ups, RESOLVE_EVERY)] {
        let time = 8 * every;
        let takes = |number| if number == 0 { time } else { Duration::from_millis(1) };
        let mut begun = begun(&watch, kind, time, takes).await;
        assert_eq!(begun.remove(&0).unwrap().len(), kind.share, "{}", kind.name);
        assert_eq!(begun.len(), 40, "{}", kind.name);
        for (number, times) in begun {
            let gap = longest_gap(&times, time);
            assert!(gap <= every + Duration::from_millis(300), "{} {number}: {times:?}", kind.name);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_tenant_with_more_upstreams_than_its_share_has_each_of_them_checked_at_its_interval() {
    let watch = watch_of(&[60, 1]);
    let time = 8 * EVERY;
    let begun = begun(&watch, &watch.checks, time, |_| Duration::from_millis(100)).await;
    let checks = begun[&0].len();
    assert!((60 * 7..=60 * 9).contains(&checks), "{checks}");
    assert!(longest_gap(&begun[&1], time) <= EVERY + Duration::from_millis(300), "{:?}", begun[&1]);
}

#[tokio::test(start_paused = true)]
async fn the_first_of_a_tenants_upstreams_that_hang_keep_its_last_from_no_turn() {
    let (watch, time) = (watch_of(&[24]), 12 * RESOLVE_EVERY);
    let number = |_: &Site, member: &Member| {
        let host = &member.state.upstream.host;
        host.trim_start_matches('u').split('.').next().unwrap().parse().unwrap()
    };
    let takes = |number| if number < 16 { Duration::from_secs(5) } else { Duration::from_millis(1) };
    let begun = begun_by(&watch, &watch.look_ups, time, number, takes).await;
    assert_eq!(begun.len(), 24);
    for (number, times) in begun {
        assert!(longest_gap(&times, time) <= 3 * RESOLVE_EVERY, "{number}: {times:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_place_when_a_reload_replaces_the_tenants_is_not_done() {
    let (watch, begun) = (watch_of(&[24]), Arc::new(AtomicUsize::new(0)));
    let task = |_: &Site, _: &Member| {
        let begun = Arc::clone(&begun);
        move || {
            begun.fetch_add(1, Ordering::Relaxed);
            pass(EVERY).boxed()
        }
    };
    watch.round(&watch.checks, &task);
    pass(EVERY / 2).await;
    watch.table.store(Arc::default());
    pass(60 * EVERY).await;
    assert_eq!(begun.load(Ordering::Relaxed), watch.checks.share);
}

#[tokio::test(start_paused = true)]
async fn a_round_tells_how_late_it_is_and_nothing_is_late_that_has_a_place_in_time() {
    let (fast, slow) = (watch(150), watch(150));
    for (watch, hang, is_late) in
        [(fast, Duration::from_millis(100), false), (slow, Duration::from_secs(4), true)]
    {
        for _ in 0..10 {
            let rest = watch.round(&watch.checks, &|_: &Site, _: &Member| move || pass(hang).boxed());
            pass(rest.min(EVERY)).await;
        }
        let latest = Duration::from_micros(watch.checks.late.load(Ordering::Relaxed));
        assert_eq!(latest > super::TICK, is_late, "{latest:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_that_panics_leaves_its_place_to_the_next_one() {
    let watch = watch(1);
    let free = Arc::new(Mutex::new(Vec::new()));
    let task = |_: &Site, _: &Member| {
        let (free, kind) = (Arc::clone(&free), Arc::clone(&watch.checks));
        move || {
            free.lock().push(kind.places.available_permits());
            async { panic!("a check") }.boxed()
        }
    };
    timeout(10 * EVERY, watch.keep(&watch.checks, task)).await.unwrap_err();
    let free = free.lock();
    assert!(free.len() >= 9 && free.iter().all(|places| *places == TASKS_MAX - 1), "one at a time: {free:?}");
}

// threat: Another server at an address that a name has left gets agents' requests
#[test]
fn the_resolvers_answer_that_a_name_is_gone_is_told_from_its_failures() {
    for (said, is_gone) in [
        ("Name or service not known", true),
        ("No address associated with hostname", true),
        ("Name does not resolve", true),
        ("Name has no usable address", true),
        ("Temporary failure in name resolution", false),
        ("Try again", false),
        ("Non-recoverable failure in name resolution", false),
        ("Unrecoverable error", false),
        ("System error", false),
        ("try again: Name or service not known", false),
    ] {
        let error = std::io::Error::other(format!("failed to lookup address information: {said}"));
        assert_eq!(says_gone(&error), is_gone, "{said}");
    }
}
