//! Which upstream is tried, and what outlives a change of its rules.

use std::{collections::BTreeMap, time::Duration};

use http::HeaderValue;
use pingora::upstreams::peer::HttpPeer;

use super::{Arc, Attempt, GONE_AFTER, Member, RETRIES_MIN, Trouble, UpstreamState, Upstreams};
use crate::addresses::AddressRules;
use crate::domain::{HealthRules, Upstream, UpstreamLimits, fixture};
use crate::gateway::site::health_rules;
use crate::serve::Timer;

const EJECT_MICROS: u64 = 10_000_000;

fn group_of(weights: &[u8], by_load: bool) -> Upstreams {
    let member = |at: usize, weight: u8| {
        let upstream = Upstream::parse(&format!("127.0.0.1:{}", 9_000 + at)).unwrap();
        let health = HealthRules {
            path: None,
            interval: Some(Duration::from_secs(1)),
            timeout: Duration::from_secs(1),
            eject_after: 3,
            eject_for: Duration::from_micros(EJECT_MICROS),
        };
        let limits = UpstreamLimits { in_flight_max: 50, pending_max: 1 };
        Member {
            weight,
            state: Arc::new(UpstreamState::new(upstream, health, limits, AddressRules::default(), None)),
            template: HttpPeer::new("127.0.0.1:1", false, String::new()),
            host: HeaderValue::from_static("a"),
        }
    };
    let members = weights.iter().enumerate().map(|(at, weight)| member(at, *weight));
    Upstreams::new(members.collect(), by_load)
}

fn group(count: usize) -> Upstreams {
    group_of(&vec![1; count], false)
}

/// How often each port is chosen by new requests.
fn spread(upstreams: &Upstreams, now: u64) -> BTreeMap<u16, u32> {
    let mut counts = BTreeMap::new();
    for _ in 0..300 {
        let address = upstreams.choose(&mut Attempt::default(), now).unwrap();
        *counts.entry(address.port()).or_default() += 1;
    }
    counts
}

#[test]
fn a_request_tries_each_upstream_once() {
    let upstreams = group(3);
    let mut attempt = Attempt::default();
    let mut ports: Vec<u16> =
        std::iter::from_fn(|| upstreams.choose(&mut attempt, 0).map(|to| to.port())).collect();
    ports.sort_unstable();
    assert_eq!((ports, attempt.tries, upstreams.has_another(attempt)), (vec![9_000, 9_001, 9_002], 3, false));
}

// threat: A dead address of an upstream's name fails or slows requests
// threat: A sick upstream keeps its share
#[test]
fn every_address_of_every_upstream_has_its_turn_and_is_tried_before_the_next_upstream() {
    let upstreams = group(2);
    for (at, member) in upstreams.members.iter().enumerate() {
        leads_to(&member.state, &[1, 2].map(|last| format!("127.0.{at}.{last}:9000")));
    }
    let mut first = BTreeMap::new();
    for _ in 0..100 {
        let address = upstreams.choose(&mut Attempt::default(), 0).unwrap();
        *first.entry(address).or_insert(0) += 1;
    }
    assert_eq!(first.values().collect::<Vec<_>>(), [&25; 4], "{first:?}");
    let mut attempt = Attempt::default();
    let tried: Vec<_> = std::iter::from_fn(|| upstreams.choose(&mut attempt, 0).map(|to| to.ip())).collect();
    let distinct: std::collections::BTreeSet<_> = tried.iter().collect();
    assert_eq!((tried.len(), distinct.len(), attempt.tries), (4, 4, 2), "{tried:?}");
}

/// Gives an upstream these addresses.
fn leads_to(state: &UpstreamState, addresses: &[String]) {
    let addresses: Vec<_> = addresses.iter().map(|address| address.parse().unwrap()).collect();
    assert_eq!(state.resolved(&addresses, false), None);
}

