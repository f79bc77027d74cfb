//! Nodes that are sick in each way there is, with and without a healthy one beside them: right answers or a fault within
//! the time of one try, and recovery by itself.

use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::{B256, Bytes, U256};
use alloy::sol_types::SolCall;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::chain::abi::ownerOfCall;
use crate::chain::fault::ReadError;
use crate::chain::fixture::{
    ALL, Bench, CHAIN_ID, OWNER, PATIENT, Reply, SHORT, TestNode, bench, cause, hex, vital,
};
use crate::chain::rpc::{At, Deadline, Lane, Terms};
use crate::chain::snapshot::read_owner;
use crate::ports::chain::ChainFault;
use crate::ports::clock::Clock;

/// What a node does with a request, when it is sick.
type Sickness = fn(&Value) -> Reply;

/// A node that falls sick and recovers on command.
struct Patient {
    node: TestNode,
    sickness: Arc<Mutex<Option<Sickness>>>,
}

impl Patient {
    async fn healthy() -> Self {
        let sickness: Arc<Mutex<Option<Sickness>>> = Arc::default();
        let state = Arc::clone(&sickness);
        let node = TestNode::start(move |request| {
            let sick = *state.lock();
            match sick {
                Some(sick) => sick(request),
                None => vital(request).unwrap_or_else(|| Reply::Result(hex(OWNER.into_word()))),
            }
        });
        Self { node: node.await, sickness }
    }

    async fn sick(sickness: Sickness) -> Self {
        let patient = Self::healthy().await;
        patient.falls(sickness);
        patient
    }

    fn falls(&self, sickness: Sickness) {
        *self.sickness.lock() = Some(sickness);
    }

    fn recovers(&self) {
        *self.sickness.lock() = None;
    }

    fn reads(&self) -> usize {
        self.node.calls("eth_call")
    }
}

async fn read(bench: &Bench) -> Result<(), ChainFault> {
    let deadline = Deadline::after(bench.clock.monotonic_micros(), Duration::from_secs(6));
    let terms = Terms { at: At::Latest, lane: Lane::Known, deadline };
    let call = Bytes::from(ownerOfCall { tokenId: U256::ZERO }.abi_encode());
    let owner = bench.pool.call(&terms, Some(ALL.identity), &call, read_owner).await?;
    assert_eq!(owner, Some(OWNER), "a wrong answer");
    Ok(())
}

/// The kind of a read's fault.
async fn kind_of_fault(bench: &Bench) -> &'static str {
    cause(&read(bench).await.unwrap_err()).kind()
}

/// Lets the longest pause pass and looks after the nodes.
async fn look_after(bench: &Bench) {
    bench.clock.advance_secs(61);
    bench.pool.tick().await;
}

fn is_fit(bench: &Bench, node: &TestNode) -> bool {
    let line = format!("tiergate_rpc_node_fit{{endpoint=\"{}\"}} 1", node.url());
    bench.metrics.render().unwrap().contains(&line)
}

/// A node that falls sick alone: faults of its kind, then faults at once that say so, until it has recovered.
async fn alone(sickness: Sickness, kind: &str) {
    let patient = Patient::healthy().await;
    let bench = bench(&[patient.node.url()], ALL, SHORT);
    read(&bench).await.unwrap();
    patient.falls(sickness);
    let mut tries = 0;
    while kind_of_fault(&bench).await != "given_up" {
        tries += 1;
        assert!(tries <= 3, "it is asked again and again");
        bench.pool.tick().await;
    }
    let cost = || (patient.reads(), bench.time.limits_passed());
    let (before, fault) = (cost(), read(&bench).await.unwrap_err());
    assert_eq!(cost(), before, "a fault costs neither a call nor time");
    assert_eq!(kind_within(&fault), kind, "{fault}");
    look_after(&bench).await;
    assert!(!is_fit(&bench, &patient.node));
    patient.recovers();
    look_after(&bench).await;
    read(&bench).await.unwrap();
    assert!(is_fit(&bench, &patient.node));
}

