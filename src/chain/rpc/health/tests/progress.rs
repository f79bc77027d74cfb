//! How far the nodes have got.

use super::{FAULT, OURS, give_up, met};
use crate::chain::fault::ReadError;
use crate::chain::rpc::breaker::Class;
use crate::chain::rpc::heads::{BLOCKS_BEHIND_MAX, HEARD_MICROS_MAX, Seen};
use crate::chain::rpc::health::SAMPLE_EVERY_MICROS;
use crate::chain::rpc::health::progress::{FOLLOWED_COUNTS_MICROS, Gap};

#[test]
fn a_node_far_behind_another_is_unfit_until_its_next_sample() {
    let mut health = met(&[Some(OURS), Some(OURS)]);
    health.sampled(1, (100 + BLOCKS_BEHIND_MAX).into(), 1);
    health.sampled(0, 100.into(), 2);
    assert_eq!(health.fit(), [0, 1], "so far behind is near enough");
    health.sampled(1, (101 + BLOCKS_BEHIND_MAX).into(), 3);
    assert_eq!(health.fit(), [0, 1], "judged when its own head is looked at");
    health.sampled(0, 100.into(), 4);
    assert_eq!(health.complaint(0), Some(ReadError::Behind { head: 100, best: 101 + BLOCKS_BEHIND_MAX }));
    assert_eq!(health.fit(), [1]);
    health.sampled(0, 101.into(), 5);
    assert_eq!(health.fit(), [1, 0]);
}

#[test]
fn a_node_that_lacks_a_block_which_another_one_told_a_while_ago_is_unfit_until_it_has_it() {
    let mut health = met(&[Some(OURS), Some(OURS)]);
    health.sampled(1, 101.into(), 2_000_000);
    health.sampled(0, 100.into(), 6_999_999);
    assert_eq!(health.fit(), [0, 1], "nodes hear of a block one after the other");
    health.sampled(0, 100.into(), 7_000_000);
    assert_eq!(health.complaint(0), Some(ReadError::Behind { head: 100, best: 101 }));
    assert_eq!(health.fit(), [1]);
    health.sampled(0, 101.into(), 8_000_000);
    assert_eq!(health.fit(), [1, 0]);
    health.sampled(1, 100.into(), 20_000_000);
    health.sampled(0, 100.into(), 20_000_000);
    assert_eq!(health.fit(), [1, 0], "what both rolled back is missed by neither");
}

#[test]
fn a_node_whose_latest_block_is_too_old_is_unfit_also_when_there_is_no_other() {
    let mut health = met(&[Some(OURS)]);
    health.sampled(0, Seen { number: 100, age_secs: Some(600) }, 1);
    assert_eq!(health.fit(), [0]);
    health.sampled(0, Seen { number: 100, age_secs: Some(601) }, 2);
    assert_eq!(health.worst(), (0, ReadError::OldHead { head: 100, age_secs: 601 }));
    assert!(health.fit().is_empty());
    assert_eq!(health.due(SAMPLE_EVERY_MICROS + 2).len(), 1, "it is looked at again");
    health.sampled(0, Seen { number: 101, age_secs: Some(3) }, 3);
    assert_eq!(health.fit(), [0]);
}

#[test]
fn a_node_that_stands_still_does_not_take_out_one_that_goes_on_below() {
    let mut health = met(&[Some(OURS), Some(OURS)]);
    health.sampled(1, Seen { number: 10_000, age_secs: Some(601) }, 1);
    health.sampled(0, Seen { number: 9_900, age_secs: Some(1) }, 10_000_000);
    assert_eq!((health.fit(), health.gap(0, 10_000_000)), (vec![0], None));
}