// threat: A dead address of an upstream's name fails or slows requests
#[test]
fn an_address_that_could_not_be_reached_is_asked_last_and_by_one_request_when_its_time_is_over() {
    let upstreams = group(1);
    let state = &upstreams.members[0].state;
    leads_to(state, &["127.0.0.1:1".to_owned(), "127.0.0.2:2".to_owned()]);
    let dead = "127.0.0.2:2".parse().unwrap();
    let longest = Duration::from_secs(5);
    let head_start = |now| {
        let mut attempt = Attempt::default();
        let address = upstreams.choose(&mut attempt, now).unwrap();
        (address.port(), state.connect_time(attempt, longest) < longest)
    };
    assert_eq!(
        [head_start(0), head_start(0)],
        [(1, true), (2, true)],
        "either may be dead, and the other good"
    );
    state.reached(dead, false, 0);
    assert_eq!(spread(&upstreams, EJECT_MICROS - 1), BTreeMap::from([(1, 300)]));
    assert_eq!(head_start(0), (1, false), "there is no better one");
    let mut attempt = Attempt::default();
    let ports: Vec<u16> =
        std::iter::from_fn(|| upstreams.choose(&mut attempt, 0).map(|to| to.port())).collect();
    assert_eq!((ports, attempt.tries), (vec![1, 2], 1), "another address is no retry");
    assert_eq!(spread(&upstreams, EJECT_MICROS)[&2], 1, "one request tries it again");
    state.reached(dead, true, EJECT_MICROS);
    assert_eq!(spread(&upstreams, EJECT_MICROS), BTreeMap::from([(1, 150), (2, 150)]));
    for dead in [dead, "127.0.0.1:1".parse().unwrap()] {
        state.reached(dead, false, 0);
    }
    assert!(upstreams.choose(&mut Attempt::default(), 0).is_some(), "both are asked all the same");
}

// threat: A dead address of an upstream's name fails or slows requests
#[test]
fn an_address_is_tried_once_and_each_other_one_too_whatever_is_looked_up_meanwhile() {
    let upstreams = group(1);
    let state = &upstreams.members[0].state;
    let addresses = |ports: &[u16]| ports.iter().map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>();
    for found in [&[2, 1][..], &[3, 2, 1], &[1, 3, 2], &[3, 1, 2], &[1]] {
        leads_to(state, &addresses(&[1, 2]));
        let mut attempt = Attempt::default();
        let mut next = || upstreams.choose(&mut attempt, 0).map(|to| to.port());
        let first = next().unwrap();
        leads_to(state, &addresses(found));
        let mut tried: Vec<_> = std::iter::from_fn(next).collect();
        tried.push(first);
        tried.sort_unstable();
        let mut all = [found, &[first]].concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(tried, all, "{found:?} after {first}");
    }
}

// threat: Another server at an address that a name has left gets agents' requests
#[test]
fn addresses_outlive_look_ups_that_fail_and_not_a_minute_of_answers_that_the_name_is_gone() {
    let upstreams = group(1);
    let member = &upstreams.members[0].state;
    let state = UpstreamState::new(
        Upstream::parse("a.test:80").unwrap(),
        member.health.clone(),
        member.limits,
        AddressRules::default(),
        None,
    );
    let found = ["192.0.2.1:80".parse().unwrap()];
    let gone = |times: u32| (0..times).filter_map(|_| state.resolved(&[], true)).last();
    for _ in 0..2 {
        assert_eq!(state.resolved(&found, false), None);
        for _ in 0..2 {
            let _ = state.resolved(&[], false);
            assert_eq!(gone(GONE_AFTER - 1), None, "only answers in a row count");
        }
        assert!(state.has_address(), "a resolver that fails has not said that the name is gone");
    }
    assert_eq!(gone(1), Some(Trouble::Gone));
    assert!(!state.has_address());
    assert_eq!((state.resolved(&[], false), state.has_address()), (Some(Trouble::NoAddress), false));
    assert_eq!(state.resolved(&found, false), None);
    assert!(state.has_address());
}