/// The kind of what a node was given up for.
fn kind_within(fault: &ChainFault) -> &'static str {
    let ReadError::GivenUp(cause) = cause(fault) else { panic!("{fault}") };
    cause.kind()
}

/// A node that falls sick beside a healthy one: no read fails. Where it hangs, one read takes the time of a try.
async fn beside_a_healthy_one(sickness: Sickness, kind: &str) {
    let patient = Patient::healthy().await;
    let healthy = Patient::healthy().await;
    let bench = bench(&[patient.node.url(), healthy.node.url()], ALL, SHORT);
    read(&bench).await.unwrap();
    let cost = || (patient.reads(), healthy.reads(), bench.time.limits_passed());
    let (_, _, begun) = cost();
    assert_eq!(cost(), (1, 0, begun));
    patient.falls(sickness);
    for _ in 0..6 {
        read(&bench).await.unwrap();
    }
    assert_eq!(cost(), (2, 6, begun + u64::from(kind == "timeout")));

    let mut looks = 0;
    while is_fit(&bench, &patient.node) {
        bench.pool.tick().await;
        read(&bench).await.unwrap();
        looks += 1;
        assert!(looks <= 3, "it is not given up");
    }
    assert!(patient.reads() <= 1 + 3 && is_fit(&bench, &healthy.node), "{}", patient.reads());
    let (sick, well, passed) = cost();
    read(&bench).await.unwrap();
    assert_eq!(cost(), (sick, well + 1, passed), "the one that was given up costs nothing");
    patient.recovers();
    look_after(&bench).await;
    assert!(is_fit(&bench, &patient.node));
    read(&bench).await.unwrap();
    assert_eq!(cost(), (sick, well + 2, passed), "the leading node goes on leading");
    healthy.falls(sickness);
    for _ in 0..4 {
        read(&bench).await.unwrap();
    }
}

/// A node that is sick from the beginning does not keep anybody from the healthy one.
async fn from_the_beginning(sickness: Sickness, kind: &str) {
    let (patient, healthy) = (Patient::sick(sickness).await, Patient::healthy().await);
    let bench = bench(&[patient.node.url(), healthy.node.url()], ALL, SHORT);
    let begun = bench.time.limits_passed();
    for _ in 0..3 {
        read(&bench).await.unwrap();
    }
    assert_eq!(bench.time.limits_passed() - begun, u64::from(kind == "timeout"));
}

async fn in_every_company(sickness: Sickness, kind: &str) {
    alone(sickness, kind).await;
    beside_a_healthy_one(sickness, kind).await;
    from_the_beginning(sickness, kind).await;
}

#[tokio::test]
async fn a_node_that_breaks_connections() {
    in_every_company(|_| Reply::CloseMidway, "connection").await;
}

#[tokio::test]
async fn a_node_that_is_frozen() {
    in_every_company(|_| Reply::Hang, "timeout").await;
}

#[tokio::test]
async fn a_node_so_slow_that_its_answers_do_not_end() {
    in_every_company(|_| Reply::HangMidway, "timeout").await;
}

#[tokio::test]
async fn a_node_that_answers_html() {
    in_every_company(|_| Reply::Http(200, "<html>Welcome</html>".to_owned()), "unintelligible").await;
}

#[tokio::test]
async fn a_node_that_answers_5xx() {
    in_every_company(|_| Reply::Http(503, "busy".to_owned()), "http_status").await;
}

#[tokio::test]
async fn a_node_that_answers_429() {
    in_every_company(|_| Reply::Http(429, "slow down".to_owned()), "rate_limited").await;
}

#[tokio::test]
async fn a_node_that_limits_rates_in_json() {
    in_every_company(|_| Reply::Error(-32_005, "limit exceeded".to_owned(), None), "node_error").await;
}

