//! What logs drop, and what a cached profile costs.

use std::sync::Arc;

use alloy::primitives::{B256, U64, U256};
use serde_json::json;

use super::Scene;
use crate::chain::fixture::{LIFETIME, Reply, details};
use crate::chain::pool::ANSWER_BYTES_MAX;
use crate::dev::accounts::SAMPLE_ACCOUNTS;
use crate::dev::fixture::{Identity, Registries, result};
use crate::ports::{Chain, Parts};

#[tokio::test]
async fn a_followed_profile_costs_no_call_until_a_log_names_its_agent() {
    let scene = Scene::new().await;
    let mut following = scene.follower.begin();
    following.poll().await;
    for agent in [1, 2] {
        scene.warm(&mut following, agent).await;
    }
    let before = scene.node.all_calls();
    for _ in 0..1_000 {
        scene.profile(1).await.unwrap();
        scene.profile(2).await.unwrap();
    }
    assert_eq!(scene.node.all_calls(), before);
    scene.tick(&mut following).await;
    assert_eq!(scene.node.all_calls(), before + 1, "a poll of a chain that stands still");

    let stake = scene.profile(1).await.unwrap().stake;
    let call = Registries::stakeCall { agentId: U256::from(1), amount: U256::from(5) };
    scene.call(scene.registries.stake_vault.unwrap(), &call);
    assert_eq!(scene.profile(1).await.unwrap().stake, stake, "until the next poll");
    scene.tick(&mut following).await;
    assert_eq!(scene.profile(1).await.unwrap().stake, stake.map(|stake| stake + U256::from(5)));
    assert!(scene.is_cached(2).await && scene.is_cached(1).await);
    assert_eq!((scene.mode(), scene.dropped("unknown_log")), ("following", 0));
}

#[tokio::test]
async fn an_organization_that_changes_drops_its_members_alone() {
    let scene = Scene::new().await;
    let mut following = scene.follower.begin();
    following.poll().await;
    // Of the samples agent 4 belongs to two organizations and agent 1 to none.
    for agent in [1, 4] {
        scene.warm(&mut following, agent).await;
    }
    let org = details(&scene.profile(4).await.unwrap()).organizations[1].org_id;
    let call = Registries::setVerifiedCall { orgId: org, verified: true };
    scene.call(scene.registries.organization().unwrap(), &call);
    scene.tick(&mut following).await;
    assert!(scene.is_cached(1).await);
    assert!(details(&scene.profile(4).await.unwrap()).organizations[1].verified);
}

// threat: Cheap events empty the cache
#[tokio::test]
async fn a_log_that_names_nobody_drops_everybody_and_an_approval_nobody() {
    let scene = Scene::new().await;
    let mut following = scene.follower.begin();
    following.poll().await;
    for agent in [1, 2] {
        scene.warm(&mut following, agent).await;
    }
    scene.call_as(3, &Identity::approveCall { to: SAMPLE_ACCOUNTS[8].address, id: U256::from(3) });
    scene.tick(&mut following).await;
    assert!(scene.is_cached(1).await && scene.is_cached(2).await);
    // ERC-4906 has the agent in the data.
    scene.call_as(1, &Identity::setTokenURICall { id: U256::from(1), uri: "other".into() });
    scene.tick(&mut following).await;
    assert!(!scene.is_cached(1).await && scene.is_cached(2).await);
    scene.emit_unknown();
    scene.tick(&mut following).await;
    assert!(!scene.is_cached(1).await && !scene.is_cached(2).await);
    assert_eq!(scene.dropped("unknown_log"), 1);
}

