//! What becomes of the cache when nodes fail the follower.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use alloy::primitives::{U64, U256};
use futures_util::FutureExt;
use serde_json::json;

use super::Scene;
use crate::chain::fixture::{LIFETIME, REREAD, Reply, STALENESS, cause};
use crate::chain::follower::LOGS_RETRY_MICROS;
use crate::dev::fixture::{Registries, result};
use crate::domain::agent_id::AgentId;
use crate::ports::chain::{Chain, Parts};

fn stake(scene: &Scene) {
    let call = Registries::stakeCall { agentId: U256::from(1), amount: U256::from(1) };
    scene.call(scene.registries.stake_vault.unwrap(), &call);
}

#[tokio::test]
async fn a_node_without_logs_leaves_profiles_one_interval_and_is_asked_again_after_a_minute() {
    let scene = Scene::new().await;
    let mut following = scene.follower.begin();
    following.poll().await;
    scene.warm(&mut following, 1).await;
    scene.refuse("eth_getLogs", -32_601, "the method eth_getLogs does not exist");
    stake(&scene);
    scene.tick(&mut following).await;
    assert!(scene.is_cached(1).await && scene.mode() == "following", "a failed poll alone says nothing");
    scene.fall_silent();
    for mode in ["lost", "unlogged"] {
        scene.tick(&mut following).await;
        assert_eq!((scene.mode(), scene.bench.reader.lacks_logs()), (mode, mode == "unlogged"));
    }
    assert!(!scene.is_cached(1).await, "what was read at the followed block is gone");
    scene.bench.clock.advance(LIFETIME);
    assert!(!scene.is_cached(1).await);
    assert!(scene.bench.reader.probe().await.is_ok(), "it is ready all the same");

    let asked = scene.node.calls("eth_getLogs");
    for _ in 0..10 {
        scene.tick(&mut following).await;
    }
    assert_eq!((scene.node.calls("eth_getLogs"), scene.mode()), (asked, "unlogged"));
    scene.refuse("eth_call", -32_603, "internal error");
    scene.tick(&mut following).await;
    assert_eq!(scene.mode(), "unlogged", "a failed poll alone says nothing");
    scene.play(|_| None);
    scene.bench.clock.advance(Duration::from_micros(LOGS_RETRY_MICROS));
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
    scene.refuse("eth_getBlockByNumber", -32_603, "internal error");
    scene.tick(&mut following).await;
    assert_eq!((scene.mode(), scene.polls("failed")), ("following", 1));
    assert!(scene.is_cached(1).await, "a failed poll alone says nothing");
    scene.fall_silent();
    assert!(!scene.is_cached(1).await);
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
        assert_eq!(cause(&read().await).kind(), "timeout");
    }
    for _ in 0..2 {
        scene.tick(&mut following).await;
    }
    assert_eq!(cause(&read().await).kind(), "unhealthy");
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

/// Follows twenty stakes through a node that plays a trick.
async fn follows(trick: impl Fn(&serde_json::Value) -> Option<Reply> + Send + 'static) {
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
    follows(|request| {
        let number = |name: &str| {
            let text = request["params"][0][name].as_str()?;
            u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
        };
        let blocks = number("toBlock")? - number("fromBlock")? + 1;
        let message = "limited, whatever the words".to_owned();
        (blocks > 3).then_some(Reply::Error(-32_005, message, None))
    })
    .await;
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

// threat: Cheap events empty the cache
#[tokio::test]
async fn a_block_whose_logs_are_not_to_be_had_is_passed_over_with_everybody_dropped() {
    let scene = Scene::new().await;
    let mut following = scene.follower.begin();
    following.poll().await;
    scene.warm(&mut following, 1).await;
    stake(&scene);
    let huge = result(&scene.chain, "eth_blockNumber", json!([]));
    let huge = result(&scene.chain, "eth_getBlockByNumber", json!([huge, false]));
    scene.play(move |request| {
        let filter = &request["params"][0];
        let is_huge = filter.get("fromBlock").is_some() || filter["blockHash"] == huge["hash"];
        (request["method"] == "eth_getLogs" && is_huge)
            .then(|| Reply::Error(-32_005, "more than 10000 results".to_owned(), None))
    });
    scene.tick(&mut following).await;
    scene.fall_silent();
    stake(&scene);
    scene.tick(&mut following).await;
    assert_eq!(scene.mode(), "lost");
    scene.tick(&mut following).await;
    assert_eq!((scene.mode(), scene.polls("restarted")), ("following", 2));
    assert!(!scene.is_cached(1).await);
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

#[tokio::test]
async fn a_block_with_more_logs_than_an_answer_holds_drops_everybody_and_ends_nothing() {
    let scene = Scene::new().await;
    let mut following = scene.follower.begin();
    following.poll().await;
    scene.warm(&mut following, 1).await;
    stake(&scene);
    let full: U64 = serde_json::from_value(result(&scene.chain, "eth_blockNumber", json!([]))).unwrap();
    scene.play(move |request| {
        let [from, to] = ["fromBlock", "toBlock"].map(|name| request["params"][0][name].as_str());
        let number = |text: Option<&str>| text.and_then(|text| text.parse::<U64>().ok());
        let holds_it = number(from)? <= full && full <= number(to)?;
        holds_it.then(|| Reply::Result("x".repeat(9 * 1024 * 1024).into()))
    });
    stake(&scene);
    stake(&scene);
    let restarts = scene.polls("restarted");
    scene.tick(&mut following).await;
    assert_eq!((scene.polls("restarted"), scene.mode()), (restarts + 1, "following"));
    assert!(!scene.is_cached(1).await, "what it changed is read again");
    scene.warm(&mut following, 1).await;
    assert!(scene.is_cached(1).await);
}
