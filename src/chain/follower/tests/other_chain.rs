//! A preferred node that is on another chain, from the start or later, beside one that is not.

use std::{sync::Arc, time::Duration};

use alloy::primitives::U256;
use serde_json::Value;

use super::Scene;
use crate::chain::fixture::{LIFETIME, PATIENT, Reply, STALENESS, TestNode, agent as id, bench_with};
use crate::chain::tests::development::DevScene;
use crate::dev::fixture::{Registries, START_SECONDS, chain_of, send};
use crate::dev::{chain::DevChain, samples::deploy};
use crate::ports::{Asker, Chain, Clock};

/// The other chain: its last block's time after that of ours in seconds, and how many blocks it has more at least.
const OTHERS: [(u64, u64); 3] = [(1_000, 50), (1_000, 0), (0, 50)];

fn answered(chain: &DevChain, request: &Value) -> Reply {
    Reply::Http(200, String::from_utf8(chain.answer(request.to_string().as_bytes())).unwrap())
}

/// A chain with the same registries at the same addresses, where agent 1 has more stake.
fn other_chain((later_secs, blocks): (u64, u64)) -> Arc<DevChain> {
    let (chain, clock) = chain_of(1);
    let on = deploy(&chain).unwrap();
    clock.set(START_SECONDS + later_secs);
    for _ in 0..=blocks {
        send(&chain, on.stake_vault, &Registries::stakeCall { agentId: U256::ONE, amount: U256::ONE });
    }
    Arc::new(chain)
}

/// The preferred node does as it is told, the second one answers.
async fn scene() -> (Scene, TestNode) {
    let dev = DevScene::new().await;
    let ours = Arc::clone(&dev.chain);
    let second = TestNode::start(move |request| answered(&ours, request)).await;
    let nodes = [dev.node.url(), second.url()];
    let bench = bench_with(&nodes, (dev.registries, dev.multicall), PATIENT);
    let follower = bench.reader.follower();
    (Scene { dev, bench, follower }, second)
}

impl Scene {
    fn moves_to(&self, other: &Arc<DevChain>) {
        let other = Arc::clone(other);
        self.play(move |request| Some(answered(&other, request)));
    }

    /// Changes our chain, and sees that it is followed, that reads count, and that the node of the other chain is left out.
    async fn is_followed(&self, following: &mut super::Following<'_>, case: &str) {
        let healthy = || self.bench.metrics.rpc_node_healthy.with_label_values(&[&self.node.url()]).get();
        for poll in 0..6 {
            let call = Registries::stakeCall { agentId: U256::ONE, amount: U256::ONE };
            self.call(self.registries.stake_vault.unwrap(), &call);
            self.bench.clock.advance(LIFETIME);
            self.tick(following).await;
            let shown = format!("{case}, poll {poll}");
            assert_eq!(
                (self.mode(), self.polls("behind"), self.polls("failed")),
                ("following", 0, 0),
                "{shown}"
            );
            self.bench.reader.probe().await.unwrap_or_else(|fault| panic!("{shown}: {fault}"));
            let owner = self.bench.reader.holders(id(1), Asker::Vouched).await;
            assert!(owner.unwrap_or_else(|fault| panic!("{shown}: {fault}")).is_some());
        }
        assert_eq!(healthy(), 0, "{case}: a node of another chain is left out");
        assert_eq!(self.dropped("reorganization") + self.dropped("lost"), 0, "{case}");
    }
}

// threat: A node is behind or on another chain
#[tokio::test]
async fn a_preferred_node_that_begins_on_another_chain_is_left_out_and_the_next_is_followed() {
    for case in OTHERS {
        let (scene, _second) = scene().await;
        scene.moves_to(&other_chain(case));
        scene.is_followed(&mut scene.follower.begin(), &format!("{case:?}")).await;
    }
}

// threat: A node is behind or on another chain
#[tokio::test]
async fn a_preferred_node_that_moves_to_another_chain_is_left_out_and_the_next_is_followed() {
    for case in OTHERS {
        let (scene, _second) = scene().await;
        let mut following = scene.follower.begin();
        scene.tick(&mut following).await;
        scene.warm(&mut following, 1).await;
        scene.moves_to(&other_chain(case));
        scene.is_followed(&mut following, &format!("{case:?}")).await;
    }
}

#[tokio::test]
async fn where_no_logs_are_to_be_had_the_head_of_another_chain_leaves_nobody_behind() {
    let without_logs = |chain: &DevChain, request: &Value| match request["method"] == "eth_getLogs" {
        true => Reply::Error(-32_601, "no logs".to_owned(), None),
        false => answered(chain, request),
    };
    let dev = DevScene::new().await;
    let (ours, other) = (Arc::clone(&dev.chain), other_chain(OTHERS[0]));
    let second = TestNode::start(move |request| without_logs(&ours, request)).await;
    let ours = Arc::clone(&dev.chain);
    dev.play(move |request| Some(without_logs(&ours, request)));
    let nodes = [dev.node.url(), second.url()];
    let bench = bench_with(&nodes, (dev.registries, dev.multicall), PATIENT);
    let follower = bench.reader.follower();
    let mut following = follower.begin();
    for _ in 0..2 {
        following.poll().await;
        bench.clock.advance(STALENESS);
    }
    assert!(bench.reader.lacks_logs());
    dev.play(move |request| Some(answered(&other, request)));
    for _ in 0..3 {
        following.poll().await;
        assert!(bench.reader.lacks_logs());
        bench.reader.probe().await.unwrap();
        let asked = bench.clock.monotonic_micros();
        bench.reader.holders(id(1), Asker::Vouched).await.unwrap().unwrap();
        let passed = Duration::from_micros(bench.clock.monotonic_micros() - asked);
        assert!(passed < STALENESS, "{passed:?}: what is known was forgotten first");
        bench.clock.advance(LIFETIME);
    }
}

#[tokio::test]
async fn nodes_that_take_no_batches_are_nodes_without_logs() {
    let dev = DevScene::new().await;
    let ours = Arc::clone(&dev.chain);
    let node = TestNode::refusing_batches(move |request| answered(&ours, request)).await;
    let bench = bench_with(&[node.url()], (dev.registries, dev.multicall), PATIENT);
    let follower = bench.reader.follower();
    let mut following = follower.begin();
    for _ in 0..3 {
        following.poll().await;
        bench.clock.advance(STALENESS);
    }
    assert!(bench.reader.lacks_logs());
    bench.reader.probe().await.unwrap();
}
