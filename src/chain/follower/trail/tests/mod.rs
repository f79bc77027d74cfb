//! What a head means, step by step; and over random chains, that nothing stale is ever served.

mod late;
mod model;

use std::sync::Arc;

use alloy::primitives::{Address, B256, U256, keccak256};

use super::{GAP_BLOCKS_MAX, LOG_REQUESTS_MAX, Outcome, Step, Trail, Why};
use crate::chain::follower::events::{Culprit, Drops};
use crate::chain::rpc::lead::{BlockMark, LogMark};
use crate::domain::agent_id::AgentId;

/// When most of these polls are: how much time passes between them is of no concern there.
const NOW: u64 = 1_000_000_000;

/// The block of a number on a fork: one stands on the other.
fn block(number: u64, fork: u64) -> BlockMark {
    let hash = |number: u64| keccak256([number.to_be_bytes(), fork.to_be_bytes()].concat());
    BlockMark { number, hash: hash(number), parent: hash(number.wrapping_sub(1)) }
}

/// A log in a block that stakes for an agent.
fn log(block: BlockMark, log_index: u64, agent: u64) -> LogMark {
    let topics = vec![keccak256("Staked(uint256,address,uint256)"), word(agent), B256::ZERO];
    LogMark {
        address: Address::ZERO,
        block_number: block.number,
        block_hash: block.hash,
        log_index,
        topics,
        first_word: None,
    }
}

fn word(number: u64) -> B256 {
    B256::from(U256::from(number))
}

fn node(name: &str) -> Arc<str> {
    Arc::from(name)
}

/// A trail that began at a block of fork 0.
fn trail(at: u64) -> Trail {
    let mut trail = Trail::new(None);
    let begun = trail.head(block(at, 0), &node("a"), NOW);
    assert_eq!(begun, restarted(block(at, 0), Why::Start));
    trail
}

fn restarted(head: BlockMark, why: Why) -> Step {
    Step::Done(Outcome::Restarted { head, why })
}

fn followed(head: BlockMark, agents: &[u64]) -> Step {
    let mut agents: std::collections::HashSet<_> =
        agents.iter().map(|id| AgentId::new(U256::from(*id))).collect();
    if !agents.is_empty() {
        // The staker's topic is taken for an agent as well.
        agents.insert(AgentId::new(U256::ZERO));
    }
    Step::Done(Outcome::Followed { head, drops: Drops { agents, ..Drops::default() } })
}

const BEHIND: Step = Step::Done(Outcome::Behind);

fn logs(from: u64, to: u64) -> Step {
    Step::Logs { from, to }
}

#[test]
fn the_next_block_is_followed_by_its_logs() {
    let mut trail = trail(100);
    assert_eq!(
        trail.head(block(101, 0), &node("a"), NOW),
        logs(101, 101),
        "the logs before are of no concern"
    );
    assert_eq!(trail.logs(&[log(block(101, 0), 0, 7)]), followed(block(101, 0), &[7]));
    assert_eq!(trail.head(block(102, 0), &node("a"), NOW), logs(101, 102));
    let both = [log(block(101, 0), 0, 7), log(block(102, 0), 0, 8)];
    assert_eq!(trail.logs(&both), followed(block(102, 0), &[8]), "what was seen is not heeded again");
}

#[test]
fn a_later_head_is_followed_if_the_last_block_is_still_there() {
    let mut trail = trail(100);
    assert_eq!(trail.head(block(105, 0), &node("a"), NOW), Step::Block(100));
    assert_eq!(trail.block(Some(block(100, 0))), logs(101, 105));
    assert_eq!(trail.logs(&[log(block(103, 0), 0, 7)]), followed(block(105, 0), &[7]));
    assert_eq!(trail.head(block(110, 1), &node("a"), NOW), Step::Block(105));
    assert_eq!(trail.block(Some(block(105, 1))), restarted(block(110, 1), Why::Reorganized));
}

