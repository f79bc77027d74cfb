//! Heads, pieces and logs in the orders in which back ends give them.

use alloy::primitives::{Address, U256, keccak256};
use alloy::sol_types::SolEvent;

use super::{AT_ONCE_MAX, GROWS_AFTER_MICROS, OVERLAP, PIECES_MAX, Piece, Position, Window};
use crate::chain::block::{Block, Log};
use crate::chain::{registries::calls::Staked, registries::logs::Kind};

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

fn window(at: u64) -> Window {
    let mut window = Window::new();
    assert_eq!(window.position(&block(0, at)), Position::First);
    window.begin(block(0, at));
    window
}

/// Reads on to this head. False: the logs contradict what was accounted for.
fn read_on(window: &mut Window, head: Block, logs: &[Log]) -> bool {
    assert_eq!(window.position(&head), Position::Ahead);
    window.account(head, logs, &[])
}

// threat: A new owner or a reorganization is not seen
#[test]
fn a_node_that_has_less_is_behind_and_another_block_at_an_accounted_height_is_a_reorganization() {
    let mut window = window(100);
    for number in 101..110 {
        assert!(read_on(&mut window, block(0, number), &[]));
    }
    assert_eq!(window.position(&block(0, 109)), Position::Same);
    for number in [1, 99, 100, 105, 108] {
        assert_eq!(window.position(&block(0, number)), Position::Behind, "{number}");
    }
    for number in [100, 105, 108, 109] {
        assert_eq!(window.position(&block(1, number)), Position::Reorganized, "{number}");
    }
    assert_eq!(window.position(&block(1, 99)), Position::Reorganized, "of a later time, and not higher");
    let earlier = Block { timestamp: 109, ..block(1, 108) };
    assert_eq!(window.position(&earlier), Position::Behind, "a back end may be stuck on a fork");
}

/// The pieces up to this head: kind, first and last block.
fn pieces(window: &Window, head: u64) -> Vec<(Kind, u64, u64)> {
    let pieces = window.pieces(&block(0, head), true).unwrap();
    pieces.into_iter().map(|Piece { kind, from, to }| (kind, from, to)).collect()
}

// threat: A new owner or a reorganization is not seen
#[test]
fn the_logs_of_the_last_16_blocks_are_read_again_but_none_of_where_everybody_was_dropped() {
    let mut window = window(100);
    assert_eq!(
        pieces(&window, 101),
        [(Kind::All, 101, 101), (Kind::Tokens, 101, 101)],
        "a beginning drops all"
    );
    for number in [105, 140] {
        assert!(read_on(&mut window, block(0, number), &[]));
    }
    let from = 141 - OVERLAP;
    assert_eq!(pieces(&window, 150), [(Kind::All, from, 150), (Kind::Tokens, from, 150)]);
    let lost = Piece { kind: Kind::Tokens, from: 130, to: 130 };
    assert!(window.account(block(0, 141), &[], &[lost]));
    assert_eq!(pieces(&window, 150), [(Kind::All, 131, 150), (Kind::Tokens, 131, 150)]);
    let plain = window.pieces(&block(0, 150), false).unwrap();
    assert_eq!(plain, [Piece { kind: Kind::All, from: 131, to: 150 }]);
}

// threat: A new owner or a reorganization is not seen
#[test]
fn logs_of_blocks_that_are_not_the_accounted_ones_are_a_reorganization() {
    let mut window = window(100);
    assert!(read_on(&mut window, block(0, 105), &[]));
    assert!(!read_on(&mut window.clone(), block(0, 106), &[log(block(1, 105), 1)]));
    assert!(!read_on(&mut window.clone(), block(0, 106), &[log(block(1, 106), 1)]));
    assert!(read_on(&mut window, block(0, 106), &[log(block(0, 106), 1)]));
}

#[test]
fn a_piece_that_is_refused_is_halved_down_to_one_block() {
    let mut asked = vec![Piece { kind: Kind::All, from: 1, to: 17 }];
    let mut smallest = Vec::new();
    while let Some(piece) = asked.pop() {
        match piece.halves() {
            Some(halves) => asked.extend(halves.into_iter().rev()),
            None => smallest.push(piece),
        }
    }
    let expected: Vec<Piece> = (1..=17).map(|at| Piece { kind: Kind::All, from: at, to: at }).collect();
    assert_eq!(smallest, expected, "each block once, in order");
}

#[test]
fn nodes_that_give_few_logs_are_asked_for_as_many_and_after_a_minute_for_more() {
    let mut window = window(100);
    assert!(read_on(&mut window, block(0, 140), &[]));
    window.shrink(8, 0);
    let all: Vec<_> = pieces(&window, 141).into_iter().filter(|(kind, ..)| *kind == Kind::All).collect();
    assert_eq!(all, [(Kind::All, 125, 132), (Kind::All, 133, 140), (Kind::All, 141, 141)]);
    assert!(window.pieces(&block(0, 140 + 8 * PIECES_MAX as u64), false).is_none(), "more than a poll reads");
    let mut now = 0;
    for at_once in [8, 32, 128, 512, AT_ONCE_MAX, AT_ONCE_MAX] {
        window.grow(now + GROWS_AFTER_MICROS - 1);
        assert_eq!(window.at_once, at_once);
        now += GROWS_AFTER_MICROS;
        window.grow(now);
    }
}