#[test]
fn failures_in_a_row_take_an_upstream_out_for_a_while_and_a_success_between_them_does_not() {
    let upstreams = group(2);
    let sick = &upstreams.members[0].state;
    assert!(!sick.failed(0) && !sick.failed(0));
    sick.succeeded();
    assert!(!sick.failed(0) && !sick.failed(0));
    assert_eq!(spread(&upstreams, 0).len(), 2);
    assert!(sick.failed(0), "the third in a row");
    assert_eq!(spread(&upstreams, EJECT_MICROS - 1), BTreeMap::from([(9_001, 300)]));
    assert_eq!(spread(&upstreams, EJECT_MICROS).len(), 2);
}

#[test]
fn an_upstream_whose_checks_fail_gets_nothing_unless_all_do() {
    let upstreams = group(2);
    let [one, other] = [0, 1].map(|at| Arc::clone(&upstreams.members[at].state));
    assert!(one.checked(false) && !one.checked(false));
    assert_eq!(spread(&upstreams, 0), BTreeMap::from([(9_001, 300)]));
    other.checked(false);
    assert_eq!(spread(&upstreams, 0).len(), 2);
    assert!(one.checked(true));
    assert_eq!(spread(&upstreams, 0), BTreeMap::from([(9_000, 300)]));
}

// threat: A buried upstream, a storm of retries
#[test]
fn weights_are_kept_exactly_and_turns_are_spread_out() {
    let upstreams = group_of(&[2, 6, 4], false);
    assert_eq!(*upstreams.turns, [1, 2, 0, 1, 2, 1]);
    assert_eq!(spread(&upstreams, 0), BTreeMap::from([(9_000, 50), (9_001, 150), (9_002, 100)]));
    upstreams.members[1].state.checked(false);
    let left = spread(&upstreams, 0);
    assert_eq!(left.values().sum::<u32>(), 300);
    assert!(left.len() == 2 && left[&9_002] > left[&9_000], "{left:?}");
}

// threat: A buried upstream, a storm of retries
#[tokio::test]
async fn the_less_busy_of_two_is_chosen_and_one_that_is_full_is_left_out() {
    let upstreams = group_of(&[1, 1], true);
    let [one, other] = [0, 1].map(|at| Arc::clone(&upstreams.members[at].state));
    let mut slots = vec![one.acquire(Duration::ZERO).await.unwrap()];
    assert_eq!(spread(&upstreams, 0), BTreeMap::from([(9_001, 300)]));
    for _ in 0..50 {
        slots.push(other.acquire(Duration::ZERO).await.unwrap());
    }
    assert!(other.acquire(Duration::ZERO).await.is_none(), "it is full");
    let in_turn = group_of(&[1, 1], false);
    let full = Arc::clone(&in_turn.members[1].state);
    for _ in 0..50 {
        slots.push(full.acquire(Duration::ZERO).await.unwrap());
    }
    assert_eq!(spread(&in_turn, 0), BTreeMap::from([(9_000, 300)]));
    drop(slots);
    assert_eq!(spread(&in_turn, 0).len(), 2);
}

