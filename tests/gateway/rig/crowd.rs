//! Agents with keys: minted by few transactions, and with keys that are put into the store before the process starts.

use std::{path::PathBuf, sync::Arc, time::Duration};

use alloy::primitives::{Address, Bytes, U256};
use alloy::sol_types::SolCall;
use sha2::{Digest, Sha256};
use tiergate::config::{ConfigSource, no_probe};
use tiergate::domain::{AgentId, KeyDigest, KeyTerms, Nonce, NonceClaim, RedisUrl, UnixSeconds};
use tiergate::os::Os;
use tiergate::ports::{Clock, KeyChange, KeyChanged, NewKey, Store};
use tiergate::store::{
    EmbeddedStore, RedisStore, SentinelLogin, TlsFiles, embedded, redis::options::Options,
};
use tiergate::telemetry::Metrics;
use tokio::task::JoinSet;

use crate::support::chain::{Chain, Identity, Multicall, Vault};
use crate::support::signing::{ALICE, DEPLOYER};
use crate::support::time::{SOON, until};
use crate::support::{agents::THRESHOLDS, service::Service};

/// Added to a number it is an agent's id: the chain has sample agents of its own.
const FIRST_ID: u64 = 1_000_000;

/// How many are minted by one transaction.
const OF_A_TRANSACTION: usize = 100;

/// How many keys are issued at once.
const UNDER_WAY: usize = 2_000;

const NONCE_RETENTION_SECS: u64 = 86_400;
const AHEAD_SECS: u64 = 60;

/// The key of an agent.
pub(crate) fn key(agent: usize) -> String {
    format!("svc_live_v1_{agent:064x}")
}

fn id_of(agent: usize) -> U256 {
    U256::from(FIRST_ID) + U256::from(agent)
}

/// Mints so many agents with numbers from 1, and the stake of tier 1.
pub(crate) fn mint(chain: &Chain, agents: usize) {
    let of_agent = |agent: usize| {
        let id = id_of(agent);
        let mint = Identity::mintWithIdCall { to: ALICE.address, id, uri: String::new() };
        let stake = Vault::stakeCall { agentId: id, amount: THRESHOLDS[0] };
        let call = |target, data: Vec<u8>| Multicall::Call {
            target,
            allowFailure: false,
            callData: Bytes::from(data),
        };
        let contracts = &chain.contracts;
        [call(contracts.identity, mint.abi_encode()), call(contracts.stake_vault, stake.abi_encode())]
    };
    for first in (1..=agents).step_by(OF_A_TRANSACTION) {
        let calls = (first..first + OF_A_TRANSACTION).flat_map(of_agent).collect();
        chain.send(DEPLOYER, chain.contracts.multicall, &Multicall::aggregate3Call { calls });
    }
}

/// Puts their keys into the store of a service that does not run yet.
pub(crate) fn fill(service: &Service, agents: usize) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    // Dropped last: the store has a runtime too, which must not end within another.
    let store = store_of(service);
    until("the store answers", SOON, || runtime.block_on(store.probe()).ok());
    runtime.block_on(async {
        for first in (1..=agents).step_by(UNDER_WAY) {
            let mut batch = JoinSet::new();
            for agent in first..(first + UNDER_WAY).min(agents + 1) {
                let store = Arc::clone(&store);
                batch.spawn(async move { issue(&*store, agent).await });
            }
            batch.join_all().await;
        }
    });
}

fn store_of(service: &Service) -> Arc<dyn Store> {
    let clock = Arc::new(Os::new());
    let file = service.folder.path().join("tiergate.toml");
    let report = ConfigSource::alone(&file).read(0, None, &mut no_probe);
    let binding = report.loaded.unwrap().settings.fixed.binding();
    let settings = std::fs::read_to_string(file).unwrap();
    let settings: toml::Table = settings.parse().unwrap();
    let text = |kind: &str, key: &str| settings["store"].get(kind)?.get(key)?.as_str();
    if let Some(url) = text("redis", "url") {
        let options = Options {
            binding,
            prefix: String::new(),
            url: RedisUrl::parse(url).unwrap(),
            password: None,
            sentinel: SentinelLogin::default(),
            tls: TlsFiles::default(),
            timeout: Duration::from_secs(10),
            wait_replicas: 0,
            wait_timeout: Duration::from_secs(1),
            nonce_retention_secs: NONCE_RETENTION_SECS,
            max_ahead_secs: AHEAD_SECS,
            reads_only: false,
        };
        return Arc::new(RedisStore::open(options, clock, Metrics::new().unwrap()).unwrap());
    }
    let path = PathBuf::from(text("embedded", "path").unwrap());
    let options = embedded::Options {
        path,
        binding,
        nonce_retention_secs: NONCE_RETENTION_SECS,
        max_ahead_secs: AHEAD_SECS,
    };
    Arc::new(EmbeddedStore::open(options, clock).unwrap())
}

async fn issue(store: &dyn Store, agent: usize) {
    let digest = KeyDigest::from_bytes(Sha256::digest(key(agent)).into());
    let change = KeyChange::Issue(NewKey {
        digest,
        origin: None,
        signer: Address::ZERO,
        terms: KeyTerms::default(),
        per_agent_max: 1,
    });
    let signed_at = UnixSeconds(Os::new().unix_seconds());
    let claim = NonceClaim { nonce: Nonce::new(U256::from(agent)), signed_at };
    let changed = store.change_key(AgentId::new(id_of(agent)), claim, change).await.unwrap().0;
    assert_eq!(changed, KeyChanged::Done);
}
