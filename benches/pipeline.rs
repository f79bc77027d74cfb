//! What the product costs without HTTP: the window, the key path and the signature path, each beside a baseline that
//! is measured in the same run. Criterion interleaves nothing by itself, so compare the ratios of one run only.
//!
//! The key path is the whole `Pipeline::admit` over the real embedded store and the real chain reader, whose profile
//! is cached; the chain is the development chain of the built binary. The signature path is measured twice: its CPU
//! work alone, over a store that only says yes, and with the real store, whose answer waits for the disk.
#![allow(missing_docs, reason = "criterion's macros make public items")]
#![expect(clippy::expect_used, reason = "a benchmark that can't be set up has nothing to measure")]

mod scene;

use std::{collections::HashMap, future, hint::black_box, sync::Arc};

use alloy::primitives::{Address, B256};
use async_trait::async_trait;
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use futures_util::future::Either;
use sha2::{Digest, Sha256};
use tiergate::domain::{
    AgentId, ApiKeyFormat, ClientNet, HeldKey, Holders, KeyDigest, NonceClaim, Quota, TrustProfile, Verdict,
    Window,
};
use tiergate::pipeline::{Credential, Pipeline};
use tiergate::ports::{
    Admission, Asked, AskedHolders, Asker, Budget, Chain, ChainFault, ChainRead, KeyBudget, KeyChange,
    KeyChanged, KeyOwner, KeySeen, MadeKey, Parts, Proof, Reply, Scope, Store, StoreFault,
};

use crate::scene::{Scene, access, ask, domain, ready, rules};

fn window(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("window");
    let mut now = 0_u64;
    // Each arrival of a steady window finds one entry that has just become old, and leaves no room.
    let steady = |limit: u32| Quota::per_minute(limit).window_micros.div_ceil(u64::from(limit));
    for (name, limit, step) in
        [("steady at 2700", 2700, steady(2700)), ("refusing at 2700", 2700, 1), ("steady at 1", 1, steady(1))]
    {
        let mut window = Window::default();
        for _ in 0..3_000 {
            now += steady(limit);
            window.admit(Quota::per_minute(limit), now);
        }
        assert_eq!(window.remaining(Quota::per_minute(limit), now), 0, "the window is full");
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                now += step;
                black_box(window.admit(Quota::per_minute(limit), now))
            });
        });
    }
    group.finish();
}

fn key_path(criterion: &mut Criterion) {
    let scene = Scene::new();
    let format = ApiKeyFormat::new("svc_live_v1_");
    let key = scene.generate_key();
    let digest = key.digest();
    let access = access();

    let mut group = criterion.benchmark_group("key path");
    let known: HashMap<[u8; 32], u64> =
        (0..100_000_u64).map(|n| (Sha256::digest(n.to_le_bytes()).into(), n)).collect();
    group.bench_function("baseline: hash a key, look it up in a map of 100,000", |bencher| {
        bencher.iter(|| {
            let digest: [u8; 32] = Sha256::digest(black_box(key.reveal()).as_bytes()).into();
            black_box(known.get(&digest))
        });
    });
    group.bench_function("admit by key, cached profile", |bencher| {
        bencher.iter(|| {
            let ask = ask(Credential::Key { digest, named: None }, &access);
            black_box(ready(scene.pipeline.admit(&ask)).expect("the agent is admitted"));
        });
    });
    group.bench_function("parse and hash the key, then admit", |bencher| {
        bencher.iter(|| {
            let digest = format.digest(black_box(key.reveal()).as_bytes()).expect("it is a key");
            let ask = ask(Credential::Key { digest, named: None }, &access);
            black_box(ready(scene.pipeline.admit(&ask)).expect("the agent is admitted"));
        });
    });
    group.finish();
}

