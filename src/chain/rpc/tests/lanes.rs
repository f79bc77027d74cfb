//! Places at the nodes: strangers can't take those of the known.

use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::{Address, Bytes, bytes};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::chain::fixture::{ALL, Bench, PATIENT, Reply, TestNode, bench, cause};
use crate::chain::rpc::places::STRANGERS_MAX;
use crate::chain::rpc::{At, CallOutcome, Deadline, Lane, Terms};
use crate::chain::tests::stopped_time::until;
use crate::ports::chain::ChainFault;
use crate::ports::clock::Clock;

const STRANGER: Bytes = bytes!("57");
const KNOWN: Bytes = bytes!("4b");

async fn ask(bench: &Bench, lane: Lane, limit: Duration) -> Result<Option<CallOutcome>, ChainFault> {
    let data = if lane == Lane::Known { KNOWN } else { STRANGER };
    let terms =
        Terms { at: At::Latest, lane, deadline: Deadline::after(bench.clock.monotonic_micros(), limit) };
    bench.pool.call(&terms, Some(Address::ZERO), &data, |outcome| Ok(Some(outcome))).await
}

/// A node that answers the known at once, and strangers one for each permit.
async fn holding(gate: &Arc<Semaphore>) -> TestNode {
    let gate = Arc::clone(gate);
    TestNode::answering(move |request| {
        let answer = Reply::Result(json!("0x01"));
        if request["params"][0]["input"] == json!(KNOWN) {
            return answer;
        }
        Reply::Gated(Arc::clone(&gate), Box::new(answer))
    })
    .await
}

#[tokio::test]
async fn the_known_are_answered_while_a_flood_of_strangers_waits() {
    let gate = Arc::new(Semaphore::new(0));
    let node = holding(&gate).await;
    let bench = Arc::new(bench(&[node.url()], ALL, PATIENT));
    let flood: Vec<_> = (0..500)
        .map(|_| {
            let bench = Arc::clone(&bench);
            tokio::spawn(async move { ask(&bench, Lane::Stranger, PATIENT).await })
        })
        .collect();
    until("strangers have their places", || node.calls("eth_call") == STRANGERS_MAX).await;
    for _ in 0..200 {
        ask(&bench, Lane::Known, PATIENT).await.unwrap();
    }
    assert_eq!(node.calls("eth_call"), STRANGERS_MAX + 200, "no more strangers than may be");
    gate.add_permits(500);
    for stranger in flood {
        stranger.await.unwrap().unwrap();
    }
    assert_eq!(node.calls("eth_call"), 500 + 200);
}

#[tokio::test]
async fn whoever_finds_no_place_in_time_is_told_so_and_no_node_is_blamed() {
    let gate = Arc::new(Semaphore::new(0));
    let node = holding(&gate).await;
    let bench = Arc::new(bench(&[node.url()], ALL, PATIENT));
    let held: Vec<_> = (0..STRANGERS_MAX)
        .map(|_| {
            let bench = Arc::clone(&bench);
            tokio::spawn(async move { ask(&bench, Lane::Stranger, PATIENT).await })
        })
        .collect();
    until("strangers have their places", || node.calls("eth_call") == STRANGERS_MAX).await;
    for _ in 0..5 {
        let (limit, later) = (Duration::from_secs(1), tokio::time::advance(Duration::from_secs(2)));
        let (answer, ()) = tokio::join!(ask(&bench, Lane::Stranger, limit), later);
        assert_eq!(cause(&answer.unwrap_err()).kind(), "busy");
    }
    assert!(ask(&bench, Lane::Known, PATIENT).await.is_ok());
    gate.add_permits(STRANGERS_MAX);
    for stranger in held {
        stranger.await.unwrap().unwrap();
    }
}
