//! The pipeline over the real embedded store and the real chain reader, whose profile is cached; the chain is the
//! development chain, in a process of its own. What a benchmark measures and a test counts the allocations of.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::{net::TcpListener, pin::pin, time::Duration};

use alloy::primitives::{Address, B256, U256, address};
use alloy::signers::SignerSync;
use alloy::signers::local::PrivateKeySigner;
use tiergate::chain::{ChainReader, Pool};
use tiergate::domain::{
    AgentId, Agents, ApiKey, ApiKeyFormat, Binding, ClientNet, Eip712Domain, Freshness, Lifetimes, Nonce,
    PerTier, PoolSettings, Quota, ReaderSettings, Registries, RegistrySet, RpcUrl, SignatureBytes,
    SignatureFormat, SigningDomain, Tier, TierSources, Tiers, UnixSeconds,
};
use tiergate::os::Os;
use tiergate::pipeline::{Access, Ask, Credential, KeyOrder, KeyWish, Pipeline, Ports, Rules, SignedRequest};
use tiergate::ports::{Chain, Clock, Parts, Scope, Store};
use tiergate::store::{EmbeddedStore, embedded::Options};
use tiergate::telemetry::{MeteredStore, Metrics};

/// The publicly known key of the development chain's account that owns agent 4, tier 4.
const OWNER_KEY: &str = "0x47e179ec197488593b187f80a00eb0da91f1b9d0b13f8733639f19c30a34926a";
const IDENTITY: Address = address!("0x5FbDB2315678afecb367f032d93F642f64180aa3");

/// So much that no benchmark ever runs into it.
pub(crate) const NO_LIMIT: Quota = Quota { limit: u32::MAX, window_micros: 1 };

/// The pipeline over real parts, with one cached profile.
pub(crate) struct Scene {
    pub(crate) runtime: tokio::runtime::Runtime,
    pub(crate) pipeline: Pipeline,
    pub(crate) chain: Arc<dyn Chain>,
    pub(crate) owner: Address,
    signer: PrivateKeySigner,
    pub(crate) os: Arc<Os>,
    _node: Node,
    _folder: tempfile::TempDir,
}

impl Scene {
    pub(crate) fn new() -> Self {
        pingora::tls::install_default_crypto_provider();
        let node = Node::start();
        let os = Arc::new(Os::new());
        let clock: Arc<dyn Clock> = os.clone();
        let metrics = Metrics::new().expect("the metrics are distinct");
        let settings = PoolSettings {
            urls: vec![RpcUrl::parse(&node.url).expect("it is a URL")],
            request_timeout: Duration::from_secs(2),
            calls_per_second: None,
            proxy: None,
            chain_id: 8004,
        };
        let rpc = Pool::new(&settings, &[], clock.clone(), metrics.clone()).expect("an HTTP client");
        // A lifetime beyond any benchmark: the cached path is what is measured.
        let day = Duration::from_secs(86_400);
        let settings = ReaderSettings {
            registries: registries(),
            multicall: address!("0xcA11bde05977b3631167028862bE2a173976CA11"),
            gas_cap: 50_000_000,
            max_head_age: None,
            lifetimes: Lifetimes { poll_interval: day, max_staleness: day, reread_after: Some(day) },
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let reader = ChainReader::new(
            Arc::new(rpc),
            (settings, Vec::new()),
            clock.clone(),
            &metrics,
            runtime.handle(),
        );
        let chain: Arc<dyn Chain> = Arc::new(reader);
        let folder = tempfile::tempdir().expect("a folder");
        let options = Options {
            path: folder.path().join("data"),
            binding: Binding::new(8004, IDENTITY, false),
            nonce_retention_secs: 86_400,
            max_ahead_secs: 60,
        };
        // One that is made now would take no signature for a minute.
        drop(EmbeddedStore::open(options.clone(), Arc::new(LongAgo)).expect("an empty store"));
        let store = EmbeddedStore::open(options, clock.clone()).expect("an empty store");
        let store = MeteredStore::new(Arc::new(store), clock.clone(), &metrics);
        let ports = Ports { chain: chain.clone(), store: Arc::new(store), clock, entropy: os.clone() };
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
        let profile =
            scene.runtime.block_on(scene.chain.profile(agent(), Parts::Whole)).expect("the chain answers");
        assert_eq!(
            profile.map(|profile| profile.holders.owner),
            Some(scene.owner),
            "agent 4 is the signer's"
        );
        scene
    }

    pub(crate) fn ports(&self, store: Arc<dyn Store>, chain: Arc<dyn Chain>) -> Ports {
        Ports { chain, store, clock: self.os.clone(), entropy: self.os.clone() }
    }

    pub(crate) fn sign(&self, nonce: u64) -> SignedRequest {
        let (nonce, signed_at) = (Nonce::new(U256::from(nonce)), UnixSeconds(self.os.unix_seconds()));
        let digest: B256 = domain().digest(agent(), nonce, signed_at);
        let bytes = self.signer.sign_hash_sync(&digest).expect("it signs").as_bytes();
        SignedRequest { agent: agent(), nonce, signed_at, signature: SignatureBytes::from_bytes(bytes) }
    }

    pub(crate) fn generate_key(&self) -> ApiKey {
        let by = OnceLock::new();
        let order = KeyOrder { client: client(), signed: self.sign(0), by: &by, recorder: None };
        self.runtime
            .block_on(self.pipeline.make_key(order, KeyWish::default(), false))
            .expect("the owner gets a key")
            .key
    }
}

/// The development chain, until it is dropped.
struct Node {
    process: Child,
    url: String,
}

impl Node {
    fn start() -> Self {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = free.expect("a free port").to_string();
        let mut process = Command::new(env!("CARGO_BIN_EXE_tiergate-dev"))
            .args(["--only-chain", "--chain", &address])
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

/// The value of a future that never has to wait.
pub(crate) fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("nothing on this path waits"),
    }
}

pub(crate) fn ask(credential: Credential, access: &Access) -> Ask<'_> {
    Ask { credential, client: client(), origin: None, access }
}

