//! Which nodes are fit: rules without IO, in simulated time.

mod progress;

use std::time::Duration;

use proptest::collection;
use proptest::prelude::{Strategy, any, prop_assert, prop_oneof, proptest};

use super::{Health, SAMPLE_EVERY_MICROS, VET_EVERY_MICROS, Vitals};
use crate::chain::fault::ReadError;
use crate::chain::rpc::breaker::Class;
use crate::chain::rpc::heads::HeadBounds;

const OURS: u64 = 8004;
const FAULT: ReadError = ReadError::HttpStatus(500);

fn on(chain: u64, head: u64) -> Vitals {
    Vitals { chain: Some(chain), head: Some(head.into()) }
}

/// How long a node may lack what another one has.
const STALENESS: Duration = Duration::from_secs(5);

/// Nothing is known of so many nodes.
fn unknown(nodes: usize, chain: Option<u64>) -> Health {
    Health::new(nodes, chain, OURS, HeadBounds::new(STALENESS, Some(Duration::from_secs(600))))
}

/// Nodes that were all asked at the time 0; nothing stands for one that did not answer.
fn met(reports: &[Option<u64>]) -> Health {
    let mut health = unknown(reports.len(), None);
    for (node, report) in reports.iter().enumerate() {
        match report {
            Some(chain) => health.examined(node, Ok(on(*chain, 100)), 0, 0),
            None => health.examined(node, Err(&FAULT), 0, 0),
        }
    }
    health.all_were_asked();
    health
}

fn give_up(health: &mut Health, node: usize, now: u64) {
    for _ in 0..3 {
        health.failed(node, Class::Calls, &FAULT, now, 0);
    }
}

#[test]
fn a_node_is_used_only_after_it_was_vetted() {
    let mut health = unknown(2, None);
    assert_eq!((health.fit(), health.worst().1), (vec![], ReadError::Unvetted));
    health.examined(1, Ok(on(OURS, 1)), 0, 0);
    assert_eq!(health.fit(), [1]);
    health.examined(0, Ok(on(OURS, 1)), 0, 0);
    assert_eq!(health.fit(), [1, 0], "who leads goes on leading");
}

#[test]
fn the_configured_chain_is_believed_whoever_reports_it() {
    let mut health = met(&[Some(1), Some(OURS), Some(1)]);
    assert_eq!((health.chain(), health.fit()), (Some(OURS), vec![1]));
    assert_eq!(health.complaint(0), Some(ReadError::WrongChain { reported: 1, chain: OURS }));
}

#[test]
fn else_those_that_answered_must_be_unanimous() {
    let mut health = met(&[Some(1), None, Some(1)]);
    assert_eq!((health.chain(), health.fit()), (Some(1), vec![0, 2]));
    let mut health = met(&[Some(5), Some(1), None]);
    assert_eq!((health.chain(), health.fit()), (None, vec![]));
    assert_eq!(health.worst(), (0, ReadError::ChainsDiffer("1, 5".to_owned())));
    let mut health = met(&[None, None]);
    assert_eq!((health.chain(), health.fit()), (None, vec![]));
    assert!(matches!(health.worst(), (0, ReadError::GivenUp(_))));
}

#[test]
fn one_node_of_many_does_not_settle_the_chain_before_the_others_had_their_say() {
    let mut health = unknown(2, None);
    health.examined(0, Ok(on(1, 1)), 0, 0);
    assert_eq!((health.chain(), health.fit()), (None, vec![]));
    health.examined(1, Ok(on(OURS, 1)), 0, 0);
    assert_eq!((health.chain(), health.fit()), (Some(OURS), vec![1]));
}

#[test]
fn a_dispute_ends_when_the_nodes_agree() {
    let mut health = met(&[Some(5), Some(1)]);
    health.examined(0, Ok(on(1, 100)), VET_EVERY_MICROS, 0);
    assert_eq!((health.chain(), health.fit()), (Some(1), vec![0, 1]));
}