// threat: A buried upstream, a storm of retries
#[tokio::test(start_paused = true)]
async fn as_many_as_allowed_wait_for_a_place_and_one_more_does_not() {
    let upstreams = group(1);
    let state = Arc::clone(&upstreams.members[0].state);
    let mut slots = Vec::new();
    for _ in 0..50 {
        slots.push(state.acquire(Duration::ZERO).await.unwrap());
    }
    let waiting = tokio::spawn({
        let state = Arc::clone(&state);
        async move { state.acquire(Duration::from_secs(5)).await.is_some() }
    });
    tokio::task::yield_now().await;
    assert!(state.acquire(Duration::from_secs(5)).await.is_none(), "one waits already");
    assert!(!waiting.is_finished());
    slots.pop();
    assert!(waiting.await.unwrap());
    let begun = Timer::now();
    slots.push(state.acquire(Duration::ZERO).await.unwrap());
    assert!(state.acquire(Duration::from_secs(5)).await.is_none(), "it waits in vain");
    assert_eq!(Timer::now() - begun, Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn requests_under_way_count_under_other_rules_and_those_that_wait_get_the_new_room() {
    let before = Arc::clone(&group(1).members[0].state);
    let mut slots = Vec::new();
    for _ in 0..50 {
        slots.push(before.acquire(Duration::ZERO).await.unwrap());
    }
    let waiting = tokio::spawn({
        let state = Arc::clone(&before);
        async move { state.acquire(Duration::from_secs(5)).await }
    });
    tokio::task::yield_now().await;
    assert!(before.failed(1) || before.failed(1) || before.failed(1), "it is ejected");
    before.checked(false);
    let limits = |in_flight_max| UpstreamLimits { in_flight_max, pending_max: 0 };
    let with = |state: &UpstreamState, health, limits| {
        UpstreamState::new(state.upstream.clone(), health, limits, state.rules.clone(), Some(state))
    };
    let fewer = Arc::new(with(&before, before.health.clone(), limits(10)));
    assert_eq!((fewer.in_flight(), fewer.is_usable(2), fewer.has_room()), (50, false, false));
    let more = Arc::new(with(&fewer, before.health.clone(), limits(52)));
    slots.push(waiting.await.unwrap().unwrap());
    slots.push(more.acquire(Duration::ZERO).await.unwrap());
    assert!(more.acquire(Duration::ZERO).await.is_none());
    drop(slots);
    assert_eq!((before.in_flight(), more.in_flight(), more.is_usable(EJECT_MICROS)), (0, 0, false));
    let unchecked = HealthRules { interval: None, ..before.health.clone() };
    let without_checks = with(&more, unchecked, limits(52));
    assert!(without_checks.is_usable(2 * EJECT_MICROS), "nobody would find out that it is healthy again");
    assert!(!before.is_usable(2 * EJECT_MICROS), "the rules in force have checks until the new ones are");
    before.checked(false);
    assert!(without_checks.is_usable(2 * EJECT_MICROS), "a check that began before ends after");
    let again = with(&without_checks, before.health.clone(), limits(52));
    assert!(again.is_usable(2 * EJECT_MICROS), "it has not been checked again");
    again.checked(false);
    assert!(!again.is_usable(2 * EJECT_MICROS));
}

#[test]
fn requests_that_are_silent_on_the_same_connections_leave_these_once() {
    let state = Arc::clone(&group(1).members[0].state);
    let of = state.generation();
    (0..4).for_each(|_| state.leave_connections(of));
    assert_eq!(state.generation(), of + 1);
    state.leave_connections(of + 1);
    assert_eq!(state.generation(), of + 2);
}

#[test]
fn upstreams_are_checked_where_the_tenant_asks_for_it_or_there_is_a_choice() {
    for (upstreams, path, is_checked) in [
        ("a:80", None, false),
        ("a:80,a:80 weight=2", None, false),
        ("a:80,b:80", None, true),
        ("a:80", Some("/health"), true),
    ] {
        let mut tenant = fixture::tenant();
        tenant.upstreams = upstreams.split(',').map(|name| Upstream::parse(name).unwrap()).collect();
        tenant.proxy.health.path = path.map(Into::into);
        let expected = tenant.proxy.health.interval.filter(|_| is_checked);
        assert_eq!(health_rules(&tenant).interval, expected, "{upstreams} {path:?}");
    }
}

// threat: A buried upstream, a storm of retries
#[tokio::test]
async fn retries_stay_below_a_tenth_of_the_requests_under_way() {
    let upstreams = group(1);
    let few: Vec<_> = std::iter::from_fn(|| upstreams.retry()).collect();
    assert_eq!(few.len(), RETRIES_MIN as usize);
    drop(few);
    let mut slots = Vec::new();
    for _ in 0..50 {
        slots.push(upstreams.members[0].state.acquire(Duration::ZERO).await.unwrap());
    }
    assert_eq!(std::iter::from_fn(|| upstreams.retry()).take(100).collect::<Vec<_>>().len(), 5);
}
