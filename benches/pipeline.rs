//! What the product costs without HTTP: the window, the key path and the signature path, each beside a baseline that
//! is measured in the same run. Criterion interleaves nothing by itself, so compare the ratios of one run only.
//!
//! The key path is the whole `Pipeline::admit` over the real embedded store and the real chain reader, whose profile
//! is cached; the chain is the development chain of the built binary. The signature path is measured twice: its CPU
//! work alone, over a store that only says yes, and with the real store, whose answer waits for the disk.
#![allow(missing_docs, reason = "criterion's macros make public items")]
#![expect(clippy::expect_used, reason = "a benchmark that can't be set up has nothing to measure")]

use std::collections::HashMap;
use std::future;
use std::hint::black_box;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::pin::pin;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use alloy::primitives::{Address, B256, U256, address};
use alloy::signers::SignerSync;
use alloy::signers::local::PrivateKeySigner;
use async_trait::async_trait;
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use futures_util::future::Either;
use sha2::{Digest, Sha256};
use tiergate::chain::pool::{Pool, PoolSettings};
use tiergate::chain::reader::{ChainReader, Lifetimes, ReaderSettings};
use tiergate::chain::registries::Registries;
use tiergate::domain::agent_id::AgentId;
use tiergate::domain::api_key::{ApiKeyFormat, KeyDigest};
use tiergate::domain::client::ClientNet;
use tiergate::domain::eip712::SigningDomain;
use tiergate::domain::freshness::{Freshness, UnixSeconds};
use tiergate::domain::nonce::{Nonce, NonceClaim};
use tiergate::domain::quota::Quota;
use tiergate::domain::rpc_url::RpcUrl;
use tiergate::domain::signature::SignatureBytes;
use tiergate::domain::tier::{PerTier, Tier};
use tiergate::domain::window::Window;
use tiergate::os::Os;
use tiergate::pipeline::credential::{Ask, Credential, SignedRequest};
use tiergate::pipeline::custody::KeyOrder;
use tiergate::pipeline::{Access, Pipeline, Ports, Rules};
use tiergate::ports::chain::{Asker, Chain};
use tiergate::ports::clock::Clock;
use tiergate::ports::store::{
    Admission, KeyChange, KeyChanged, KeyOwner, Metered, Proof, Reply, Scope, Store, StoreFault,
};
use tiergate::store::embedded::{EmbeddedStore, Options};
use tiergate::telemetry::metered_store::MeteredStore;
use tiergate::telemetry::metrics::Metrics;

/// The publicly known key of the development chain's account that owns agent 4, tier 4.
const OWNER_KEY: &str = "0x47e179ec197488593b187f80a00eb0da91f1b9d0b13f8733639f19c30a34926a";
const IDENTITY: Address = address!("0x5FbDB2315678afecb367f032d93F642f64180aa3");

