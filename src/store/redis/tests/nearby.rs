//! Connections of the runtimes that ask: one each, and none that outlives what the store is connected to.

use std::sync::Arc;

use tokio::runtime::Builder;
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::ports::simulated::SimulatedClock;
use crate::ports::store::{Admission, KeyChange, Proof, Scope, Store};
use crate::store::contract::{MANY, agent, claim, digest, key};
use crate::store::redis::RunningRedisStore;
use crate::store::redis::servers::Layout;
use crate::store::redis::tests::server::RedisServer;
use crate::store::redis::tests::{PATIENCE, SIGNED_SECS, START_SECS, open, options, ready};

/// How many connections there are beside the store's own.
fn nearby(store: &RunningRedisStore) -> usize {
    let Layout::One(link) = &store.store.servers.layout else { panic!("a single server") };
    link.line().map_or(0, |line| line.nearby.all().len())
}

async fn admit(store: &RunningRedisStore) -> Option<Admission> {
    store.admit(agent(1), &Scope::Api, MANY, &Proof::Key(digest(1))).await.ok()
}

/// Asks until there are so many connections.
async fn until(store: &RunningRedisStore, connections: usize) {
    let grows = async {
        while nearby(store) != connections {
            assert!(admit(store).await.is_some());
            yield_now().await;
        }
    };
    timeout(PATIENCE, grows).await.unwrap();
}

#[test]
fn each_runtime_that_asks_gets_a_connection_of_its_own_and_all_fall_together() {
    let runtimes = [0, 1].map(|_| Builder::new_current_thread().enable_all().build().unwrap());
    let [one, other] = &runtimes;
    let clock = Arc::new(SimulatedClock::new(START_SECS));
    let Some(mut server) = RedisServer::start(&[]) else { return };
    let store = open(options(&server.url()), &clock);
    one.block_on(async {
        ready(&store).await;
        store.change_key(agent(1), claim(1, SIGNED_SECS), KeyChange::Issue(key(1))).await.unwrap();
        until(&store, 1).await;
    });
    // One is made at a time.
    clock.advance_secs(1);
    other.block_on(until(&store, 2));
    one.block_on(async {
        for _ in 0..100 {
            assert!(matches!(admit(&store).await, Some(Admission::Admitted { .. })));
        }
        assert_eq!(nearby(&store), 2, "nobody gets a second one");
        server.kill();
        let fails = async { while admit(&store).await.is_some() {} };
        timeout(PATIENCE, fails).await.unwrap();
        assert_eq!(nearby(&store), 0);
        server.restart();
        let works = async {
            while admit(&store).await != Some(Admission::KeyRevoked) {
                yield_now().await;
            }
        };
        timeout(PATIENCE, works).await.unwrap();
    });
}
