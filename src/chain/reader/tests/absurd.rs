//! Agents that can't be read by what the chain holds of them: that is their own affair, and costs nobody else anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::agent;
use crate::chain::fault::ReadError;
use crate::chain::fixture::{
    ALL, Bench, LIFETIME, PATIENT, Reply, SHORT, TestNode, aggregate, bench, cause, hex, results, returned,
    reverted,
};
use crate::chain::rpc::transport::ANSWER_BYTES_MAX;
use crate::domain::agent_id::AgentId;
use crate::ports::chain::Chain;

/// Agents whose number begins with these digits are absurd.
const ABSURD: u64 = 0xabcd_ef01_0000;

fn absurd(number: u64) -> AgentId {
    agent(ABSURD + number)
}

/// True when the call asks for an absurd agent.
fn is_for_absurd(request: &Value) -> bool {
    let digits = format!("{:x}", ABSURD >> 16);
    request["params"][0]["input"].as_str().is_some_and(|input| input.contains(&digits))
}

/// A node that answers like this for absurd agents, and well for all others.
async fn node(reply: Reply) -> TestNode {
    TestNode::answering(move |request| {
        if is_for_absurd(request) { reply.clone() } else { Reply::Result(hex(aggregate(&results()))) }
    })
    .await
}

/// What absurd agents can make of an answer, and the kind of the fault.
fn absurdities() -> Vec<(&'static str, Reply)> {
    let mut stake_reverts = results();
    stake_reverts[2] = reverted(Vec::new());
    let mut no_text = results();
    no_text[1] = returned(vec![0xff; 64]);
    let error = |code, message: &str| Reply::Error(code, message.to_owned(), None);
    vec![
        ("too_long", Reply::Result(json!(format!("0x{}", "0".repeat(ANSWER_BYTES_MAX))))),
        ("reverted", Reply::Result(hex(aggregate(&stake_reverts)))),
        ("undecodable", Reply::Result(hex(aggregate(&no_text)))),
        ("undecodable", Reply::Result(hex([0xff; 64]))),
        ("reverted", error(3, "execution reverted")),
        ("node_error", error(-32_000, "out of gas")),
        ("node_error", error(-32_000, "execution aborted (timeout = 5s)")),
    ]
}

fn interval(bench: &Bench) {
    bench.clock.advance_micros(u64::try_from(LIFETIME.as_micros()).unwrap());
}

#[tokio::test]
async fn an_agent_that_can_not_be_read_costs_one_call_an_interval_however_often_it_asks() {
    for (kind, reply) in absurdities() {
        let node = node(reply).await;
        let bench = bench(&[node.url()], ALL, PATIENT);
        let first = bench.reader.profile(absurd(1)).await.unwrap_err();
        assert_eq!(cause(&first).kind(), kind);
        for interval_number in 1..=3 {
            for request in 0..1_000 {
                let fault = bench.reader.profile(absurd(1)).await.unwrap_err();
                assert_eq!((cause(&fault), fault.method), (cause(&first), first.method));
                assert_eq!(fault.endpoint, first.endpoint);
                if request % 100 == 0 {
                    bench.reader.latest_profile(absurd(1)).await.unwrap_err();
                }
            }
            assert_eq!(node.calls("eth_call"), interval_number, "{kind}");
            interval(&bench);
        }
    }
}

#[tokio::test]
async fn a_thousand_requests_at_once_for_an_agent_that_can_not_be_read_cost_one_call() {
    let node = node(Reply::Error(-32_000, "out of gas".to_owned(), None)).await;
    let bench = bench(&[node.url()], ALL, PATIENT);
    let askers: Vec<_> = (0..1_000)
        .map(|_| {
            let reader = Arc::clone(&bench.reader);
            tokio::spawn(async move { reader.profile(absurd(1)).await.unwrap_err() })
        })
        .collect();
    for asker in askers {
        asker.await.unwrap();
    }
    assert_eq!(node.calls("eth_call"), 1);
    assert!(bench.reader.profiles.is_idle());
}

#[tokio::test]
async fn other_agents_are_read_and_cached_beside_one_that_can_not_be() {
    for (kind, reply) in absurdities() {
        let node = node(reply).await;
        let bench = bench(&[node.url()], ALL, PATIENT);
        for _ in 0..10 {
            bench.reader.profile(absurd(1)).await.unwrap_err();
            for other in 1..=3 {
                bench.reader.profile(agent(other)).await.unwrap().unwrap();
            }
            bench.reader.profile(absurd(2)).await.unwrap_err();
        }
        assert_eq!(node.calls("eth_call"), 5, "{kind}: one for each agent");
    }
}

#[tokio::test]
async fn an_agent_that_was_mended_is_read_after_one_interval() {
    let is_mended = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&is_mended);
    let node = TestNode::answering(move |_| match switch.load(Ordering::SeqCst) {
        true => Reply::Result(hex(aggregate(&results()))),
        false => Reply::Error(3, "execution reverted".to_owned(), None),
    })
    .await;
    let bench = bench(&[node.url()], ALL, PATIENT);
    bench.reader.profile(absurd(1)).await.unwrap_err();
    is_mended.store(true, Ordering::SeqCst);
    bench.clock.advance_micros(u64::try_from(LIFETIME.as_micros()).unwrap() - 1);
    bench.reader.profile(absurd(1)).await.unwrap_err();
    bench.clock.advance_micros(1);
    bench.reader.profile(absurd(1)).await.unwrap().unwrap();
}

#[tokio::test]
async fn what_lies_in_the_node_or_the_configuration_is_asked_again_at_each_request() {
    let mut no_vault = results();
    no_vault[2] = returned(Vec::new());
    for (error, reply) in [
        (ReadError::NoCode("chain.contracts.stake_vault"), Reply::Result(hex(aggregate(&no_vault)))),
        (ReadError::HttpStatus(502), Reply::Http(502, String::new())),
        (ReadError::TimedOut(SHORT.as_millis()), Reply::Hang),
    ] {
        let node = node(reply).await;
        let bench = bench(&[node.url()], ALL, SHORT);
        for calls in 1..=2 {
            let fault = bench.reader.profile(absurd(1)).await.unwrap_err();
            assert_eq!((cause(&fault), node.calls("eth_call")), (&error, calls));
        }
    }
}
