//! Masters that become replicas and masters again, and masters that get their first replica: the very step that would
//! take a lost nonce notices another life, and so it does for what can't be told from one.

use std::sync::Arc;

use redis::Value;
use redis::aio::MultiplexedConnection;

use crate::ports::{KeyChange, Scope, Store};
use crate::store::contract::{agent, claim, key, until};
use crate::store::redis::names::{self, Name, Shard};
use crate::store::redis::tests::server::{RedisServer, say};
use crate::store::redis::tests::{
    SIGNED_SECS, by_key, by_nonce, clock, connects, is_admitted, is_forgotten, opened, options, served,
};
use crate::store::{redis::RedisStore, redis::answers::admission, redis::info::Info};

/// Waits until a server says this of itself.
async fn says(connection: &mut MultiplexedConnection, is: impl Fn(&Info) -> bool) {
    until("the server says so", async || is(&Info::of(connection).await.unwrap()).then_some(())).await;
}

fn remembers_no_promotion(info: &Info) -> bool {
    info.value("master_replid2").bytes().all(|digit| digit == b'0')
}

/// A store at a master that took a nonce which its replica, a master since then, does not have.
async fn torn() -> Option<(RedisServer, RedisServer, RedisStore)> {
    let master = RedisServer::start(&[]).await?;
    let replica = master.replica().await;
    let clock = clock();
    let store = opened(options(&master.url()), &clock).await;
    // The replica has the epochs, and goes on alone.
    master.replicated().await;
    say(&mut replica.connected().await, &["REPLICAOF", "NO", "ONE"]).await.unwrap();
    clock.advance_secs(10);
    assert!(is_admitted(by_nonce(&store, 1, SIGNED_SECS).await));
    Some((master, replica, store))
}

/// Makes a master a replica, which takes what the other has, and a master again.
async fn turn(connection: &mut MultiplexedConnection, other: &RedisServer) {
    say(connection, &["REPLICAOF", &other.host.host, "6379"]).await.unwrap();
    says(connection, |info| info.value("master_link_status") == "up").await;
    say(connection, &["REPLICAOF", "NO", "ONE"]).await.unwrap();
}

// threat: A store forgets
#[tokio::test]
async fn a_nonce_that_a_master_lost_while_it_was_a_replica_is_refused_by_the_next_step() {
    let Some((master, replica, store)) = torn().await else { return };
    // Without a store that watches the server: the script alone has to notice.
    let shared = Arc::clone(&store.shared);
    drop(store);
    let mut of_master = master.connected().await;
    turn(&mut of_master, &replica).await;
    let shard = Shard::of_agent(agent(1));
    let nonce = names::nonce(agent(1), claim(1, SIGNED_SECS).nonce);
    let used = redis::cmd("ZSCORE").arg(Name::Nonces(shard)).arg(&nonce).query_async(&mut of_master).await;
    assert_eq!(used, Ok(Value::Nil), "it is lost");
    let script = &shared.scripts.admit_by_nonce;
    script.load().exec_async(&mut of_master).await.unwrap();
    let keys = [Name::Epoch(shard), Name::Nonces(shard), Name::Window(agent(1), &Scope::Api)];
    let admit = shared.with_nonce_limits(script.on(&keys)).arg(SIGNED_SECS).arg(nonce);
    let admit = admit.arg(1).arg(60_000_000);
    let answer: Value = shared.timed(admit).command.query_async(&mut of_master).await.unwrap();
    assert!(is_forgotten(admission(&answer).ok()), "{answer:?}");
}

#[tokio::test]
async fn the_first_replica_is_another_life_for_everybody_and_disturbs_no_key() {
    let Some((master, one, clock)) = served(&[]).await else { return };
    one.changed(agent(1), claim(0, SIGNED_SECS), KeyChange::Issue(key(2))).await.unwrap();
    assert!(is_admitted(by_nonce(&one, 1, SIGNED_SECS).await));
    clock.advance_secs(10);
    let _replica = master.replica().await;
    let other = opened(options(&master.url()), &clock).await;
    for store in [&one, &other] {
        assert!(is_forgotten(by_nonce(store, 2, SIGNED_SECS).await));
        assert!(is_admitted(by_key(store, 2).await));
    }
    assert!(is_admitted(by_nonce(&one, 2, SIGNED_SECS + 10).await));
    until("it is named where readiness is asked", async || {
        (one.signatures_accepted_from()?.0 == SIGNED_SECS + 10).then_some(())
    })
    .await;
    assert_eq!(connects(&one, "connected"), 1, "its session goes on");
}

/// Why a first replica is another life: what Redis says of its history is the same after a loss.
#[tokio::test]
async fn a_master_that_lost_nonces_says_the_same_of_its_history_as_one_that_got_its_first_replica() {
    let Some(alone) = RedisServer::start(&[]).await else { return };
    let mut of_alone = alone.connected().await;
    let before = Info::of(&mut of_alone).await.unwrap();
    let _replica = alone.replica().await;
    let after = Info::of(&mut of_alone).await.unwrap();
    assert_eq!(before.value("run_id"), after.value("run_id"));
    assert_ne!(before.value("master_replid").to_owned(), after.value("master_replid").to_owned());
    assert!(remembers_no_promotion(&after));

    let Some((master, replica, store)) = torn().await else { return };
    drop(store);
    let mut of_master = master.connected().await;
    say(&mut of_master, &["CONFIG", "SET", "repl-backlog-ttl", "1"]).await.unwrap();
    let before = Info::of(&mut of_master).await.unwrap();
    turn(&mut of_master, &replica).await;
    says(&mut of_master, remembers_no_promotion).await;
    let after = Info::of(&mut of_master).await.unwrap();
    assert_eq!(before.value("run_id"), after.value("run_id"));
    assert_ne!(before.value("master_replid").to_owned(), after.value("master_replid").to_owned());
}

#[tokio::test]
async fn each_start_of_a_server_is_another_life_whatever_it_kept() {
    for arguments in [&[][..], &["--appendonly", "yes"], &["--save", "3600", "1"]] {
        let Some(mut server) = RedisServer::start(arguments).await else { return };
        let mut lives = Vec::new();
        for _ in 0..3 {
            let mut connection = server.connected().await;
            until("it has loaded what it kept", async || {
                say(&mut connection, &["SET", "kept", ""]).await.ok()
            })
            .await;
            say(&mut connection, &["SAVE"]).await.unwrap();
            let life = Info::of(&mut connection).await.unwrap().value("master_replid").to_owned();
            assert!(!lives.contains(&life), "{arguments:?}");
            lives.push(life);
            server.restart().await;
        }
    }
}
