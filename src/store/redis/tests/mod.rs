//! Tests of what only the Redis store does, against real servers: the contract that every store keeps is in
//! `store/contract.rs`.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::{block_in_place, yield_now};
use tokio::time::timeout;

use crate::domain::redis_url::RedisUrl;
use crate::ports::clock::Clock;
use crate::ports::simulated::SimulatedClock;
use crate::ports::store::Store;
use crate::store::contract::{Bench, store_contract};
use crate::store::redis::findings::Told;
use crate::store::redis::options::{Options, SentinelLogin, Shared, TlsFiles};
use crate::store::redis::scripts::Scripts;
use crate::store::redis::tests::server::RedisServer;
use crate::store::redis::{RunningRedisStore, certificates};
use crate::telemetry::metrics::Metrics;

mod acknowledged;
mod cluster;
mod cluster_faults;
mod crashes;
mod differential;
mod faults;
mod findings;
mod meters;
mod nearby;
mod others;
mod real;
mod replicas;
mod retention;
mod roles;
mod secured;
mod sentinel;
mod server;
mod waiting;
mod watched;

/// The wall clock at the start of a test, in Unix seconds.
const START_SECS: u64 = 1_700_000_000;
const DAY_SECS: u64 = 86_400;
const AHEAD_SECS: u64 = 60;

/// Signatures from here on can't have been used before the first epoch.
const SIGNED_SECS: u64 = START_SECS + AHEAD_SECS + 1;

/// Longer than anything takes on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(20);

fn options(url: &str) -> Options {
    Options {
        url: RedisUrl::parse(url).unwrap(),
        password: None,
        sentinel: SentinelLogin::default(),
        tls: TlsFiles::default(),
        timeout: Duration::from_secs(10),
        wait_replicas: 0,
        wait_timeout: Duration::from_secs(1),
        nonce_retention_secs: DAY_SECS,
        max_ahead_secs: AHEAD_SECS,
    }
}

/// A store whose scripts take their time from the clock.
fn open(options: Options, clock: &Arc<SimulatedClock>) -> RunningRedisStore {
    let shared = Shared {
        certificates: certificates(&options.tls).unwrap(),
        options,
        clock: Arc::clone(clock) as Arc<dyn Clock>,
        metrics: Metrics::new().unwrap(),
        scripts: Scripts::simulated(),
        told: Told::default(),
        simulated_from_micros: Some(START_SECS * 1_000_000),
    };
    RunningRedisStore::on(shared).unwrap()
}

/// A failover: a Sentinel that was itself held up for 2 s does nothing for the next 30.
const FAILOVER_TIME_MAX: Duration = Duration::from_secs(75);

/// Waits until the store works.
async fn ready(store: &RunningRedisStore) {
    ready_within(PATIENCE, store).await;
}

async fn ready_within(time_max: Duration, store: &RunningRedisStore) {
    let works = async {
        while store.probe().await.is_err() {
            yield_now().await;
        }
    };
    let in_time = timeout(time_max, works).await;
    assert!(in_time.is_ok(), "{:?}", store.probe().await);
}

fn bench() -> Option<Bench> {
    let server = RedisServer::start(&[])?;
    let clock = Arc::new(SimulatedClock::new(START_SECS));
    let store = open(options(&server.url()), &clock);
    block_in_place(|| Handle::current().block_on(ready(&store)));
    Some(Bench {
        store: Arc::new(store),
        advance_secs: Box::new(move |secs| clock.advance_secs(secs)),
        signed_at_secs: SIGNED_SECS,
        _keep: Box::new(server),
    })
}

store_contract!(bench);
