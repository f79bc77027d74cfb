//! Connections of the runtimes that ask: one each. One that is dead heals alone, and none outlives the session.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::os::Os;
use crate::ports::{Admission, Clock, KeyChange, Proof, Scope, Store};
use crate::store::contract::{MANY, agent, claim, digest, key, until};
use crate::store::redis::connect::{Login, client};
use crate::store::redis::tests::{SIGNED_SECS, by_key, connects, is_admitted, only, opened, options, served};
use crate::store::{redis::RedisStore, redis::info::Info, redis::options::Options};

/// Two that work also while a test waits for the other.
fn runtimes() -> [Runtime; 2] {
    [0, 1].map(|_| Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap())
}

/// How many connections there are.
fn connections(store: &RedisStore) -> usize {
    only(store).session().map_or(0, |session| session.connections.load().len())
}

/// Asks until there are so many connections.
async fn grows(store: &RedisStore, wanted: usize) {
    until("another connection", async || {
        (by_key(store, 1).await.is_some() && connections(store) == wanted).then_some(())
    })
    .await;
}

/// How many connections were ever made to the server.
async fn ever_made(administrator: &mut MultiplexedConnection) -> String {
    Info::of(administrator).await.unwrap().value("total_connections_received").to_owned()
}

#[tokio::test]
async fn it_is_known_how_far_the_servers_clock_is_ahead_while_there_is_a_session() {
    let Some((server, store, clock)) = served(&[]).await else { return };
    let offset = until("it is known", async || store.clock_offset_micros()).await / 1_000_000;
    // The server's clock is this machine's, and that of the store is simulated.
    let here = || Os::new().unix_seconds().abs_diff(clock.unix_seconds()).cast_signed();
    assert!((here() - 60..=here()).contains(&offset), "{offset} s");
    drop(server);
    until("it is forgotten", async || store.clock_offset_micros().is_none().then_some(())).await;
}

#[test]
fn each_runtime_that_asks_gets_a_connection_of_its_own_and_all_end_with_the_server() {
    let [one, other] = runtimes();
    let Some((mut server, store, clock)) = one.block_on(served(&[])) else { return };
    one.block_on(async {
        store.changed(agent(1), claim(1, SIGNED_SECS), KeyChange::Issue(key(1))).await.unwrap();
        grows(&store, 2).await;
    });
    // One is made at a time.
    clock.advance_secs(1);
    other.block_on(grows(&store, 3));
    one.block_on(async {
        let mut administrator = server.connected().await;
        let before = ever_made(&mut administrator).await;
        for _ in 0..20 {
            clock.advance_secs(1);
            assert!(is_admitted(by_key(&store, 1).await));
        }
        assert_eq!(ever_made(&mut administrator).await, before, "no runtime gets a second one");
        server.kill();
        until("the server is gone", async || by_key(&store, 1).await.is_none().then_some(())).await;
        until("the session has ended", async || (connections(&store) == 0).then_some(())).await;
        server.restart().await;
        until("it serves again", async || {
            (by_key(&store, 1).await == Some(Admission::KeyRevoked)).then_some(())
        })
        .await;
    });
}

#[test]
fn a_connection_that_is_silent_is_made_anew_while_the_others_answer() {
    let [one, other] = runtimes();
    let Some((server, patient, clock)) = one.block_on(served(&[])) else { return };
    let store = one.block_on(async {
        patient.changed(agent(1), claim(1, SIGNED_SECS), KeyChange::Issue(key(1))).await.unwrap();
        let timeout = Duration::from_secs(2);
        let store = opened(Options { timeout, ..options(&server.url()) }, &clock).await;
        grows(&store, 2).await;
        store
    });
    clock.advance_secs(1);
    other.block_on(async {
        grows(&store, 3).await;
        let session = only(&store).session().unwrap();
        let silent = session.connection(&store.shared).unwrap();
        // Redis answers nothing behind a command that blocks.
        let mut redis = silent.redis.clone();
        let mut blocked = JoinSet::new();
        blocked.spawn(
            async move { redis::cmd("BLPOP").arg("tg2:{0}never").arg(0).exec_async(&mut redis).await },
        );
        until("the connection is made anew", async || {
            clock.advance_secs(1);
            assert!(is_admitted(by_key(&patient, 1).await), "the server answers others");
            is_admitted(by_key(&store, 1).await).then_some(())
        })
        .await;
        until("the silent one is gone", async || {
            let all = session.connections.load_full();
            all.iter().all(|connection| !std::sync::Arc::ptr_eq(connection, &silent)).then_some(())
        })
        .await;
        until("it is served", async || is_admitted(by_key(&store, 1).await).then_some(())).await;
    });
    assert_eq!(connects(&store, "connected"), 1, "the session goes on");
}

#[test]
fn clients_ask_for_tcp_nodelay_and_a_tcp_user_timeout() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let Some((server, store, _)) = runtime.block_on(served(&[])) else { return };
    let client = client(&store.shared, &server.host, Login::Server).unwrap();
    let tcp = client.get_connection_info().tcp_settings();
    assert!(tcp.nodelay());
    assert_eq!(tcp.user_timeout(), Some(store.shared.options.timeout * 4));
}

#[test]
fn an_admission_over_redis_makes_at_most_8_allocations() {
    const ADMISSIONS: u64 = 200;
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let Some((_server, store, _)) = runtime.block_on(served(&[])) else { return };
    let (scope, proof) = (Scope::Tenant("acme".into()), Proof::Key(digest(1)));
    let check = async || {
        assert_eq!(store.find(&digest(1)).await.unwrap().unwrap().agent, agent(1));
        store.admit(agent(1), &scope, MANY, &proof).await.ok()
    };
    runtime.block_on(async {
        store.changed(agent(1), claim(1, SIGNED_SECS), KeyChange::Issue(key(1))).await.unwrap();
        grows(&store, 2).await;
        assert!(is_admitted(check().await));
    });
    // All of them on this thread, those of the connection included.
    let counted = allocation_counter::measure(|| {
        runtime.block_on(async {
            for _ in 0..ADMISSIONS {
                assert!(is_admitted(check().await));
            }
        });
    });
    let each = counted.count_total as f64 / ADMISSIONS as f64;
    assert!((1.0..8.0).contains(&each), "{each}");
}
