//! Contracts are looked for all at once, what was found stays found, and that Multicall3 is absent is not for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tracing::dispatcher::set_default;

use super::agent;
use crate::chain::fault::ReadError;
use crate::chain::fixture::{ALL, PATIENT, Reply, TestNode, aggregate, bench, cause, hex, results};
use crate::chain::tests::stopped_time::until;
use crate::ports::chain::Chain;
use crate::telemetry::paper::Paper;

/// A switch that a node and its test share.
fn switch() -> (Arc<AtomicBool>, Arc<AtomicBool>) {
    let switch = Arc::new(AtomicBool::new(false));
    (Arc::clone(&switch), switch)
}

fn asks_for(request: &Value, address: alloy::primitives::Address) -> bool {
    request["method"] == "eth_getCode" && request["params"][0] == json!(address)
}

fn code(is_there: bool) -> Reply {
    Reply::Result(json!(if is_there { "0x60" } else { "0x" }))
}

#[tokio::test]
async fn contracts_are_looked_for_at_once_and_those_that_were_found_before_a_probe_was_cut_stay_found() {
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let node = TestNode::answering(move |request| {
        let is_quick = asks_for(request, ALL.identity) || asks_for(request, ALL.stake_vault);
        if is_quick { code(true) } else { Reply::Gated(Arc::clone(&held), Box::new(code(true))) }
    })
    .await;
    let bench = bench(&[node.url()], ALL, PATIENT);
    let reader = Arc::clone(&bench.reader);
    let cut = tokio::spawn(async move { reader.probe().await });
    // Five registries, Multicall3, and a registry beside that.
    until("two are found", || node.calls("eth_getCode") == 7 && bench.reader.survey.found() == 2).await;
    cut.abort();
    assert!(cut.await.is_err());
    gate.add_permits(100);
    bench.reader.probe().await.unwrap();
    assert_eq!(node.calls("eth_getCode"), 7 + 3 + 2, "the two that were found are not asked for again");
    bench.reader.probe().await.unwrap();
    assert_eq!(node.calls("eth_getCode"), 7 + 3 + 2);
}

#[tokio::test]
async fn what_the_watch_found_is_what_a_probe_says_without_a_call() {
    let (is_there, switch) = switch();
    let node = TestNode::answering(move |request| {
        code(!asks_for(request, ALL.reputation.unwrap()) || switch.load(Ordering::SeqCst))
    })
    .await;
    let bench = bench(&[node.url()], ALL, PATIENT);
    assert_eq!(bench.reader.survey.tick().await, Some(Duration::from_secs(1)));
    let asked = node.calls("eth_getCode");
    for _ in 0..10 {
        let fault = bench.reader.probe().await.unwrap_err();
        assert_eq!(cause(&fault), &ReadError::NoCode("chain.contracts.reputation"));
    }
    assert_eq!(node.calls("eth_getCode"), asked);
    is_there.store(true, Ordering::SeqCst);
    assert_eq!(bench.reader.survey.tick().await, None, "there is nothing left to find");
    assert_eq!(node.calls("eth_getCode"), asked + 1);
    bench.reader.probe().await.unwrap();
}

#[tokio::test]
async fn that_multicall_is_absent_is_looked_at_again_each_minute_and_believed_no_longer_than_it_is_so() {
    let (is_there, switch) = switch();
    let node = TestNode::answering(move |request| match request["method"].as_str() {
        Some("eth_getCode") => code(!asks_for(request, ALL.multicall) || switch.load(Ordering::SeqCst)),
        _ => Reply::Result(hex(aggregate(&results()))),
    })
    .await;
    let bench = bench(&[node.url()], ALL, PATIENT);
    let to = || node.last_call()["params"][0]["to"].clone();
    assert_eq!(bench.reader.survey.tick().await, Some(Duration::from_secs(60)));
    bench.reader.probe().await.unwrap();
    bench.reader.profile(agent(1)).await.unwrap().unwrap();
    assert_eq!(to(), Value::Null, "a creation");
    is_there.store(true, Ordering::SeqCst);
    assert_eq!(bench.reader.survey.tick().await, None);
    bench.reader.profile(agent(2)).await.unwrap().unwrap();
    assert_eq!(to(), json!(ALL.multicall));
}

#[tokio::test]
async fn a_node_that_has_no_registry_either_is_not_believed_that_multicall_is_absent() {
    let (is_synced, switch) = switch();
    let node = TestNode::answering(move |request| {
        let is_synced = switch.load(Ordering::SeqCst);
        match request["method"].as_str() {
            Some("eth_getCode") => code(is_synced),
            _ if is_synced => Reply::Result(hex(aggregate(&results()))),
            _ => Reply::Result(json!("0x")),
        }
    })
    .await;
    let bench = bench(&[node.url()], ALL, PATIENT);
    let fault = bench.reader.profile(agent(1)).await.unwrap_err();
    assert_eq!(cause(&fault), &ReadError::NoCode("chain.contracts.identity"));
    assert!(!bench.reader.survey.lacks_multicall());
    is_synced.store(true, Ordering::SeqCst);
    bench.reader.profile(agent(1)).await.unwrap().unwrap();
    assert_eq!(node.last_call()["params"][0]["to"], json!(ALL.multicall));
}

#[tokio::test]
async fn a_contract_without_code_is_named_in_the_log_by_the_first_look_of_the_watch_and_by_no_other() {
    let (is_there, switch) = switch();
    let missing = [ALL.stake_vault, ALL.reputation.unwrap()];
    let node = TestNode::answering(move |request| {
        let is_missing = missing.iter().any(|address| asks_for(request, *address));
        code(!is_missing || switch.load(Ordering::SeqCst))
    })
    .await;
    let bench = bench(&[node.url()], ALL, PATIENT);
    let paper = Paper::default();
    let _log = set_default(&paper.dispatch());
    let lines_about = |lines: &[String], text: &str| lines.iter().filter(|line| line.contains(text)).count();
    assert_eq!(bench.reader.survey.tick().await, Some(Duration::from_secs(1)));
    let said = paper.take();
    for name in ["chain.contracts.stake_vault", "chain.contracts.reputation"] {
        let text = format!("there is no contract at the address configured as {name}");
        assert_eq!(lines_about(&said, &text), 1, "{said:?}");
    }
    for _ in 0..10 {
        bench.reader.survey.tick().await;
        bench.reader.probe().await.unwrap_err();
        bench.clock.advance_secs(10);
        bench.reader.probe().await.unwrap_err();
    }
    let said = paper.take();
    assert_eq!(lines_about(&said, "no contract"), 0, "{said:?}");
    is_there.store(true, Ordering::SeqCst);
    bench.reader.survey.tick().await;
    let said = paper.take();
    assert_eq!(lines_about(&said, "there is a contract at the address configured as"), 2, "{said:?}");
}
