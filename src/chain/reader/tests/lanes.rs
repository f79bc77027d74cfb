//! Whoever has shown something does not wait for those who have shown nothing.

use std::sync::Arc;

use alloy::primitives::Address;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::agent;
use crate::chain::fixture::{ALL, Bench, OWNER, PATIENT, Reply, TestNode, aggregate, bench, hex, results};
use crate::chain::snapshot::owner_call;
use crate::chain::tests::stopped_time::until;
use crate::domain::agent_id::AgentId;
use crate::ports::chain::{Asker, Chain, ChainFault};

/// How many places strangers have.
const STRANGERS: usize = 32;

/// A node that answers profiles at once, and owners too but for those of `held`, which wait for a permit each.
async fn holding(
    gate: &Arc<Semaphore>,
    is_held: impl Fn(&serde_json::Value) -> bool + Send + Sync + 'static,
) -> TestNode {
    let held = Arc::clone(gate);
    TestNode::answering(move |request| {
        if request["params"][0]["to"] == json!(ALL.multicall) {
            return Reply::Result(hex(aggregate(&results())));
        }
        let owner = Reply::Result(hex(OWNER.into_word()));
        if is_held(&request["params"][0]["input"]) {
            return Reply::Gated(Arc::clone(&held), Box::new(owner));
        }
        owner
    })
    .await
}

fn flood(
    bench: &Bench,
    agents: impl IntoIterator<Item = AgentId>,
) -> Vec<JoinHandle<Result<Option<Address>, ChainFault>>> {
    let ask = |id| {
        let reader = Arc::clone(&bench.reader);
        tokio::spawn(async move { reader.owner(id, Asker::Stranger).await })
    };
    agents.into_iter().map(ask).collect()
}

#[tokio::test]
async fn a_flood_of_junk_signatures_for_existing_agents_stays_in_its_places_and_hinders_no_owner() {
    let gate = Arc::new(Semaphore::new(0));
    let is_stranger = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let holds = Arc::clone(&is_stranger);
    let node = holding(&gate, move |_| holds.load(std::sync::atomic::Ordering::SeqCst)).await;
    let bench = bench(&[node.url()], ALL, PATIENT);
    let agents = || (1..=300).map(agent);
    for id in agents() {
        bench.reader.profile(id).await.unwrap().unwrap();
    }
    let seen = node.all_calls();
    let flood = flood(&bench, agents());
    until("strangers have their places", || node.all_calls() == seen + STRANGERS).await;
    is_stranger.store(false, std::sync::atomic::Ordering::SeqCst);
    for id in agents().take(100) {
        assert!(bench.reader.was_owned_by(id, OWNER) && !bench.reader.was_owned_by(id, Address::ZERO));
        assert_eq!(
            bench.reader.owner(id, Asker::Vouched).await.unwrap(),
            Some(OWNER),
            "among them those that are read"
        );
    }
    assert_eq!(node.all_calls(), seen + STRANGERS + 100, "no more strangers than may be");
    gate.add_permits(300);
    for stranger in flood {
        assert_eq!(stranger.await.unwrap().unwrap(), Some(OWNER));
    }
}

#[tokio::test]
async fn right_after_a_start_profiles_do_not_wait_for_a_flood_of_strangers() {
    let gate = Arc::new(Semaphore::new(0));
    let node = holding(&gate, |input| *input != hex(owner_call(agent(1)))).await;
    let bench = bench(&[node.url()], ALL, PATIENT);
    let flood = flood(&bench, (100..400).map(agent));
    until("strangers have their places", || node.all_calls() == STRANGERS).await;
    let before = node.all_calls();
    for id in (1..=50).map(agent) {
        bench.reader.profile(id).await.unwrap().unwrap();
        bench.reader.latest_profile(id).await.unwrap().unwrap();
    }
    assert_eq!(node.all_calls(), before + 100);
    gate.add_permits(300);
    for stranger in flood {
        assert_eq!(stranger.await.unwrap().unwrap(), Some(OWNER));
    }
}
