//! Which node is asked next, with time as an argument.

use std::{sync::Arc, time::Duration};

use super::{BACKOFF_MICROS_MAX, FAILURES_MAX, Health, PAUSE_MICROS, Tries};
use crate::chain::fault::ReadError;

const BROKEN: ReadError = ReadError::HttpStatus(502);
const SLOW: ReadError = ReadError::Timeout(1);
const BEHIND: ReadError = ReadError::Behind { number: 1, newest: 2 };
const NO_BLOCK: ReadError = ReadError::NoBlock { code: -32_000, message: String::new() };

/// What a read does next.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Ask(usize),
    Wait(u64),
    GiveUp,
}

fn next(health: &Health, tries: &Tries, now: u64) -> Next {
    match health.next(tries, now) {
        Some((node, from_micros)) if from_micros <= now => Next::Ask(node),
        Some((_, from_micros)) => Next::Wait(from_micros),
        None => Next::GiveUp,
    }
}

/// The nodes that one read asks when each try fails with this error, with the time of each try.
fn asked(health: &mut Health, nodes: usize, error: &ReadError, until: u64) -> Vec<(usize, u64)> {
    let (mut tries, mut now, mut asked) = (Tries::new(nodes, false, (7, u64::MAX)), 1_000_000, Vec::new());
    while now < until {
        match next(health, &tries, now) {
            Next::Ask(node) => {
                asked.push((node, now));
                tries.failed(node, error, now);
                if let ReadError::RateLimited(Some(pause)) = error {
                    health.limited(node, *pause, false, now);
                }
            }
            Next::Wait(until_micros) => now = until_micros,
            Next::GiveUp => break,
        }
    }
    asked
}

fn nodes(asked: &[(usize, u64)]) -> Vec<usize> {
    asked.iter().map(|(node, _)| *node).collect()
}

fn open(health: &mut Health, node: usize, now: u64) {
    (0..FAILURES_MAX).for_each(|_| _ = health.failed(node, &BROKEN, (now, now)));
}

#[test]
fn a_node_that_is_behind_or_lacks_the_block_is_asked_until_the_deadline_the_next_one_first() {
    for error in [BEHIND, NO_BLOCK] {
        let asked = asked(&mut Health::new(2), 2, &error, 7_000_000);
        assert_eq!(nodes(&asked[..6]), [0, 1, 0, 1, 0, 1]);
        assert!(asked.len() > 20, "{}", asked.len());
        let pauses: Vec<u64> = asked.windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
        assert!(pauses.iter().all(|pause| *pause <= BACKOFF_MICROS_MAX * 5 / 4), "{pauses:?}");
    }
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
    let mut tries = Tries::new(4, false, (0, u64::MAX));
    assert_eq!(health.begin(0, &mut tries, 0), Some(3));
    open(&mut health, 1, 0);
    health.limited(2, Duration::from_secs(60), false, 0);
    assert_eq!(health.begin(0, &mut tries, 1), Some(1));
    assert_eq!(health.begin(0, &mut tries, 1_000_000), Some(2), "a probe is due");
    tries.failed(0, &SLOW, 1);
    assert_eq!(health.begin(3, &mut tries, 1), Some(0));
}

// threat: A sick node
#[test]
fn an_answer_that_was_under_way_ends_no_pause_that_a_node_asked_for() {
    let mut health = Health::new(1);
    health.limited(0, Duration::from_secs(2), false, 0);
    health.succeeded(0);
    assert_eq!(next(&health, &Tries::new(1, false, (0, u64::MAX)), 1), Next::Wait(2_000_000));
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
    let (any, day) = (|nodes| Tries::new(nodes, false, (0, u64::MAX)), Duration::from_secs(86_400));
    let mut health = Health::new(2);
    health.limited(0, day, false, 0);
    assert_eq!(next(&health, &any(2), 3_000_000), Next::Ask(1), "another one is free");
    health.limited(1, day, false, 3_000_000);
    assert_eq!(next(&health, &any(2), 3_000_000), Next::Ask(0), "two seconds at most where none is");
    health.limited(0, day, false, 3_000_000);
    assert_eq!(next(&health, &any(2), 3_000_000), Next::Wait(5_000_000));
    let mut alone = Health::new(1);
    alone.limited(0, day, false, 0);
    assert_eq!(next(&alone, &any(1), 0), Next::Wait(2_000_000), "all reads wait for it");
    let mut health = Health::new(2);
    health.limited(0, day, false, 0);
    open(&mut health, 1, 0);
    assert_eq!(next(&health, &any(2), 1), Next::Wait(2_000_000), "the other one is no way on");
    assert_eq!(next(&health, &any(2), 1_000_000), Next::Ask(1), "but for a probe");
}

#[test]
fn a_limit_of_logs_delays_logs_alone() {
    let mut health = Health::new(1);
    health.limited(0, Duration::from_secs(1), true, 0);
    assert_eq!(next(&health, &Tries::new(1, false, (0, u64::MAX)), 1), Next::Ask(0));
    assert_eq!(next(&health, &Tries::new(1, true, (0, u64::MAX)), 1), Next::Wait(1_000_000));
    health.limited(0, Duration::from_secs(2), false, 0);
    assert_eq!(next(&health, &Tries::new(1, true, (0, u64::MAX)), 1), Next::Wait(2_000_000));
}