#[test]
fn the_chain_never_changes_once_it_is_known() {
    let mut health = met(&[Some(1), Some(1)]);
    health.examined(0, Ok(on(OURS, 100)), 2, 0);
    assert_eq!((health.chain(), health.fit()), (Some(1), vec![1]), "a node that moved is alone in that");
    health.examined(1, Ok(on(OURS, 100)), 2, 0);
    assert_eq!((health.chain(), health.fit()), (Some(1), vec![]));
    health.examined(0, Ok(on(1, 100)), 3, 0);
    assert_eq!(health.fit(), [0], "a node that comes back to the chain is fit again");
}

#[test]
fn a_chain_on_which_the_first_nodes_agreed_falls_into_dispute_when_a_later_one_is_on_another() {
    for late in [5, OURS] {
        let mut health = met(&[Some(1), None]);
        assert_eq!((health.fit(), health.dispute()), (vec![0], None));
        health.examined(1, Ok(on(late, 100)), 1, 0);
        assert_eq!(health.fit(), Vec::<usize>::new());
        assert_eq!(health.worst(), (0, ReadError::ChainsDiffer(format!("1, {late}"))));
        give_up(&mut health, 1, 2);
        assert_eq!(health.fit(), Vec::<usize>::new(), "as long as nobody says which is right");
        health.examined(1, Ok(on(1, 100)), 2_000_000, 0);
        assert_eq!((health.dispute(), health.fit()), (None, vec![0, 1]));
    }
}

#[test]
fn a_chain_that_was_confirmed_is_not_disputed_by_whoever_comes_later() {
    let mut health = met(&[Some(OURS), None]);
    health.examined(1, Ok(on(1, 100)), 1, 0);
    assert_eq!((health.dispute(), health.fit()), (None, vec![0]));
}

#[test]
fn where_the_chain_is_configured_only_nodes_on_it_are_fit_whoever_answers_first() {
    let mut health = unknown(3, Some(7));
    health.examined(0, Ok(on(OURS, 100)), 0, 0);
    assert_eq!((health.chain(), health.fit()), (Some(7), vec![]));
    health.all_were_asked();
    assert_eq!(health.worst(), (0, ReadError::WrongChain { reported: OURS, chain: 7 }));
    health.examined(1, Ok(on(7, 100)), 1, 0);
    health.examined(2, Ok(on(1, 100)), 1, 0);
    assert_eq!((health.dispute(), health.fit()), (None, vec![1]));
}

#[test]
fn each_node_is_vetted_and_sampled_again_and_again() {
    let mut health = met(&[Some(OURS), Some(OURS)]);
    assert_eq!(health.due(SAMPLE_EVERY_MICROS - 1), []);
    health.sampled(0, 100.into(), SAMPLE_EVERY_MICROS - 1);
    let due = health.due(SAMPLE_EVERY_MICROS);
    assert_eq!(due.len(), 1, "the head of the node that is followed is known: {due:?}");
    assert_eq!((due[0].node, due[0].wants_chain, due[0].wants_head), (1, false, true));
    let due = health.due(VET_EVERY_MICROS);
    assert!(due.len() == 2 && due.iter().all(|checkup| checkup.wants_chain));
}

#[test]
fn a_node_that_is_given_up_is_left_alone_until_its_pause_is_over_and_vetted_then() {
    let mut health = met(&[Some(OURS), Some(OURS)]);
    give_up(&mut health, 0, 0);
    assert_eq!(health.fit(), [1]);
    assert!(health.due(500_000).is_empty());
    let due = health.due(1_300_000);
    assert!(due.len() == 1 && due[0].node == 0 && due[0].wants_chain && due[0].wants_head);
    health.examined(0, Ok(on(7, 100)), 1_300_000, 0);
    assert_eq!(health.complaint(0), Some(ReadError::WrongChain { reported: 7, chain: OURS }));
    assert_eq!(health.fit(), [1]);
}

