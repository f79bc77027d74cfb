//! Heads, ranges and logs in the orders in which back ends give them.

use alloy::primitives::{Address, U256, keccak256};
use alloy::sol_types::SolEvent;

use super::{BlockTracker, OVERLAP, Position, SPAN_MAX};
use crate::chain::block::{Block, Log};
use crate::chain::registries::stake_vault::Staked;

/// A block of a fork; forks have different blocks from their first on, and higher forks later ones.
fn block(fork: u64, number: u64) -> Block {
    let hash = |number: u64| keccak256([fork.to_be_bytes(), number.to_be_bytes()].concat());
    Block { number, hash: hash(number), parent: hash(number - 1), timestamp: 1_000 * fork + number }
}

fn log(of: Block, index: u64) -> Log {
    Log {
        address: Address::ZERO,
        block_number: of.number,
        block_hash: of.hash,
        topics: vec![Staked::SIGNATURE_HASH, U256::from(index).into(), U256::from(index).into()],
        first_word: None,
    }
}

fn tracker(at: u64) -> BlockTracker {
    let mut tracker = BlockTracker::new();
    assert_eq!(tracker.position(&block(0, at)), Position::First);
    tracker.begin(block(0, at), false);
    tracker
}

/// Reads on to this head. False: the logs contradict what was accounted for.
fn read_on(tracker: &mut BlockTracker, head: Block, logs: &[Log]) -> bool {
    assert_eq!(tracker.position(&head), Position::Ahead);
    let range = tracker.range(&head).unwrap();
    tracker.account(&range, head, logs)
}

// threat: A new owner or a reorganization is not seen
#[test]
fn a_node_that_has_less_is_behind_and_another_block_at_an_accounted_height_is_a_reorganization() {
    let mut tracker = tracker(100);
    for number in 101..110 {
        assert!(read_on(&mut tracker, block(0, number), &[]));
    }
    assert_eq!(tracker.position(&block(0, 109)), Position::Same);
    for number in [1, 99, 100, 105, 108] {
        assert_eq!(tracker.position(&block(0, number)), Position::Behind, "{number}");
    }
    for number in [100, 105, 108, 109] {
        assert_eq!(tracker.position(&block(1, number)), Position::Reorganized, "{number}");
    }
    assert_eq!(tracker.position(&block(1, 99)), Position::Reorganized, "of a later time, and not higher");
    let earlier = Block { timestamp: 109, ..block(1, 108) };
    assert_eq!(tracker.position(&earlier), Position::Behind, "a back end may be stuck on a fork");
}

#[test]
fn a_back_end_that_still_has_what_a_reorganization_took_away_is_behind() {
    let mut tracker = tracker(100);
    assert!(read_on(&mut tracker, block(0, 101), &[]));
    assert!(read_on(&mut tracker, block(0, 102), &[]));
    assert!(read_on(&mut tracker, block(0, 103), &[]));
    tracker.begin(block(1, 102), true);
    for number in [100, 101, 102, 103] {
        assert_eq!(tracker.position(&block(0, number)), Position::Behind, "{number}");
    }
    assert!(read_on(&mut tracker, block(1, 104), &[]));
    assert_eq!(tracker.position(&block(0, 102)), Position::Behind);
    assert_eq!(tracker.position(&block(2, 104)), Position::Reorganized);
}

// threat: A new owner or a reorganization is not seen
#[test]
fn ranges_overlap_by_16_blocks() {
    let mut tracker = tracker(100);
    for number in [105, 140] {
        assert!(read_on(&mut tracker, block(0, number), &[]));
    }
    let range = tracker.range(&block(0, 150)).unwrap();
    assert_eq!((range.from, range.to, range.last), (141 - OVERLAP, 150, block(0, 140)));
}

// threat: A new owner or a reorganization is not seen
#[test]
fn logs_of_blocks_that_are_not_the_accounted_ones_are_a_reorganization() {
    let mut tracker = tracker(100);
    assert!(read_on(&mut tracker, block(0, 105), &[]));
    assert!(!read_on(&mut tracker.clone(), block(0, 106), &[log(block(1, 105), 1)]));
    assert!(!read_on(&mut tracker.clone(), block(0, 106), &[log(block(1, 106), 1)]));
    assert!(read_on(&mut tracker, block(0, 106), &[log(block(0, 106), 1)]));
}

#[test]
fn a_range_that_is_refused_is_halved_down_to_one_block_and_grows_again_slowly() {
    let mut tracker = tracker(100);
    let head = block(0, 5_000);
    let mut asked = Vec::new();
    loop {
        let range = tracker.range(&head).unwrap();
        asked.push(range.to - range.last.number);
        if range.to == range.last.number + 1 {
            break;
        }
        tracker.shrink(&range);
    }
    assert_eq!(asked, [1_000, 500, 250, 125, 62, 31, 15, 7, 3, 1]);
    let (mut requests, mut widest) = (0, 1);
    while widest < SPAN_MAX {
        let range = tracker.range(&block(0, u64::MAX)).unwrap();
        widest = widest.max(range.to - range.last.number);
        assert!(tracker.account(&range, block(0, range.to), &[]));
        requests += 1;
    }
    assert!((200..1_000).contains(&requests), "{requests}");
}