// threat: A sick node
#[test]
fn an_unhealthy_node_is_left_out_until_a_real_call_probes_it_and_has_its_place_again() {
    let mut health = Health::new(2);
    open(&mut health, 0, 0);
    let tries = || Tries::new(2, false, (0, u64::MAX));
    assert_eq!(next(&health, &tries(), 1), Next::Ask(1));
    assert_eq!(next(&health, &tries(), 1_000_000), Next::Ask(0), "the probe");
    assert_eq!(health.begin(0, &mut tries(), 1_000_000), Some(1));
    assert_eq!(health.begin(0, &mut tries(), 1_000_001), None, "one at a time");
    assert_eq!(next(&health, &tries(), 1_000_001), Next::Ask(1));
    health.succeeded(0);
    assert_eq!(next(&health, &tries(), 1_000_002), Next::Ask(0));
}

#[test]
fn after_a_failed_probe_the_next_one_comes_a_second_later() {
    let mut health = Health::new(1);
    open(&mut health, 0, 0);
    let mut probes = Vec::new();
    for now in (0..10_000_000).step_by(10_000) {
        if health.begin(0, &mut Tries::new(1, false, (0, u64::MAX)), now).is_some() {
            probes.push(now);
            health.failed(0, &BROKEN, (now, now));
        }
    }
    let pauses: Vec<u64> = probes.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.len() > 5 && pauses.iter().all(|pause| *pause <= PAUSE_MICROS + 10_000), "{pauses:?}");
    assert!(pauses.iter().all(|pause| *pause >= PAUSE_MICROS * 3 / 4), "{pauses:?}");
}

// threat: A sick node
#[test]
fn when_all_are_unhealthy_a_read_waits_for_the_first_probe_and_knows_why() {
    let mut health = Health::new(2);
    open(&mut health, 1, 0);
    let probed_micros = health.breakers[1].open.as_ref().unwrap().0;
    assert_eq!(next(&health, &Tries::new(2, false, (0, u64::MAX)), 1), Next::Ask(0));
    open(&mut health, 0, 400_000);
    let mut tries = Tries::new(2, false, (0, u64::MAX));
    (0..9).for_each(|_| tries.failed(0, &BROKEN, 0));
    assert_eq!(next(&health, &tries, 400_001), Next::Wait(probed_micros));
    assert_eq!(health.unhealthy(), Some((probed_micros, (1, ReadError::Unhealthy(Arc::new(BROKEN))))));
    assert_eq!(next(&health, &tries, probed_micros), Next::Ask(1));
    // One that hangs is not waited for without end.
    health.begin(1, &mut tries, probed_micros).unwrap();
    health.begin(0, &mut tries, 1_400_000).unwrap();
    let first_micros = probed_micros + PAUSE_MICROS;
    assert_eq!(next(&health, &tries, 1_500_000), Next::Wait(first_micros));
    let strange = Tries::new(2, false, (0, 0));
    assert_eq!(next(&health, &strange, 9_000_000), Next::Wait(u64::MAX), "probes none");
    health.succeeded(0);
    assert_eq!(next(&health, &strange, 9_000_000), Next::Ask(0));
    (0..9).for_each(|_| tries.failed(0, &BROKEN, 0));
    assert_eq!(next(&health, &tries, 1_500_000), Next::GiveUp, "the healthy one had its tries");
}

// threat: A sick node
#[test]
fn failures_that_began_before_the_last_one_ended_count_once() {
    let mut health = Health::new(1);
    for round in 1..FAILURES_MAX {
        let began = u64::from(round) * 100;
        for late in 0..50 {
            assert!(!health.failed(0, &BROKEN, (began, began + 1 + late)));
        }
    }
    assert_eq!(next(&health, &Tries::new(1, false, (0, u64::MAX)), 1_000), Next::Ask(0));
    assert!(health.failed(0, &BROKEN, (1_000, 1_001)), "the fifth");
}

#[test]
fn an_answer_between_failures_keeps_a_node_healthy() {
    let mut health = Health::new(1);
    for _ in 0..10 {
        (1..FAILURES_MAX).for_each(|_| _ = health.failed(0, &BROKEN, (0, 0)));
        health.succeeded(0);
    }
    assert_eq!(next(&health, &Tries::new(1, false, (0, u64::MAX)), 0), Next::Ask(0));
}

// threat: An absurd agent makes healthy nodes unhealthy
#[test]
fn errors_of_calls_count_against_a_node_only_where_another_one_answered() {
    for (error, is_suspect) in [
        (ReadError::NodeError { code: -32_000, message: String::new() }, true),
        (SLOW, true),
        (BEHIND, true),
        (NO_BLOCK, false),
        (ReadError::TooLong(1), true),
        (ReadError::RateLimited(None), false),
        (BROKEN, false),
    ] {
        let mut tries = Tries::new(2, false, (0, u64::MAX));
        tries.failed(0, &error, 0);
        assert_eq!(tries.suspects(1).count() == 1, is_suspect, "{error}");
        assert_eq!(tries.suspects(0).count(), 0);
    }
}