pub(crate) fn agent() -> AgentId {
    AgentId::new(U256::from(4))
}

pub(crate) fn client() -> ClientNet {
    ClientNet::of(std::net::Ipv4Addr::LOCALHOST.into())
}

pub(crate) fn domain() -> SigningDomain {
    SigningDomain::new(Eip712Domain {
        name: "Service Verification".to_owned(),
        version: "1".to_owned(),
        chain_id: 8004,
        verifying_contract: IDENTITY,
    })
}

pub(crate) fn access() -> Access {
    let token = U256::from(10).pow(U256::from(18));
    let stakes = PerTier([1_000, 10_000, 100_000, 500_000].map(|whole| U256::from(whole) * token));
    Access {
        scope: Scope::Api,
        min_tier: Tier::Bronze,
        tiers: Tiers::new(
            TierSources { stakes: Some(stakes), ..TierSources::default() },
            Arc::new(Agents::new()),
        ),
        quotas: PerTier([NO_LIMIT; 4]),
        denies_endpoint_mismatch: false,
        parts: Parts::Whole,
    }
}

pub(crate) fn rules() -> Rules {
    Rules {
        signing_domain: domain(),
        signature_format: SignatureFormat::Keys,
        freshness: Freshness { max_age_secs: 300, max_ahead_secs: 60 },
        contract_max_age_secs: 0,
        key_format: ApiKeyFormat::new("svc_live_v1_"),
        keys_end_with_signer: false,
        keys_per_agent_max: 1,
        key_expires_secs_max: 0,
        agent_wallet: false,
        key_management: NO_LIMIT,
        failures: Some(Quota::per_minute(300)),
    }
}

fn registries() -> Registries {
    Registries {
        identity: IDENTITY,
        stake_vault: Some(address!("0xe7f1725E7734CE288F8367e1Bb143E90bb3F0512")),
        reputation: None,
        validation: None,
        set: RegistrySet::Documented { organization: None },
    }
}

/// A clock of long ago.
struct LongAgo;

impl Clock for LongAgo {
    fn unix_millis(&self) -> u64 {
        0
    }

    fn monotonic_micros(&self) -> u64 {
        0
    }
}