#[test]
fn another_block_in_the_place_of_a_followed_one_is_a_reorganization() {
    for head in [block(100, 1), block(101, 1), block(99, 1), block(97, 1)] {
        let mut trail = trail(97);
        for number in 98..=100 {
            trail.head(block(number, 0), &node("a"), NOW);
            trail.logs(&[]);
        }
        assert_eq!(trail.head(head, &node("a"), NOW), restarted(head, Why::Reorganized), "{}", head.number);
        assert_eq!(trail.head(head, &node("a"), NOW), followed(head, &[]), "and is where it goes on");
    }
    let mut trail = trail(97);
    assert_eq!(
        trail.head(block(50, 0), &node("a"), NOW),
        restarted(block(50, 0), Why::Reorganized),
        "unheard of"
    );
}

#[test]
fn a_log_of_a_block_that_is_not_on_the_trail_is_a_reorganization() {
    for stranger in [block(101, 1), block(102, 1)] {
        let mut trail = trail(100);
        trail.head(block(101, 0), &node("a"), NOW);
        trail.logs(&[]);
        trail.head(block(102, 0), &node("a"), NOW);
        assert_eq!(trail.logs(&[log(stranger, 0, 7)]), restarted(block(102, 0), Why::Reorganized));
    }
}

#[test]
fn another_node_that_is_behind_drops_nothing_and_confirms_nothing() {
    let mut trail = trail(100);
    for number in 101..=105 {
        trail.head(block(number, 0), &node("a"), NOW);
        trail.logs(&[]);
    }
    for _ in 0..100 {
        assert_eq!(trail.head(block(103, 0), &node("b"), NOW), Step::Block(105));
        assert_eq!(trail.block(None), BEHIND);
    }
    assert_eq!(
        trail.head(block(106, 0), &node("b"), NOW),
        logs(101, 106),
        "and is followed when it has caught up"
    );
    assert_eq!(trail.logs(&[]), followed(block(106, 0), &[]));
}

#[test]
fn a_node_that_lags_in_part_confirms_what_its_other_part_knows() {
    let mut trail = trail(100);
    trail.head(block(101, 0), &node("a"), NOW);
    trail.logs(&[]);
    assert_eq!(trail.head(block(100, 0), &node("a"), NOW), Step::Block(101));
    assert_eq!(trail.block(Some(block(101, 0))), followed(block(101, 0), &[]));
}

#[test]
fn the_same_node_that_twice_knows_less_than_it_told_has_rolled_back() {
    let mut trail = trail(100);
    for number in [101, 110] {
        trail.head(block(number, 0), &node("a"), NOW);
        trail.block(Some(block(101, 0)));
        trail.logs(&[]);
    }
    assert_eq!(trail.head(block(101, 0), &node("a"), NOW), Step::Block(110));
    assert_eq!(trail.block(None), BEHIND, "once may be a part of it that lags");
    // A block that was never anybody's head when it was looked at.
    assert_eq!(trail.head(block(105, 0), &node("a"), NOW), Step::Block(101));
    assert_eq!(trail.block(Some(block(101, 0))), Step::Block(110));
    assert_eq!(trail.block(None), restarted(block(105, 0), Why::RolledBack));
}

#[test]
fn a_gap_that_is_too_large_is_not_read() {
    let mut trail = trail(100);
    let near = 100 + GAP_BLOCKS_MAX;
    assert_eq!(trail.head(block(near + 1, 0), &node("a"), NOW), restarted(block(near + 1, 0), Why::Gap));
    let mut trail = self::trail(100);
    assert_eq!(trail.head(block(near, 0), &node("a"), NOW), Step::Block(100));
    let mut step = trail.block(Some(block(100, 0)));
    let mut read = Vec::new();
    while let Step::Logs { from, to } = step {
        read.push((from, to));
        step = trail.logs(&[]);
    }
    assert_eq!((read.first(), read.last()), (Some(&(101, 1_100)), Some(&(4_101, 5_100))));
    assert_eq!(step, followed(block(near, 0), &[]));
}

