//! What logs drop, and what a cached profile costs.

use alloy::primitives::{B256, U256};
use serde_json::{Value, json};

use super::Scene;
use crate::chain::fixture::Reply;
use crate::dev::accounts::SAMPLE_ACCOUNTS;
use crate::dev::fixture::{Identity, Registries, result};

#[tokio::test]
async fn a_followed_profile_costs_no_call_until_a_log_names_its_agent() {
    let scene = Scene::new().await;
    let mut pursuit = scene.follower.begin();
    pursuit.poll().await;
    for agent in [1, 2] {
        scene.warm(&mut pursuit, agent).await;
    }
    let before = scene.node.calls("eth_call");
    for _ in 0..1_000 {
        scene.profile(1).await.unwrap();
        scene.profile(2).await.unwrap();
    }
    assert_eq!(scene.node.calls("eth_call"), before);

    let stake = scene.profile(1).await.unwrap().stake;
    let call = Registries::stakeCall { agentId: U256::from(1), amount: U256::from(5) };
    scene.call(scene.registries.stake_vault, &call);
    assert_eq!(scene.profile(1).await.unwrap().stake, stake, "until the next poll");
    scene.tick(&mut pursuit).await;
    assert_eq!(scene.profile(1).await.unwrap().stake, stake + U256::from(5));
    assert!(scene.is_cached(2).await && scene.is_cached(1).await);
    assert_eq!((scene.mode(), scene.dropped("unknown_log")), ("following", 0));
}

#[tokio::test]
async fn each_change_of_each_registry_shows_after_one_poll() {
    let scene = Scene::new().await;
    let mut pursuit = scene.follower.begin();
    pursuit.poll().await;
    let on = scene.registries;
    let one = U256::from(1);
    type Change = Box<dyn Fn(&Scene)>;
    let vault = |call: Registries::unstakeCall| -> Change {
        Box::new(move |scene| scene.call(on.stake_vault, &call))
    };
    let organizations = |id: u64, joins: bool| -> Change {
        Box::new(move |scene| match joins {
            true => scene.call(
                on.organization.unwrap(),
                &Registries::addMemberCall { orgId: U256::from(id), agentId: one },
            ),
            false => scene.call(
                on.organization.unwrap(),
                &Registries::removeMemberCall { orgId: U256::from(id), agentId: one },
            ),
        })
    };
    let changes: [(&str, Change); 5] = [
        ("unstaked", vault(Registries::unstakeCall { agentId: one, amount: one })),
        ("joined", organizations(1, true)),
        ("left", organizations(1, false)),
        (
            "uri",
            Box::new(|scene| {
                scene.call_as(1, &Identity::setTokenURICall { id: U256::from(1), uri: "other".into() });
            }),
        ),
        (
            "transferred",
            Box::new(|scene| {
                let (from, to) = (SAMPLE_ACCOUNTS[1].address, SAMPLE_ACCOUNTS[8].address);
                scene.call_as(1, &Identity::transferFromCall { from, to, id: U256::from(1) });
            }),
        ),
    ];
    for (name, change) in changes {
        scene.warm(&mut pursuit, 1).await;
        let before = scene.profile(1).await.unwrap();
        assert!(scene.is_cached(1).await, "{name}");
        change(&scene);
        scene.tick(&mut pursuit).await;
        assert_ne!(scene.profile(1).await.unwrap(), before, "{name}");
        assert!(scene.is_cached(1).await, "{name}: read at the followed block at once");
    }
}

#[tokio::test]
async fn an_organization_that_changes_drops_its_members_alone() {
    let scene = Scene::new().await;
    let mut pursuit = scene.follower.begin();
    pursuit.poll().await;
    // Of the samples agent 4 belongs to two organizations and agent 1 to none.
    for agent in [1, 4] {
        scene.warm(&mut pursuit, agent).await;
    }
    let org = scene.profile(4).await.unwrap().organizations[1].org_id;
    let call = Registries::setVerifiedCall { orgId: org, verified: true };
    scene.call(scene.registries.organization.unwrap(), &call);
    scene.tick(&mut pursuit).await;
    assert!(scene.is_cached(1).await);
    assert!(scene.profile(4).await.unwrap().organizations[1].verified);
}

#[tokio::test]
async fn a_log_that_names_nobody_drops_everybody_and_an_approval_nobody() {
    let scene = Scene::new().await;
    let mut pursuit = scene.follower.begin();
    pursuit.poll().await;
    for agent in [1, 2] {
        scene.warm(&mut pursuit, agent).await;
    }
    scene.call_as(3, &Identity::approveCall { to: SAMPLE_ACCOUNTS[8].address, id: U256::from(3) });
    scene.tick(&mut pursuit).await;
    assert!(scene.is_cached(1).await && scene.is_cached(2).await);
    // ERC-4906 has the agent in the data.
    scene.call_as(1, &Identity::setTokenURICall { id: U256::from(1), uri: "other".into() });
    scene.tick(&mut pursuit).await;
    assert!(!scene.is_cached(1).await && scene.is_cached(2).await);
    scene.emit_unknown();
    scene.tick(&mut pursuit).await;
    assert!(!scene.is_cached(1).await && !scene.is_cached(2).await);
    assert_eq!(scene.dropped("unknown_log"), 1);
}

