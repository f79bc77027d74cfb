//! Connections of the runtimes that ask: one each, and none that outlives what the store is connected to.

use redis::aio::MultiplexedConnection;
use tokio::runtime::Builder;

use crate::ports::store::{Admission, KeyChange, Store};
use crate::store::contract::{agent, claim, key, until};
use crate::store::redis::RunningRedisStore;
use crate::store::redis::house::info;
use crate::store::redis::tests::{SIGNED_SECS, by_key, is_admitted, link, served};

/// How many connections there are beside the store's own.
fn nearby(store: &RunningRedisStore) -> usize {
    link(store).line().map_or(0, |line| line.nearby.all().len())
}

/// Asks until there are so many connections.
async fn grows(store: &RunningRedisStore, connections: usize) {
    until("another connection", async || {
        assert!(by_key(store, 1).await.is_some());
        (nearby(store) == connections).then_some(())
    })
    .await;
}

/// How many connections were ever made to the server.
async fn ever_made(administrator: &mut MultiplexedConnection) -> String {
    info(administrator).await.unwrap().value("total_connections_received").to_owned()
}

#[test]
fn each_runtime_that_asks_gets_a_connection_of_its_own_and_all_fall_together() {
    let runtimes = [0, 1].map(|_| Builder::new_current_thread().enable_all().build().unwrap());
    let [one, other] = &runtimes;
    let Some((mut server, store, clock)) = one.block_on(served(&[])) else { return };
    one.block_on(async {
        store.change_key(agent(1), claim(1, SIGNED_SECS), KeyChange::Issue(key(1))).await.unwrap();
        grows(&store, 1).await;
    });
    // One is made at a time.
    clock.advance_secs(1);
    other.block_on(grows(&store, 2));
    one.block_on(async {
        let mut administrator = server.connected().await;
        let before = ever_made(&mut administrator).await;
        for _ in 0..20 {
            clock.advance_secs(1);
            assert!(is_admitted(by_key(&store, 1).await));
        }
        assert_eq!(ever_made(&mut administrator).await, before, "nobody gets a second one");
        server.kill();
        until("the server is gone", async || by_key(&store, 1).await.is_none().then_some(())).await;
        assert_eq!(nearby(&store), 0);
        server.restart().await;
        until("it serves again", async || {
            (by_key(&store, 1).await == Some(Admission::KeyRevoked)).then_some(())
        })
        .await;
    });
}
