//! Tests of what only the Redis store does, against real servers: the contract that every store keeps is in
//! `store/contract.rs`.

use std::{sync::Arc, sync::atomic::AtomicBool, time::Duration};

use alloy::primitives::Address;

use crate::domain::{Binding, RedisUrl};
use crate::ports::{Admission, Clock, NonceRefused, Proof, Scope, Store, simulated::SimulatedClock};
use crate::store::contract::{MANY, agent, claim, digest, until};
use crate::store::redis::options::{Options, SentinelLogin, Shared, TlsFiles};
use crate::store::redis::{RedisStore, certificates};
use crate::store::{
    redis::names::Shard, redis::scripts::Scripts, redis::server::Server, redis::tests::server::RedisServer,
};
use crate::telemetry::Metrics;

mod acknowledged;
mod bound;
mod clocks;
mod cluster;
mod cluster_faults;
mod differential;
mod faults;
mod findings;
mod history;
mod history_judge;
mod history_load;
mod kept;
mod key_changes;
mod layouts;
mod lost_answers;
mod meters;
mod others;
mod overlap;
mod real;
mod replicas;
mod retention;
mod rights;
mod roles;
mod secured;
mod sentinel;
mod sequences;
mod server;
mod sessions;
mod steps;
mod visitors;
mod waiting;
mod watched;

/// The wall clock at the start of a test, in Unix seconds.
const START_SECS: u64 = 1_700_000_000;
const DAY_SECS: u64 = 86_400;
const AHEAD_SECS: u64 = 60;

/// Signatures from here on can't have been used before the first epoch.
const SIGNED_SECS: u64 = START_SECS + AHEAD_SECS + 1;

fn binding() -> Binding {
    Binding::new(8004, Address::repeat_byte(1), false)
}

/// With limits that a busy machine keeps. A store that meets a fault may have shorter ones.
fn options(url: &str) -> Options {
    Options {
        binding: binding(),
        prefix: String::new(),
        url: RedisUrl::parse(url).unwrap(),
        password: None,
        sentinel: SentinelLogin::default(),
        tls: TlsFiles::default(),
        timeout: Duration::from_secs(10),
        wait_replicas: 0,
        wait_timeout: Duration::from_secs(10),
        nonce_retention_secs: DAY_SECS,
        max_ahead_secs: AHEAD_SECS,
        reads_only: false,
    }
}

fn clock() -> Arc<SimulatedClock> {
    Arc::new(SimulatedClock::new(START_SECS))
}

/// A store whose scripts take their time from the clock.
fn open(options: Options, clock: &Arc<SimulatedClock>) -> RedisStore {
    let shared = Shared {
        certificates: certificates(&options.tls).unwrap(),
        scripts: Scripts::simulated(&options.prefix),
        options,
        clock: Arc::clone(clock) as Arc<dyn Clock>,
        metrics: Metrics::new().unwrap(),
        has_bound_first: AtomicBool::default(),
        simulated_from_micros: Some(START_SECS * 1_000_000),
    };
    RedisStore::on(shared).unwrap()
}

/// Such a store, which works.
async fn opened(options: Options, clock: &Arc<SimulatedClock>) -> RedisStore {
    let store = open(options, clock);
    ready(&store).await;
    store
}

/// A server with further arguments, a store there that works, and the store's clock.
async fn served(arguments: &[&str]) -> Option<(RedisServer, RedisStore, Arc<SimulatedClock>)> {
    let (server, clock) = (RedisServer::start(arguments).await?, clock());
    let store = opened(options(&server.url()), &clock).await;
    Some((server, store, clock))
}

/// Waits until the store works.
async fn ready(store: &RedisStore) {
    until("the store works", async || store.probe().await.ok()).await;
}

/// How often the store has connected, or has failed to.
fn connects(store: &RedisStore, outcome: &str) -> u64 {
    store.shared.metrics.store_connects.with_label_values(&[outcome]).get()
}

/// Waits until a connection has been tried and has failed.
async fn refused(store: &RedisStore) {
    until("no connection", async || (connects(store, "failed") > 0).then_some(())).await;
}

/// Waits until the store has connected more often than this.
async fn connected_after(store: &RedisStore, before: u64) {
    until("another connection", async || (connects(store, "connected") > before).then_some(())).await;
}

/// The one server that the store is at.
fn only(store: &RedisStore) -> Arc<Server> {
    let [server]: [Arc<Server>; 1] = store.servers.all().unwrap().try_into().ok().unwrap();
    server
}

/// Asks for agent 1 with a key; `None`: a fault.
async fn by_key(store: &RedisStore, number: u64) -> Option<Admission> {
    store.admit(agent(1), &Scope::Api, MANY, &Proof::Key(digest(number))).await.ok()
}

/// The same with a signature.
async fn by_nonce(store: &RedisStore, nonce: u64, signed_at_secs: u64) -> Option<Admission> {
    let proof = Proof::Nonce(claim(nonce, signed_at_secs));
    store.admit(agent(1), &Scope::Api, MANY, &proof).await.ok()
}

/// The number of a key that fits an agent: its digest is in the agent's shard.
fn fitting(agent_number: u64, number: u64) -> u64 {
    let shard = u64::try_from(Shard::of_agent(agent(agent_number)).place()).unwrap();
    (shard << 48) | (number & 0xffff_ffff_ffff)
}

/// True for a signature that is refused because its nonce may have been lost.
fn is_forgotten(admission: Option<Admission>) -> bool {
    matches!(admission, Some(Admission::NonceRefused(NonceRefused::Forgotten { .. })))
}

/// True for a signature that is refused because of its nonce.
fn nonce_is_refused(admission: Option<Admission>) -> bool {
    is_forgotten(admission) || admission == Some(Admission::NonceRefused(NonceRefused::Used))
}

fn is_admitted(admission: Option<Admission>) -> bool {
    matches!(admission, Some(Admission::Admitted { .. }))
}
