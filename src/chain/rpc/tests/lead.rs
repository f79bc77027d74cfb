//! Blocks and logs of the node that leads.

use alloy::primitives::{Address, B256};
use serde_json::{Value, json};

use crate::chain::fixture::{ALL, HEAD, PATIENT, Reply, SHORT, TestNode, bench};
use crate::chain::rpc::LogsTrouble;
use crate::chain::rpc::lead::{BlockId, BlockMark, LogMark};

const HASH: B256 = B256::repeat_byte(0xaa);
const PARENT: B256 = B256::repeat_byte(0xbb);
const CONTRACT: Address = Address::repeat_byte(0x11);

/// A block with the fields of this chain and of others.
fn block(number: u64) -> Value {
    json!({"number": format!("{number:#x}"), "hash": HASH, "parentHash": PARENT, "timestamp": "0x1", "l1BlockNumber": 7, "uncles": null})
}

fn log(number: u64) -> Value {
    json!({"address": CONTRACT, "blockNumber": format!("{number:#x}"), "blockHash": HASH, "logIndex": "0x2",
        "topics": [PARENT], "data": "0x", "removed": false, "transactionHash": null})
}

#[tokio::test]
async fn the_lead_gives_blocks_and_logs_and_of_them_what_is_needed_alone() {
    let node = TestNode::answering(|request| match request["params"][0].as_str() {
        Some("latest") => Reply::Result(block(1_000)),
        Some("0x3e6") => Reply::Result(block(998)),
        Some(_) => Reply::Result(Value::Null),
        None => {
            let filter = json!({"fromBlock": "0x3e6", "toBlock": "0x3e8", "address": [CONTRACT]});
            assert_eq!(request["params"], json!([filter]));
            Reply::Result(json!([log(999), log(1_000)]))
        }
    })
    .await;
    let bench = bench(&[node.url()], ALL, PATIENT);
    let lead = bench.pool.lead().await.unwrap();
    assert_eq!(*lead.name(), *node.url());
    let mark = |number| BlockMark { number, hash: HASH, parent: PARENT };
    assert_eq!(lead.block(BlockId::Latest).await.unwrap(), Some(mark(1_000)));
    assert_eq!(lead.block(BlockId::Number(998)).await.unwrap(), Some(mark(998)));
    assert_eq!(lead.block(BlockId::Number(1_001)).await.unwrap(), None);
    let logs = lead.logs(998, 1_000, &[CONTRACT]).await.unwrap();
    let mark = |block_number| LogMark {
        address: CONTRACT,
        block_number,
        block_hash: HASH,
        log_index: 2,
        topics: vec![PARENT],
        first_word: None,
    };
    assert_eq!(logs, [mark(999), mark(1_000)]);
}

#[tokio::test]
async fn blocks_and_logs_that_were_not_asked_for_are_faults() {
    let node = TestNode::answering(|request| match request["method"].as_str() {
        Some("eth_getLogs") => Reply::Result(json!([log(5)])),
        _ => Reply::Result(block(1)),
    })
    .await;
    let bench = bench(&[node.url()], ALL, PATIENT);
    let lead = bench.pool.lead().await.unwrap();
    assert!(lead.block(BlockId::Number(2)).await.is_err());
    let fault = lead.logs(6, 9, &[CONTRACT]).await.unwrap_err();
    assert_eq!(fault.trouble, LogsTrouble::Transient);
}

#[tokio::test]
async fn logs_that_a_node_does_not_give_are_told_apart_and_do_not_count_against_it() {
    let too_many = Reply::Error(-32_005, "query returned more than 10000 results".to_owned(), None);
    let unknown = Reply::Error(-32_601, "the method eth_getLogs does not exist".to_owned(), None);
    let forbidden = Reply::Http(403, "not in your plan".to_owned());
    for (reply, trouble) in [
        (too_many, LogsTrouble::TooMany),
        (Reply::Http(413, String::new()), LogsTrouble::TooMany),
        (unknown, LogsTrouble::NotSupported),
        (forbidden, LogsTrouble::NotSupported),
    ] {
        let node = TestNode::always(reply).await;
        let bench = bench(&[node.url()], ALL, PATIENT);
        for _ in 0..5 {
            let lead = bench.pool.lead().await.unwrap();
            let fault = lead.logs(1, 2, &[CONTRACT]).await.unwrap_err();
            assert_eq!((fault.trouble, &*fault.fault.endpoint), (trouble, &*node.url()));
            assert_eq!(fault.fault.method, "eth_getLogs");
        }
    }
}