#[tokio::test]
async fn a_node_that_lost_its_state() {
    in_every_company(|_| Reply::Error(-32_000, "missing trie node 1f".to_owned(), None), "node_error").await;
}

#[tokio::test]
async fn a_node_whose_address_refuses() {
    let healthy = Patient::healthy().await;
    let dead = TestNode::refusing();
    let pair = bench(&[dead.url(), healthy.node.url()], ALL, SHORT);
    read(&pair).await.unwrap();
    let single = bench(&[dead.url()], ALL, SHORT);
    for _ in 0..3 {
        let fault = read(&single).await.unwrap_err();
        assert_eq!((kind_within(&fault), &*fault.endpoint), ("connection", &*dead.url()));
    }
}

/// Empty results are what a contract without code gives, too: alone they can't be told from one. Beside a healthy node
/// they are the node's own fault.
#[tokio::test]
async fn a_node_with_empty_results() {
    let sickness: Sickness = |request| vital(request).unwrap_or_else(|| Reply::Result(json!("0x")));
    let patient = Patient::sick(sickness).await;
    let single = bench(&[patient.node.url()], ALL, PATIENT);
    for _ in 0..10 {
        assert_eq!(kind_of_fault(&single).await, "no_code");
    }
    patient.recovers();
    read(&single).await.unwrap();
    beside_a_healthy_one(sickness, "no_code").await;
    from_the_beginning(sickness, "no_code").await;
}

#[tokio::test]
async fn what_all_nodes_share_gives_no_node_up() {
    for sickness in [
        (|request: &Value| vital(request).unwrap_or(Reply::Endless)) as Sickness,
        |request| vital(request).unwrap_or_else(|| Reply::Error(-32_000, "out of gas".to_owned(), None)),
        |request| vital(request).unwrap_or_else(|| Reply::Result(json!("0x01"))),
    ] {
        let nodes = [Patient::sick(sickness).await, Patient::sick(sickness).await];
        let bench = bench(&nodes.each_ref().map(|patient| patient.node.url()), ALL, PATIENT);
        for _ in 0..5 {
            assert_ne!(kind_of_fault(&bench).await, "given_up");
        }
        assert_eq!(nodes.each_ref().map(Patient::reads), [5, 5]);
        assert!(nodes.iter().all(|patient| is_fit(&bench, &patient.node)));
    }
}

#[tokio::test]
async fn a_node_on_another_chain() {
    let elsewhere: Sickness = |request| match request["method"].as_str() {
        Some("eth_chainId") => Reply::Result(json!("0x1")),
        _ => vital(request).unwrap_or_else(|| Reply::Result(hex([0; 32]))),
    };
    let (patient, healthy) = (Patient::sick(elsewhere).await, Patient::healthy().await);
    let pair = bench(&[patient.node.url(), healthy.node.url()], ALL, PATIENT);
    for _ in 0..3 {
        read(&pair).await.unwrap();
    }
    assert_eq!((patient.reads(), is_fit(&pair, &patient.node)), (0, false));
    healthy.falls(elsewhere);
    look_after(&pair).await;
    let fault = read(&pair).await.unwrap_err();
    assert_eq!(
        fault.to_string().split(": ").nth(1),
        Some(format!("the node is on chain 1, not on chain {CHAIN_ID}").as_str())
    );
    healthy.recovers();
    look_after(&pair).await;
    read(&pair).await.unwrap();
}

#[tokio::test]
async fn nodes_that_disagree_on_the_chain_are_all_left_alone() {
    let on_1: Sickness = |_| Reply::Result(json!("0x1"));
    let on_5: Sickness = |_| Reply::Result(json!("0x5"));
    let (one, five) = (Patient::sick(on_1).await, Patient::sick(on_5).await);
    let bench = bench(&[one.node.url(), five.node.url()], ALL, PATIENT);
    let fault = read(&bench).await.unwrap_err();
    assert_eq!(cause(&fault).kind(), "chains_differ");
    assert!(fault.to_string().contains("(1, 5)"), "{fault}");
    assert_eq!((one.reads(), five.reads()), (0, 0));
    assert!(!is_fit(&bench, &one.node) && !is_fit(&bench, &five.node));
    one.recovers();
    look_after(&bench).await;
    read(&bench).await.unwrap();
}

