//! Redis that forgets, hangs, dies, comes back empty, or has a clock that steps: never a wrong admission, and it works
//! again by itself.

use std::{pin::pin, sync::Arc, task::Poll, time::Duration};

use crate::fair_timeout::poll_once;
use crate::ports::{Admission, KeyChange, KeyChanged, Proof, Scope, Store, simulated::SimulatedClock};
use crate::store::contract::{MANY, ONE, agent, claim, digest, key, until};
use crate::store::redis::tests::server::{RedisServer, say};
use crate::store::redis::tests::{
    AHEAD_SECS, SIGNED_SECS, START_SECS, by_key, by_nonce, clock, connected_after, connects, is_admitted,
    is_forgotten, only, open, opened, options, ready, refused, served,
};
use crate::store::{
    redis::RedisStore, redis::info::Info, redis::names::Shard, redis::options::Options,
    redis::scripts::Request,
};

async fn command(store: &RedisStore, words: &[&str]) {
    let (name, rest) = words.split_first().unwrap();
    let request = Request::command(name, Shard::FIRST).arg(rest);
    store.servers.ask(request).await.unwrap();
}

#[tokio::test]
async fn scripts_that_redis_forgot_are_loaded_again_and_counted_once() {
    let Some((_server, store, _)) = served(&[]).await else { return };
    for round in 0..5_u32 {
        command(&store, &["SCRIPT", "FLUSH"]).await;
        let admission = by_nonce(&store, u64::from(round), SIGNED_SECS).await;
        assert_eq!(admission, Some(Admission::Admitted { remaining: 2_699 - round }));
    }
}

#[tokio::test]
async fn a_redis_that_forgot_its_scripts_and_everything_else_takes_new_signatures_and_no_old_ones() {
    let Some((_server, store, clock)) = served(&[]).await else { return };
    assert!(is_admitted(by_nonce(&store, 0, SIGNED_SECS).await));
    for round in 1..=3 {
        clock.advance_secs(100);
        let now_secs = START_SECS + round * 100;
        let issued = store.changed(agent(1), claim(100 + round, now_secs), KeyChange::Issue(key(1)));
        assert_eq!(issued.await.unwrap(), KeyChanged::Done);
        command(&store, &["SCRIPT", "FLUSH"]).await;
        command(&store, &["FLUSHALL"]).await;
        assert_eq!(by_key(&store, 1).await, Some(Admission::KeyRevoked));
        let again = by_nonce(&store, 2 * (round - 1), now_secs - 100 + AHEAD_SECS + 1).await;
        assert!(is_forgotten(again), "used in the round before");
        let early = by_nonce(&store, 2 * round - 1, now_secs + AHEAD_SECS).await;
        assert!(is_forgotten(early), "it might have been used before");
        assert!(is_admitted(by_nonce(&store, 2 * round, now_secs + AHEAD_SECS + 1).await));
    }
}

#[tokio::test]
async fn an_epoch_that_redis_has_no_memory_for_is_a_fault_and_no_end_of_the_session() {
    let Some((_server, store, clock)) = served(&[]).await else { return };
    clock.advance_secs(100);
    command(&store, &["FLUSHALL"]).await;
    command(&store, &["CONFIG", "SET", "maxmemory", "1"]).await;
    let proof = Proof::Nonce(claim(1, SIGNED_SECS));
    let fault = store.admit(agent(1), &Scope::Api, MANY, &proof).await.unwrap_err().to_string();
    assert!(fault.contains("OOM"), "{fault}");
    command(&store, &["CONFIG", "SET", "maxmemory", "0"]).await;
    assert!(is_forgotten(by_nonce(&store, 1, SIGNED_SECS).await));
    assert_eq!(connects(&store, "connected"), 1);
}