#[test]
fn a_range_that_is_too_large_is_halved_and_the_requests_of_one_poll_are_counted() {
    let mut trail = trail(100);
    trail.head(block(120, 0), &node("a"), NOW);
    assert_eq!(trail.block(Some(block(100, 0))), logs(101, 120));
    assert_eq!(trail.too_large(), logs(101, 110));
    assert_eq!(trail.too_large(), logs(101, 105));
    assert_eq!(trail.logs(&[log(block(103, 0), 0, 7)]), logs(106, 110));
    for _ in 0..2 {
        trail.logs(&[]);
    }
    assert_eq!(trail.logs(&[log(block(120, 0), 0, 8)]), followed(block(120, 0), &[7, 8]));

    assert_eq!(trail.head(block(1_000, 0), &node("a"), NOW), Step::Block(120));
    let mut step = trail.block(Some(block(120, 0)));
    for _ in 0..LOG_REQUESTS_MAX {
        assert!(matches!(step, Step::Logs { from, to } if to - from < 10), "{step:?}");
        step = trail.logs(&[]);
    }
    assert_eq!(step, restarted(block(1_000, 0), Why::Gap));
}

#[test]
fn a_block_whose_logs_can_not_be_read_at_two_polls_in_a_row_drops_everybody() {
    let mut trail = trail(100);
    let of_each = |block| Step::LogsOfEach { block };
    let unread = |block| Step::Done(Outcome::Unread { block });
    assert_eq!(trail.head(block(101, 0), &node("a"), NOW), logs(101, 101));
    assert_eq!(trail.too_large(), of_each(101));
    assert_eq!(trail.logs(&[log(block(101, 0), 0, 7)]), followed(block(101, 0), &[7]), "each alone fits");

    assert_eq!(trail.head(block(102, 0), &node("a"), NOW), logs(101, 101), "the limit is remembered");
    trail.logs(&[]);
    assert_eq!(trail.too_large(), of_each(102));
    assert_eq!(trail.too_large(), unread(102));
    assert_eq!(trail.head(block(102, 0), &node("a"), NOW), logs(101, 101), "nothing has changed");
    trail.logs(&[]);
    assert_eq!(trail.too_large(), of_each(102));
    let drops = Drops { everybody: Some(Culprit::Block(102)), ..Drops::default() };
    assert_eq!(trail.too_large(), Step::Done(Outcome::Followed { head: block(102, 0), drops }));
    assert_eq!(trail.head(block(103, 0), &node("a"), NOW), logs(103, 103), "it is not asked for again");
    assert_eq!(trail.too_large(), of_each(103));
    assert_eq!(trail.too_large(), unread(103), "one in a row is no two");
}

#[test]
fn a_poll_that_was_given_up_half_way_is_read_again_as_a_whole() {
    let mut trail = trail(100);
    trail.head(block(102, 0), &node("a"), NOW);
    trail.block(Some(block(100, 0)));
    trail.too_large();
    assert_eq!(trail.logs(&[log(block(101, 0), 0, 7)]), logs(102, 102));
    assert_eq!(trail.head(block(102, 0), &node("b"), NOW), Step::Block(100));
    assert_eq!(trail.block(Some(block(100, 0))), logs(101, 101));
    assert_eq!(trail.logs(&[log(block(101, 0), 0, 7)]), logs(102, 102));
    assert_eq!(trail.logs(&[]), followed(block(102, 0), &[7]));
}

#[test]
fn a_head_that_no_chain_has_is_not_believed_and_changes_nothing() {
    for absurd in [u64::MAX, u64::MAX / 2 + 1] {
        assert_eq!(Trail::new(None).head(block(absurd, 0), &node("a"), NOW), BEHIND);
        let mut trail = trail(100);
        assert_eq!(trail.head(block(absurd, 0), &node("a"), NOW), BEHIND);
        assert_eq!(trail.head(block(101, 0), &node("a"), NOW), logs(101, 101));
    }
}

#[test]
fn an_answer_that_nobody_asked_for_is_not_heeded() {
    let mut trail = trail(100);
    assert_eq!(trail.block(Some(block(100, 0))), BEHIND);
    assert_eq!(trail.logs(&[log(block(100, 0), 0, 7)]), BEHIND);
    assert_eq!(trail.too_large(), BEHIND);
    assert_eq!(trail.head(block(101, 0), &node("a"), NOW), logs(101, 101));
}