#[tokio::test]
async fn who_is_minted_is_found_at_once_and_who_is_burned_is_gone_after_one_poll() {
    let scene = Scene::new().await;
    let mut following = scene.follower.begin();
    following.poll().await;
    assert_eq!(scene.profile(6).await, None);
    let to = SAMPLE_ACCOUNTS[6].address;
    scene.call(scene.registries.identity, &Identity::mintCall { to, uri: "u".into() });
    assert_eq!(scene.profile(6).await.unwrap().holders.owner, to, "before any poll");
    scene.warm(&mut following, 6).await;
    scene.call_as(6, &Identity::burnCall { id: U256::from(6) });
    scene.tick(&mut following).await;
    assert_eq!(scene.profile(6).await, None);
    scene.call(
        scene.registries.identity,
        &Identity::mintWithIdCall { to, id: U256::from(6), uri: "u".into() },
    );
    assert_eq!(scene.profile(6).await.unwrap().holders.owner, to, "a no is not kept");
}

#[tokio::test]
async fn a_later_owner_read_at_the_latest_block_takes_the_place_of_the_cached_one() {
    let scene = Scene::new().await;
    let mut following = scene.follower.begin();
    following.poll().await;
    scene.warm(&mut following, 2).await;
    let (from, to) = (SAMPLE_ACCOUNTS[2].address, SAMPLE_ACCOUNTS[8].address);
    scene.call_as(2, &Identity::transferFromCall { from, to, id: U256::from(2) });
    assert_eq!(scene.profile(2).await.unwrap().holders.owner, from);
    let latest = Chain::latest_profile(&*scene.bench.reader, super::id(2), Parts::Whole).await;
    assert_eq!(latest.unwrap().unwrap().holders.owner, to);
    assert_eq!(scene.profile(2).await.unwrap().holders.owner, to);
}

