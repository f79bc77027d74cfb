//! A node that misbehaves is a fault, never an answer; and no fault is kept.

use std::time::Duration;

use serde_json::{Value, json};

use super::agent;
use crate::chain::fault::ReadError;
use crate::chain::fixture::{
    ALL, LIFETIME, PATIENT, Reply, SHORT, TestNode, aggregate, bench, cause, hex, not_minted, results,
    reverted,
};
use crate::chain::rpc::transport::ANSWER_BYTES_MAX;
use crate::ports::chain::{Asker, Chain};

/// The error of each way of asking about an agent, when the node always does the same. Each asks a pool that knows nothing
/// of the node yet.
async fn kinds_of(node: &TestNode, request_timeout: Duration) -> [&'static str; 4] {
    let [first, second, third, fourth] = [(); 4].map(|()| bench(&[node.url()], ALL, request_timeout));
    let owner = first.reader.owner(agent(1), Asker::Stranger).await.unwrap_err();
    let profile = second.reader.profile(agent(1)).await.unwrap_err();
    let latest = third.reader.latest_profile(agent(1)).await.unwrap_err();
    let probe = fourth.reader.probe().await.unwrap_err();
    assert_eq!(second.reader.cache.len() + third.reader.cache.len(), 0);
    assert_eq!((owner.method, probe.method), ("eth_call", "eth_getCode"));
    let text = first.metrics.render().unwrap();
    let counted = cause(&owner).kind();
    assert!(text.contains(&format!("tiergate_rpc_errors_total{{kind=\"{counted}\",method=\"eth_call\"}} 1")));
    [&owner, &profile, &latest, &probe].map(|fault| cause(fault).kind())
}

