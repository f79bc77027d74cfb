//! What `check --online` finds out about a node.

use alloy::primitives::{B256, U64};
use serde_json::{Value, json};

use crate::chain::fixture::{ALL, CHAIN_ID, HEAD, PATIENT, Reply, TestNode, bench, kind_of};
use crate::chain::tests::results::{aggregate, hex, results};

/// The most that a node takes.
#[derive(Debug, Clone, Copy)]
struct Limits {
    log_blocks: u64,
    call_bytes: usize,
    chain: u64,
}

const NONE: Limits = Limits { log_blocks: 1_000, call_bytes: 1_000_000, chain: CHAIN_ID };

fn answer(request: &Value, limits: Limits) -> Reply {
    let refused = |text: &str| Reply::Error(-32_005, text.to_owned(), None);
    let params = &request["params"][0];
    let number = |of: &Value| serde_json::from_value::<U64>(of.clone()).unwrap().to::<u64>();
    match request["method"].as_str().unwrap() {
        "eth_chainId" => Reply::Result(json!(U64::from(limits.chain))),
        "eth_getBlockByNumber" => Reply::Result(json!({
            "number": U64::from(HEAD), "hash": B256::ZERO, "parentHash": B256::ZERO, "timestamp": "0x6553f100"
        })),
        "eth_getLogs" if number(&params["toBlock"]) - number(&params["fromBlock"]) >= limits.log_blocks => {
            refused("block range is too large")
        }
        "eth_getLogs" => Reply::Result(json!([])),
        _ if params["data"].as_str().unwrap().len() > limits.call_bytes => refused("too long"),
        _ => Reply::Result(hex(aggregate(&vec![results(); 32].concat()))),
    }
}

#[tokio::test]
async fn a_node_is_asked_as_the_service_will_ask_and_what_it_caps_is_told() {
    for (limits, found) in [
        (NONE, &[][..]),
        (Limits { log_blocks: 17, ..NONE }, &[]),
        (Limits { log_blocks: 16, ..NONE }, &["no logs of 17 blocks in a request, but of 8: "]),
        (Limits { log_blocks: 5, ..NONE }, &["no logs of 17 blocks in a request, but of 4: "]),
        (Limits { log_blocks: 1, ..NONE }, &["no logs of 17 blocks in a request, but of 1: "]),
        (Limits { log_blocks: 0, ..NONE }, &["no logs, so that profiles serve for "]),
        (Limits { call_bytes: 10_000, ..NONE }, &["no read of 32 agents in a call: "]),
    ] {
        let node = TestNode::start(move |request| answer(request, limits)).await;
        let bench = bench(&[node.url()], ALL, PATIENT);
        let oddities = bench.reader.contracts().inspect().await.unwrap().oddities;
        let is_as = oddities.iter().zip(found).all(|(oddity, found)| oddity.starts_with(found));
        assert!(is_as && oddities.len() == found.len(), "{limits:?}: {oddities:?}");
    }
}

/// As of a provider that answers some methods from elsewhere.
#[tokio::test]
async fn a_node_that_says_it_is_on_another_chain_is_told_whatever_its_contracts_say() {
    let node = TestNode::start(|request| answer(request, Limits { chain: 5, ..NONE })).await;
    let bench = bench(&[node.url()], ALL, PATIENT);
    let fault = bench.reader.contracts().inspect().await.err().unwrap();
    assert_eq!(kind_of(&fault.cause), "wrong_chain");
}
