//! Whether profiles are read through Multicall3: only an answer that proves its age and its chain says.

use std::sync::atomic::{AtomicBool, Ordering};
use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use crate::chain::fixture::{
    ALL, Bench, CHAIN_ID, HEAD, OWNER, PATIENT, Reply, TestNode, agent, bench, kind_of,
};
use crate::chain::tests::results::{aggregate_of, hex, results, returned, word};
use crate::domain::Holders;
use crate::ports::{Asker, Chain};

/// The reply of a node on this chain where Multicall3 stands or not.
fn reply(request: &Value, chain: u64, is_there: bool) -> Reply {
    let owner = results().remove(0);
    let look = returned(if is_there { word(chain) } else { Vec::new() });
    match (is_through_multicall(request), is_there) {
        (true, true) => Reply::Result(hex(aggregate_of(chain, HEAD, &[owner]))),
        (true, false) => Reply::Result(json!("0x")),
        (false, _) => Reply::Result(hex(aggregate_of(chain, HEAD, &[owner, look]))),
    }
}

fn is_through_multicall(request: &Value) -> bool {
    request["params"][0].get("to").is_some()
}

async fn owner(bench: &Bench) {
    assert_eq!(
        bench.reader.holders(agent(1), Asker::Stranger).await.unwrap(),
        Some(Holders::owned_by(OWNER))
    );
}

/// As of one back end that syncs, behind a URL of several.
// threat: A node is behind or on another chain
#[tokio::test]
async fn one_undated_answer_turns_multicall_off_for_nobody() {
    let is_first = AtomicBool::new(true);
    let node = TestNode::answering(move |request| match is_first.swap(false, Ordering::SeqCst) {
        true => Reply::Result(json!("0x")),
        false => reply(request, CHAIN_ID, true),
    })
    .await;
    let bench = bench(&[node.url()], ALL, PATIENT);
    for calls in [2, 3] {
        owner(&bench).await;
        assert_eq!((node.calls("eth_call"), is_through_multicall(&node.last_call())), (calls, calls == 3));
    }
}

// threat: A node is behind or on another chain
#[tokio::test]
async fn a_node_without_multicall_leaves_it_to_the_others_and_is_unhealthy_on_another_chain() {
    let stranger = TestNode::answering(|request| reply(request, 5, false)).await;
    let good = TestNode::answering(|request| reply(request, CHAIN_ID, true)).await;
    let bench = bench(&[stranger.url(), good.url()], ALL, PATIENT);
    for _ in 0..10 {
        owner(&bench).await;
    }
    let asked = stranger.calls("eth_call");
    assert!(asked <= 5 * 3, "left out after five reads: {asked}");
    assert!(is_through_multicall(&good.last_call()));
}

#[tokio::test]
async fn a_node_without_multicall_that_was_away_at_the_start_answers_the_first_read_after_its_pause() {
    let is_away = Arc::new(AtomicBool::new(true));
    let away = Arc::clone(&is_away);
    let node = TestNode::answering(move |request| match away.load(Ordering::SeqCst) {
        true => Reply::Http(502, String::new()),
        false => reply(request, CHAIN_ID, false),
    })
    .await;
    let bench = bench(&[node.url()], ALL, PATIENT);
    for _ in 0..3 {
        bench.reader.holders(agent(1), Asker::Stranger).await.unwrap_err();
    }
    is_away.store(false, Ordering::SeqCst);
    bench.clock.advance(Duration::from_secs(3));
    owner(&bench).await;
}

/// On a chain whose nodes run no creation.
// threat: A sick node
#[tokio::test]
async fn where_no_creation_is_run_the_next_node_answers_for_one_that_has_no_state() {
    let empty = TestNode::answering(|_| Reply::Result(json!("0x"))).await;
    let good = TestNode::answering(|request| match is_through_multicall(request) {
        true => reply(request, CHAIN_ID, true),
        false => Reply::Error(-32_602, "missing to".to_owned(), None),
    })
    .await;
    owner(&bench(&[empty.url(), good.url()], ALL, PATIENT)).await;
    let alone = bench(&[empty.url()], ALL, PATIENT);
    let fault = alone.reader.holders(agent(1), Asker::Stranger).await.unwrap_err();
    assert_eq!(kind_of(&fault.cause), "no_creation");
}

#[tokio::test]
async fn without_multicall_each_read_is_one_call_that_looks_for_it_again() {
    let is_there = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&is_there);
    let node =
        TestNode::answering(move |request| reply(request, CHAIN_ID, switch.load(Ordering::SeqCst))).await;
    let bench = bench(&[node.url()], ALL, PATIENT);
    for (stands, calls, through) in [(false, 2, false), (false, 3, false), (true, 4, false), (true, 5, true)]
    {
        is_there.store(stands, Ordering::SeqCst);
        owner(&bench).await;
        assert_eq!((node.calls("eth_call"), is_through_multicall(&node.last_call())), (calls, through));
    }
}
