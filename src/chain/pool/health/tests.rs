//! Which node is asked next, with time as an argument.

use std::time::Duration;

use super::Input::Ours;
use super::{BACKOFF_MICROS_MAX, FAILURES_MAX, Health, Next, PAUSE_MICROS, Tries};
use crate::chain::fault::ReadError;

const BROKEN: ReadError = ReadError::HttpStatus(502);
const SLOW: ReadError = ReadError::Timeout(1);
const BEHIND: ReadError = ReadError::Behind { number: 1, newest: 2 };

/// The nodes that one read asks when each try fails with this error, with the time of each try.
fn asked(health: &mut Health, nodes: usize, error: &ReadError, until: u64) -> Vec<(usize, u64)> {
    let (mut tries, mut now, mut asked) = (Tries::new(nodes, Ours, 7), 1_000_000, Vec::new());
    while now < until {
        match health.next(&tries, now) {
            Next::Ask(node) => {
                asked.push((node, now));
                tries.failed(node, error, now);
                if let ReadError::RateLimited(pause) = error {
                    health.limited(node, *pause, now);
                }
            }
            Next::Wait(until_micros) => now = until_micros,
            Next::GiveUp(_) => break,
        }
    }
    asked
}

fn nodes(asked: &[(usize, u64)]) -> Vec<usize> {
    asked.iter().map(|(node, _)| *node).collect()
}

fn open(health: &mut Health, node: usize, now: u64) {
    (0..FAILURES_MAX).for_each(|_| _ = health.failed(node, &BROKEN, now));
}

#[test]
fn a_node_that_is_behind_is_asked_again_then_the_next_until_the_deadline() {
    let asked = asked(&mut Health::new(2), 2, &BEHIND, 7_000_000);
    assert_eq!(nodes(&asked[..6]), [0, 0, 1, 1, 0, 0]);
    assert!(asked.len() > 20, "{}", asked.len());
    let pauses: Vec<u64> = asked.windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
    assert!(pauses.iter().all(|pause| *pause <= BACKOFF_MICROS_MAX * 5 / 4), "{pauses:?}");
}

#[test]
fn a_node_that_fails_is_asked_a_few_times_and_one_that_is_slow_fewer() {
    assert_eq!(nodes(&asked(&mut Health::new(1), 1, &BROKEN, u64::MAX)), [0; 6]);
    assert_eq!(nodes(&asked(&mut Health::new(1), 1, &SLOW, u64::MAX)), [0; 3]);
}

#[test]
fn a_node_that_does_not_answer_in_time_is_not_asked_again_before_the_next_had_its_turn() {
    for nodes_count in [2, 3] {
        let asked = nodes(&asked(&mut Health::new(nodes_count), nodes_count, &SLOW, u64::MAX));
        let rounds: Vec<usize> = (0..3).flat_map(|_| 0..nodes_count).collect();
        assert_eq!(asked, rounds);
    }
}

#[test]
fn nodes_that_a_read_has_yet_to_ask_share_its_time_unless_they_are_unhealthy_or_paused() {
    let mut health = Health::new(4);
    let mut tries = Tries::new(4, Ours, 0);
    assert_eq!(health.untried(&tries, 0, 0), 3);
    open(&mut health, 1, 0);
    health.limited(2, Some(Duration::from_secs(60)), 0);
    assert_eq!(health.untried(&tries, 0, 1), 1);
    tries.failed(0, &SLOW, 1);
    assert_eq!(health.untried(&tries, 3, 1), 0);
    assert_eq!(health.untried(&tries, 0, 1_000_000), 2, "a probe is due");
}

// threat: A sick node
#[test]
fn an_answer_that_was_under_way_ends_no_pause_that_a_node_asked_for() {
    let mut health = Health::new(1);
    health.limited(0, Some(Duration::from_secs(2)), 0);
    health.succeeded(0);
    assert_eq!(health.next(&Tries::new(1, Ours, 0), 1), Next::Wait(2_000_000));
}

