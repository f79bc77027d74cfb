//! The follower over real HTTP: the development chain behind a node that fails as it is told.

mod drops;
mod faults;
mod numbers;
mod other_chain;

use std::{ops::Deref, sync::Arc, time::Duration};

use alloy::primitives::{Bytes, bytes};
use serde_json::json;

use crate::chain::fixture::{Bench, LIFETIME, PATIENT, Reply, STALENESS, agent as id, bench_with};
use crate::chain::follower::{Follower, Following};
use crate::chain::tests::development::DevScene;
use crate::dev::{accounts::SAMPLE_ACCOUNTS, fixture::result};
use crate::domain::TrustProfile;
use crate::ports::{Chain, Parts};

/// A chain, a node in front of it, and a reader with its follower.
struct Scene {
    dev: DevScene,
    bench: Bench,
    follower: Follower,
}

impl Deref for Scene {
    type Target = DevScene;

    fn deref(&self) -> &DevScene {
        &self.dev
    }
}

impl Scene {
    async fn new() -> Self {
        Self::with_timeout(PATIENT).await
    }

    async fn with_timeout(request_timeout: Duration) -> Self {
        let dev = DevScene::new().await;
        let bench = bench_with(&[dev.node.url()], (dev.registries, dev.multicall), request_timeout);
        let follower = bench.reader.follower();
        Self { dev, bench, follower }
    }

    /// Lets the node answer one method with an error.
    fn refuse(&self, method: &'static str, code: i64, message: &'static str) {
        self.play(move |request| {
            (request["method"] == method).then(|| Reply::Error(code, message.to_owned(), None))
        });
    }

    /// A log of the identity registry that no table has: for one block its code is one that writes a log and ends.
    fn emit_unknown(&self) {
        let code = |code: Bytes| {
            result(&self.chain, "anvil_setCode", json!([self.registries.identity, code]));
        };
        let contract = result(&self.chain, "eth_getCode", json!([self.registries.identity, "latest"]));
        // PUSH1 9, PUSH0, PUSH0, LOG1, STOP
        code(bytes!("60095f5fa100"));
        self.chain.send(SAMPLE_ACCOUNTS[0].address, Some(self.registries.identity), Bytes::new()).unwrap();
        code(serde_json::from_value(contract).unwrap());
    }

    async fn profile(&self, agent: u64) -> Option<Arc<TrustProfile>> {
        self.bench.reader.profile(id(agent), Parts::Whole).await.unwrap()
    }

    /// Caches an agent's profile at the followed block.
    async fn warm(&self, following: &mut Following<'_>, agent: u64) {
        self.profile(agent).await.unwrap();
        self.bench.clock.advance(LIFETIME);
        self.tick(following).await;
        self.profile(agent).await.unwrap();
    }

    /// A poll.
    async fn tick(&self, following: &mut Following<'_>) {
        following.poll().await;
    }

    /// Whether the agent's profile costs a call.
    async fn is_cached(&self, agent: u64) -> bool {
        let before = self.node.calls("eth_call");
        self.profile(agent).await.unwrap();
        self.node.calls("eth_call") == before
    }

    fn mode(&self) -> &'static str {
        let modes = ["starting", "following", "unlogged", "lost"];
        let gauge = |mode: &&str| self.bench.metrics.follower_mode.with_label_values(&[*mode]).get();
        let shown: Vec<_> = modes.into_iter().filter(|mode| gauge(mode) == 1).collect();
        assert_eq!(shown.len(), 1, "{shown:?}");
        shown[0]
    }

    fn polls(&self, result: &str) -> u64 {
        self.bench.metrics.follower_polls.with_label_values(&[result]).get()
    }

    fn dropped(&self, kind: &str) -> u64 {
        self.bench.metrics.profile_drops.with_label_values(&[kind]).get()
    }

    fn fall_silent(&self) {
        self.bench.clock.advance(STALENESS);
    }
}
