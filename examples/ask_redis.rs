//! Asks a Redis as the product does, for measuring; the store's own code. The Redis must be nobody else's, and is for the
//! chain 8004 and the first contract of an account that development nodes unlock.
//!
//! `ask_redis URL keys AGENTS`, `ask_redis URL fill AGENTS LIMIT`, `ask_redis URL rate AGENTS SECONDS IN_FLIGHT`
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::{process::ExitCode, sync::Arc, time::Duration};

use alloy::primitives::{Address, U256, address};
use sha2::{Digest, Sha256};
use tiergate::domain::{
    AgentId, Binding, KeyDigest, KeyTerms, Nonce, NonceClaim, Quota, RedisLayout, RedisUrl, UnixSeconds,
};
use tiergate::os::Os;
use tiergate::ports::{Admission, Clock, KeyChange, KeyChanged, NewKey, Proof, Scope, Store};
use tiergate::store::{RedisStore, SentinelLogin, TlsFiles, redis::options::Options};
use tiergate::telemetry::Metrics;
use tokio::task::JoinSet;

/// How many requests are under way at once where only the result counts.
const UNDER_WAY: u64 = 64;

/// A window that does not pass while it is being filled.
const HOUR_MICROS: u64 = 3_600_000_000;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(std::env::args().skip(1).collect()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Vec<String>) -> Result<(), Failure> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [url, "keys", agents] => keys(&open(url).await?, agents.parse()?).await,
        [url, "fill", agents, limit] => fill(&open(url).await?, agents.parse()?, limit.parse()?).await,
        [url, "rate", agents, seconds, in_flight] => {
            let store = open(url).await?;
            let (agents, seconds, in_flight) = (agents.parse()?, seconds.parse()?, in_flight.parse()?);
            let plain = gets_per_second(url, seconds, in_flight).await?;
            let scripts = admissions_per_second(&store, agents, seconds, in_flight).await?;
            println!("{plain:.0} {scripts:.0}");
            Ok(())
        }
        _ => {
            Err("usage: ask_redis URL keys AGENTS | fill AGENTS LIMIT | rate AGENTS SECONDS IN_FLIGHT".into())
        }
    }
}

async fn open(url: &str) -> Result<Arc<RedisStore>, Failure> {
    let identity = address!("0x5FbDB2315678afecb367f032d93F642f64180aa3");
    let options = Options {
        binding: Binding::new(8004, identity, false),
        prefix: String::new(),
        url: RedisUrl::parse(url).map_err(|_| "not such a URL")?,
        password: None,
        sentinel: SentinelLogin::default(),
        tls: TlsFiles::default(),
        timeout: Duration::from_secs(5),
        wait_replicas: 0,
        wait_timeout: Duration::from_secs(1),
        nonce_retention_secs: 86_400,
        max_ahead_secs: 0,
        reads_only: false,
    };
    let store = Arc::new(RedisStore::open(options, Arc::new(Os::new()), Metrics::new()?)?);
    while store.probe().await.is_err() {
        tokio::task::yield_now().await;
    }
    Ok(store)
}

/// Gives each agent a key, with one remembered nonce.
async fn keys(store: &Arc<RedisStore>, agents: u64) -> Result<(), Failure> {
    // Ahead of whatever a new Redis refuses.
    let signed_at = UnixSeconds(Os::new().unix_seconds() + 60);
    for_each(agents, |agent| {
        let store = Arc::clone(store);
        async move {
            let claim = NonceClaim { nonce: Nonce::new(U256::from(agent)), signed_at };
            let (digest, terms) = (digest(agent), KeyTerms::default());
            let key = NewKey { digest, origin: None, signer: Address::ZERO, terms, per_agent_max: 1 };
            let (done, _) = store.change_key(id(agent), claim, KeyChange::Rotate(key)).await?;
            if done == KeyChanged::Done { Ok(()) } else { Err("a key was not made".into()) }
        }
    })
    .await
}

/// Fills each agent's window.
async fn fill(store: &Arc<RedisStore>, agents: u64, limit: u32) -> Result<(), Failure> {
    let quota = Quota { limit, window_micros: HOUR_MICROS };
    for_each(agents, |agent| {
        let store = Arc::clone(store);
        async move {
            for _ in 0..limit {
                admit(&store, agent, quota).await?;
            }
            Ok(())
        }
    })
    .await
}

async fn for_each<F>(agents: u64, act: impl Fn(u64) -> F) -> Result<(), Failure>
where
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for agent in 1..=agents {
        if tasks.len() as u64 >= UNDER_WAY
            && let Some(done) = tasks.join_next().await
        {
            done??;
        }
        tasks.spawn(act(agent));
    }
    tasks.join_all().await.into_iter().collect()
}

async fn admissions_per_second(
    store: &Arc<RedisStore>,
    agents: u64,
    seconds: u64,
    in_flight: u64,
) -> Result<f64, Failure> {
    let next = Arc::new(AtomicU64::new(0));
    let quota = Quota { limit: 2_700, window_micros: 60_000_000 };
    let store = Arc::clone(store);
    per_second(seconds, in_flight, move || {
        let (store, next) = (Arc::clone(&store), Arc::clone(&next));
        async move { admit(&store, next.fetch_add(1, Ordering::Relaxed) % agents + 1, quota).await }
    })
    .await
}

/// The baseline: the least that a server can be asked for, over a connection of the same kind.
async fn gets_per_second(url: &str, seconds: u64, in_flight: u64) -> Result<f64, Failure> {
    let url = RedisUrl::parse(url).map_err(|_| "not such a URL")?;
    let RedisLayout::Single(host) = &url.layout else { return Err("one server can be measured".into()) };
    let client = redis::Client::open(format!("redis://{host}"))?;
    let connection = client.get_multiplexed_async_connection().await?;
    per_second(seconds, in_flight, move || {
        let mut connection = connection.clone();
        async move { Ok(redis::cmd("GET").arg("absent").exec_async(&mut connection).await?) }
    })
    .await
}

async fn per_second<F>(
    seconds: u64,
    in_flight: u64,
    ask: impl Fn() -> F + Clone + Send + 'static,
) -> Result<f64, Failure>
where
    F: Future<Output = Result<(), Failure>> + Send,
{
    let os = Os::new();
    let (begun, micros) = (os.monotonic_micros(), seconds * 1_000_000);
    let mut tasks: JoinSet<Result<u64, Failure>> = JoinSet::new();
    for _ in 0..in_flight {
        let ask = ask.clone();
        tasks.spawn(async move {
            let mut done = 0;
            while os.monotonic_micros() - begun < micros {
                ask().await?;
                done += 1;
            }
            Ok(done)
        });
    }
    let done: u64 = tasks.join_all().await.into_iter().sum::<Result<u64, Failure>>()?;
    Ok(done as f64 * 1_000_000.0 / (os.monotonic_micros() - begun) as f64)
}

async fn admit(store: &RedisStore, agent: u64, quota: Quota) -> Result<(), Failure> {
    let admission = store.admit(id(agent), &Scope::Api, quota, &Proof::Key(digest(agent))).await?;
    if matches!(admission, Admission::Admitted { .. }) {
        return Ok(());
    }
    Err(format!("agent {agent} was not admitted: {admission:?}").into())
}

fn id(agent: u64) -> AgentId {
    AgentId::new(U256::from(agent))
}

fn digest(agent: u64) -> KeyDigest {
    // The key that `fill` gives the agent.
    KeyDigest::from_bytes(Sha256::digest(format!("svc_live_v1_{agent:064x}")).into())
}