#[tokio::test]
async fn who_is_minted_is_found_at_once_and_who_is_burned_is_gone_after_one_poll() {
    let scene = Scene::new().await;
    let mut pursuit = scene.follower.begin();
    pursuit.poll().await;
    assert_eq!(scene.profile(6).await, None);
    let to = SAMPLE_ACCOUNTS[6].address;
    scene.call(scene.registries.identity, &Identity::mintCall { to, uri: "u".into() });
    assert_eq!(scene.profile(6).await.unwrap().owner, to, "before any poll");
    scene.warm(&mut pursuit, 6).await;
    scene.call_as(6, &Identity::burnCall { id: U256::from(6) });
    scene.tick(&mut pursuit).await;
    assert_eq!(scene.profile(6).await, None);
    scene.call(
        scene.registries.identity,
        &Identity::mintWithIdCall { to, id: U256::from(6), uri: "u".into() },
    );
    assert_eq!(scene.profile(6).await.unwrap().owner, to, "a no is not kept");
}

#[tokio::test]
async fn reads_for_the_cache_are_pinned_to_the_followed_block() {
    let scene = Scene::new().await;
    let mut pursuit = scene.follower.begin();
    pursuit.poll().await;
    scene.profile(1).await.unwrap();
    assert_eq!(scene.node.last_call()["params"][1], json!("latest"), "who was never seen");
    scene.tick(&mut pursuit).await;
    let head: Value = result(&scene.chain, "eth_getBlockByNumber", json!(["latest", false]));
    scene.profile(1).await.unwrap();
    assert_eq!(scene.node.last_call()["params"][1], json!({ "blockHash": head["hash"] }));
}

#[tokio::test]
async fn where_no_node_knows_the_followed_block_the_latest_is_read_and_serves_one_interval() {
    let scene = Scene::new().await;
    let mut pursuit = scene.follower.begin();
    pursuit.poll().await;
    scene.play(|request| {
        let is_pinned = request["params"][1].get("blockHash").is_some();
        is_pinned.then(|| Reply::Error(-32_000, "header not found".to_owned(), None))
    });
    scene.profile(1).await.unwrap();
    scene.tick(&mut pursuit).await;
    let before = scene.node.calls("eth_call");
    scene.profile(1).await.unwrap();
    assert_eq!(scene.node.calls("eth_call"), before + 2);
    assert!(scene.is_cached(1).await);
    scene.tick(&mut pursuit).await;
    assert!(!scene.is_cached(1).await, "a later poll says more");
}

#[tokio::test]
async fn a_later_owner_read_at_the_latest_block_takes_the_place_of_the_cached_one() {
    let scene = Scene::new().await;
    let mut pursuit = scene.follower.begin();
    pursuit.poll().await;
    scene.warm(&mut pursuit, 2).await;
    let (from, to) = (SAMPLE_ACCOUNTS[2].address, SAMPLE_ACCOUNTS[8].address);
    scene.call_as(2, &Identity::transferFromCall { from, to, id: U256::from(2) });
    assert_eq!(scene.profile(2).await.unwrap().owner, from);
    let latest = crate::ports::chain::Chain::latest_profile(&*scene.bench.reader, super::id(2)).await;
    assert_eq!(latest.unwrap().unwrap().owner, to);
    assert_eq!(scene.profile(2).await.unwrap().owner, to);
}

#[tokio::test]
async fn a_block_in_the_place_of_another_drops_everybody() {
    let scene = Scene::new().await;
    let mut pursuit = scene.follower.begin();
    pursuit.poll().await;
    scene.warm(&mut pursuit, 1).await;
    let head = result(&scene.chain, "eth_blockNumber", json!([]));
    scene.play(move |request| {
        let latest = request["params"] == json!(["latest", false]);
        let hash = B256::repeat_byte(0xab);
        latest.then(|| {
            Reply::Result(json!({ "number": head, "hash": hash, "parentHash": hash, "timestamp": "0x1" }))
        })
    });
    scene.tick(&mut pursuit).await;
    assert_eq!((scene.dropped("reorganization"), scene.mode()), (1, "following"));
    scene.play(|_| None);
    assert!(!scene.is_cached(1).await);
    scene.tick(&mut pursuit).await;
    assert_eq!((scene.dropped("reorganization"), scene.mode()), (2, "following"));
    scene.warm(&mut pursuit, 1).await;
    assert!(scene.is_cached(1).await);
}