#[test]
fn the_lead_stays_while_it_is_fit_and_the_configured_order_rules_the_rest() {
    let mut health = met(&[Some(OURS), Some(OURS), Some(OURS)]);
    assert_eq!(health.fit(), [0, 1, 2]);
    give_up(&mut health, 0, 0);
    assert_eq!(health.fit(), [1, 2]);
    health.examined(0, Ok(on(OURS, 100)), 2_000_000, 0);
    assert_eq!(health.fit(), [1, 0, 2]);
    give_up(&mut health, 1, 2_000_000);
    assert_eq!(health.fit(), [0, 2]);
}

#[test]
fn a_node_that_just_failed_is_asked_last_and_looked_at_at_once() {
    let mut health = met(&[Some(OURS), Some(OURS)]);
    health.failed(0, Class::Calls, &FAULT, 1, 0);
    assert_eq!((health.order(true, 0), health.fit()), (vec![1, 0], vec![0, 1]), "it still leads");
    let due = health.due(1);
    assert!(due.len() == 1 && due[0].node == 0 && due[0].wants_chain, "{due:?}");
    health.examined(0, Ok(Vitals { chain: Some(OURS), head: None }), 2, 0);
    assert_eq!(health.order(true, 0), [0, 1]);
    health.failed(0, Class::Calls, &FAULT, 3, 0);
    health.examined(0, Err(&FAULT), 4, 0);
    assert_eq!(health.order(true, 0), [1], "three failures in a row, whoever met them");
}

#[test]
fn a_node_whose_blocks_or_logs_fail_makes_way_as_the_one_that_is_followed() {
    for class in [Class::Blocks, Class::Logs] {
        let mut health = met(&[Some(OURS), Some(OURS)]);
        assert_eq!(health.follow(0), Some(0));
        health.failed(0, class, &FAULT, 0, 0);
        assert_eq!((health.follow(1), health.fit()), (Some(1), vec![1, 0]));
        health.failed(1, class, &FAULT, 2_000_000, 0);
        assert_eq!(health.follow(2_000_001), Some(0), "its pause is over");
        health.failed(0, class, &FAULT, 2_000_002, 0);
        assert_eq!(health.follow(2_000_003), Some(0), "when none is able the lead stays");
    }
}

#[test]
fn a_node_without_logs_makes_way_until_all_refuse_them() {
    let mut health = met(&[Some(OURS), Some(OURS)]);
    assert!(health.refused_logs(0, 0), "the other one may have some");
    health.answered(0, Class::Blocks);
    health.answered(0, Class::Calls);
    assert_eq!((health.follow(59_999_999), health.follow(60_000_000)), (Some(1), Some(1)));
    assert!(health.refused_logs(1, 60_000_000), "the first may be asked again by now");
    assert_eq!(health.follow(60_000_001), Some(0));
    assert!(!health.refused_logs(0, 60_000_001));
    let mut health = met(&[Some(OURS), Some(1)]);
    assert!(!health.refused_logs(0, 0), "one that is not fit is of no use");
    assert_eq!(health.follow(1), Some(0));
}

#[test]
fn an_answer_lifts_the_suspicion() {
    let mut health = met(&[Some(OURS), Some(OURS)]);
    health.failed(0, Class::Calls, &FAULT, 1, 0);
    health.answered(0, Class::Calls);
    assert_eq!(health.order(true, 0), [0, 1]);
    health.failed(0, Class::Calls, &FAULT, 2, 0);
    health.failed(1, Class::Calls, &FAULT, 2, 0);
    assert_eq!(health.order(true, 0), [0, 1], "when all are suspected the order is as ever");
}

#[test]
fn when_all_are_given_up_the_cause_is_told() {
    let mut health = met(&[Some(OURS), Some(1)]);
    give_up(&mut health, 0, 0);
    assert!(health.fit().is_empty());
    let (node, told) = health.worst();
    assert_eq!((node, told.to_string()), (0, format!("the node is given up for now, since {FAULT}")));
}