fn signature_path(criterion: &mut Criterion) {
    let scene = Scene::new();
    let access = access();
    let mut group = criterion.benchmark_group("signature path");

    let signed = scene.sign(0);
    let digest = domain().digest(signed.agent, signed.nonce, signed.signed_at);
    group.bench_function("baseline: recover the signer", |bencher| {
        bencher.iter(|| black_box(signed.signature.recover(black_box(&digest))));
    });

    let cpu = Pipeline::new(
        scene.ports(Arc::new(YesStore), Arc::new(KnownChain(scene.chain.clone(), scene.owner))),
        rules(),
    );
    group.bench_function("admit by signature, CPU alone", |bencher| {
        bencher.iter(|| {
            let ask = ask(Credential::Signature(signed.clone()), &access);
            black_box(ready(cpu.admit(&ask)).expect("the owner is admitted"));
        });
    });

    // The owner is read over RPC and the nonce synced to disk: what one client at a time sees.
    let mut nonce = 1;
    group.bench_function("admit by signature, with RPC and disk", |bencher| {
        bencher.iter_batched(
            || {
                nonce += 1;
                scene.sign(nonce)
            },
            |signed| {
                let ask = ask(Credential::Signature(signed), &access);
                scene.runtime.block_on(scene.pipeline.admit(&ask)).expect("the owner is admitted")
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

/// Answers with what the real reader has cached, and the owner without a call: what is left is CPU.
struct KnownChain(Arc<dyn Chain>, Address);

#[async_trait]
impl Chain for KnownChain {
    fn profile(&self, agent: AgentId, parts: Parts) -> ChainRead<'_, Option<Arc<TrustProfile>>> {
        self.0.profile(agent, parts)
    }

    async fn latest_profile(
        &self,
        agent: AgentId,
        parts: Parts,
    ) -> Result<Option<Arc<TrustProfile>>, ChainFault> {
        self.0.latest_profile(agent, parts).await
    }

    async fn holders(&self, _agent: AgentId, _asker: Asker) -> Result<Option<Holders>, ChainFault> {
        Ok(Some(Holders::owned_by(self.1)))
    }

    async fn ask_holders(
        &self,
        agent: AgentId,
        _digest: B256,
        _signature: &[u8],
    ) -> Result<Option<AskedHolders>, ChainFault> {
        self.inspect_holders(agent, Asker::Stranger).await
    }

    async fn inspect_holders(
        &self,
        _agent: AgentId,
        _asker: Asker,
    ) -> Result<Option<AskedHolders>, ChainFault> {
        let owner = Asked { address: self.1, has_code: false, accepts: false };
        Ok(Some(AskedHolders { owner, wallet: None }))
    }

    fn last_holders(&self, agent: AgentId) -> Option<Holders> {
        self.0.last_holders(agent)
    }

    fn out_of_time(&self) -> ChainFault {
        self.0.out_of_time()
    }

    async fn probe(&self) -> Result<(), ChainFault> {
        Ok(())
    }
}

/// Says yes to everything at no cost.
struct YesStore;

#[async_trait]
impl Store for YesStore {
    fn find<'a>(&'a self, _digest: &'a KeyDigest) -> Reply<'a, Option<KeyOwner>> {
        Either::Left(future::ready(Ok(None)))
    }

    fn admit<'a>(&'a self, _: AgentId, _: &'a Scope, _: Quota, _: &'a Proof) -> Reply<'a, Admission> {
        Either::Left(future::ready(Ok(Admission::Admitted { remaining: 0 })))
    }

    fn count<'a>(&'a self, _: &'a Budget, _: Quota) -> Reply<'a, Verdict> {
        Either::Left(future::ready(Ok(Verdict::Admitted { remaining: 0 })))
    }

    fn fits(&self, _: AgentId, _: &KeyDigest) -> bool {
        true
    }

    async fn change_key(
        &self,
        _: AgentId,
        _: NonceClaim,
        _: KeyChange,
    ) -> Result<(KeyChanged, Option<MadeKey>), StoreFault> {
        Ok((KeyChanged::Done, None))
    }

    async fn give_back(&self, _: ClientNet, _: AgentId, _: KeyBudget) {}

    async fn status(&self, _: ClientNet, _: AgentId, _: Quota) -> Result<KeySeen, StoreFault> {
        Ok(KeySeen { has_key: false, left: 0 })
    }

    async fn keys(&self, _: AgentId) -> Result<Vec<HeldKey>, StoreFault> {
        Ok(Vec::new())
    }

    async fn probe(&self) -> Result<(), StoreFault> {
        Ok(())
    }
}

criterion_group!(benches, window, key_path, signature_path);
criterion_main!(benches);
