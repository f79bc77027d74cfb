//! Agents of whom strangers wrote more than can be read: owner and stake are read all the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use alloy::primitives::U256;
use alloy::sol_types::SolCall;
use serde_json::Value;

use crate::chain::fixture::{
    ALL, Bench, HEAD, LIFETIME, OWNER, PATIENT, Reply, TestNode, agent, bench, details, kind_of,
};
use crate::chain::registries::documented::{OrganizationRow, getValidationCall, getValidationReturn};
use crate::chain::tests::results::{aggregate, hex, organizations, results, returned, reverted};
use crate::chain::{dated::Result3, registries::calls::tokenURICall};
use crate::domain::TrustProfile;
use crate::ports::{Asker, Chain, Parts};

fn asks(request: &Value, call: &[u8]) -> bool {
    let call: String = call.iter().map(|byte| format!("{byte:02x}")).collect();
    request["params"][0]["data"].as_str().is_some_and(|input| input.contains(&call))
}

fn asks_for_details(request: &Value) -> bool {
    asks(request, &tokenURICall::SELECTOR)
}

/// A node that answers as usual, and with this to whole profiles until they are mended.
struct Node {
    node: TestNode,
    is_mended: Arc<AtomicBool>,
    wholes: Arc<AtomicUsize>,
}

impl Node {
    async fn with(reply: Reply) -> Self {
        let (is_mended, wholes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (switch, count) = (is_mended.clone(), wholes.clone());
        let node = TestNode::answering(move |request| {
            let is_whole = asks_for_details(request);
            count.fetch_add(usize::from(is_whole), Ordering::SeqCst);
            match (is_whole, switch.load(Ordering::SeqCst)) {
                (true, false) => reply.clone(),
                (true, true) | (false, _) => Reply::Agent(HEAD, results()),
            }
        })
        .await;
        Self { node, is_mended, wholes }
    }

    /// How often whole profiles were asked for, and owner and stake by themselves.
    fn calls(&self) -> (usize, usize) {
        let wholes = self.wholes.load(Ordering::SeqCst);
        (wholes, self.node.calls("eth_call") - wholes)
    }
}

fn with(index: usize, result: Result3) -> Reply {
    let mut results = results();
    results[index] = result;
    Reply::Agent(HEAD, results)
}

/// Each with the kind of its fault, and how often a node is asked before that is believed.
fn absurd() -> Vec<(&'static str, usize, Reply)> {
    let row = |id| OrganizationRow { orgId: U256::from(id), name: "n".repeat(256), verified: false };
    let evidence = getValidationReturn {
        count: U256::ONE,
        latestPassed: true,
        latestEvidence: "e".repeat(1024 * 1024 + 1),
        latestValidator: OWNER,
    };
    vec![
        ("too_long", 1, with(5, returned(organizations((0..1_300).map(row).collect())))),
        ("too_long", 1, with(4, returned(getValidationCall::abi_encode_returns(&evidence)))),
        ("reverted", 1, with(5, reverted(Vec::new()))),
        ("reverted", 1, with(3, reverted(Vec::new()))),
        ("undecodable", 1, with(4, returned(vec![0xff; 64]))),
        ("undecodable", 1, with(2, returned(vec![0xff; 64]))),
        ("no_code", 1, with(3, returned(Vec::new()))),
        ("node_error", 3, Reply::Error(-32_000, "out of gas".to_owned(), None)),
    ]
}

#[track_caller]
fn is_bare(read: Option<Arc<TrustProfile>>) {
    let read = read.unwrap();
    assert_eq!((read.holders.owner, read.stake, &read.details), (OWNER, Some(U256::from(5)), &None));
}

async fn whole(bench: &Bench) -> Result<Option<Arc<TrustProfile>>, &'static str> {
    let read = bench.reader.latest_profile(agent(1), Parts::Whole).await;
    read.map_err(|fault| {
        kind_of(fault.cause.strip_prefix("the details of the agent can't be read: ").unwrap())
    })
}

