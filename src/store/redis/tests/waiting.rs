//! A replica that should acknowledge and does not: signatures are faults for as long as that lasts, and API keys pass.

use std::sync::Arc;
use std::time::Duration;

use redis::Client;
use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout;

use crate::ports::simulated::SimulatedClock;
use crate::ports::store::{Admission, KeyChange, KeyChanged, Proof, Scope, Store};
use crate::store::contract::{MANY, agent, claim, digest, key};
use crate::store::redis::RunningRedisStore;
use crate::store::redis::servers::Layout;
use crate::store::redis::tests::server::RedisServer;
use crate::store::redis::tests::{PATIENCE, SIGNED_SECS, START_SECS, open, options, ready};

/// For how long the replica is away: many requests' time-outs, and several looks at the connections.
const AWAY: Duration = Duration::from_secs(8);

/// A master and a replica that is in step, and a store that wants its word; agent 1 has a key.
async fn scene(timeout_millis: u64) -> Option<(RedisServer, RedisServer, Arc<RunningRedisStore>)> {
    let master = RedisServer::start(&[])?;
    let replica =
        RedisServer::start(&["--replicaof", &master.host.host, "6379", "--repl-diskless-sync-delay", "0"])?;
    // The first replica that a master ever has begins another life of it, so it is there before the store is.
    let client = Client::open(master.url()).unwrap();
    let in_step = async {
        loop {
            yield_now().await;
            let Ok(mut connection) = client.get_multiplexed_async_connection().await else { continue };
            let said = redis::cmd("INFO").arg("REPLICATION").query_async::<String>(&mut connection).await;
            if said.is_ok_and(|said| said.contains("state=online")) {
                break;
            }
        }
    };
    timeout(PATIENCE, in_step).await.unwrap();
    let mut options = options(&master.url());
    options.wait_replicas = 1;
    options.timeout = Duration::from_millis(timeout_millis);
    options.wait_timeout = Duration::from_secs(2);
    let store = Arc::new(open(options, &Arc::new(SimulatedClock::new(START_SECS))));
    ready(&store).await;
    let in_step = async {
        for nonce in 1.. {
            let change = KeyChange::Rotate(key(1));
            if matches!(
                store.change_key(agent(1), claim(nonce, SIGNED_SECS), change).await,
                Ok(KeyChanged::Done)
            ) {
                break;
            }
        }
    };
    timeout(PATIENCE, in_step).await.unwrap();
    Some((master, replica, store))
}

async fn signed(store: &RunningRedisStore, nonce: u64) -> Option<Admission> {
    let proof = Proof::Nonce(claim(nonce, SIGNED_SECS));
    store.admit(agent(2), &Scope::Api, MANY, &proof).await.ok()
}

/// Signs again and again, several at once.
fn sign_on(store: &Arc<RunningRedisStore>) -> JoinSet<()> {
    let mut signers = JoinSet::new();
    for signer in 1..=8 {
        let store = Arc::clone(store);
        signers.spawn(async move {
            for round in 0.. {
                let admission = signed(&store, signer * 1_000_000 + round).await;
                assert_eq!(admission, None, "no replica has it");
                yield_now().await;
            }
        });
    }
    signers
}

/// Every key passes while the replica is away.
async fn keys_pass(store: &RunningRedisStore) {
    let asked = async {
        loop {
            let proof = Proof::Key(digest(1));
            // Some are over the limit.
            let admission = store.admit(agent(1), &Scope::Api, MANY, &proof).await;
            assert!(
                matches!(admission, Ok(Admission::Admitted { .. } | Admission::Limited { .. })),
                "{admission:?}"
            );
            assert!(store.probe().await.is_ok(), "{:?}", store.probe().await);
            yield_now().await;
        }
    };
    assert!(timeout(AWAY, asked).await.is_err(), "it never ends by itself");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_replica_makes_signatures_faults_and_no_key_and_both_pass_when_it_goes_on() {
    // A wait for the replica takes longer than a request may, and shorter.
    for timeout_millis in [1_000, 3_000] {
        let Some((_master, replica, store)) = scene(timeout_millis).await else { return };
        replica.freeze(true);
        assert_eq!(signed(&store, 1).await, None);
        let mut signers = sign_on(&store);
        keys_pass(&store).await;
        assert!(signers.try_join_next().is_none(), "all of them sign on");
        signers.abort_all();
        while signers.join_next().await.is_some_and(|ended| ended.is_err_and(|error| error.is_cancelled())) {}
        assert!(signers.is_empty(), "a signature passed");
        replica.freeze(false);
        let passes = async {
            for nonce in 2.. {
                if let Some(Admission::Admitted { .. }) = signed(&store, nonce).await {
                    break;
                }
            }
        };
        timeout(PATIENCE, passes).await.unwrap();
        let connected = store.store.shared.metrics.store_connects.with_label_values(&["connected"]);
        assert_eq!(connected.get(), 1, "the server was never given up");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_replica_makes_signatures_faults_and_no_key() {
    let Some((_master, mut replica, store)) = scene(1_000).await else { return };
    replica.kill();
    let mut signers = sign_on(&store);
    keys_pass(&store).await;
    assert!(signers.try_join_next().is_none(), "all of them sign on");
}

#[tokio::test]
async fn a_connection_that_replicas_keep_waiting_too_long_is_made_anew_alone() {
    let Some((_master, _replica, store)) = scene(1_000).await else { return };
    let Layout::One(link) = &store.store.servers.layout else { panic!("a single server") };
    let line = link.line().unwrap();
    let acknowledged = line.acknowledged.as_ref().unwrap();
    let before = acknowledged.current().unwrap();
    // Longer than a wait may take; whoever reads what the server says here reads nothing.
    let mut connection = before.connection.clone();
    let mut blocked = redis::cmd("BLPOP");
    let blocked = tokio::spawn(async move {
        let popped: redis::RedisResult<redis::Value> =
            blocked.arg("tg1:{0}nothing").arg(30).query_async(&mut connection).await;
        popped
    });
    let anew = async {
        loop {
            if acknowledged.current().is_ok_and(|now| !Arc::ptr_eq(&now, &before)) {
                break;
            }
            yield_now().await;
        }
    };
    timeout(PATIENCE, anew).await.unwrap();
    assert!(matches!(signed(&store, 1).await, Some(Admission::Admitted { .. })));
    assert!(Arc::ptr_eq(&link.line().unwrap(), &line), "the rest stays");
    blocked.abort();
}
