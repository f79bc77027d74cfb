//! Logs that come late, because the node that is asked for them lags behind the one that told the head: they are heeded
//! once, and looking for them costs little.

use std::collections::BTreeMap;

use super::{NOW, block, followed, log, logs, node, trail};
use crate::chain::follower::overlap::{BLOCKS_MIN, LAG_MICROS};
use crate::chain::follower::trail::{Outcome, Step};

const SECOND: u64 = 1_000_000;

#[test]
fn a_head_that_stays_is_looked_at_three_times_more_and_then_costs_nothing() {
    let mut trail = trail(100);
    let seen = 1_000 * SECOND;
    assert_eq!(trail.head(block(100, 0), &node("a"), seen), followed(block(100, 0), &[]));
    trail.head(block(101, 0), &node("a"), seen);
    assert_eq!(trail.logs(&[]), followed(block(101, 0), &[]));
    let mut late = 0;
    for second in 1..100 {
        let step = trail.head(block(101, 0), &node("a"), seen + second * SECOND);
        if [1, 4, 15].contains(&second) {
            assert_eq!(step, logs(101, 101), "{second}");
            late += 1;
            let found = log(block(101, 0), late, late);
            assert_eq!(trail.logs(&[found]), followed(block(101, 0), &[late]), "found late");
        } else {
            assert_eq!(step, followed(block(101, 0), &[]), "{second}");
        }
    }
}

#[test]
fn logs_are_asked_for_again_16_blocks_back_and_not_before_the_beginning() {
    let mut trail = trail(100);
    let at = |number: u64| 1_000 * SECOND + number * 12 * SECOND;
    for number in 101..150 {
        let from = (number - BLOCKS_MIN).max(101);
        assert_eq!(trail.head(block(number, 0), &node("a"), at(number)), logs(from, number));
        assert_eq!(trail.logs(&[]), followed(block(number, 0), &[]));
    }
    trail.head(block(150, 0), &node("a"), at(150));
    let late = [log(block(134, 0), 3, 7), log(block(140, 0), 0, 8)];
    assert_eq!(trail.logs(&late), followed(block(150, 0), &[7, 8]));
    trail.head(block(151, 0), &node("a"), at(151));
    assert_eq!(trail.logs(&late[1..]), followed(block(151, 0), &[]));
}

#[test]
fn logs_of_a_quick_chain_are_asked_for_again_15_seconds_back_and_heeded_once() {
    let mut trail = trail(100);
    let mut number = 100;
    for second in 1..=60 {
        number += 4;
        let head = block(number, 0);
        let step = trail.head(head, &node("a"), 1_000 * SECOND + second * SECOND);
        assert_eq!(step, Step::Block(number - 4));
        let read = trail.block(Some(block(number - 4, 0)));
        let from = (number - 4 - 15 * 4 + 1).max(101);
        assert_eq!(read, logs(from, number), "what is new, and the 15 s before it was read last");
        let expected: &[u64] = if second == 40 { &[7] } else { &[] };
        let told = (second >= 40 && from <= 220).then(|| log(block(220, 0), 0, 7));
        assert_eq!(trail.logs(told.as_slice()), followed(head, expected), "{second}");
    }
}

#[test]
fn a_node_that_gives_few_logs_at_once_is_not_asked_for_more_by_the_15_seconds() {
    let mut trail = trail(100);
    let mut requests_max = 0;
    for second in 1..=120 {
        let number = 100 + second * 4;
        trail.head(block(number, 0), &node("a"), 1_000 * SECOND + second * SECOND);
        let mut step = trail.block(Some(block(number - 4, 0)));
        let mut requests = 0;
        while let Step::Logs { from, to } = step {
            requests += 1;
            step = if to - from >= 10 { trail.too_large() } else { trail.logs(&[]) };
        }
        assert_eq!(step, followed(block(number, 0), &[]), "{second}");
        requests_max = requests_max.max(requests);
    }
    // Sixteen blocks and the four new ones, and now and then one that tries for more.
    assert!((2..=5).contains(&requests_max), "{requests_max}");
}

