//! Feedback of listed clients that gives tiers, read for several agents in one call.

use std::sync::atomic::{AtomicUsize, Ordering};

use alloy::primitives::U256;

use super::{REVIEWER, Scene, account, is_creation};
use crate::chain::fixture::{PATIENT, Reply, bench_measuring};
use crate::chain::{cache::CachedProfile, fault::ReadFault, reader::tests::together, reads::Read};
use crate::domain::{AgentId, Feedback, Measure, Question};
use crate::ports::Parts;

/// The gas of a call in these tests: enough for a few entries of feedback.
const GAS: u64 = 900_000;

/// So many entries are more than that is enough for.
const TOO_MANY: usize = 80;

/// Agents of whom these, by place, have more feedback than can be read, and the others one entry each.
async fn scene(heavy: &[usize]) -> (Scene, Vec<AgentId>) {
    let mut scene = Scene::new().await;
    let agents: Vec<AgentId> = (0..8).map(|_| scene.register()).collect();
    for (place, agent) in agents.iter().enumerate() {
        let entries = if heavy.contains(&place) { TOO_MANY } else { 1 };
        (0..entries).for_each(|_| scene.feedback(*agent, (1, 0)));
    }
    let of =
        Feedback { clients: vec![account(REVIEWER)], tag: String::new(), average_over: None, each: 1_000 };
    let measure = Measure {
        source: "reputation",
        contract: scene.on.reputation,
        question: Question::Feedback(of),
        thresholds: vec![U256::from(10).pow(U256::from(18))],
    };
    let on = (scene.registries, scene.dev.multicall);
    scene.bench = bench_measuring(&[scene.dev.node.url()], on, vec![measure]);
    *scene.bench.reader.agents.state.gas_taken.lock() = (GAS, u64::MAX);
    (scene, agents)
}

/// The tier, or the kind of the fault.
fn shown(read: &Read<CachedProfile>) -> Result<u8, &'static str> {
    let tier = |(profile, _): &CachedProfile| profile.measured.unwrap().0 as u8;
    read.as_ref().map(|read| read.as_ref().map(tier).unwrap()).map_err(|fault: &ReadFault| fault.error.kind())
}

// threat: An agent's data are unreadable or heavy
#[tokio::test]
async fn an_agent_whose_feedback_can_not_be_read_costs_those_who_are_read_with_it_nothing() {
    let heavy = [0, 3, 4];
    let (scene, agents) = scene(&heavy).await;
    let before = scene.dev.node.calls("eth_call");
    for (place, read) in together(&scene.bench, &agents, Parts::Gate).await.iter().enumerate() {
        let expected = if heavy.contains(&place) { Err("reverted") } else { Ok(1) };
        assert_eq!(shown(read), expected, "{place}");
    }
    // One call reads what decides, and five the feedback: of agent 0, of 1 and 2, of 3, of 4, and of the rest.
    assert_eq!(scene.dev.node.calls("eth_call") - before, 6);
}

// threat: An agent's data are unreadable or heavy
#[tokio::test]
async fn feedback_that_was_read_counts_though_that_of_others_is_late() {
    let (scene, agents) = scene(&[3]).await;
    let creations = AtomicUsize::new(0);
    scene.dev.play(move |request| {
        (is_creation(request) && creations.fetch_add(1, Ordering::SeqCst) > 0).then_some(Reply::Hang)
    });
    let read: Vec<_> = together(&scene.bench, &agents, Parts::Gate).await.iter().map(shown).collect();
    assert_eq!(read[..3], [Ok(1); 3]);
    assert_eq!(read[3..], [Err("timeout"); 5]);
    assert!(PATIENT > crate::chain::pool::WAIT_TIME_MAX, "the node's own time was not over");
}
