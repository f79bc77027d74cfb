//! What becomes of the cache when nodes fail the follower.

use std::sync::atomic::{AtomicU64, Ordering};
use std::{ops::RangeInclusive, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use alloy::primitives::{U64, U256};
use futures_util::FutureExt;
use futures_util::future::join;
use serde_json::{Value, json};

use super::Scene;
use crate::chain::fixture::{LIFETIME, REREAD, Reply, STALENESS, kind_of};
use crate::chain::follower::LOGS_RETRY;
use crate::chain::tests::clock::{now, pass};
use crate::dev::fixture::{Registries, START_SECONDS, result};
use crate::domain::AgentId;
use crate::ports::{Asker, Chain, Clock, Parts};

fn stake(scene: &Scene) {
    let call = Registries::stakeCall { agentId: U256::from(1), amount: U256::from(1) };
    scene.call(scene.registries.stake_vault.unwrap(), &call);
}

#[tokio::test]
async fn a_node_without_logs_leaves_profiles_one_interval_and_is_asked_again_after_a_while() {
    let scene = Scene::new().await;
    let mut following = scene.follower.begin();
    following.poll().await;
    scene.warm(&mut following, 1).await;
    scene.refuse("eth_getLogs", -32_601, "the method eth_getLogs does not exist");
    stake(&scene);
    scene.tick(&mut following).await;
    assert!(scene.is_cached(1).await && scene.mode() == "following", "a failed poll alone says nothing");
    scene.fall_silent();
    assert_eq!(following.poll().await, LOGS_RETRY, "it is asked for logs again after a while");
    assert_eq!((scene.mode(), scene.bench.reader.lacks_logs()), ("unlogged", true));
    assert!(!scene.is_cached(1).await, "what was read at the followed block is gone");
    scene.bench.clock.advance(LIFETIME);
    assert!(!scene.is_cached(1).await);
    assert!(scene.bench.reader.probe().await.is_ok(), "it is ready all the same");

    scene.play(|_| None);
    let begun = now();
    following.rest(LOGS_RETRY).await;
    assert!(begun.elapsed() >= LOGS_RETRY, "whatever reads show meanwhile");
    scene.tick(&mut following).await;
    assert_eq!((scene.mode(), scene.bench.reader.lacks_logs()), ("following", false));
    scene.warm(&mut following, 1).await;
    assert!(scene.is_cached(1).await);
}

#[tokio::test]
async fn silence_ends_the_service_of_cached_profiles_and_the_next_answer_resumes_it() {
    let scene = Scene::new().await;
    let mut following = scene.follower.begin();
    following.poll().await;
    scene.warm(&mut following, 1).await;
    let refused = || Reply::Error(-32_603, "internal error".to_owned(), None);
    scene.play(move |request| (request["method"] == "eth_getBlockByNumber").then(refused));
    scene.tick(&mut following).await;
    assert_eq!((scene.mode(), scene.polls("failed")), ("following", 1));
    assert!(scene.is_cached(1).await, "a failed poll alone says nothing");
    scene.fall_silent();
    assert!(!scene.is_cached(1).await);
    scene.play(move |_| Some(refused()));
    scene.tick(&mut following).await;
    assert_eq!(scene.mode(), "lost");
    scene.play(|_| None);
    scene.tick(&mut following).await;
    assert_eq!(scene.mode(), "following");
    scene.warm(&mut following, 1).await;
    assert!(scene.is_cached(1).await);
}

#[tokio::test]
async fn a_follower_that_has_ended_is_lost_at_once_and_one_that_is_begun_anew_knows_nothing() {
    let scene = Scene::new().await;
    let mut following = scene.follower.begin();
    following.poll().await;
    scene.warm(&mut following, 1).await;
    assert!(scene.is_cached(1).await);
    drop(following);
    let panicking = scene.follower.lose_after(async { panic!("it has ended") });
    AssertUnwindSafe(panicking).catch_unwind().await.unwrap_err();
    assert_eq!(scene.mode(), "lost");
    assert!(!scene.is_cached(1).await);
    let mut following = scene.follower.begin();
    scene.tick(&mut following).await;
    assert_eq!((scene.mode(), scene.polls("restarted")), ("following", 2));
}

#[tokio::test]
async fn touch_is_lost_with_a_node_that_hangs_and_regained_with_its_next_answer() {
    let scene = Scene::with_timeout(Duration::from_millis(200)).await;
    let mut following = scene.follower.begin();
    following.poll().await;
    scene.play(|_| Some(Reply::Hang));
    scene.tick(&mut following).await;
    assert_eq!((scene.mode(), scene.polls("failed")), ("following", 1));
    scene.fall_silent();
    scene.tick(&mut following).await;
    assert_eq!((scene.mode(), scene.polls("failed")), ("lost", 2));
    scene.play(|_| None);
    scene.bench.clock.advance(STALENESS);
    scene.tick(&mut following).await;
    assert_eq!(scene.mode(), "following");
}

#[tokio::test]
async fn a_lone_node_that_hangs_is_left_out_for_the_questions_about_its_head_and_not_for_reads_of_agents() {
    let scene = Scene::with_timeout(Duration::from_millis(20)).await;
    let mut following = scene.follower.begin();
    following.poll().await;
    scene.play(|_| Some(Reply::Hang));
    let agent = AgentId::new(U256::ONE);
    let read = || async { scene.bench.reader.latest_profile(agent, Parts::Whole).await.unwrap_err() };
    for _ in 0..3 {
        assert_eq!(kind_of(&read().await.cause), "timeout");
    }
    for _ in 0..2 {
        scene.tick(&mut following).await;
    }
    let healthy = scene.bench.metrics.rpc_node_healthy.with_label_values(&[&scene.node.url()]);
    assert_eq!(healthy.get(), 0);
}

#[tokio::test]
async fn a_probe_asks_nobody_while_the_follower_is_answered() {
    let scene = Scene::new().await;
    let mut following = scene.follower.begin();
    following.poll().await;
    scene.bench.reader.probe().await.unwrap();
    let before = scene.node.all_calls();
    for _ in 0..10 {
        scene.bench.reader.probe().await.unwrap();
    }
    assert_eq!(scene.node.all_calls(), before);
    scene.fall_silent();
    scene.bench.reader.probe().await.unwrap();
    assert_eq!(scene.node.all_calls(), before + 1, "an old answer is asked for again");
    scene.play(|_| Some(Reply::Http(500, String::new())));
    scene.tick(&mut following).await;
    scene.bench.reader.probe().await.unwrap_err();
}

// threat: A new owner or a reorganization is not seen
#[tokio::test]
async fn an_answer_of_a_newer_block_ends_the_followers_pause() {
    let scene = Scene::new().await;
    let mut following = scene.follower.begin();
    following.poll().await;
    let begun = now();
    let sold = async {
        pass(3 * LIFETIME).await;
        scene.clock.set(START_SECONDS + 100);
        stake(&scene);
        scene.bench.reader.holders(AgentId::new(U256::ONE), Asker::Stranger).await.unwrap().unwrap();
    };
    join(following.rest(Duration::from_secs(60)), sold).await;
    assert!((3 * LIFETIME..4 * LIFETIME).contains(&begun.elapsed()), "{:?}", begun.elapsed());
}

/// Follows twenty stakes through a node that plays a trick.
async fn follows(trick: impl Fn(&Value) -> Option<Reply> + Send + 'static) {
    let scene = Scene::new().await;
    let mut following = scene.follower.begin();
    following.poll().await;
    scene.warm(&mut following, 1).await;
    scene.play(trick);
    let before = scene.profile(1).await.unwrap().stake;
    for _ in 0..20 {
        stake(&scene);
    }
    scene.tick(&mut following).await;
    scene.play(|_| None);
    assert_eq!(scene.profile(1).await.unwrap().stake, before.map(|stake| stake + U256::from(20)));
    assert_eq!((scene.polls("restarted"), scene.mode()), (1, "following"));
    assert_eq!(scene.dropped("gap") + scene.dropped("unknown_log"), 0);
}

#[tokio::test]
async fn a_node_that_gives_few_logs_at_once_is_followed_all_the_same() {
    let error = || Reply::Error(-32_005, "limited, whatever the words".to_owned(), None);
    let refusals: [fn() -> Reply; 2] = [error, || Reply::Http(413, String::new())];
    for refusal in refusals {
        follows(move |request| (asked(request)?.1.count() > 3).then(refusal)).await;
    }
}

#[tokio::test]
async fn a_node_that_is_slow_at_the_logs_of_many_blocks_is_asked_for_fewer() {
    let scene = Scene::with_timeout(Duration::from_millis(200)).await;
    let mut following = scene.follower.begin();
    following.poll().await;
    scene.play(|request| (asked(request)?.1.count() > 4).then_some(Reply::Hang));
    for _ in 0..40 {
        stake(&scene);
        scene.tick(&mut following).await;
    }
    assert_eq!(scene.mode(), "following");
    assert!((1..=4).contains(&scene.polls("failed")), "{}", scene.polls("failed"));
}

#[tokio::test]
async fn a_node_that_gives_the_logs_of_single_blocks_alone_is_followed_all_the_same() {
    follows(|request| {
        let filter = &request["params"][0];
        let is_range = filter["fromBlock"] != filter["toBlock"];
        is_range.then(|| Reply::Error(-32_601, "no such method".to_owned(), None))
    })
    .await;
}

#[tokio::test]
async fn logs_may_be_longer_than_other_answers() {
    let scene = Scene::new().await;
    let mut following = scene.follower.begin();
    following.poll().await;
    scene.play(|request| {
        let padding = "x".repeat(3 << 20);
        let body = format!("{{\"jsonrpc\":\"2.0\",\"id\":ID,\"padding\":\"{padding}\",\"result\":[]}}");
        (request["method"] == "eth_getLogs").then_some(Reply::Http(200, body))
    });
    stake(&scene);
    scene.tick(&mut following).await;
    assert_eq!((scene.polls("followed"), scene.polls("failed")), (1, 0));
}

#[tokio::test]
async fn a_profile_that_no_log_names_is_read_again_after_the_configured_time() {
    let scene = Scene::new().await;
    let mut following = scene.follower.begin();
    following.poll().await;
    scene.warm(&mut following, 1).await;
    scene.bench.clock.advance(REREAD * 7 / 10);
    scene.tick(&mut following).await;
    assert!(scene.is_cached(1).await);
    scene.bench.clock.advance(REREAD * 3 / 10);
    scene.tick(&mut following).await;
    assert!(!scene.is_cached(1).await);
}

/// The contracts and the blocks that a call for logs asks about.
fn asked(request: &Value) -> Option<(String, RangeInclusive<u64>)> {
    let filter = &request["params"][0];
    let number = |name: &str| u64::from_str_radix(filter[name].as_str()?.trim_start_matches("0x"), 16).ok();
    Some((filter["address"].to_string(), number("fromBlock")?..=number("toBlock")?))
}

fn head(scene: &Scene) -> u64 {
    serde_json::from_value::<U64>(result(&scene.chain, "eth_blockNumber", json!([]))).unwrap().to()
}

/// Strangers write such blocks.
// threat: Cheap events empty the cache
#[tokio::test]
async fn a_block_whose_logs_can_not_be_had_drops_those_whom_they_may_concern_and_following_goes_on() {
    let too_long = || Reply::Result("x".repeat(9 * 1024 * 1024).into());
    let too_many = || Reply::Error(-32_005, "query returned more than 10000 results".to_owned(), None);
    let lost: [fn() -> Reply; 2] = [too_long, too_many];
    for (reply, is_of_details) in lost.into_iter().flat_map(|reply| [(reply, true), (reply, false)]) {
        let scene = Scene::new().await;
        let mut following = scene.follower.begin();
        following.poll().await;
        scene.warm(&mut following, 1).await;
        for _ in 0..20 {
            stake(&scene);
            scene.tick(&mut following).await;
        }
        scene.profile(1).await.unwrap();
        let contract =
            if is_of_details { scene.registries.reputation.unwrap() } else { scene.registries.identity };
        let (contract, full) = (format!("{contract:?}").to_lowercase(), head(&scene) + 1);
        scene.play(move |request| {
            let (contracts, blocks) = asked(request)?;
            (blocks.contains(&full) && contracts.to_lowercase().contains(&contract)).then(reply)
        });
        // In the same poll a change that is to be seen, and one that is not.
        let other = Registries::stakeCall { agentId: U256::from(2), amount: U256::from(1) };
        scene.call(scene.registries.stake_vault.unwrap(), &other);
        let calls = scene.node.calls("eth_getLogs");
        scene.tick(&mut following).await;
        let spent = scene.node.calls("eth_getLogs") - calls;
        assert!((5..40).contains(&spent), "{spent}");
        assert_eq!((scene.mode(), scene.dropped("lost_logs")), ("following", 1));
        let gate = scene.node.calls("eth_call");
        let read = scene.bench.reader.profile(AgentId::new(U256::ONE), Parts::Gate).await.unwrap();
        assert!(read.is_some() && scene.node.calls("eth_call") == gate + 1);
        assert!(!scene.is_cached(1).await && scene.is_cached(1).await, "details are read again");
        // The block is behind the window's floor: it is not asked for again.
        let calls = scene.node.calls("eth_getLogs");
        stake(&scene);
        scene.tick(&mut following).await;
        assert!(scene.node.calls("eth_getLogs") - calls <= 2);
        assert_eq!((scene.mode(), scene.polls("restarted")), ("following", 1));
    }
}

/// The first refusals are not for ever.
// threat: A new owner or a reorganization is not seen
#[tokio::test]
async fn a_log_that_comes_a_block_late_is_seen_after_refusals_of_every_kind() {
    let refusals = [
        (Duration::from_millis(500), Reply::Error(-32_603, "internal error".to_owned(), None)),
        (Duration::from_secs(3_600), Reply::Error(-32_600, "up to a 10 block range".to_owned(), None)),
    ];
    for (time, refusal) in refusals {
        let scene = Scene::new().await;
        let mut following = scene.follower.begin();
        following.poll().await;
        scene.warm(&mut following, 1).await;
        for _ in 0..20 {
            stake(&scene);
        }
        let (clock, until) = (Arc::clone(&scene.bench.clock), scene.bench.clock.monotonic_micros());
        let until = until + u64::try_from(time.as_micros()).unwrap();
        let hidden = Arc::new(AtomicU64::new(u64::MAX));
        let (chain, hides) = (Arc::clone(&scene.chain), Arc::clone(&hidden));
        scene.play(move |request| {
            let (_, blocks) = asked(request)?;
            if clock.monotonic_micros() < until && blocks.clone().count() > 10 {
                return Some(refusal.clone());
            }
            let mut logs: Value =
                serde_json::from_slice(&chain.answer(request.to_string().as_bytes())).unwrap();
            let hidden = format!("{:#x}", hides.load(Ordering::SeqCst));
            logs["result"].as_array_mut()?.retain(|log| log["blockNumber"] != hidden);
            Some(Reply::Http(200, logs.to_string()))
        });
        for _ in 0..3 {
            scene.tick(&mut following).await;
            scene.bench.clock.advance(LIFETIME);
        }
        scene.profile(1).await.unwrap();
        let before = scene.profile(1).await.unwrap().stake;
        hidden.store(head(&scene) + 1, Ordering::SeqCst);
        stake(&scene);
        scene.tick(&mut following).await;
        assert_eq!(scene.profile(1).await.unwrap().stake, before, "its log is not there yet");
        hidden.store(u64::MAX, Ordering::SeqCst);
        scene.chain.answer(br#"{"jsonrpc":"2.0","id":1,"method":"evm_mine"}"#);
        scene.tick(&mut following).await;
        assert_eq!(scene.profile(1).await.unwrap().stake, before.map(|stake| stake + U256::ONE));
    }
}