/// What polls came to.
#[derive(Default)]
struct Polled {
    /// How often each agent was dropped.
    dropped: BTreeMap<u64, u32>,
    /// How often a block was asked for by its number, and how often logs were, while blocks came.
    blocks: u32,
    logs: u32,
}

/// Polls a chain with a block each `block_micros`, every block with a log of an agent of its number, through a node that
/// has logs `lag_micros` after their blocks; for two minutes, and for one more in which no block comes.
fn polled(poll_micros: u64, block_micros: u64, lag_micros: u64) -> Polled {
    let (mut trail, mut polled) = (trail(100), Polled::default());
    let mined = |number: u64| NOW + (number - 100) * block_micros;
    let chain: Vec<_> = (100..=100 + 120 * SECOND / block_micros).map(|number| block(number, 0)).collect();
    let at = |number: u64| chain[usize::try_from(number - 100).unwrap()];
    let all: Vec<_> = chain.iter().map(|block| log(*block, 0, block.number)).collect();
    for poll in 1..=180 * SECOND / poll_micros {
        let passed = poll * poll_micros;
        let comes = u32::from(passed <= 120 * SECOND);
        let head = 100 + passed.min(120 * SECOND) / block_micros;
        let mut step = trail.head(at(head), &node("a"), NOW + passed);
        let outcome = loop {
            step = match step {
                Step::Block(number) => {
                    polled.blocks += comes;
                    trail.block(Some(at(number)))
                }
                Step::Logs { from, to } => {
                    polled.logs += comes;
                    let is_known = |number: u64| mined(number) + lag_micros <= NOW + passed;
                    let asked = all.iter().filter(|log| (from..=to).contains(&log.block_number));
                    trail.logs(&asked.filter(|log| is_known(log.block_number)).cloned().collect::<Vec<_>>())
                }
                Step::LogsOfEach { .. } => unreachable!(),
                Step::Done(outcome) => break outcome,
            };
        };
        let Outcome::Followed { drops, .. } = outcome else { panic!("{outcome:?}") };
        for agent in drops.agents {
            *polled.dropped.entry(agent.token_id().to::<u64>()).or_default() += 1;
        }
    }
    // The staker's topic is taken for an agent as well.
    polled.dropped.remove(&0);
    polled
}

#[test]
fn what_a_node_leaves_out_for_15_seconds_is_found_whatever_the_time_between_blocks() {
    for poll_micros in [SECOND, 3 * SECOND] {
        for block_micros in [100_000, 250_000, SECOND, 2 * SECOND, 12 * SECOND, 60 * SECOND] {
            for lag_micros in [0, SECOND, 5 * SECOND, LAG_MICROS] {
                let last = 100 + 120 * SECOND / block_micros;
                let expected: BTreeMap<u64, u32> = (101..=last).map(|number| (number, 1)).collect();
                let dropped = polled(poll_micros, block_micros, lag_micros).dropped;
                assert_eq!(dropped, expected, "a block each {block_micros}, {lag_micros} late");
            }
        }
    }
}

/// What `docs/operations.md` says of the cost. Each poll asks for the head besides.
#[test]
fn following_costs_at_most_two_calls_a_poll_besides_the_head_and_few_on_a_slow_chain() {
    for (poll_micros, block_micros, blocks, logs) in [
        // 120 polls.
        (SECOND, 250_000, 120, 120),
        (SECOND, SECOND, 0, 120),
        (SECOND, 2 * SECOND, 0, 119),
        (SECOND, 12 * SECOND, 0, 28),
        (SECOND, 60 * SECOND, 0, 5),
        // 24 polls.
        (5 * SECOND, 250_000, 24, 24),
        (5 * SECOND, 2 * SECOND, 24, 24),
        (5 * SECOND, 12 * SECOND, 0, 19),
    ] {
        let polled = polled(poll_micros, block_micros, 0);
        assert_eq!((polled.blocks, polled.logs), (blocks, logs), "a block each {block_micros}");
    }
}