#[tokio::test]
async fn a_block_in_the_place_of_another_drops_everybody() {
    let scene = Scene::new().await;
    let mut following = scene.follower.begin();
    following.poll().await;
    scene.warm(&mut following, 1).await;
    let head = result(&scene.chain, "eth_getBlockByNumber", json!(["latest", false]));
    let (head, made) = (head["number"].clone(), head["timestamp"].as_str().unwrap().to_owned());
    let later = u64::from_str_radix(&made[2..], 16).unwrap() + 1;
    scene.play(move |request| {
        let hash = B256::repeat_byte(0xab);
        let block =
            json!({ "number": head, "hash": hash, "parentHash": hash, "timestamp": U64::from(later) });
        match request["method"].as_str()? {
            "eth_getBlockByNumber" => Some(Reply::Result(block)),
            "eth_getLogs" => Some(Reply::Result(json!([]))),
            _ => None,
        }
    });
    scene.tick(&mut following).await;
    assert_eq!((scene.dropped("reorganization"), scene.mode()), (1, "following"));
    assert!(!scene.is_cached(1).await);
    scene.play(|_| None);
    scene.clock.set(later);
    // The former block is known to have been taken away; the next one is on its chain.
    scene.chain.answer(br#"{"jsonrpc":"2.0","id":1,"method":"evm_mine"}"#);
    scene.tick(&mut following).await;
    assert_eq!((scene.dropped("reorganization"), scene.mode()), (2, "following"));
    scene.warm(&mut following, 1).await;
    assert!(scene.is_cached(1).await);
}

#[tokio::test]
async fn another_block_that_is_no_later_is_behind_until_nothing_else_was_seen_for_too_long() {
    let scene = Scene::new().await;
    let mut following = scene.follower.begin();
    following.poll().await;
    scene.warm(&mut following, 1).await;
    let mut block = result(&scene.chain, "eth_getBlockByNumber", json!(["latest", false]));
    block["hash"] = json!(B256::repeat_byte(0xab));
    scene.play(move |request| match request["method"].as_str()? {
        "eth_getBlockByNumber" => Some(Reply::Result(block.clone())),
        "eth_getLogs" => Some(Reply::Result(json!([]))),
        _ => None,
    });
    scene.tick(&mut following).await;
    // A back end may be stuck on a fork. The poll has asked again and again, for longer than silence may last.
    assert_eq!((scene.polls("behind"), scene.dropped("reorganization"), scene.mode()), (1, 0, "lost"));
    scene.tick(&mut following).await;
    assert_eq!((scene.mode(), scene.polls("restarted")), ("following", 2));
}

// threat: A new owner or a reorganization is not seen
#[tokio::test]
async fn a_read_is_kept_if_its_answer_shows_the_followed_block_and_else_serves_one_interval() {
    let scene = Scene::new().await;
    let mut following = scene.follower.begin();
    following.poll().await;
    let is_kept = async |scene: &Scene, following: &mut super::Following<'_>| {
        scene.emit_unknown();
        scene.tick(following).await;
        scene.profile(1).await.unwrap();
        scene.bench.clock.advance(LIFETIME);
        scene.tick(following).await;
        scene.is_cached(1).await
    };
    assert!(is_kept(&scene, &mut following).await, "at the followed block");
    scene.play({
        let chain = Arc::clone(&scene.chain);
        // One that is not followed yet.
        move |request| {
            let is_read = request["method"] == "eth_call";
            is_read.then(|| chain.answer(br#"{"jsonrpc":"2.0","id":1,"method":"evm_mine"}"#));
            None
        }
    });
    assert!(is_kept(&scene, &mut following).await, "above it");
    let (get_last, get_named) = ("27e86d6e", "ee82ac5e");
    scene.play({
        let chain = Arc::clone(&scene.chain);
        move |request| {
            let input = request["params"][0]["data"].as_str()?;
            // Another function's answer is no block's hash.
            let mut other = request.clone();
            other["params"][0]["data"] =
                json!(input.replace(get_last, "a8b0574e").replace(get_named, "a8b0574e"));
            Some(Reply::Http(200, String::from_utf8(chain.answer(other.to_string().as_bytes())).unwrap()))
        }
    });
    assert!(!is_kept(&scene, &mut following).await, "of another chain, for all that is shown");
}

#[tokio::test]
async fn after_a_beginning_active_agents_are_read_several_in_one_call() {
    let scene = Scene::new().await;
    let mut following = scene.follower.begin();
    following.poll().await;
    for agent in 1..=5 {
        scene.warm(&mut following, agent).await;
    }
    scene.emit_unknown();
    scene.tick(&mut following).await;
    let before = scene.node.calls("eth_call");
    let reads: Vec<_> = (0..500_u64)
        .map(|number| {
            let reader = Arc::clone(&scene.bench.reader);
            tokio::spawn(async move {
                Chain::profile(&*reader, super::id(1 + number % 5), Parts::Whole).await.unwrap().unwrap()
            })
        })
        .collect();
    for read in reads {
        read.await.unwrap();
    }
    let calls = scene.node.calls("eth_call") - before;
    assert!(calls <= 5, "{calls}");
    for agent in 1..=5 {
        assert!(scene.is_cached(agent).await);
    }
}

// threat: An agent's data are unreadable or heavy
#[tokio::test]
async fn an_agent_whose_details_can_not_be_read_is_asked_for_them_once_an_interval() {
    let scene = Scene::new().await;
    let mut following = scene.follower.begin();
    following.poll().await;
    let token_uri = "c87b56dd";
    scene.play(move |request| {
        let is_whole = request["params"][0]["data"].as_str()?.contains(token_uri);
        is_whole.then(|| Reply::Result(json!(format!("0x{}", "0".repeat(ANSWER_BYTES_MAX)))))
    });
    scene.warm(&mut following, 4).await;
    for _ in 0..5 {
        scene.bench.clock.advance(LIFETIME);
        scene.tick(&mut following).await;
        assert!(!scene.is_cached(4).await && scene.is_cached(4).await);
    }
    assert_eq!(scene.profile(4).await.unwrap().details, None);
    scene.play(|_| None);
    let to = SAMPLE_ACCOUNTS[8].address;
    scene.transfer(4, to);
    scene.tick(&mut following).await;
    let read = scene.profile(4).await.unwrap();
    assert_eq!((read.holders.owner, details(&read).organizations.len()), (to, 2));
}
