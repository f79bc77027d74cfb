//! Sentinels: after a failover nothing that may have been used is used again, and where they disagree most of them decide.

use std::{sync::Arc, sync::atomic::Ordering, time::Duration};

use redis::from_redis_value_ref;

use crate::domain::{RedisHost, RedisUrl};
use crate::ports::{Admission, KeyChange, Store, simulated::SimulatedClock};
use crate::store::contract::{agent, claim, digest, key, until};
use crate::store::redis::tests::server::{RedisServer, say};
use crate::store::redis::tests::{
    SIGNED_SECS, START_SECS, by_key, by_nonce, clock, connects, is_admitted, is_forgotten, only, open,
    opened, options, ready, refused,
};
use crate::store::{redis::RedisStore, redis::info::Info, redis::options::Options, redis::server::Address};

/// Kills a master whose Sentinel knows a replica of it, and has that promoted.
pub(super) async fn fail_over(sentinel: &RedisServer, master: &mut RedisServer) {
    let mut sentinel = sentinel.connected().await;
    until("the Sentinel knows a replica", async || {
        let known = say(&mut sentinel, &["SENTINEL", "REPLICAS", "service"]).await.unwrap();
        known.as_sequence().is_some_and(|replicas| !replicas.is_empty()).then_some(())
    })
    .await;
    master.kill();
    until("the Sentinel names the replica", async || {
        // Refused while it is on its way.
        let _ = say(&mut sentinel, &["SENTINEL", "FAILOVER", "service"]).await;
        let named = say(&mut sentinel, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "service"]).await.unwrap();
        let (host, _): (String, u16) = from_redis_value_ref(&named).unwrap();
        (host != master.host.host).then_some(())
    })
    .await;
}

#[tokio::test]
async fn after_a_failover_the_promoted_replica_serves_and_refuses_older_signatures() {
    let Some(mut master) = RedisServer::start(&[]).await else { return };
    let _replica = master.replica().await;
    let sentinel = RedisServer::start_sentinel(&master.host).await.unwrap();
    let clock = clock();
    let url = RedisUrl::parse(&format!("redis-sentinel://{}/service", sentinel.host)).unwrap();
    let options = Options { url, wait_replicas: 1, ..options(&master.url()) };
    let store = opened(options.clone(), &clock).await;
    for (nonce, change) in [(1, KeyChange::Issue(key(1))), (9, KeyChange::Rotate(key(2)))] {
        store.changed(agent(1), claim(nonce, SIGNED_SECS), change).await.unwrap();
    }
    assert!(is_admitted(by_key(&store, 2).await));

    clock.advance_secs(10);
    fail_over(&sentinel, &mut master).await;
    let after = opened(Options { wait_replicas: 0, ..options.clone() }, &clock).await;
    // The acknowledged keys are there, and those that they replaced are not.
    assert!(is_admitted(by_key(&after, 2).await) && !is_admitted(by_key(&after, 1).await));
    assert_eq!(after.find(&digest(2)).await.unwrap().unwrap().agent, agent(1));
    assert_eq!(after.find(&digest(1)).await.unwrap(), None);
    assert!(is_forgotten(by_nonce(&after, 2, START_SECS + 10 + 60).await));
    assert!(is_admitted(by_nonce(&after, 3, START_SECS + 10 + 61).await));
    // With no replica left, no change of a key counts. Signatures are covered by the epoch.
    let alone = opened(Options { wait_timeout: Duration::from_millis(200), ..options }, &clock).await;
    assert!(is_admitted(by_nonce(&alone, 4, START_SECS + 10 + 61).await));
    let revoked = alone.changed(agent(1), claim(5, START_SECS + 10 + 61), KeyChange::Revoke(None)).await;
    let fault = revoked.unwrap_err();
    assert!(fault.cause.to_string().starts_with("0 of 1 replicas of "), "{fault}");
}

/// Two masters of the same name, as after a partition, and a Sentinel for each of the names that follow.
struct Torn {
    masters: [RedisServer; 2],
    sentinels: Vec<RedisServer>,
    clock: Arc<SimulatedClock>,
}

impl Torn {
    /// Each number is the place of the master that a Sentinel names.
    async fn start(named: &[usize]) -> Option<Self> {
        let masters = [RedisServer::start(&[]).await?, RedisServer::start(&[]).await?];
        let mut sentinels = Vec::new();
        for place in named {
            sentinels.push(RedisServer::start_sentinel(&masters[*place].host).await?);
        }
        Some(Self { masters, sentinels, clock: clock() })
    }

    fn options(&self) -> Options {
        let hosts: Vec<String> = self.sentinels.iter().map(|sentinel| sentinel.host.to_string()).collect();
        options(&format!("redis-sentinel://{}/service", hosts.join(",")))
    }

    fn store(&self) -> RedisStore {
        open(self.options(), &self.clock)
    }

    /// Has a Sentinel name the other master from now on.
    async fn turn(&self, sentinel: usize, place: usize) {
        let RedisHost { host, port } = &self.masters[place].host;
        let mut sentinel = self.sentinels[sentinel].connected().await;
        for words in [&["REMOVE", "service"][..], &["MONITOR", "service", host, &port.to_string(), "1"]] {
            say(&mut sentinel, &[&["SENTINEL"], words].concat()).await.unwrap();
        }
    }

