//! The next node is tried when one fails, and only then; a fault names the node that it came from.

use serde_json::json;

use super::agent;
use crate::chain::fault::ReadError;
use crate::chain::fixture::{
    ALL, OWNER, PATIENT, Reply, SHORT, TestNode, aggregate, bench, cause, hex, not_minted, results,
};
use crate::ports::chain::{Asker, Chain};

fn owner() -> Reply {
    Reply::Result(hex(OWNER.into_word()))
}

#[tokio::test]
async fn the_next_node_is_tried_when_one_fails() {
    let limited = Reply::Error(-32_005, "limit exceeded".to_owned(), None);
    for reply in [
        Reply::CloseMidway,
        Reply::Http(429, String::new()),
        Reply::Http(200, "<html>".to_owned()),
        Reply::Result(json!(null)),
        Reply::Endless,
        limited,
    ] {
        let shown = format!("{reply:?}");
        let nodes = [TestNode::always(reply).await, TestNode::refusing(), TestNode::always(owner()).await];
        let bench = bench(&nodes.each_ref().map(TestNode::url), ALL, PATIENT);
        assert_eq!(bench.reader.owner(agent(1), Asker::Stranger).await.unwrap(), Some(OWNER), "{shown}");
        assert_eq!(nodes.each_ref().map(TestNode::all_calls), [1, 0, 1]);
    }
    let nodes = [TestNode::always(Reply::Hang).await, TestNode::always(owner()).await];
    let bench = bench(&nodes.each_ref().map(TestNode::url), ALL, SHORT);
    assert_eq!(bench.reader.owner(agent(1), Asker::Stranger).await.unwrap(), Some(OWNER));
}

#[tokio::test]
async fn an_answer_is_not_asked_for_twice_and_nonsense_never_wins_over_one() {
    let revert = |data| Reply::Error(3, "execution reverted".to_owned(), data);
    for (reply, expected, calls) in [
        (owner(), Some(OWNER), [1, 0]),
        (revert(Some(hex(not_minted()))), None, [1, 0]),
        (revert(None), Some(OWNER), [1, 1]),
        (revert(Some(json!("0xdeadbeef"))), Some(OWNER), [1, 1]),
        (Reply::Result(json!("0x")), Some(OWNER), [1, 1]),
        (Reply::Result(json!("0x01")), Some(OWNER), [1, 1]),
    ] {
        let shown = format!("{reply:?}");
        let nodes = [TestNode::always(reply).await, TestNode::always(owner()).await];
        let bench = bench(&nodes.each_ref().map(TestNode::url), ALL, PATIENT);
        assert_eq!(bench.reader.owner(agent(1), Asker::Stranger).await.unwrap(), expected, "{shown}");
        assert_eq!(nodes.each_ref().map(TestNode::all_calls), calls, "{shown}");
    }
}

#[tokio::test]
async fn a_fault_names_the_node_that_it_came_from() {
    let undecodable = || Reply::Result(json!("0x01"));
    let nodes = [TestNode::refusing(), TestNode::always(undecodable()).await];
    let urls = nodes.each_ref().map(TestNode::url);
    let both = bench(&urls, ALL, PATIENT);
    for fault in [
        both.reader.owner(agent(1), Asker::Stranger).await.unwrap_err(),
        both.reader.profile(agent(1)).await.unwrap_err(),
        both.reader.latest_profile(agent(1)).await.unwrap_err(),
    ] {
        assert_eq!(cause(&fault).kind(), "undecodable");
        assert_eq!(&*fault.endpoint, nodes[1].url(), "the second node lied");
    }

    let no_code = TestNode::always(Reply::Result(json!("0x"))).await;
    let probed = bench(&[urls[0].clone(), no_code.url()], ALL, PATIENT);
    let fault = probed.reader.probe().await.unwrap_err();
    assert_eq!(cause(&fault), &ReadError::NoCode("chain.contracts.identity"));
    assert_eq!(&*fault.endpoint, no_code.url());

    let neither = [TestNode::always(Reply::Http(500, String::new())).await, TestNode::refusing()];
    let neither = neither.each_ref().map(TestNode::url);
    let fault = bench(&neither, ALL, PATIENT).reader.owner(agent(1), Asker::Stranger).await.unwrap_err();
    assert_eq!(
        (&*fault.endpoint, cause(&fault).kind()),
        (neither[0].as_str(), "http_status"),
        "the one that was asked"
    );
}

#[tokio::test]
async fn a_node_that_has_recovered_is_the_first_choice_again() {
    let nodes = [
        TestNode::always(Reply::Result(hex(aggregate(&results())))).await,
        TestNode::always(Reply::Http(500, String::new())).await,
    ];
    let bench = bench(&nodes.each_ref().map(TestNode::url), ALL, PATIENT);
    for _ in 0..3 {
        bench.reader.latest_profile(agent(1)).await.unwrap().unwrap();
    }
    assert_eq!(nodes.each_ref().map(TestNode::all_calls), [3, 0]);
}

/// Seven nodes of a second each would take longer than any request; the time of a read is spent in full, once.
#[tokio::test]
async fn however_many_nodes_hang_a_read_ends_in_time_as_a_fault_of_the_chain() {
    let mut nodes = Vec::new();
    for _ in 0..7 {
        nodes.push(TestNode::always(Reply::Hang).await);
    }
    let urls: [_; 7] = std::array::from_fn(|place| nodes[place].url());
    let bench = bench(&urls, ALL, SHORT);
    let (first, second) = tokio::join!(
        bench.reader.owner(agent(1), Asker::Stranger),
        bench.reader.owner(agent(1), Asker::Stranger)
    );
    for fault in [first.unwrap_err(), second.unwrap_err()] {
        assert_eq!(fault.method, "eth_call");
        assert!(matches!(cause(&fault), ReadError::TimedOut(_)), "{fault}");
    }
    let asked = nodes.iter().map(TestNode::all_calls).sum::<usize>();
    assert!(
        asked < 7 + 7,
        "the second read, which waited for the first, did not get as much time again: {asked}"
    );
}