#[tokio::test]
async fn whatever_is_not_an_answer_is_a_fault() {
    let error = |code, message: &str| Reply::Error(code, message.to_owned(), None);
    let rpc_error = r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32005,"message":"limit exceeded"}}"#;
    let cases: Vec<(&str, Reply)> = vec![
        ("connection", Reply::CloseMidway),
        ("unintelligible", Reply::Http(200, "<html>Welcome</html>".to_owned())),
        ("unintelligible", Reply::Http(200, String::new())),
        ("unintelligible", Reply::Http(200, "null".to_owned())),
        ("unintelligible", Reply::Http(200, "[]".to_owned())),
        ("unintelligible", Reply::Http(200, r#"{"jsonrpc":"2.0","id":ID}"#.to_owned())),
        ("unintelligible", Reply::Http(200, r#"{"jsonrpc":"2.0","id":99999,"result":"0x01"}"#.to_owned())),
        ("unintelligible", Reply::Http(200, "[".repeat(100_000))),
        ("rate_limited", Reply::Http(429, "slow down".to_owned())),
        ("http_status", Reply::Http(500, String::new())),
        ("http_status", Reply::Http(302, String::new())),
        ("http_status", Reply::Http(503, r#"{"jsonrpc":"2.0","id":ID,"result":"0x01"}"#.to_owned())),
        ("rate_limited", Reply::Http(429, rpc_error.to_owned())),
        ("node_error", Reply::Http(500, rpc_error.to_owned())),
        ("node_error", Reply::Http(200, rpc_error.replace("ID", "null"))),
        ("node_error", error(-32_005, "limit exceeded")),
        ("node_error", error(-32_603, "internal error")),
        ("node_error", Reply::Error(-32_603, "internal error".to_owned(), Some(hex(not_minted())))),
        ("unintelligible", Reply::Result(Value::Null)),
        ("unintelligible", Reply::Result(json!(7))),
        ("unintelligible", Reply::Result(json!({"owner": "0x"}))),
        ("unintelligible", Reply::Result(json!("0x123"))),
        ("unintelligible", Reply::Result(json!("owner"))),
    ];
    for (kind, reply) in cases {
        let shown = format!("{reply:.200?}");
        let node = TestNode::always(reply).await;
        assert_eq!(kinds_of(&node, PATIENT).await, [kind; 4], "{shown}");
    }
    let empty = TestNode::always(Reply::Result(json!("0x"))).await;
    assert_eq!(kinds_of(&empty, PATIENT).await, ["no_code"; 4]);
    assert_eq!(kinds_of(&TestNode::refusing(), PATIENT).await, ["given_up"; 4]);
}

#[tokio::test]
async fn a_node_that_hangs_is_given_up_after_the_time_of_one_try_each() {
    let nodes = [TestNode::always(Reply::Hang).await, TestNode::always(Reply::Hang).await];
    let bench = bench(&nodes.each_ref().map(TestNode::url), ALL, SHORT);
    let fault = bench.reader.owner(agent(1), Asker::Stranger).await.unwrap_err();
    assert_eq!(cause(&fault), &ReadError::TimedOut(SHORT.as_millis()));
    assert_eq!(nodes.each_ref().map(TestNode::all_calls), [1, 1]);
    assert!(bench.reader.owners.is_idle());
}

#[tokio::test]
async fn an_answer_without_end_is_cut_off() {
    let node = TestNode::always(Reply::Endless).await;
    let bench = bench(&[node.url()], ALL, PATIENT);
    let fault = bench.reader.owner(agent(1), Asker::Stranger).await.unwrap_err();
    assert_eq!(cause(&fault), &ReadError::TooLong(ANSWER_BYTES_MAX));
    let in_sockets = 16 * 1024 * 1024;
    assert!(node.bytes_sent() < ANSWER_BYTES_MAX + in_sockets, "{} bytes", node.bytes_sent());
}

#[tokio::test]
async fn an_owner_is_nobody_only_by_a_revert_that_says_so() {
    let revert = |data| Reply::Error(3, "execution reverted".to_owned(), data);
    let wrapped = Reply::Error(
        -32_603,
        "Error: VM Exception: reverted with custom error".to_owned(),
        Some(json!({"message": "reverted", "data": hex(not_minted())})),
    );
    let http_500 = json!({"jsonrpc": "2.0", "id": "ID", "error":
        {"code": 3, "message": "execution reverted", "data": hex(not_minted())}});
    let http_500 = Reply::Http(500, http_500.to_string().replace("\"ID\"", "ID"));
    for reply in [revert(Some(hex(not_minted()))), wrapped, http_500, Reply::Result(hex([0; 32]))] {
        let node = TestNode::always(reply).await;
        let bench = bench(&[node.url()], ALL, PATIENT);
        assert_eq!(bench.reader.owner(agent(1), Asker::Stranger).await.unwrap(), None);
    }
    for data in [None, Some(json!("0x")), Some(hex([0xde, 0xad, 0xbe, 0xef])), Some(json!("Reverted"))] {
        let node = TestNode::always(revert(data.clone())).await;
        let bench = bench(&[node.url()], ALL, PATIENT);
        let fault = bench.reader.owner(agent(1), Asker::Stranger).await.unwrap_err();
        assert_eq!(cause(&fault), &ReadError::Reverted("ownerOf"), "{data:?}");
        let fault = bench.reader.profile(agent(1)).await.unwrap_err();
        assert_eq!(cause(&fault), &ReadError::Reverted("aggregate3"), "{data:?}");
    }
}

#[tokio::test]
async fn a_fault_is_forgotten_with_the_call_that_met_it() {
    let healthy = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let switch = std::sync::Arc::clone(&healthy);
    let node = TestNode::answering(move |_| {
        if switch.load(std::sync::atomic::Ordering::SeqCst) {
            Reply::Result(hex(aggregate(&results())))
        } else {
            Reply::Http(502, String::new())
        }
    })
    .await;
    let bench = bench(&[node.url()], ALL, PATIENT);
    bench.reader.profile(agent(1)).await.unwrap_err();
    healthy.store(true, std::sync::atomic::Ordering::SeqCst);
    bench.reader.profile(agent(1)).await.unwrap().unwrap();
    healthy.store(false, std::sync::atomic::Ordering::SeqCst);
    bench.reader.profile(agent(1)).await.unwrap().unwrap();
    bench.clock.advance_micros(u64::try_from(LIFETIME.as_micros()).unwrap());
    bench.reader.profile(agent(1)).await.unwrap_err();
}

#[tokio::test]
async fn a_revert_within_the_profile_that_is_not_the_owners_says_nothing_of_the_owner() {
    let mut results = results();
    results[2] = reverted(not_minted());
    let node = TestNode::always(Reply::Result(hex(aggregate(&results)))).await;
    let bench = bench(&[node.url()], ALL, PATIENT);
    let fault = bench.reader.profile(agent(1)).await.unwrap_err();
    assert_eq!(cause(&fault), &ReadError::Reverted("getStake"));
}