    /// Waits until the store serves from this master.
    async fn serves_from(&self, store: &RedisStore, place: usize) {
        until("it serves from the master", async || {
            (at(store).as_ref() == Some(&self.masters[place].host)).then_some(())
        })
        .await;
    }

    /// Waits until the Sentinels were asked so many times more, and the session went on.
    async fn asked(&self, store: &RedisStore, looks: u64) {
        let server = only(store);
        let Address::Sentinel(sentinels) = &server.address else { panic!() };
        let rounds = || sentinels.rounds.load(Ordering::Relaxed);
        let (before, asked) = (connects(store, "connected"), rounds());
        // One more has begun: these have ended.
        until("the Sentinels are asked", async || (rounds() > asked + looks).then_some(())).await;
        assert_eq!(connects(store, "connected"), before, "the master is served from");
    }
}

/// The host that the store serves from.
fn at(store: &RedisStore) -> Option<RedisHost> {
    only(store).session().ok().map(|session| session.host.clone())
}

async fn key_is_looked_at(store: &RedisStore) -> bool {
    by_key(store, 1).await == Some(Admission::KeyRevoked)
}

/// Waits until this is why nobody is served.
async fn fails_because(store: &RedisStore, why: &str) {
    until(why, async || format!("{:?}", store.has_key(agent(1)).await.err()?).contains(why).then_some(()))
        .await;
}

/// More looks than may be doubtful in a row.
const LOOKS: u64 = 4;

#[tokio::test]
async fn where_no_majority_of_the_sentinels_names_a_master_nobody_is_served() {
    let Some(mut torn) = Torn::start(&[1, 0, 0]).await else { return };
    torn.sentinels[2].kill();
    let store = torn.store();
    refused(&store).await;
    fails_because(&store, "no majority of the Sentinels names one master").await;
    torn.sentinels[0].kill();
    let alone = torn.store();
    refused(&alone).await;
    fails_because(&alone, "no majority of the Sentinels names one master").await;
    torn.sentinels[2].restart().await;
    torn.serves_from(&alone, 0).await;
    torn.serves_from(&store, 0).await;
}

#[tokio::test]
async fn a_silent_minority_of_sentinels_is_harmless() {
    let Some(mut torn) = Torn::start(&[0, 0, 0, 0, 0]).await else { return };
    torn.sentinels[4].kill();
    let _frozen = torn.sentinels[0].freeze();
    let store = torn.store();
    ready(&store).await;
    torn.asked(&store, LOOKS).await;
    assert!(key_is_looked_at(&store).await);
}

#[tokio::test]
async fn a_master_that_most_sentinels_deposed_is_left_and_one_that_a_minority_deposed_is_not() {
    let Some(torn) = Torn::start(&[0, 0, 0]).await else { return };
    let store = torn.store();
    torn.serves_from(&store, 0).await;
    torn.turn(0, 1).await;
    torn.asked(&store, LOOKS).await;
    torn.serves_from(&torn.store(), 0).await;
    torn.turn(1, 1).await;
    torn.serves_from(&store, 1).await;
}

#[tokio::test]
async fn a_master_that_no_majority_confirms_any_more_is_served_from_a_little_longer_and_then_not() {
    let Some(mut torn) = Torn::start(&[0, 0, 0]).await else { return };
    let timeout = Duration::from_secs(1);
    let store = opened(Options { timeout, ..torn.options() }, &torn.clock).await;
    torn.sentinels[1].kill();
    let frozen = torn.sentinels[0].freeze();
    let mut served = 0_u32;
    until("it is not served from", async || {
        served += u32::from(key_is_looked_at(&store).await);
        at(&store).is_none().then_some(())
    })
    .await;
    assert!(served > 0);
    drop(frozen);
    torn.serves_from(&store, 0).await;
    until("it serves again", async || key_is_looked_at(&store).await.then_some(())).await;
}

#[tokio::test]
async fn a_master_that_a_majority_confirms_again_after_one_doubt_is_served_from_all_the_while() {
    let Some(mut torn) = Torn::start(&[0, 0, 0]).await else { return };
    let timeout = Duration::from_secs(5);
    let store = opened(Options { timeout, ..torn.options() }, &torn.clock).await;
    torn.sentinels[1].kill();
    let frozen = torn.sentinels[0].freeze();
    // The first round may have begun before. The second one has no majority, and has ended then.
    torn.asked(&store, 1).await;
    drop(frozen);
    torn.asked(&store, LOOKS).await;
    assert_eq!(connects(&store, "connected"), 1, "the session goes on");
}

#[tokio::test]
async fn sentinels_are_asked_again_and_again_over_the_connection_there_is() {
    let Some(torn) = Torn::start(&[0, 0, 0]).await else { return };
    let store = opened(torn.options(), &torn.clock).await;
    torn.asked(&store, 1).await;
    let made = async || {
        let mut connections = Vec::new();
        for sentinel in &torn.sentinels {
            let info = Info::of(&mut sentinel.connected().await).await.unwrap();
            connections.push(info.value("total_connections_received").parse::<u64>().unwrap());
        }
        connections
    };
    // An answer that is late on a busy machine costs another connection.
    until("a stretch makes no connection", async || {
        let before = made().await;
        torn.asked(&store, LOOKS).await;
        // The test itself has made one more to each.
        (made().await == before.iter().map(|made| made + 1).collect::<Vec<_>>()).then_some(())
    })
    .await;
}