#[tokio::test]
async fn a_lead_that_fails_is_followed_by_the_next_node_at_once() {
    for sickness in [Reply::Http(502, String::new()), Reply::Hang] {
        let nodes = [TestNode::always(sickness).await, TestNode::always(Reply::Result(block(HEAD))).await];
        let bench = bench(&nodes.each_ref().map(TestNode::url), ALL, SHORT);
        let lead = bench.pool.lead().await.unwrap();
        assert_eq!(*lead.name(), *nodes[0].url());
        lead.block(BlockId::Latest).await.unwrap_err();
        let lead = bench.pool.lead().await.unwrap();
        assert_eq!(*lead.name(), *nodes[1].url());
        assert_eq!(lead.block(BlockId::Latest).await.unwrap().unwrap().number, HEAD);
        bench.clock.advance_secs(61);
        bench.pool.tick().await;
        assert_eq!(*bench.pool.lead().await.unwrap().name(), *nodes[1].url(), "who leads goes on leading");
    }
}

#[tokio::test]
async fn a_lead_that_fails_alone_goes_on_leading_until_it_is_given_up() {
    let node = TestNode::always(Reply::Http(502, String::new())).await;
    let bench = bench(&[node.url()], ALL, PATIENT);
    for _ in 0..3 {
        let lead = bench.pool.lead().await.unwrap();
        lead.block(BlockId::Latest).await.unwrap_err();
    }
    assert!(bench.pool.lead().await.is_err());
}

/// A node that gives blocks, and this when it is asked for logs.
async fn without_logs(reply: fn() -> Reply) -> TestNode {
    TestNode::answering(move |request| match request["method"].as_str() {
        Some("eth_getLogs") => reply(),
        _ => Reply::Result(block(HEAD)),
    })
    .await
}

#[tokio::test]
async fn a_lead_without_logs_makes_way_for_a_node_that_has_them() {
    for reply in [
        (|| Reply::Error(-32_601, "the method eth_getLogs does not exist".to_owned(), None)) as fn() -> Reply,
        || Reply::Http(403, "not in your plan".to_owned()),
        || Reply::Http(502, String::new()),
        || Reply::Hang,
    ] {
        let nodes = [without_logs(reply).await, without_logs(|| Reply::Result(json!([]))).await];
        let bench = bench(&nodes.each_ref().map(TestNode::url), ALL, SHORT);
        let lead = bench.pool.lead().await.unwrap();
        assert_eq!(*lead.name(), *nodes[0].url());
        lead.block(BlockId::Latest).await.unwrap();
        let fault = lead.logs(1, 2, &[CONTRACT]).await.unwrap_err();
        assert_eq!(fault.trouble, LogsTrouble::Transient, "it is not the last word");
        for _ in 0..3 {
            let lead = bench.pool.lead().await.unwrap();
            assert_eq!(*lead.name(), *nodes[1].url());
            lead.block(BlockId::Latest).await.unwrap();
            assert_eq!(lead.logs(1, 2, &[CONTRACT]).await.unwrap(), []);
        }
    }
}

#[tokio::test]
async fn that_no_logs_are_to_be_had_is_said_when_every_node_refuses_them() {
    let refusing = || Reply::Error(-32_601, "the method eth_getLogs does not exist".to_owned(), None);
    let nodes = [without_logs(refusing).await, without_logs(refusing).await];
    let bench = bench(&nodes.each_ref().map(TestNode::url), ALL, PATIENT);
    for (node, trouble) in nodes.iter().zip([LogsTrouble::Transient, LogsTrouble::NotSupported]) {
        let lead = bench.pool.lead().await.unwrap();
        assert_eq!(*lead.name(), *node.url());
        assert_eq!(lead.logs(1, 2, &[CONTRACT]).await.unwrap_err().trouble, trouble);
    }
}

#[tokio::test]
async fn the_latest_block_of_the_lead_is_what_others_are_compared_with() {
    let nodes =
        [TestNode::always(Reply::Result(block(HEAD + 33))).await, TestNode::always(Reply::Hang).await];
    let bench = bench(&nodes.each_ref().map(TestNode::url), ALL, PATIENT);
    let second_is_fit = || {
        let line = format!("tiergate_rpc_node_fit{{endpoint=\"{}\"}} 1", nodes[1].url());
        bench.metrics.render().unwrap().contains(&line)
    };
    let lead = bench.pool.lead().await.unwrap();
    lead.block(BlockId::Number(HEAD + 33)).await.unwrap().unwrap();
    bench.clock.advance_secs(5);
    bench.pool.tick().await;
    assert!(second_is_fit(), "a block that is not the latest says nothing");
    lead.block(BlockId::Latest).await.unwrap().unwrap();
    bench.clock.advance_secs(5);
    lead.block(BlockId::Latest).await.unwrap().unwrap();
    bench.pool.tick().await;
    assert!(!second_is_fit());
    assert_eq!(
        nodes[0].calls("eth_blockNumber"),
        2,
        "the head of a lead that is followed is not asked for besides"
    );
}