// threat: A sick node
#[test]
fn a_pause_that_a_node_asks_for_delays_it_and_sends_reads_to_the_next() {
    let limited = ReadError::RateLimited(Some(Duration::from_secs(2)));
    let alone = asked(&mut Health::new(1), 1, &limited, 6_000_000);
    assert!(alone.windows(2).all(|pair| pair[1].1 - pair[0].1 >= 2_000_000), "{alone:?}");
    let two = asked(&mut Health::new(2), 2, &limited, 2_000_000);
    assert_eq!(nodes(&two), [0, 1]);
    let at_once = ReadError::RateLimited(Some(Duration::ZERO));
    assert!(asked(&mut Health::new(1), 1, &at_once, 2_000_000).len() > 3);
    let mut health = Health::new(1);
    health.limited(0, Some(Duration::from_secs(86_400)), 0);
    let next = health.next(&Tries::new(1, Ours, 0), 0);
    assert_eq!(next, Next::Wait(2_000_000), "all reads wait for it");
    let mut health = Health::new(2);
    for node in [0, 1] {
        health.limited(node, Some(Duration::from_secs(86_400)), 0);
    }
    assert_eq!(health.next(&Tries::new(2, Ours, 0), 0), Next::Wait(60_000_000), "a minute at most");
}

// threat: A sick node
#[test]
fn an_unhealthy_node_is_left_out_until_a_real_call_probes_it_and_has_its_place_again() {
    let mut health = Health::new(2);
    open(&mut health, 0, 0);
    let tries = || Tries::new(2, Ours, 0);
    assert_eq!(health.next(&tries(), 1), Next::Ask(1));
    assert_eq!(health.next(&tries(), 1_000_000), Next::Ask(0), "the probe");
    assert_eq!(health.next(&tries(), 1_000_001), Next::Ask(1), "one at a time");
    health.succeeded(0);
    assert_eq!(health.next(&tries(), 1_000_002), Next::Ask(0));
}

#[test]
fn after_a_failed_probe_the_next_one_comes_a_second_later() {
    let mut health = Health::new(1);
    open(&mut health, 0, 0);
    let mut probes = Vec::new();
    for now in (0..10_000_000).step_by(10_000) {
        if health.next(&Tries::new(1, Ours, 0), now) == Next::Ask(0) {
            probes.push(now);
            health.failed(0, &BROKEN, now);
        }
    }
    let pauses: Vec<u64> = probes.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.len() > 5 && pauses.iter().all(|pause| *pause <= PAUSE_MICROS + 10_000), "{pauses:?}");
    assert!(pauses.iter().all(|pause| *pause >= PAUSE_MICROS * 3 / 4), "{pauses:?}");
}

#[test]
fn when_all_are_unhealthy_a_read_fails_at_once_and_says_why() {
    let mut health = Health::new(2);
    open(&mut health, 0, 0);
    open(&mut health, 1, 0);
    let Next::GiveUp(Some((0, cause))) = health.next(&Tries::new(2, Ours, 0), 1) else { panic!("asks") };
    assert_eq!(*cause, BROKEN);
}

#[test]
fn an_answer_between_failures_keeps_a_node_healthy() {
    let mut health = Health::new(1);
    for _ in 0..10 {
        (1..FAILURES_MAX).for_each(|_| _ = health.failed(0, &BROKEN, 0));
        health.succeeded(0);
    }
    assert_eq!(health.next(&Tries::new(1, Ours, 0), 0), Next::Ask(0));
}

// threat: An absurd agent makes healthy nodes unhealthy
#[test]
fn errors_of_calls_count_against_a_node_only_where_another_one_answered() {
    for (error, is_suspect) in [
        (ReadError::NodeError { code: -32_000, message: String::new() }, true),
        (SLOW, true),
        (BEHIND, true),
        (ReadError::TooLong(1), true),
        (ReadError::RateLimited(None), false),
        (BROKEN, false),
    ] {
        let mut tries = Tries::new(2, Ours, 0);
        tries.failed(0, &error, 0);
        assert_eq!(tries.suspects(1).count() == 1, is_suspect, "{error}");
        assert_eq!(tries.suspects(0).count(), 0);
    }
}
