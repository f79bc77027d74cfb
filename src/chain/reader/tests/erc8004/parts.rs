//! Details are read for whoever shows them, and nobody else waits for them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::{collections::BTreeSet, sync::Arc};

use alloy::primitives::{B256, Bytes, U64, U256};
use futures_util::future::Either;
use serde_json::json;

use super::{REVIEWER, Scene, account, is_creation};
use crate::chain::fixture::{LIFETIME, Reply, details, kind_of};
use crate::chain::{dated::read_dated, reader::tests::together, registries::erc8004::read_details};
use crate::dev::fixture::error;
use crate::domain::AgentId;
use crate::ports::{Chain, Parts};

#[tokio::test]
async fn who_needs_no_details_waits_for_none_and_what_decides_is_read_once() {
    let scene = Scene::new().await;
    let agent = scene.register();
    let (gates, creations) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let calls = || [&gates, &creations].map(|count| count.load(Ordering::SeqCst));
    let creations_get = |reply: Reply| {
        let (gates, creations) = (gates.clone(), creations.clone());
        scene.dev.play(move |request| {
            let count = if is_creation(request) { &creations } else { &gates };
            count.fetch_add(1, Ordering::SeqCst);
            is_creation(request).then(|| reply.clone())
        });
    };
    creations_get(Reply::Hang);
    let gate = async || scene.bench.reader.profile(agent, Parts::Gate).await.unwrap().unwrap();
    let read = gate().await;
    assert_eq!((read.holders.owner, &read.details), (account(1), &None));
    scene.bench.reader.latest_profile(agent, Parts::Gate).await.unwrap().unwrap();
    gate().await;
    assert_eq!(calls(), [2, 0], "a cached one needs no call");
    creations_get(Reply::Error(-32_602, "missing to".to_owned(), None));
    let whole = async || scene.bench.reader.profile(agent, Parts::Whole).await.unwrap().unwrap();
    assert_eq!(whole().await, read, "without details that can't be read");
    let asked = calls();
    assert!(asked[0] == 3 && asked[1] > 0, "once beside its details: {asked:?}");
    whole().await;
    let fault = scene.bench.reader.latest_profile(agent, Parts::Whole).await.unwrap_err();
    assert_eq!(kind_of(&fault.cause), "no_details");
    assert_eq!((gate().await, calls()), (read, [4, asked[1]]), "and that is remembered");
}

#[tokio::test]
async fn a_cached_agent_without_details_has_them_once_they_are_asked_for_and_keeps_them() {
    let scene = Scene::new().await;
    let agent = scene.register();
    let follower = scene.bench.reader.follower();
    let mut following = follower.begin();
    following.poll().await;
    let read = async |parts| scene.bench.reader.profile(agent, parts).await.unwrap().unwrap();
    // The first read of an agent is of the latest block, and the next one at the followed one.
    for _ in 0..2 {
        assert_eq!(read(Parts::Gate).await.details, None);
        scene.bench.clock.advance(LIFETIME);
        following.poll().await;
    }
    let whole = read(Parts::Whole).await;
    assert_eq!(details(&whole).metadata_uri, "ipfs://card");
    let calls = scene.dev.node.calls("eth_call");
    for _ in 0..3 {
        scene.bench.clock.advance(LIFETIME);
        following.poll().await;
        assert!(
            Arc::ptr_eq(&read(Parts::Gate).await, &whole) && Arc::ptr_eq(&read(Parts::Whole).await, &whole)
        );
    }
    assert_eq!(scene.dev.node.calls("eth_call"), calls, "neither displaces the other");
    // A read at the latest block that says the same does not either.
    scene.bench.reader.latest_profile(agent, Parts::Gate).await.unwrap().unwrap();
    assert!(Arc::ptr_eq(&read(Parts::Whole).await, &whole));
}

