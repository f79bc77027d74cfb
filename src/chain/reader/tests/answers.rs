//! Answers of nodes: which count, what they cost, and what is remembered of them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::{sync::Arc, time::Duration};

use alloy::primitives::{B256, Bytes};
use alloy::sol_types::{SolCall, SolError};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::together;
use crate::chain::dated::{Call3, aggregate3Call, dated_call};
use crate::chain::fixture::{
    ALL, CHAIN_ID, ERC8004, HEAD, OWNER, PATIENT, Reply, TestNode, agent, bench, bench_judging, kind_of,
};
use crate::chain::tests::results::{
    aggregate_at, aggregate_of, dated, hex, not_minted, results, reverted, word,
};
use crate::chain::{
    fault::ReadError, pool::ANSWER_BYTES_MAX, reader::PROFILES, registries::calls::Error, tests::clock::until,
};
use crate::domain::Holders;
use crate::ports::{Asker, Chain, Parts};

/// Results for an owner's read: the first of a profile's.
fn good(number: u64) -> Reply {
    Reply::Agent(number, results())
}

/// All forms of what is no answer, each with the kind of its fault. Where a test fails it tells the place in this list.
fn no_answers() -> Vec<(&'static str, Reply)> {
    let http = |status, body: &str| Reply::Http(status, body.to_owned());
    let error = |code, message: &str, data| Reply::Error(code, message.to_owned(), data);
    let paused = Error { reason: "paused".to_owned() }.abi_encode();
    let enough = r#"{"jsonrpc":"2.0","id":ID,"result":"0x01"}"#;
    vec![
        // No JSON-RPC, whatever the status.
        ("unintelligible", http(200, "")),
        ("unintelligible", http(200, "{}")),
        ("unintelligible", http(200, "[]")),
        ("unintelligible", http(200, "null")),
        ("unintelligible", http(200, "\"0x\"")),
        ("unintelligible", http(200, "<html>welcome</html>")),
        ("unintelligible", http(200, &"[".repeat(100_000))),
        ("unintelligible", http(204, "")),
        ("http_status", http(302, "")),
        ("http_status", http(400, "bad request")),
        ("http_status", http(403, "<html>forbidden</html>")),
        ("http_status", http(404, "not found")),
        ("http_status", http(404, enough)),
        ("http_status", http(500, "{}")),
        ("http_status", http(503, enough)),
        ("rate_limited", http(429, "slow down")),
        // JSON-RPC of another call, or incomplete.
        ("unintelligible", http(200, r#"{"jsonrpc":"2.0","id":ID}"#)),
        ("unintelligible", http(200, r#"{"jsonrpc":"2.0","id":99999,"result":"0x01"}"#)),
        ("unintelligible", http(200, r#"{"jsonrpc":"2.0","id":null,"result":"0x01"}"#)),
        // Results of another form.
        ("unintelligible", Reply::Result(Value::Null)),
        ("unintelligible", Reply::Result(json!(7))),
        ("unintelligible", Reply::Result(json!(true))),
        ("unintelligible", Reply::Result(json!({}))),
        ("no_creation", Reply::Result(json!([]))),
        ("no_creation", Reply::Result(json!(""))),
        ("unintelligible", Reply::Result(json!("welcome"))),
        ("unintelligible", Reply::Result(json!("0x123"))),
        ("no_creation", Reply::Result(json!("0x"))),
        ("unintelligible", Reply::Result(hex([0; 32]))),
        ("unintelligible", Reply::Result(hex(not_minted()))),
        ("too_long", Reply::Result(json!(format!("0x{}", "0".repeat(ANSWER_BYTES_MAX))))),
        // Errors, whatever they say.
        ("node_error", error(-32_603, "internal error", None)),
        ("node_error", error(-32_601, "the method eth_call does not exist", None)),
        ("no_block", error(-32_000, "header not found", None)),
        ("node_error", error(-32_000, "ERC721NonexistentToken", None)),
        ("node_error", error(-32_000, "ERC721: invalid token ID", Some(hex(not_minted())))),
        ("node_error", error(3, "execution reverted", None)),
        ("node_error", error(3, "execution reverted", Some(json!("0x")))),
        ("node_error", error(3, "execution reverted: paused", Some(hex(&paused)))),
        ("node_error", error(3, "execution reverted", Some(hex(not_minted())))),
        ("rate_limited", error(-32_005, "limit exceeded", None)),
        ("rate_limited", error(-32_012, "credits quota exceeded", None)),
        ("rate_limited", error(-32_055, "too many requests", None)),
        // No answer at all.
        ("connection", Reply::CloseMidway),
    ]
}

#[tokio::test]
async fn whatever_is_no_answer_is_a_fault_and_never_a_missing_agent() {
    for (shown, (kind, reply)) in no_answers().into_iter().enumerate() {
        let node = TestNode::answering(move |_| reply.clone()).await;
        let bench = bench(&[node.url()], ALL, PATIENT);
        let (owner, profile, latest) = tokio::join!(
            bench.reader.holders(agent(1), Asker::Stranger),
            bench.reader.profile(agent(1), Parts::Whole),
            bench.reader.latest_profile(agent(1), Parts::Whole),
        );
        let owner = owner.unwrap_err();
        assert_eq!((kind_of(&owner.cause), owner.method), (kind, "eth_call"), "{shown}");
        profile.unwrap_err();
        latest.unwrap_err();
        assert_eq!(bench.reader.agents.cache.len(), 0, "{shown}");
    }
}

/// Without Multicall3 the data of a revert are an answer: they must be a dated one.
#[tokio::test]
async fn a_revert_of_the_creation_that_says_not_minted_is_a_fault() {
    let node = TestNode::answering(move |request| {
        let is_creation = request["params"][0].get("to").is_none();
        let revert = || Reply::Error(3, "execution reverted".to_owned(), Some(hex(not_minted())));
        if is_creation { revert() } else { Reply::Result(json!("0x")) }
    })
    .await;
    let bench = bench(&[node.url()], ALL, PATIENT);
    let owner = bench.reader.holders(agent(1), Asker::Stranger).await.unwrap_err();
    assert_eq!(kind_of(&owner.cause), "unintelligible");
}

#[tokio::test]
async fn an_answer_without_end_is_cut_off() {
    let node = TestNode::answering(|_| Reply::Endless).await;
    let bench = bench(&[node.url()], ALL, PATIENT);
    let fault = bench.reader.holders(agent(1), Asker::Stranger).await.unwrap_err();
    assert_eq!(*fault.cause, *ReadError::TooLong(ANSWER_BYTES_MAX).to_string());
    let (tries, in_sockets) = (3, 16 * 1024 * 1024);
    assert!(node.bytes_sent() < tries * (ANSWER_BYTES_MAX + in_sockets), "{} bytes", node.bytes_sent());
}

// threat: A node is behind or on another chain
#[tokio::test]
async fn an_answer_of_another_chain_or_of_an_older_block_is_asked_again() {
    let answers = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&answers);
    let node = TestNode::answering(move |_| match count.fetch_add(1, Ordering::SeqCst) {
        0 | 3 | 6 => good(HEAD),
        1 => good(HEAD - 1),
        2 => good(HEAD - 900),
        4 => Reply::Result(hex(aggregate_of(5, HEAD + 1, &results()))),
        _ => good(HEAD + 1),
    })
    .await;
    let bench = bench(&[node.url()], ALL, PATIENT);
    for (read, calls) in [(1, 1), (2, 4), (3, 6), (4, 8)] {
        assert_eq!(
            bench.reader.holders(agent(1), Asker::Stranger).await.unwrap(),
            Some(Holders::owned_by(OWNER))
        );
        assert_eq!(node.calls("eth_call"), calls, "read {read}");
    }
}

// threat: A node is behind or on another chain
#[tokio::test]
async fn a_node_that_lies_once_about_the_time_leaves_nobody_behind() {
    let has_lied = AtomicBool::new(false);
    let ahead = hex(aggregate_at((CHAIN_ID, HEAD + 1, 1_700_000_000 + 300), &results()));
    let liar = TestNode::answering(move |_| match has_lied.swap(true, Ordering::SeqCst) {
        false => Reply::Result(ahead.clone()),
        true => good(HEAD),
    })
    .await;
    let honest = TestNode::always(good(HEAD)).await;
    let bench = bench_judging(&[liar.url(), honest.url()], Duration::from_secs(600));
    for read in 1..=3 {
        assert_eq!(
            bench.reader.holders(agent(1), Asker::Stranger).await.unwrap(),
            Some(Holders::owned_by(OWNER)),
            "{read}"
        );
    }
    assert_eq!((liar.calls("eth_call"), honest.calls("eth_call")), (4, 0));
}

// threat: A node is behind or on another chain
#[tokio::test]
async fn nodes_that_are_behind_are_a_fault_that_says_so_and_not_unminted() {
    let is_behind = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&is_behind);
    let node = TestNode::answering(move |_| match switch.load(Ordering::SeqCst) {
        false => good(HEAD),
        true => Reply::Result(hex(dated(HEAD - 1, &[reverted(not_minted())]))),
    })
    .await;
    let bench = bench_judging(&[node.url()], Duration::from_secs(600));
    bench.reader.holders(agent(1), Asker::Stranger).await.unwrap().unwrap();
    is_behind.store(true, Ordering::SeqCst);
    let fault = bench.reader.holders(agent(1), Asker::Stranger).await.unwrap_err();
    assert_eq!(*fault.cause, *ReadError::Behind { number: HEAD - 1, newest: HEAD }.to_string());
    let metrics = bench.metrics.render().unwrap();
    assert!(metrics.contains("kind=\"behind\""), "{metrics}");
}

// threat: An agent's data are unreadable or heavy
#[tokio::test]
async fn the_errors_of_nodes_are_never_remembered_as_an_agents_fault() {
    let is_mended = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&is_mended);
    let node = TestNode::answering(move |_| match switch.load(Ordering::SeqCst) {
        true => good(HEAD),
        false => Reply::Error(-32_000, "execution aborted (timeout = 5s)".to_owned(), None),
    })
    .await;
    let bench = bench(&[node.url()], ALL, PATIENT);
    bench.reader.profile(agent(1), Parts::Whole).await.unwrap_err();
    is_mended.store(true, Ordering::SeqCst);
    bench.reader.profile(agent(1), Parts::Whole).await.unwrap().unwrap();
}

// threat: A busy agent stays refused after an outage
// threat: An agent's data are unreadable or heavy
#[tokio::test]
async fn an_absurd_agent_costs_those_who_are_read_with_it_no_call() {
    let is_absurd = |call: &Call3| call.callData.ends_with(&word(7)) && Some(call.target) == ALL.stake_vault;
    let node = TestNode::answering(move |request| {
        let input: Bytes = serde_json::from_value(request["params"][0]["data"].clone()).unwrap();
        let asked = aggregate3Call::abi_decode(&input).unwrap().calls;
        let asked = &asked[5..asked.len() - 1];
        let mut answers: Vec<_> = results()[..2].iter().cloned().cycle().take(asked.len()).collect();
        if let Some(index) = asked.iter().position(is_absurd) {
            answers[index] = reverted(Vec::new());
        }
        Reply::Result(hex(dated(HEAD, &answers)))
    })
    .await;
    let bench = bench(&[node.url()], ALL, PATIENT);
    let agents: Vec<_> = (0..PROFILES.keys as u64).map(agent).collect();
    for (id, read) in together(&bench, &agents, Parts::Gate).await.iter().enumerate() {
        match read {
            Ok(Some((profile, _))) => assert!(profile.holders.owner == OWNER && id != 7),
            Ok(None) => panic!("nobody"),
            Err(fault) => assert_eq!((id, fault.error.kind()), (7, "reverted")),
        }
    }
    assert_eq!(node.calls("eth_call"), 1);
}

/// A node that does not answer a call about one agent for so long that the others would be late.
// threat: A busy agent stays refused after an outage
#[tokio::test]
async fn those_who_are_read_with_a_heavy_agent_are_read_alone_while_the_node_is_well() {
    let head = json!({
        "number": format!("{HEAD:#x}"), "hash": B256::ZERO, "parentHash": B256::ZERO, "timestamp": "0x6553f100",
    });
    for (is_heavy_refused, has_logs) in [(true, true), (false, true), (false, false)] {
        let head = head.clone();
        let node = TestNode::answering(move |request| {
            let is_of_it = request["params"][0].to_string().contains("abcdef01");
            match (is_of_it, is_heavy_refused) {
                _ if request["method"] == "eth_getBlockByNumber" => Reply::Result(head.clone()),
                _ if request["method"] == "eth_getLogs" && has_logs => Reply::Result(json!([])),
                _ if request["method"] == "eth_getLogs" => Reply::Error(-32_601, "no logs".to_owned(), None),
                (true, true) => Reply::Error(-32_000, "execution aborted (timeout = 5s)".to_owned(), None),
                (true, false) => Reply::Hang,
                (false, _) => good(HEAD),
            }
        })
        .await;
        let bench = bench(&[node.url()], ALL, Duration::from_secs(2));
        bench.reader.follower().begin().poll().await;
        let agents: Vec<_> = [0xabcd_ef01, 1, 2, 3].map(agent).into();
        let reads = together(&bench, &agents, Parts::Gate).await;
        let had: Vec<bool> = reads.iter().map(Result::is_ok).collect();
        assert_eq!(had, [false, true, true, true], "{is_heavy_refused} {has_logs}");
    }
}

/// Results of one agent in the answer about two: the rest would be taken for those of another.
// threat: A failure admits somebody, or looks like an answer
#[tokio::test]
async fn agents_of_a_group_whose_answer_has_too_few_results_are_read_alone() {
    let node = TestNode::answering(|_| Reply::Result(hex(dated(HEAD, &results()[..2])))).await;
    let bench = bench(&[node.url()], ALL, PATIENT);
    for read in together(&bench, &[agent(1), agent(2)], Parts::Gate).await {
        assert_eq!(read.unwrap().unwrap().0.holders, Holders::owned_by(OWNER));
    }
}

/// The code of a creation may be no longer than in EIP-3860.
#[tokio::test]
async fn as_many_agents_as_go_with_one_call_go_with_a_creation() {
    for registries in [ALL, ERC8004] {
        let bench = bench(&[TestNode::refusing().url()], registries, PATIENT);
        bench.reader.agents.state.lacks_multicall.store(true, Ordering::Relaxed);
        let most = bench.reader.agents.group_max();
        let calls = (0..most as u64).flat_map(|id| registries.gate_calls(agent(id))).collect();
        let length = dated_call(calls, None, u64::MAX).len();
        assert!((40_000..=49_152).contains(&length) && most >= 32, "{length} bytes of {most} agents");
    }
}

/// How many places strangers have.
const STRANGERS: usize = 32;

// threat: Bad signatures cause work
#[tokio::test]
async fn a_flood_of_strangers_stays_in_its_places_and_hinders_nobody_who_is_vouched_for() {
    let gate = Arc::new(Semaphore::new(0));
    let (held, is_open) = (Arc::clone(&gate), Arc::new(AtomicBool::new(false)));
    let opened = Arc::clone(&is_open);
    let node = TestNode::answering(move |_| {
        if opened.load(Ordering::SeqCst) {
            good(HEAD)
        } else {
            Reply::Gated(Arc::clone(&held), Box::new(good(HEAD)))
        }
    })
    .await;
    let bench = bench(&[node.url()], ALL, PATIENT);
    let flood: Vec<_> = (0..300)
        .map(|id| {
            let reader = Arc::clone(&bench.reader);
            tokio::spawn(async move {
                match id % 3 {
                    0 => reader.holders(agent(1_000 + id), Asker::Stranger).await.map(drop),
                    1 => reader.inspect_holders(agent(1_000 + id), Asker::Stranger).await.map(drop),
                    _ => reader.ask_holders(agent(1_000), B256::ZERO, &[0; 65]).await.map(drop),
                }
            })
        })
        .collect();
    until(|| node.calls("eth_call") >= STRANGERS).await;
    is_open.store(true, Ordering::SeqCst);
    for id in 1..=10 {
        bench.reader.profile(agent(id), Parts::Whole).await.unwrap().unwrap();
        bench.reader.latest_profile(agent(id), Parts::Whole).await.unwrap().unwrap();
        assert_eq!(bench.reader.last_holders(agent(id)), Some(Holders::owned_by(OWNER)));
        assert_eq!(
            bench.reader.holders(agent(id), Asker::Vouched).await.unwrap(),
            Some(Holders::owned_by(OWNER))
        );
        bench.reader.inspect_holders(agent(id), Asker::Vouched).await.unwrap().unwrap();
    }
    assert_eq!(node.calls("eth_call"), STRANGERS + 60, "no more strangers than may be");
    drop(flood);
}
