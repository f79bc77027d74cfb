//! Nodes of several chains, and nothing that says which is right: said once, and whoever asks is told why.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;
use tracing::dispatcher::set_default;

use super::agent;
use crate::chain::fault::ReadError;
use crate::chain::fixture::{ALL, PATIENT, Reply, TestNode, aggregate, bench, cause, hex, results, vital};
use crate::ports::chain::Chain;
use crate::telemetry::paper::Paper;

/// A node on the chain that is told.
async fn node(chain: &Arc<AtomicU64>) -> TestNode {
    let chain = Arc::clone(chain);
    TestNode::start(move |request| match request["method"].as_str() {
        Some("eth_chainId") => Reply::Result(json!(format!("{:#x}", chain.load(Ordering::SeqCst)))),
        _ => vital(request).unwrap_or_else(|| Reply::Result(hex(aggregate(&results())))),
    })
    .await
}

#[tokio::test]
async fn a_dispute_about_the_chain_is_in_the_log_once_and_not_at_every_look() {
    let chains = [Arc::new(AtomicU64::new(1)), Arc::new(AtomicU64::new(2))];
    let nodes = [node(&chains[0]).await, node(&chains[1]).await];
    let bench = bench(&nodes.each_ref().map(TestNode::url), ALL, PATIENT);
    let paper = Paper::default();
    let _log = set_default(&paper.dispatch());
    let disputes = || {
        let said = paper.take();
        said.iter().filter(|line| line.contains("the nodes are on different chains (1, 2)")).count()
    };
    bench.pool.tick().await;
    assert_eq!(disputes(), 1);
    let asked = nodes[0].calls("eth_chainId");
    for _ in 0..20 {
        bench.clock.advance_secs(30);
        bench.pool.tick().await;
        let fault = bench.reader.profile(agent(1)).await.unwrap_err();
        assert_eq!(cause(&fault), &ReadError::ChainsDiffer("1, 2".to_owned()));
    }
    assert!(nodes[0].calls("eth_chainId") >= asked + 20, "it was looked at each time");
    assert_eq!(disputes(), 0);
    // The second one was moved to the chain of the first.
    chains[1].store(1, Ordering::SeqCst);
    bench.clock.advance_secs(30);
    bench.pool.tick().await;
    bench.reader.profile(agent(1)).await.unwrap().unwrap();
    assert_eq!(disputes(), 0);
}