// threat: Redis evicts
#[tokio::test]
async fn a_redis_that_may_evict_is_not_used_and_one_that_has_evicted_takes_no_older_signature() {
    let Some(server) = RedisServer::start(&["--maxmemory-policy", "allkeys-lru"]).await else { return };
    let clock = clock();
    let store = open(options(&server.url()), &clock);
    refused(&store).await;
    let why = store.probe().await.unwrap_err().to_string();
    assert!(why.contains("set noeviction"), "{why}");
    assert_eq!(by_key(&store, 1).await, None);

    let mut administrator = server.connected().await;
    say(&mut administrator, &["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await.unwrap();
    ready(&store).await;
    clock.advance_secs(10);
    assert!(is_admitted(by_nonce(&store, 1, SIGNED_SECS).await));
    // Memory runs out while the policy is another one for a moment: the nonce is evicted, and nothing else tells of it.
    let evict = ["CONFIG", "SET", "maxmemory", "1", "maxmemory-policy", "volatile-ttl"];
    say(&mut administrator, &evict).await.unwrap();
    let _ = say(&mut administrator, &["SET", "full", ""]).await;
    say(&mut administrator, &["CONFIG", "SET", "maxmemory", "0", "maxmemory-policy", "noeviction"])
        .await
        .unwrap();
    assert_ne!(Info::of(&mut administrator).await.unwrap().value("evicted_keys"), "0");
    until("an answer", async || {
        let admission = by_nonce(&store, 1, SIGNED_SECS).await;
        assert!(!is_admitted(admission), "it is evicted, and was used");
        is_forgotten(admission).then_some(())
    })
    .await;
    until("the session ended and another began", async || (connects(&store, "connected") > 1).then_some(()))
        .await;
    ready(&store).await;
}

#[tokio::test]
async fn after_a_flush_every_shard_takes_signatures_again_from_the_one_time_that_the_store_names() {
    let Some((_server, store, clock)) = served(&[]).await else { return };
    clock.advance_secs(100);
    command(&store, &["FLUSHALL"]).await;
    let accepted_from = SIGNED_SECS + 100;
    until("it is named", async || (store.signatures_accepted_from()?.0 == accepted_from).then_some(())).await;
    clock.advance_secs(61);
    assert_eq!(store.signatures_accepted_from(), None);
    for number in 1..100 {
        let ask = async |signed_at_secs| {
            let proof = Proof::Nonce(claim(1, signed_at_secs));
            Some(store.admit(agent(number), &Scope::Api, MANY, &proof).await.unwrap())
        };
        let earlier = ask(accepted_from - 1).await;
        assert!(is_forgotten(earlier), "{number}: {earlier:?}");
        let admission = ask(accepted_from).await;
        assert!(is_admitted(admission), "{number}: {admission:?}");
    }
}

#[tokio::test]
async fn another_server_at_the_same_address_is_told_from_that_of_the_session() {
    let Some((server, store, _)) = served(&[]).await else { return };
    let session = only(&store).session().unwrap();
    let mut other = Info::of(&mut server.connected().await).await.unwrap();
    session.check(&other).unwrap();
    other.set("run_id", "another");
    let error = session.check(&other).unwrap_err().to_string();
    assert_eq!(error, "another server answers at its address");
}

/// A silent server may begin to evict, or become another one, unseen.
#[tokio::test]
async fn a_redis_that_tells_nothing_of_itself_any_more_is_left() {
    let Some((_server, store, _)) = served(&[]).await else { return };
    command(&store, &["ACL", "SETUSER", "default", "-info"]).await;
    refused(&store).await;
    let why = store.probe().await.unwrap_err().to_string();
    assert!(why.contains("NOPERM"), "{why}");
}

// threat: Redis evicts
#[tokio::test]
async fn a_redis_that_begins_to_evict_is_left() {
    let Some((_server, store, _)) = served(&[]).await else { return };
    command(&store, &["CONFIG", "SET", "maxmemory-policy", "allkeys-random"]).await;
    until("it is not ready", async || store.probe().await.err()).await;
    refused(&store).await;
    assert_eq!(by_key(&store, 1).await, None);
}

#[tokio::test]
async fn a_redis_that_is_absent_at_the_start_is_a_fault_at_once_and_serves_when_it_comes() {
    let Some(mut server) = RedisServer::start(&[]).await else { return };
    server.kill();
    let store = open(options(&server.url()), &clock());
    for _ in 0..1_000 {
        // Without waiting for anything.
        assert_eq!(poll_once(pin!(by_key(&store, 1))).await, Poll::Ready(None));
    }
    server.restart().await;
    ready(&store).await;
    assert_eq!(by_key(&store, 1).await, Some(Admission::KeyRevoked));
}

// threat: A store forgets
#[tokio::test]
async fn after_a_restart_signatures_that_may_have_been_used_are_refused() {
    let durable = ["--appendonly", "yes", "--appendfsync", "always"];
    let Some((mut server, store, clock)) = served(&durable).await else { return };
    let change = KeyChange::Issue(key(1));
    assert_eq!(store.changed(agent(1), claim(1, SIGNED_SECS), change).await.unwrap(), KeyChanged::Done);
    clock.advance_secs(100);
    let (before, now_secs) = (connects(&store, "connected"), START_SECS + 100);
    server.restart().await;
    connected_after(&store, before).await;
    assert_eq!(
        by_key(&store, 1).await,
        Some(Admission::Admitted { remaining: 2_699 }),
        "keys are what Redis has"
    );
    for (nonce, signed_at_secs) in [(1, SIGNED_SECS), (2, SIGNED_SECS), (3, now_secs + AHEAD_SECS)] {
        assert!(is_forgotten(by_nonce(&store, nonce, signed_at_secs).await), "{nonce}");
    }
    assert!(is_admitted(by_nonce(&store, 4, now_secs + AHEAD_SECS + 1).await));
}

#[tokio::test]
async fn a_frozen_redis_costs_a_few_time_outs_and_then_nothing_until_it_goes_on() {
    let Some((server, patient, clock)) = served(&[]).await else { return };
    patient.changed(agent(1), claim(1, SIGNED_SECS), KeyChange::Issue(key(1))).await.unwrap();
    let timeout = Duration::from_millis(250);
    let store = opened(Options { timeout, ..options(&server.url()) }, &clock).await;
    let frozen = server.freeze();
    let mut silences = 0;
    while store.find(&digest(2)).await.unwrap_err().cause.to_string().starts_with("Redis did not answer") {
        silences += 1;
        assert!(silences <= 8, "four on the connection of this runtime, and four on the store's own");
    }
    assert!(silences > 0);
    for _ in 0..1_000 {
        // Without waiting for anything.
        assert_eq!(poll_once(pin!(by_key(&store, 1))).await, Poll::Ready(None));
    }
    drop(frozen);
    until("it serves again", async || is_admitted(by_key(&store, 1).await).then_some(())).await;
}

#[tokio::test]
async fn a_replica_and_a_redis_without_memory_let_nobody_through() {
    let Some((_server, store, _)) = served(&[]).await else { return };
    store.changed(agent(1), claim(1, SIGNED_SECS), KeyChange::Issue(key(1))).await.unwrap();
    command(&store, &["CONFIG", "SET", "maxmemory", "1"]).await;
    assert_eq!(by_key(&store, 1).await, None);
    assert!(store.probe().await.is_err());
    command(&store, &["CONFIG", "SET", "maxmemory", "0"]).await;
    assert_eq!(by_key(&store, 1).await, Some(Admission::Admitted { remaining: 2_699 }));
    command(&store, &["REPLICAOF", "127.0.0.1", "1"]).await;
    assert_eq!(by_key(&store, 1).await, None);
    assert!(store.probe().await.is_err());
    assert!(only(&store).session().is_err(), "left at once");
}

/// A Redis by whose clock so many seconds have passed since the start, where agent 1 has a key.
async fn late_redis(secs: u64) -> Option<(RedisServer, RedisStore, Arc<SimulatedClock>)> {
    let server = RedisServer::start(&[]).await?;
    let (store, clock) = at_another_time(&server, secs).await;
    store.changed(agent(1), claim(1, SIGNED_SECS + secs), KeyChange::Issue(key(1))).await.unwrap();
    Some((server, store, clock))
}

/// The same Redis, by whose clock only so many seconds have passed.
async fn at_another_time(server: &RedisServer, secs: u64) -> (RedisStore, Arc<SimulatedClock>) {
    let clock = clock();
    clock.advance_secs(secs);
    (opened(options(&server.url()), &clock).await, clock)
}

async fn admit_one(store: &RedisStore) -> Admission {
    store.enter(agent(1), &Scope::Api, ONE, &Proof::Key(digest(1))).await.unwrap()
}

/// A window of one request a minute is full when the clock steps back. Each pause is followed by what is still to wait,
/// and the last one by an admission a second later.
async fn after_a_step_back(step_secs: u64, pauses_and_waits: [(u64, u64); 3]) {
    let Some((server, before, _)) = late_redis(1_000).await else { return };
    assert_eq!(admit_one(&before).await, Admission::Admitted { remaining: 0 });
    let (store, clock) = at_another_time(&server, 1_000 - step_secs).await;
    for (pause, wait) in pauses_and_waits {
        clock.advance_secs(pause);
        let Admission::Limited { retry_after } = admit_one(&store).await else { panic!("{wait}") };
        assert_eq!(retry_after.seconds(), wait);
    }
    clock.advance_secs(1);
    assert_eq!(admit_one(&store).await, Admission::Admitted { remaining: 0 });
}

#[tokio::test]
async fn a_clock_that_steps_back_a_little_admits_nobody_early_and_says_how_long_to_wait() {
    after_a_step_back(60, [(0, 120), (60, 60), (59, 1)]).await;
}

#[tokio::test]
async fn a_clock_that_steps_back_far_shuts_nobody_out_for_longer_than_a_window_and_admits_nobody_early() {
    after_a_step_back(1_000, [(0, 60), (30, 30), (29, 1)]).await;
}

#[tokio::test]
async fn after_a_far_step_back_the_whole_of_a_long_window_still_counts() {
    let Some((server, before, late)) = late_redis(10_000).await else { return };
    for remaining in (0..2_700).rev() {
        late.advance_micros(10_000);
        assert_eq!(by_key(&before, 1).await, Some(Admission::Admitted { remaining }));
    }
    let (stepped, clock) = at_another_time(&server, 0).await;
    let Some(Admission::Limited { retry_after }) = by_key(&stepped, 1).await else { panic!() };
    // 2,699 gaps of 10 ms lie between the oldest and the newest.
    assert_eq!(retry_after.seconds(), 34);
    clock.advance_micros(60_000_000 - 26_990_000);
    assert!(is_admitted(by_key(&stepped, 1).await));
    assert!(matches!(by_key(&stepped, 1).await, Some(Admission::Limited { .. })));
}