#[tokio::test]
async fn validations_that_are_too_many_to_be_counted_are_counted_among_the_newest() {
    const REQUESTS: u64 = 300;
    let scene = Scene::new().await;
    let (chain, agent) = (&*scene.dev.chain, scene.register());
    let hash = |number: u64| B256::from(U256::from(number + 1));
    for number in 0..REQUESTS {
        scene.on.request(chain, account(1), account(REVIEWER), agent.token_id(), hash(number));
    }
    // Two of them are among the newest 64.
    for number in [10, REQUESTS - 50, REQUESTS - 10] {
        scene.on.answer(chain, account(REVIEWER), hash(number), (100, ""));
    }
    for (gas, count) in [(50_000_000, 3), (4_000_000, 2)] {
        let Either::Right(code) = scene.registries.details_calls(&[agent]) else { panic!("it is code") };
        let call = json!({ "data": code, "gas": U64::from(gas) });
        let reverted = error(chain, "eth_call", json!([call, "latest"]));
        let answer: Bytes = serde_json::from_value(reverted["data"].clone()).unwrap();
        let (_, results) = read_dated(&answer, false).unwrap();
        let validation = read_details(&results[0]).unwrap().details.validation;
        assert_eq!((validation.count, validation.is_bounded), (count, true), "{gas}");
        assert!(validation.latest.unwrap().passed, "{gas}");
    }
}

#[tokio::test]
async fn without_details_owner_wallet_and_stake_are_read_and_the_fault_is_told() {
    let scene = Scene::new().await;
    let agent = scene.register();
    scene.refuse_creations();
    let read = scene.bench.reader.profile(agent, Parts::Whole).await.unwrap().unwrap();
    assert_eq!((read.holders.owner, &read.details), (account(1), &None));
    let fault = scene.bench.reader.latest_profile(agent, Parts::Whole).await.unwrap_err();
    assert_eq!(kind_of(&fault.cause), "no_details");
    let gate = scene.bench.reader.latest_profile(agent, Parts::Gate).await.unwrap().unwrap();
    assert_eq!((gate.holders, &gate.details), (read.holders, &None));
    // As the start does, and `check --online`.
    scene.bench.reader.agents.state.try_creation().await.unwrap_err();
    assert!(scene.bench.reader.lacks_details());
    scene.dev.play(|_| None);
    scene.bench.clock.advance(LIFETIME);
    assert!(scene.bench.reader.latest_profile(agent, Parts::Whole).await.unwrap().unwrap().details.is_some());
    assert!(!scene.bench.reader.lacks_details(), "it is back");
}

#[tokio::test]
async fn only_so_much_feedback_is_looked_at_as_is_allowed_and_the_profile_says_so() {
    let scene = Scene::looking_at(3).await;
    let agent = scene.register();
    for (count, is_bounded) in [(1, false), (2, false), (3, false), (3, true)] {
        scene.feedback(agent, (1, 0));
        let read = details(&scene.profile(agent).await).reputation;
        assert_eq!((read.feedback_count, read.is_bounded), (count, is_bounded));
    }
    // A later client displaces none.
    scene.on.feedback(&*scene.dev.chain, account(8), agent.token_id(), (100, 0), "");
    assert_eq!(details(&scene.profile(agent).await).reputation.total_text(), "3");
}

#[tokio::test]
async fn thousands_of_entries_of_feedback_cost_no_more_than_their_bound_and_nobody_else_anything() {
    let scene = Scene::looking_at(5_000).await;
    let [flooded, other] = [scene.register(), scene.register()];
    let many = (account(REVIEWER), flooded.token_id());
    scene.on.feedback_of_many(&*scene.dev.chain, many, (125, 40), (1, 0));
    scene.feedback(other, (7, 0));
    // In time: details that take longer than 3 s are none.
    let read = scene.profile(flooded).await;
    let reputation = details(&read).reputation;
    assert!(reputation.is_bounded && (1_000..5_000).contains(&reputation.feedback_count), "{reputation:?}");
    assert_eq!(read.holders.owner, account(1));
    // Read together each has what it has alone.
    let read_together = together(&scene.bench, &[flooded, other], Parts::Whole).await;
    let together: Vec<_> = read_together.into_iter().map(|read| read.unwrap().unwrap().0).collect();
    assert_eq!(*together[0], read);
    assert_eq!(details(&together[1]).reputation.total_text(), "7");
    assert!(!details(&together[1]).reputation.is_bounded);
}

#[tokio::test]
async fn agents_that_are_read_together_cost_two_calls_and_one_without_details() {
    let scene = Scene::new().await;
    let agents: Vec<AgentId> = (0..20).map(|_| scene.register()).collect();
    for (parts, has_details, calls) in [(Parts::Whole, true, 2), (Parts::Gate, false, 1)] {
        let before = scene.dev.node.calls("eth_call");
        let read = together(&scene.bench, &agents, parts).await;
        let read: BTreeSet<bool> =
            read.into_iter().map(|read| read.unwrap().unwrap().0.details.is_some()).collect();
        assert_eq!((read, scene.dev.node.calls("eth_call") - before), ([has_details].into(), calls));
    }
}
