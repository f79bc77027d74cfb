//! What becomes of the cache when the node fails the follower.

use alloy::primitives::U256;
use serde_json::Value;

use super::{Scene, id};
use crate::chain::fixture::{LIFETIME, Reply, SHORT};
use crate::chain::follower::LOGS_RETRY_MICROS;
use crate::dev::fixture::Registries;
use crate::ports::chain::Chain;

fn lifetime_micros() -> u64 {
    u64::try_from(LIFETIME.as_micros()).unwrap()
}

#[tokio::test]
async fn a_node_without_logs_leaves_profiles_one_interval_and_is_asked_again_after_a_minute() {
    let scene = Scene::new().await;
    let mut pursuit = scene.follower.begin();
    pursuit.poll().await;
    scene.warm(&mut pursuit, 1).await;
    scene.refuse("eth_getLogs", -32_601, "the method eth_getLogs does not exist");
    assert!(scene.is_cached(1).await && !scene.bench.reader.lacks_logs());
    scene.chain.answer(br#"{"jsonrpc":"2.0","id":1,"method":"evm_mine"}"#);
    scene.tick(&mut pursuit).await;
    assert_eq!((scene.mode(), scene.bench.reader.lacks_logs()), ("unlogged", true));
    assert!(!scene.is_cached(1).await, "what was kept on the follower's word is gone");
    scene.bench.clock.advance_micros(lifetime_micros() - 1);
    assert!(scene.is_cached(1).await);
    scene.bench.clock.advance_micros(1);
    assert!(!scene.is_cached(1).await);
    assert!(scene.bench.reader.probe().await.is_ok(), "it is ready all the same");

    let asked = scene.node.calls("eth_getLogs");
    for _ in 0..10 {
        scene.tick(&mut pursuit).await;
    }
    assert_eq!((scene.node.calls("eth_getLogs"), scene.mode()), (asked, "unlogged"));
    scene.bench.clock.advance_micros(LOGS_RETRY_MICROS);
    scene.tick(&mut pursuit).await;
    assert_eq!((scene.node.calls("eth_getLogs"), scene.mode()), (asked + 1, "unlogged"));
    scene.play(|_| None);
    scene.bench.clock.advance_micros(LOGS_RETRY_MICROS);
    scene.tick(&mut pursuit).await;
    assert_eq!((scene.mode(), scene.bench.reader.lacks_logs()), ("following", false));
    scene.warm(&mut pursuit, 1).await;
    assert!(scene.is_cached(1).await);
}

#[tokio::test]
async fn a_node_that_never_had_logs_is_never_said_to_be_followed() {
    let scene = Scene::new().await;
    scene.refuse("eth_getLogs", -32_601, "the method eth_getLogs does not exist");
    let mut pursuit = scene.follower.begin();
    for _ in 0..3 {
        pursuit.poll().await;
        assert_eq!(scene.mode(), "unlogged");
        scene.bench.clock.advance_micros(LOGS_RETRY_MICROS);
    }
}

#[tokio::test]
async fn silence_ends_the_service_of_cached_profiles_and_the_next_word_resumes_it() {
    let scene = Scene::new().await;
    let mut pursuit = scene.follower.begin();
    pursuit.poll().await;
    scene.warm(&mut pursuit, 1).await;
    scene.refuse("eth_getBlockByNumber", -32_603, "internal error");
    scene.tick(&mut pursuit).await;
    assert_eq!((scene.mode(), scene.polls("failed")), ("following", 1));
    assert!(scene.is_cached(1).await, "a failed poll alone says nothing");
    scene.fall_silent();
    assert!(!scene.is_cached(1).await);
    scene.tick(&mut pursuit).await;
    assert_eq!(scene.mode(), "lost");
    scene.play(|_| None);
    scene.bench.clock.advance_secs(60);
    scene.bench.pool.tick().await;
    scene.tick(&mut pursuit).await;
    assert_eq!(scene.mode(), "following");
    scene.warm(&mut pursuit, 1).await;
    assert!(scene.is_cached(1).await);
}

#[tokio::test]
async fn a_follower_that_has_ended_is_lost_at_once_and_one_that_is_begun_anew_knows_nothing() {
    let scene = Scene::new().await;
    let mut pursuit = scene.follower.begin();
    pursuit.poll().await;
    scene.warm(&mut pursuit, 1).await;
    assert!(scene.is_cached(1).await);
    drop(pursuit);
    scene.follower.lose();
    assert_eq!(scene.mode(), "lost");
    assert!(!scene.is_cached(1).await);
    let mut pursuit = scene.follower.begin();
    assert_eq!(scene.mode(), "lost", "until it follows");
    scene.tick(&mut pursuit).await;
    assert_eq!((scene.mode(), scene.polls("restarted")), ("following", 2));
}

#[tokio::test]
async fn what_happened_in_a_silence_is_followed_when_it_ends() {
    let scene = Scene::new().await;
    let mut pursuit = scene.follower.begin();
    pursuit.poll().await;
    for agent in [1, 2] {
        scene.warm(&mut pursuit, agent).await;
    }
    scene.fall_silent();
    for _ in 0..5 {
        let call = Registries::stakeCall { agentId: U256::from(1), amount: U256::from(1) };
        scene.call(scene.registries.stake_vault, &call);
    }
    scene.tick(&mut pursuit).await;
    assert!(scene.is_cached(2).await, "nothing was missed");
    assert!(!scene.is_cached(1).await);
}

#[tokio::test]
async fn a_hung_node_costs_a_poll_its_time_limit() {
    let scene = Scene::with_timeout(SHORT).await;
    let mut pursuit = scene.follower.begin();
    pursuit.poll().await;
    scene.play(|_| Some(Reply::Hang));
    scene.tick(&mut pursuit).await;
    assert_eq!((scene.polls("failed"), scene.bench.time.limits_passed()), (1, 1));
}

#[tokio::test]
async fn touch_is_lost_with_a_node_that_hangs_and_regained_with_its_next_answer() {
    let scene = Scene::with_timeout(SHORT).await;
    let mut pursuit = scene.follower.begin();
    pursuit.poll().await;
    scene.warm(&mut pursuit, 1).await;
    scene.play(|_| Some(Reply::Hang));
    scene.tick(&mut pursuit).await;
    assert_eq!((scene.mode(), scene.polls("failed")), ("following", 1), "one try says nothing");
    scene.fall_silent();
    scene.tick(&mut pursuit).await;
    assert_eq!((scene.mode(), scene.polls("failed")), ("lost", 2));
    scene.play(|_| None);
    scene.bench.clock.advance_secs(60);
    scene.bench.pool.tick().await;
    scene.tick(&mut pursuit).await;
    assert_eq!(scene.mode(), "following");
    assert!(scene.is_cached(1).await, "nothing was missed");
}

#[tokio::test]
async fn an_agent_that_can_not_be_read_at_the_followed_block_costs_two_calls_an_interval() {
    let scene = Scene::new().await;
    let mut pursuit = scene.follower.begin();
    pursuit.poll().await;
    for agent in [1, 2] {
        scene.warm(&mut pursuit, agent).await;
    }
    let call = Registries::stakeCall { agentId: U256::from(1), amount: U256::from(1) };
    scene.call(scene.registries.stake_vault, &call);
    scene.tick(&mut pursuit).await;
    scene.refuse("eth_call", -32_000, "out of gas");
    let before = scene.node.calls("eth_call");
    for _ in 0..1_000 {
        scene.bench.reader.profile(id(1)).await.unwrap_err();
    }
    assert_eq!(scene.node.calls("eth_call"), before + 2, "at the followed block, and at the latest");
    assert!(scene.is_cached(2).await);
    scene.bench.clock.advance_micros(lifetime_micros());
    scene.bench.reader.profile(id(1)).await.unwrap_err();
    assert_eq!(scene.node.calls("eth_call"), before + 4);
    // What it was about is mended, and a log says so.
    scene.play(|_| None);
    scene.call(scene.registries.stake_vault, &call);
    scene.tick(&mut pursuit).await;
    scene.profile(1).await.unwrap();
}

#[tokio::test]
async fn a_probe_asks_nobody_while_the_follower_is_answered() {
    let scene = Scene::new().await;
    let mut pursuit = scene.follower.begin();
    pursuit.poll().await;
    scene.bench.reader.probe().await.unwrap();
    let calls = || scene.node.all_calls() + scene.node.calls("eth_blockNumber");
    let before = calls();
    for _ in 0..10 {
        scene.bench.reader.probe().await.unwrap();
    }
    assert_eq!(calls(), before);
    scene.fall_silent();
    scene.bench.reader.probe().await.unwrap();
    assert_eq!(calls(), before + 1, "what is old is asked anew");
    scene.tick(&mut pursuit).await;
    scene.play(|_| Some(Reply::Http(500, String::new())));
    scene.tick(&mut pursuit).await;
    scene.bench.reader.probe().await.unwrap_err();
}

#[tokio::test]
async fn a_node_that_bears_few_logs_at_once_is_followed_all_the_same() {
    let scene = Scene::new().await;
    scene.play(|request| {
        let number = |name: &str| {
            let text = request["params"][0][name].as_str()?;
            u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
        };
        let blocks = number("toBlock")? - number("fromBlock")? + 1;
        let message = "eth_getLogs is limited to a 3 block range".to_owned();
        (blocks > 3).then_some(Reply::Error(-32_600, message, None))
    });
    let mut pursuit = scene.follower.begin();
    pursuit.poll().await;
    scene.warm(&mut pursuit, 1).await;
    let before = scene.profile(1).await.unwrap().stake;
    for _ in 0..20 {
        let call = Registries::stakeCall { agentId: U256::from(1), amount: U256::from(1) };
        scene.call(scene.registries.stake_vault, &call);
    }
    scene.tick(&mut pursuit).await;
    assert_eq!(scene.profile(1).await.unwrap().stake, before + U256::from(20));
    assert_eq!((scene.polls("restarted"), scene.mode()), (1, "following"));
    assert_eq!(scene.dropped("gap") + scene.dropped("unknown_log"), 0);
}

#[tokio::test]
async fn a_block_with_too_many_logs_is_read_contract_by_contract() {
    let scene = Scene::new().await;
    let mut pursuit = scene.follower.begin();
    pursuit.poll().await;
    for agent in [1, 2] {
        scene.warm(&mut pursuit, agent).await;
    }
    scene.play(|request| {
        let contracts = request["params"][0]["address"].as_array()?;
        let message = "query returned more than 10000 results".to_owned();
        (contracts.len() > 1).then_some(Reply::Error(-32_005, message, None))
    });
    let call = Registries::stakeCall { agentId: U256::from(1), amount: U256::from(1) };
    scene.call(scene.registries.stake_vault, &call);
    scene.tick(&mut pursuit).await;
    assert!(!scene.is_cached(1).await && scene.is_cached(2).await);
    assert_eq!(scene.dropped("block_too_large") + scene.dropped("unknown_log"), 0);
}

#[tokio::test]
async fn everybody_is_dropped_for_a_block_with_too_many_logs_of_one_contract_and_at_the_second_poll() {
    let scene = Scene::new().await;
    let mut pursuit = scene.follower.begin();
    pursuit.poll().await;
    scene.warm(&mut pursuit, 1).await;
    scene.refuse("eth_getLogs", -32_005, "query returned more than 10000 results");
    scene.chain.answer(br#"{"jsonrpc":"2.0","id":1,"method":"evm_mine"}"#);
    scene.tick(&mut pursuit).await;
    assert!(scene.is_cached(1).await);
    assert_eq!((scene.polls("unread"), scene.dropped("block_too_large")), (1, 0));
    scene.tick(&mut pursuit).await;
    assert_eq!((scene.polls("unread"), scene.dropped("block_too_large")), (1, 1));
    assert!(!scene.is_cached(1).await);
}

#[tokio::test]
async fn logs_may_be_longer_than_other_answers() {
    let scene = Scene::new().await;
    let mut pursuit = scene.follower.begin();
    pursuit.poll().await;
    scene.play(|request| {
        let padding = " ".repeat(3 << 20);
        let body = format!("{{\"jsonrpc\":\"2.0\",\"id\":ID,{padding}\"result\":[]}}");
        (request["method"] == "eth_getLogs").then_some(Reply::Http(200, body))
    });
    scene.chain.answer(br#"{"jsonrpc":"2.0","id":1,"method":"evm_mine"}"#);
    scene.tick(&mut pursuit).await;
    assert_eq!((scene.polls("followed"), scene.polls("failed"), scene.dropped("block_too_large")), (1, 0, 0));
}

#[tokio::test]
async fn a_chain_without_a_latest_block_is_not_followed() {
    let scene = Scene::new().await;
    scene.play(|request| (request["method"] == "eth_getBlockByNumber").then_some(Reply::Result(Value::Null)));
    let mut pursuit = scene.follower.begin();
    pursuit.poll().await;
    assert_eq!((scene.polls("behind"), scene.mode()), (1, "starting"));
    assert!(scene.bench.reader.profile(id(1)).await.unwrap().is_some());
}