/// So much that no benchmark ever runs into it.
const NO_LIMIT: Quota = Quota { limit: u32::MAX, window_micros: 1 };

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
            black_box(ready(scene.pipeline.admit(ask)).expect("the agent is admitted"));
        });
    });
    group.bench_function("parse and hash the key, then admit", |bencher| {
        bencher.iter(|| {
            let digest = format.parse(black_box(key.reveal())).expect("it is a key").digest();
            let ask = ask(Credential::Key { digest, named: None }, &access);
            black_box(ready(scene.pipeline.admit(ask)).expect("the agent is admitted"));
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
            let ask = ask(Credential::Signature(signed), &access);
            black_box(ready(cpu.admit(ask)).expect("the owner is admitted"));
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
                scene.runtime.block_on(scene.pipeline.admit(ask)).expect("the owner is admitted")
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

/// The pipeline over real parts, with one cached profile.
struct Scene {
    runtime: tokio::runtime::Runtime,
    pipeline: Pipeline,
    chain: Arc<dyn Chain>,
    owner: Address,
    signer: PrivateKeySigner,
    os: Arc<Os>,
    _node: Node,
    _folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        pingora::tls::install_default_crypto_provider();
        let node = Node::start();
        let os = Arc::new(Os::new());
        let clock: Arc<dyn Clock> = os.clone();
        let metrics = Metrics::new().expect("the metrics are distinct");
        let urls = [RpcUrl::parse(&node.url).expect("it is a URL")];
        let settings = PoolSettings {
            urls: &urls,
            headers: &[],
            request_timeout: Duration::from_secs(2),
            calls_per_second: None,
            proxy: None,
            chain_id: None,
            signature_chain_id: 8004,
        };
        let rpc = Pool::new(&settings, clock.clone(), metrics.clone()).expect("an HTTP client");
        // A lifetime beyond any benchmark: the cached path is what is measured.
        let day = Duration::from_secs(86_400);
        let settings = ReaderSettings {
            registries: registries(),
            multicall: address!("0xcA11bde05977b3631167028862bE2a173976CA11"),
            gas_cap: 50_000_000,
            max_head_age: None,
            lifetimes: Lifetimes { poll_interval: day, max_staleness: day, reread_after: Some(day) },
        };
        let reader = ChainReader::new(Arc::new(rpc), settings, clock.clone(), &metrics);
        let chain: Arc<dyn Chain> = Arc::new(reader);
        let folder = tempfile::tempdir().expect("a folder");
        let options =
            Options { path: folder.path().join("data"), nonce_retention_secs: 86_400, max_ahead_secs: 60 };
        let store = EmbeddedStore::open(options, clock.clone()).expect("an empty store");
        let store = MeteredStore::new(Arc::new(store), clock.clone(), &metrics);
        let ports = Ports { chain: chain.clone(), store: Arc::new(store), clock, entropy: os.clone() };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let signer: PrivateKeySigner = OWNER_KEY.parse().expect("it is a key");
        let scene = Self {
            pipeline: Pipeline::new(ports, rules()),
            chain,
            owner: signer.address(),
            signer,
            os,
            runtime,
            _node: node,
            _folder: folder,
        };
        let profile = scene.runtime.block_on(scene.chain.profile(agent())).expect("the chain answers");
        assert_eq!(profile.map(|profile| profile.owner), Some(scene.owner), "agent 4 is the signer's");
        scene
    }

    fn ports(&self, store: Arc<dyn Store>, chain: Arc<dyn Chain>) -> Ports {
        Ports { chain, store, clock: self.os.clone(), entropy: self.os.clone() }
    }

    fn sign(&self, nonce: u64) -> SignedRequest {
        let (nonce, signed_at) = (Nonce::new(U256::from(nonce)), UnixSeconds(self.os.unix_seconds()));
        let digest: B256 = domain().digest(agent(), nonce, signed_at);
        let bytes = self.signer.sign_hash_sync(&digest).expect("it signs").as_bytes();
        SignedRequest { agent: agent(), nonce, signed_at, signature: SignatureBytes::from_bytes(bytes) }
    }

    fn generate_key(&self) -> tiergate::domain::api_key::ApiKey {
        let order = KeyOrder { client: client(), signed: self.sign(0) };
        self.runtime.block_on(self.pipeline.generate_key(order, None)).expect("the owner gets a key").key
    }
}

/// The development chain of the built binary, until it is dropped.
struct Node {
    process: Child,
    url: String,
}

impl Node {
    fn start() -> Self {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = free.expect("a free port").to_string();
        let mut process = Command::new(env!("CARGO_BIN_EXE_tiergate"))
            .args(["dev", "--only-chain", "--chain", &address])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut line = String::new();
        let stdout = process.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("it says where it listens");
        while std::net::TcpStream::connect(&address).is_err() {
            std::thread::yield_now();
        }
        Self { process, url: format!("http://{address}") }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Answers with what the real reader has cached, and the owner without a call: what is left is CPU.
struct KnownChain(Arc<dyn Chain>, Address);

#[async_trait]
impl Chain for KnownChain {
    async fn profile(
        &self,
        agent: AgentId,
    ) -> Result<Option<Arc<tiergate::domain::profile::TrustProfile>>, tiergate::ports::chain::ChainFault>
    {
        self.0.profile(agent).await
    }

    async fn latest_profile(
        &self,
        agent: AgentId,
    ) -> Result<Option<Arc<tiergate::domain::profile::TrustProfile>>, tiergate::ports::chain::ChainFault>
    {
        self.0.latest_profile(agent).await
    }

    async fn owner(
        &self,
        _agent: AgentId,
        _asker: Asker,
    ) -> Result<Option<Address>, tiergate::ports::chain::ChainFault> {
        Ok(Some(self.1))
    }

    fn was_owned_by(&self, agent: AgentId, address: Address) -> bool {
        self.0.was_owned_by(agent, address)
    }

    fn out_of_time(&self) -> tiergate::ports::chain::ChainFault {
        self.0.out_of_time()
    }

    async fn probe(&self) -> Result<(), tiergate::ports::chain::ChainFault> {
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

    async fn change_key(&self, _: AgentId, _: NonceClaim, _: KeyChange) -> Result<KeyChanged, StoreFault> {
        Ok(KeyChanged::Done)
    }

    async fn has_key(&self, _: AgentId) -> Result<bool, StoreFault> {
        Ok(false)
    }

    async fn hit(&self, _: ClientNet, _: AgentId, _: Quota) -> Result<Metered, StoreFault> {
        Ok(Metered::Counted { remaining: 0 })
    }

    async fn charge(&self, _: ClientNet, _: AgentId, _: Quota) -> Result<Metered, StoreFault> {
        Ok(Metered::Counted { remaining: 0 })
    }

    async fn left(&self, _: ClientNet, _: AgentId, _: Quota) -> Result<u32, StoreFault> {
        Ok(0)
    }

    async fn probe(&self) -> Result<(), StoreFault> {
        Ok(())
    }
}

/// The value of a future that never has to wait.
fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("nothing on this path waits"),
    }
}

fn ask(credential: Credential, access: &Access) -> Ask<'_> {
    Ask { credential, client: client(), origin: None, access }
}

fn agent() -> AgentId {
    AgentId::new(U256::from(4))
}

fn client() -> ClientNet {
    ClientNet::of(std::net::Ipv4Addr::LOCALHOST.into())
}

fn domain() -> SigningDomain {
    SigningDomain::new("Service Verification", "1", 8004, IDENTITY)
}

fn access() -> Access {
    Access {
        scope: Scope::Api,
        min_tier: Tier::Bronze,
        quotas: PerTier::from_array([NO_LIMIT; 4]),
        denies_endpoint_mismatch: false,
    }
}

fn rules() -> Rules {
    let token = U256::from(10).pow(U256::from(18));
    Rules {
        signing_domain: domain(),
        freshness: Freshness { max_age_secs: 300, max_ahead_secs: 60 },
        stakes: PerTier::from_array([1_000, 10_000, 100_000, 500_000].map(|whole| U256::from(whole) * token)),
        key_format: ApiKeyFormat::new("svc_live_v1_"),
        key_management: NO_LIMIT,
        failures: Some(Quota::per_minute(300)),
    }
}

fn registries() -> Registries {
    Registries {
        identity: IDENTITY,
        stake_vault: address!("0xe7f1725E7734CE288F8367e1Bb143E90bb3F0512"),
        reputation: None,
        validation: None,
        organization: None,
    }
}

criterion_group!(benches, window, key_path, signature_path);
criterion_main!(benches);