#[tokio::test]
async fn a_node_with_an_old_head() {
    let old: Sickness = |request| match request["method"].as_str() {
        Some("eth_blockNumber") => Reply::Result(json!("0x1")),
        _ => vital(request).unwrap_or_else(|| Reply::Result(hex([0; 32]))),
    };
    let (patient, healthy) = (Patient::sick(old).await, Patient::healthy().await);
    let pair = bench(&[patient.node.url(), healthy.node.url()], ALL, PATIENT);
    for _ in 0..3 {
        read(&pair).await.unwrap();
    }
    assert_eq!((patient.reads(), is_fit(&pair, &patient.node)), (0, false));
    patient.recovers();
    look_after(&pair).await;
    assert!(is_fit(&pair, &patient.node));
}

#[tokio::test]
async fn a_node_that_asks_for_time_is_left_alone_for_five_seconds_where_there_is_no_other() {
    let patient = Patient::healthy().await;
    let bench = bench(&[patient.node.url()], ALL, PATIENT);
    read(&bench).await.unwrap();
    patient.falls(|_| Reply::RetryAfter(20));
    assert_eq!(kind_of_fault(&bench).await, "rate_limited");
    assert_eq!(kind_of_fault(&bench).await, "given_up", "at once");
    patient.recovers();
    bench.clock.advance_secs(4);
    bench.pool.tick().await;
    assert_eq!(kind_of_fault(&bench).await, "given_up");
    bench.clock.advance_secs(1);
    bench.pool.tick().await;
    read(&bench).await.unwrap();
}

/// Each of these reads is too slow at every node. They take the nodes from nobody.
#[tokio::test]
async fn contracts_that_are_too_slow_everywhere_give_no_node_up() {
    let slow: Sickness = |request| vital(request).unwrap_or(Reply::Hang);
    let nodes = [Patient::sick(slow).await, Patient::sick(slow).await];
    let bench = bench(&nodes.each_ref().map(|patient| patient.node.url()), ALL, SHORT);
    for _ in 0..2 {
        let reads = tokio::join!(read(&bench), read(&bench), read(&bench), read(&bench));
        for read in [reads.0, reads.1, reads.2, reads.3] {
            assert_eq!(cause(&read.unwrap_err()).kind(), "timeout");
        }
        bench.pool.tick().await;
    }
    assert!(nodes.iter().all(|patient| is_fit(&bench, &patient.node)));
    nodes.iter().for_each(Patient::recovers);
    read(&bench).await.unwrap();
}

/// A read pinned to a block that a node was never told of goes on to the next node, and that is all.
#[tokio::test]
async fn a_node_without_the_block_is_not_given_up() {
    let lacking: Sickness = |request| {
        vital(request).unwrap_or_else(|| Reply::Error(-32_000, "header not found".to_owned(), None))
    };
    let (patient, healthy) = (Patient::sick(lacking).await, Patient::healthy().await);
    let bench = bench(&[patient.node.url(), healthy.node.url()], ALL, PATIENT);
    let deadline = Deadline::after(0, PATIENT);
    let at = At::Block(B256::repeat_byte(7));
    let terms = Terms { at, lane: Lane::Known, deadline };
    for _ in 0..5 {
        let owner = bench.pool.call(&terms, Some(ALL.identity), &Bytes::new(), read_owner).await.unwrap();
        assert_eq!(owner, Some(OWNER));
    }
    assert_eq!((patient.reads(), healthy.reads()), (5, 5));
    assert!(is_fit(&bench, &patient.node));
}