#[test]
fn reads_of_the_latest_block_ask_those_first_that_have_it() {
    let mut health = met(&[Some(OURS), Some(OURS), Some(OURS)]);
    assert_eq!(health.order(true, 1), [0, 1, 2]);
    health.sampled(2, 105.into(), 1);
    assert_eq!((health.order(true, 2), health.order(false, 2)), (vec![2, 0, 1], vec![0, 1, 2]));
    assert_eq!(health.gap(0, 300_000), Some(Gap { head: 100, best: 105, is_fresh: false }));
    health.sampled(0, 105.into(), 300_000);
    assert_eq!((health.gap(0, 300_001), health.order(true, 300_001)), (None, vec![0, 2, 1]));
    health.failed(0, Class::Calls, &FAULT, 300_002, 0);
    assert_eq!(health.order(true, 300_002), [2, 1, 0], "who failed comes last for all that");
}

#[test]
fn what_was_followed_is_lacking_where_it_is_not_yet() {
    let mut health = met(&[Some(OURS), Some(OURS)]);
    health.followed(107, 1);
    give_up(&mut health, 0, 2);
    assert_eq!(health.gap(1, 2), Some(Gap { head: 100, best: 107, is_fresh: true }));
    health.sampled(1, 107.into(), 3);
    assert_eq!(health.gap(1, 3), None);
    health.sampled(1, 106.into(), 4);
    assert_eq!(health.gap(1, 2 + FOLLOWED_COUNTS_MICROS), None, "what was followed long ago says nothing");
    let mut alone = met(&[Some(OURS)]);
    alone.followed(107, 1);
    assert_eq!(alone.gap(0, 2), None, "and alone there is nobody else to ask");
}

#[test]
fn a_chain_that_is_rolled_back_leaves_its_nodes_fit() {
    let mut health = met(&[Some(OURS), Some(OURS)]);
    health.sampled(0, 9_000.into(), 1);
    health.sampled(1, 9_000.into(), 1);
    health.sampled(0, 3.into(), 2);
    assert_eq!(health.fit(), [1], "as long as the other says otherwise");
    health.sampled(1, 3.into(), 3);
    health.sampled(0, 3.into(), 4);
    assert_eq!(health.fit(), [1, 0]);
    let mut alone = met(&[Some(OURS)]);
    alone.sampled(0, 9_000.into(), 1);
    alone.sampled(0, 3.into(), 2);
    assert_eq!(alone.fit(), [0]);
}

#[test]
fn a_made_up_head_takes_nobody_out_but_its_own_node() {
    for nodes in [2, 3, 5] {
        let mut health = met(&vec![Some(OURS); nodes]);
        health.sampled(0, 1_000_000_000_000.into(), 1);
        for node in 1..nodes {
            health.sampled(node, 101.into(), 2);
            assert_eq!(health.complaint(node), None);
        }
        let told = ReadError::MadeUpHead { head: 1_000_000_000_000, best: 101 };
        assert_eq!(health.complaint(0), Some(told));
        health.sampled(0, 101.into(), 3);
        assert_eq!(health.complaint(0), None, "until it tells a better one");
    }
}

#[test]
fn the_head_of_a_node_that_is_given_up_or_silent_counts_no_more() {
    let mut health = met(&[Some(OURS), Some(OURS)]);
    health.sampled(0, 1_000.into(), 1);
    health.sampled(1, 100.into(), 2);
    assert!(matches!(health.complaint(1), Some(ReadError::Behind { .. })));
    give_up(&mut health, 0, 3);
    health.sampled(1, 100.into(), 4);
    assert_eq!(health.fit(), [1]);

    let mut health = met(&[Some(OURS), Some(OURS)]);
    health.sampled(0, 1_000.into(), 1);
    health.sampled(1, 100.into(), 1 + HEARD_MICROS_MAX);
    assert!(matches!(health.complaint(1), Some(ReadError::Behind { .. })));
    health.sampled(1, 100.into(), 2 + HEARD_MICROS_MAX);
    assert_eq!(health.complaint(1), None);
}

#[test]
fn heads_of_another_chain_say_nothing() {
    let mut health = met(&[Some(OURS), Some(1)]);
    health.sampled(1, 1_000_000.into(), 1);
    health.sampled(0, 100.into(), 2);
    assert_eq!(health.fit(), [0]);
}
