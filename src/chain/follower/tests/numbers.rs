//! Numbers that give tiers change, with and without logs.

use std::sync::Arc;

use alloy::primitives::{Address, U256};
use alloy::sol;
use parking_lot::Mutex;
use serde_json::json;

use super::Scene;
use crate::chain::fixture::{LIFETIME, REREAD, bench_measuring};
use crate::chain::tests::development::DevScene;
use crate::dev::accounts::SAMPLE_ACCOUNTS;
use crate::dev::erc8004_rig::{Node, artifact};
use crate::dev::fixture::result;
use crate::domain::{AgentId, Measure, Question, Tier};
use crate::ports::{Chain, Parts};

sol! {
    interface Numbers {
        function set(uint256 agentId, uint256 value) external;
        function setQuietly(uint256 agentId, uint256 value) external;
        function mint(address to, uint256 amount) external;
        function transfer(address to, uint256 amount) external returns (bool);
    }
}

/// A chain with a contract of tests, whose number is 10 for tier 1, and 20 for tier 2.
async fn measured(contract: &str, question: Question) -> (Scene, Address) {
    let dev = DevScene::new().await;
    let contract = dev.chain.transact(account(0), None, artifact(contract)).created.unwrap();
    let thresholds = [10, 20].map(U256::from).into();
    let measure = Measure { source: "measured", contract, question, thresholds };
    let bench = bench_measuring(&[dev.node.url()], (dev.registries, dev.multicall), vec![measure]);
    let follower = bench.reader.follower();
    (Scene { dev, bench, follower }, contract)
}

fn account(index: usize) -> Address {
    SAMPLE_ACCOUNTS[index].address
}

impl Scene {
    async fn tier(&self, agent: u64) -> Tier {
        self.profile(agent).await.unwrap().measured.unwrap().0
    }
}

fn score() -> Question {
    let selector = *alloy::primitives::keccak256("score(uint256)").first_chunk().unwrap();
    Question::Call { selector }
}

#[tokio::test]
async fn a_number_that_changes_without_a_log_is_read_again_after_the_configured_time_and_not_before() {
    let (scene, scores) = measured("Scores", score()).await;
    let mut following = scene.follower.begin();
    following.poll().await;
    scene.warm(&mut following, 1).await;
    let value = U256::from(10);
    scene.call(scores, &Numbers::setQuietlyCall { agentId: U256::ONE, value });
    scene.bench.clock.advance(REREAD * 7 / 10);
    scene.tick(&mut following).await;
    assert!(scene.is_cached(1).await);
    assert_eq!(scene.tier(1).await, Tier::Unverified);
    scene.bench.clock.advance(REREAD * 3 / 10);
    scene.tick(&mut following).await;
    assert_eq!(scene.tier(1).await, Tier::Bronze);
}

// threat: Cheap events empty the cache
#[tokio::test]
async fn a_number_that_changes_with_a_log_drops_the_agent_that_it_names_alone() {
    let (scene, scores) = measured("Scores", score()).await;
    let mut following = scene.follower.begin();
    following.poll().await;
    for agent in [1, 2] {
        scene.warm(&mut following, agent).await;
    }
    scene.call(scores, &Numbers::setCall { agentId: U256::ONE, value: U256::from(20) });
    scene.tick(&mut following).await;
    assert!(scene.is_cached(2).await);
    assert_eq!(scene.tier(1).await, Tier::Silver);
}

// threat: A new owner or a reorganization is not seen
// threat: Cheap events empty the cache
#[tokio::test]
async fn tokens_drop_the_agents_of_those_who_hold_them_as_these_change() {
    let (scene, token) = measured("TierToken", Question::Balance { of_wallet: false }).await;
    let mut following = scene.follower.begin();
    following.poll().await;
    let mint = |to: usize| scene.call(token, &Numbers::mintCall { to: account(to), amount: U256::from(10) });
    for agent in [1, 2, 3] {
        scene.warm(&mut following, agent).await;
    }
    mint(1);
    scene.tick(&mut following).await;
    assert!(scene.is_cached(2).await && scene.is_cached(3).await);
    assert_eq!(scene.tier(1).await, Tier::Bronze);
    // Sold: the buyer's tokens count at once, and what the seller does with the others concerns nobody.
    mint(8);
    mint(8);
    scene.transfer(1, account(8));
    scene.tick(&mut following).await;
    scene.warm(&mut following, 1).await;
    assert_eq!(scene.tier(1).await, Tier::Silver);
    mint(1);
    scene.tick(&mut following).await;
    assert!(scene.is_cached(1).await);
    let call = Numbers::transferCall { to: account(2), amount: U256::from(11) };
    let data = alloy::sol_types::SolCall::abi_encode(&call).into();
    scene.chain.transact(account(8), Some(token), data);
    scene.tick(&mut following).await;
    assert!(scene.is_cached(3).await);
    assert_eq!((scene.tier(1).await, scene.tier(2).await), (Tier::Unverified, Tier::Bronze));
}

#[tokio::test]
async fn balances_of_holders_who_were_not_known_are_read_at_the_block_that_names_them() {
    let (scene, _) = measured("TierToken", Question::Balance { of_wallet: false }).await;
    let blocks = Arc::new(Mutex::new(Vec::new()));
    let asked = Arc::clone(&blocks);
    scene.play(move |request| {
        asked.lock().extend((request["method"] == "eth_call").then(|| request["params"][1].clone()));
        None
    });
    let read = || scene.bench.reader.profile(AgentId::new(U256::ONE), Parts::Gate);
    assert_eq!(read().await.unwrap().unwrap().measured, Some((Tier::Unverified, 0)));
    let head = result(&scene.chain, "eth_blockNumber", json!([]));
    assert_eq!(std::mem::take(&mut *blocks.lock()), [json!("latest"), head]);
    scene.bench.clock.advance(LIFETIME);
    read().await.unwrap();
    assert_eq!(*blocks.lock(), [json!("latest")], "they are known now");
}
