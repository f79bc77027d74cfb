//! Masters that become replicas and masters again, and masters that get their first replica: whatever may have lost a nonce
//! is another life, and so is what can't be told from it.

use redis::aio::MultiplexedConnection;

use crate::ports::store::{Admission, KeyChange, Store};
use crate::store::contract::{agent, claim, key, until};
use crate::store::redis::RunningRedisStore;
use crate::store::redis::house::{Info, info};
use crate::store::redis::tests::server::{RedisServer, say};
use crate::store::redis::tests::{
    SIGNED_SECS, by_key, by_nonce, clock, is_admitted, link, opened, options, served,
};

/// Which life of which process the store is connected to.
fn identity(store: &RunningRedisStore) -> Option<String> {
    link(store).line().ok().map(|line| line.identity.clone())
}

/// Waits until a server says this of itself.
async fn says(connection: &mut MultiplexedConnection, is: impl Fn(&Info) -> bool) {
    until("the server says so", async || is(&info(connection).await.unwrap()).then_some(())).await;
}

fn remembers_no_promotion(info: &Info) -> bool {
    info.value("master_replid2").bytes().all(|digit| digit == b'0')
}

/// A store at a master that took a nonce which its replica, a master since then, does not have.
async fn torn() -> Option<(RedisServer, RedisServer, RunningRedisStore)> {
    let master = RedisServer::start(&[]).await?;
    let replica = master.replica().await;
    let clock = clock();
    let store = opened(options(&master.url()), &clock).await;
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

#[tokio::test]
async fn a_master_that_was_a_replica_in_between_is_another_life_though_nobody_asked_it_meanwhile() {
    let Some((master, replica, store)) = torn().await else { return };
    let before = identity(&store).unwrap();
    turn(&mut master.connected().await, &replica).await;
    until("another life", async || identity(&store).filter(|now| *now != before)).await;
    assert_eq!(by_nonce(&store, 1, SIGNED_SECS).await, Some(Admission::NonceUsed), "it is lost, and refused");
}

#[tokio::test]
async fn the_first_replica_is_another_life_for_who_connects_and_none_for_who_is_connected() {
    let Some((master, one, clock)) = served(&[]).await else { return };
    one.change_key(agent(1), claim(0, SIGNED_SECS), KeyChange::Issue(key(2))).await.unwrap();
    let before = identity(&one).unwrap();
    let _replica = master.replica().await;
    assert!(is_admitted(by_nonce(&one, 1, SIGNED_SECS).await));
    assert_eq!(identity(&one).as_ref(), Some(&before));

    clock.advance_secs(10);
    let other = opened(options(&master.url()), &clock).await;
    assert_ne!(identity(&other).as_ref(), Some(&before));
    assert_eq!(by_nonce(&other, 2, SIGNED_SECS).await, Some(Admission::NonceUsed));
    assert!(is_admitted(by_nonce(&other, 2, SIGNED_SECS + 10).await));
    assert!(is_admitted(by_key(&other, 2).await));
}

/// Why a first replica is another life: what Redis says of its history is the same after a loss.
#[tokio::test]
async fn a_master_that_lost_nonces_says_the_same_of_its_history_as_one_that_got_its_first_replica() {
    let Some(alone) = RedisServer::start(&[]).await else { return };
    let mut of_alone = alone.connected().await;
    let before = info(&mut of_alone).await.unwrap();
    let _replica = alone.replica().await;
    let after = info(&mut of_alone).await.unwrap();
    assert_eq!(before.value("run_id"), after.value("run_id"));
    assert_ne!(before.value("master_replid"), after.value("master_replid"));
    assert!(remembers_no_promotion(&after));

    let Some((master, replica, store)) = torn().await else { return };
    drop(store);
    let mut of_master = master.connected().await;
    say(&mut of_master, &["CONFIG", "SET", "repl-backlog-ttl", "1"]).await.unwrap();
    let before = info(&mut of_master).await.unwrap();
    turn(&mut of_master, &replica).await;
    says(&mut of_master, remembers_no_promotion).await;
    let after = info(&mut of_master).await.unwrap();
    assert_eq!(before.value("run_id"), after.value("run_id"));
    assert_ne!(before.value("master_replid"), after.value("master_replid"));
}
