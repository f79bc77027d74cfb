//! Nodes that refuse calls with more gas than they allow.

use std::time::Duration;

use alloy::primitives::U64;
use serde_json::Value;

use crate::chain::fixture::{ALL, HEAD, OWNER, PATIENT, Reply, TestNode, agent, bench, kind_of};
use crate::chain::tests::results::{dated, hex, results};
use crate::domain::Holders;
use crate::ports::{Asker, Chain};

/// The gas that a call names.
fn named(request: &Value) -> Option<u64> {
    let gas = request["params"][0].get("gas")?;
    Some(serde_json::from_value::<U64>(gas.clone()).unwrap().to())
}

/// A node that takes no more gas.
async fn taking(most: u64, code: i64, text: &'static str) -> TestNode {
    TestNode::answering(move |request| match named(request) {
        Some(gas) if gas > most => Reply::Error(code, text.to_owned(), None),
        Some(_) | None => Reply::Result(hex(dated(HEAD, &results()[..1]))),
    })
    .await
}

/// As Monad's nodes, older Nethermind and Hardhat say it, and of a node that takes none.
#[tokio::test]
async fn what_a_node_refuses_of_the_gas_is_not_named_to_it_again_for_ten_minutes() {
    let hardhat = "Transaction gas limit is 50000000 and exceeds transaction gas cap of 16777216";
    // The calls of a read of holders, and of two creations.
    for (most, code, text, calls) in [
        (u64::MAX, 0, "", [1, 1, 1]),
        (30_000_000, -32_603, "user-specified gas exceeds provider limit", [1, 2, 1]),
        (17_000_000, -32_000, "Block gas limit exceeded", [1, 2, 1]),
        (16_777_216, -32_603, hardhat, [1, 2, 1]),
        (8_000_000, -32_000, "Block gas limit exceeded", [2, 1, 1]),
        (0, -32_602, "unknown field: gas", [2, 1, 1]),
    ] {
        let node = taking(most, code, text).await;
        let bench = bench(&[node.url()], ALL, PATIENT);
        for _ in 0..2 {
            let mut seen = 0;
            let mut count = || {
                let before = std::mem::replace(&mut seen, node.calls("eth_call"));
                seen - before
            };
            count();
            let holders = bench.reader.holders(agent(1), Asker::Vouched).await.unwrap();
            assert_eq!(holders, Some(Holders::owned_by(OWNER)));
            let owner = count();
            let state = &bench.reader.agents.state;
            state.try_creation().await.unwrap();
            let creation = count();
            state.try_creation().await.unwrap();
            assert_eq!([owner, creation, count()], calls, "{most} {text}");
            assert!(named(&node.last_call()).is_none_or(|gas| gas <= most));
            bench.clock.advance(Duration::from_secs(601));
        }
    }
}

#[tokio::test]
async fn a_call_that_had_too_little_gas_is_not_sent_with_less() {
    for text in
        ["out of gas", "EVM error: OutOfGas", "intrinsic gas too low", "gas required exceeds allowance"]
    {
        let node = taking(0, -32_000, text).await;
        let bench = bench(&[node.url()], ALL, PATIENT);
        let fault = bench.reader.holders(agent(1), Asker::Vouched).await.unwrap_err();
        assert_eq!((kind_of(&fault.cause), named(&node.last_call())), ("node_error", Some(15_000_000)));
    }
}

/// One that refuses all gas, and one that is away.
#[tokio::test]
async fn another_nodes_fault_hides_no_refusal() {
    let (away, good) =
        (TestNode::always(Reply::Http(502, String::new())).await, taking(0, -32_603, "gas").await);
    let bench = bench(&[away.url(), good.url()], ALL, PATIENT);
    assert!(bench.reader.holders(agent(1), Asker::Vouched).await.unwrap().is_some());
}