#[test]
fn a_node_that_is_slow_with_the_simplest_question_too_is_given_up_at_once() {
    let slow = ReadError::TimedOut(700);
    for (error, given_up) in [(&slow, true), (&FAULT, false)] {
        let mut health = met(&[Some(OURS), Some(OURS)]);
        health.was_slow(0);
        assert_eq!((health.order(true, 1), health.fit()), (vec![1, 0], vec![0, 1]));
        assert_eq!(health.due(1).len(), 1, "a probe is due");
        health.examined(0, Err(error), 1, 0);
        assert_eq!(health.complaint(0).is_some(), given_up, "{error}");
    }
    let mut health = met(&[Some(OURS)]);
    for _ in 0..10 {
        health.was_slow(0);
        health.examined(0, Ok(Vitals { chain: Some(OURS), head: None }), 1, 0);
        assert_eq!(health.fit(), [0], "what was asked was slow, not the node");
    }
}

#[test]
fn a_node_that_asks_for_time_gets_it_while_another_one_is_fit_and_else_five_seconds() {
    let limited = ReadError::RateLimited(Some(Duration::from_secs(60)));
    let probed = |health: &Health, now: u64| health.due(now).iter().any(|checkup| checkup.node == 0);
    let mut pair = met(&[Some(OURS), Some(OURS)]);
    let mut alone = met(&[Some(OURS)]);
    pair.failed(0, Class::Calls, &limited, 0, 0);
    alone.failed(0, Class::Calls, &limited, 0, 0);
    assert!(!probed(&pair, 59_999_999) && probed(&pair, 60_000_000));
    assert!(!probed(&alone, 4_999_999) && probed(&alone, 5_000_000));
}

#[test]
fn a_failed_vet_counts_like_a_failed_read() {
    let mut health = met(&[Some(OURS)]);
    for _ in 0..2 {
        health.examined(0, Err(&FAULT), 0, 0);
        assert_eq!(health.fit(), [0]);
    }
    health.examined(0, Err(&FAULT), 0, 0);
    assert!(health.fit().is_empty());
}

#[derive(Debug, Clone)]
enum Event {
    Examined(usize, Option<(u64, u64)>),
    Failed(usize),
    Answered(usize),
    Sampled(usize, u64),
}

proptest! {
    /// Whatever happens: who is fit is on the chain, each stands once, the lead stays while it is fit, and a pool with
    /// nobody fit has a complaint.
    #[test]
    fn whatever_happens_only_nodes_of_the_chain_are_fit(
        events in collection::vec(prop_oneof![
            (0..3_usize, any::<Option<bool>>(), 0..100_u64).prop_map(|(node, ours, head)| {
                Event::Examined(node, ours.map(|ours| (if ours { OURS } else { 1 }, head)))
            }),
            (0..3_usize).prop_map(Event::Failed),
            (0..3_usize).prop_map(Event::Answered),
            (0..3_usize, 0..100_u64).prop_map(|(node, head)| Event::Sampled(node, head)),
        ], 0..60)
    ) {
        let mut health = unknown(3, None);
        let mut chains = [None; 3];
        for (step, event) in events.into_iter().enumerate() {
            let now = step as u64 * 1_000_000;
            let lead = health.fit().first().copied();
            match event {
                Event::Examined(node, Some((chain, head))) => {
                    chains[node] = Some(chain);
                    health.examined(node, Ok(on(chain, head)), now, 0);
                }
                Event::Examined(node, None) => health.examined(node, Err(&FAULT), now, 0),
                Event::Failed(node) => health.failed(node, Class::Calls, &FAULT, now, 0),
                Event::Answered(node) => health.answered(node, Class::Calls),
                Event::Sampled(node, head) => health.sampled(node, head.into(), now),
            }
            if step == 5 {
                health.all_were_asked();
            }
            let fit = health.fit();
            for (node, chain) in chains.iter().enumerate() {
                let is_fit = fit.contains(&node);
                prop_assert!(!is_fit || *chain == health.chain() && chain.is_some());
                prop_assert!(is_fit == health.complaint(node).is_none());
                prop_assert!(fit.iter().filter(|other| **other == node).count() <= 1);
            }
            if let Some(lead) = lead.filter(|lead| fit.contains(lead)) {
                prop_assert!(fit[0] == lead);
            }
        }
    }
}