// threat: An agent's data are unreadable or heavy
#[tokio::test]
async fn what_strangers_write_of_an_agent_hides_neither_owner_nor_stake_and_costs_one_call_more() {
    for (kind, wholes, reply) in absurd() {
        let node = Node::with(reply).await;
        let bench = bench(&[node.node.url()], ALL, PATIENT);
        for _ in 0..100 {
            is_bare(bench.reader.profile(agent(1), Parts::Whole).await.unwrap());
        }
        assert_eq!(node.calls(), (wholes, 1), "{kind}");
        assert_eq!(whole(&bench).await, Err(kind), "and is remembered");
        is_bare(bench.reader.latest_profile(agent(1), Parts::Gate).await.unwrap());
        assert_eq!(node.calls(), (wholes, 3), "{kind}");
        bench.clock.advance(LIFETIME);
        assert_eq!(whole(&bench).await, Err(kind));
        assert_eq!(node.calls(), (2 * wholes, 4), "once in an interval");
        node.is_mended.store(true, Ordering::SeqCst);
        bench.clock.advance(LIFETIME);
        assert!(whole(&bench).await.unwrap().unwrap().details.is_some(), "{kind}");
        assert!(
            bench.reader.profile(agent(1), Parts::Whole).await.unwrap().unwrap().details.is_some(),
            "{kind}"
        );
    }
}

/// A node that fails at details says nothing of what decides.
// threat: An agent's data are unreadable or heavy
#[tokio::test]
async fn whatever_goes_wrong_with_details_what_decides_is_served() {
    for reply in [
        Reply::Http(502, String::new()),
        Reply::CloseMidway,
        Reply::RetryAfter(1),
        Reply::Http(200, "<html>".to_owned()),
        with(2, returned(Vec::new())),
    ] {
        let node = Node::with(reply).await;
        let bench = bench(&[node.node.url()], ALL, PATIENT);
        is_bare(bench.reader.profile(agent(1), Parts::Whole).await.unwrap());
    }
}

#[tokio::test]
async fn an_answer_without_details_displaces_none_that_has_them_and_agrees() {
    let node = Node::with(Reply::Error(-32_000, "busy".to_owned(), None)).await;
    let bench = bench(&[node.node.url()], ALL, PATIENT);
    node.is_mended.store(true, Ordering::SeqCst);
    bench.reader.profile(agent(1), Parts::Whole).await.unwrap().unwrap();
    node.is_mended.store(false, Ordering::SeqCst);
    is_bare(bench.reader.latest_profile(agent(1), Parts::Gate).await.unwrap());
    let cached = bench.reader.profile(agent(1), Parts::Whole).await.unwrap().unwrap();
    assert_eq!(details(&cached).organizations.len(), 1);
}

/// Readiness reads some agent, to see which contracts are there.
// threat: An agent's data are unreadable or heavy
#[tokio::test]
async fn no_agent_can_be_written_full_to_make_the_service_unready() {
    let node = TestNode::answering(move |request| {
        let is_written =
            (0..100).any(|id| asks(request, &getValidationCall { agentId: U256::from(id) }.abi_encode()));
        let bytes = if is_written { 1024 * 1024 } else { 32 };
        let mut all = results();
        all[5] = returned(vec![0; bytes]);
        // The look at the contracts asks for everything in one call.
        let is_look = !asks_for_details(request) && asks(request, &getValidationCall::SELECTOR);
        if !is_look {
            return Reply::Agent(HEAD, all);
        }
        all.remove(2);
        Reply::Result(hex(aggregate(&all)))
    })
    .await;
    let bench = bench(&[node.url()], ALL, PATIENT);
    assert_eq!(whole(&bench).await, Err("too_long"));
    bench.reader.probe().await.unwrap();
    let contracts = bench.reader.follower.contracts.ask(u64::MAX, |found| Ok(found.len())).await;
    assert_eq!(contracts.unwrap().1, 5);
    assert!(bench.reader.holders(agent(1), Asker::Stranger).await.is_ok());
}
