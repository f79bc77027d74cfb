//! Settings of nonces that change, or differ between replicas: nobody uses a nonce twice because somebody else kept it for
//! a shorter time.

use crate::ports::{Clock, KeyChange, KeyChanged, Store};
use crate::store::contract::{agent, claim, key};
use crate::store::redis::names::{self, Name, Shard};
use crate::store::redis::tests::{
    AHEAD_SECS, DAY_SECS, SIGNED_SECS, START_SECS, by_nonce, clock, is_admitted, nonce_is_refused, opened,
    options, served,
};
use crate::store::{
    redis::RedisStore, redis::answers::read, redis::options::Options, redis::tests::server::RedisServer,
};

/// As small as they may be where signatures are good for 5 s and lie at most 2 s ahead.
fn brief(server: &RedisServer) -> Options {
    Options { nonce_retention_secs: 7, max_ahead_secs: 2, ..options(&server.url()) }
}

/// How many nonces the agent's shard remembers, the first mark of its epoch included.
async fn remembered(store: &RedisStore) -> u64 {
    let shard = Shard::of_agent(agent(1));
    let count = store.shared.command("ZCARD", Name::Nonces(shard));
    read(&store.servers.ask(count).await.unwrap()).unwrap()
}

// threat: A nonce passes twice, or a stranger burns it
#[tokio::test]
async fn a_signature_stays_used_when_nonces_are_kept_for_longer_afterwards() {
    // Before it is forgotten, in the moment when it is, and after.
    for pause_secs in [0, 1, 6, 7, 8, 100] {
        let Some(server) = RedisServer::start(&[]).await else { return };
        let clock = clock();
        let before = opened(brief(&server), &clock).await;
        clock.advance_secs(3);
        let signed_secs = START_SECS + 3;
        for nonce in [1, 2] {
            assert!(is_admitted(by_nonce(&before, nonce, signed_secs).await));
        }
        clock.advance_secs(pause_secs);
        assert!(is_admitted(by_nonce(&before, 3, signed_secs + pause_secs).await));
        let forgotten = pause_secs > 7;
        assert_eq!(remembered(&before).await, if forgotten { 2 } else { 4 }, "{pause_secs}");
        drop(before);

        let after = opened(options(&server.url()), &clock).await;
        for _ in 0..10 {
            for nonce in [1, 2, 3] {
                assert!(nonce_is_refused(by_nonce(&after, nonce, signed_secs).await), "{pause_secs}");
            }
            let change = KeyChange::Rotate(key(1));
            let changed = after.changed(agent(1), claim(1, signed_secs), change).await.unwrap();
            assert!(matches!(changed, KeyChanged::NonceRefused(_)), "{pause_secs}: {changed:?}");
            clock.advance_secs(1);
        }
        // Signatures that the old settings could not have admitted are good.
        let now_secs = START_SECS + 3 + pause_secs + 10;
        assert!(is_admitted(by_nonce(&after, 4, now_secs + AHEAD_SECS).await));
    }
}

#[tokio::test]
async fn replicas_with_different_settings_refuse_what_any_of_them_has_used() {
    let Some(server) = RedisServer::start(&[]).await else { return };
    let clock = clock();
    let short = opened(brief(&server), &clock).await;
    let long = opened(options(&server.url()), &clock).await;
    clock.advance_secs(AHEAD_SECS + 1);
    for (store, nonce) in [(&short, 1), (&long, 2)] {
        assert!(is_admitted(by_nonce(store, nonce, SIGNED_SECS).await));
    }
    let pauses_secs = [0, 6, 1, 1, 200, 3_600, 80_000, 10_000];
    for (round, pause_secs) in (0..).zip(pauses_secs) {
        clock.advance_secs(pause_secs);
        let now_secs = clock.unix_seconds();
        assert!(is_admitted(by_nonce(&short, 100 + round, now_secs).await), "each goes on serving");
        assert!(is_admitted(by_nonce(&long, 200 + round, now_secs - 300.min(now_secs - SIGNED_SECS)).await));
        for store in [&short, &long] {
            for nonce in [1, 2] {
                assert!(nonce_is_refused(by_nonce(store, nonce, SIGNED_SECS).await), "{pause_secs}");
            }
        }
    }
}

#[tokio::test]
async fn nonces_that_are_over_are_forgotten_also_where_nobody_signs_any_more() {
    let Some((_server, store, clock)) = served(&[]).await else { return };
    for nonce in 0..100 {
        assert!(is_admitted(by_nonce(&store, nonce, SIGNED_SECS).await));
    }
    clock.advance_secs(DAY_SECS + AHEAD_SECS);
    assert_eq!(remembered(&store).await, 101);
    clock.advance_secs(2);
    // The store looks at one shard a second. Here it looks at this one.
    let look = store.shared.claim_of(Shard::of_agent(agent(1)), "look");
    store.servers.ask(look).await.unwrap();
    assert_eq!(remembered(&store).await, 1, "it says how far back");
    assert!(nonce_is_refused(by_nonce(&store, 200, SIGNED_SECS).await));
    assert!(is_admitted(by_nonce(&store, 0, SIGNED_SECS + 1).await), "after so long it may be signed anew");
}

/// As in a Redis that died before the nonce was written.
async fn forget(store: &RedisStore, nonce: u64) {
    let shard = Shard::of_agent(agent(1));
    let member = names::nonce(agent(1), claim(nonce, 0).nonce);
    let delete = store.shared.command("ZREM", Name::Nonces(shard)).arg(member);
    assert_eq!(store.servers.ask(delete).await.unwrap(), redis::Value::Int(1));
}

#[tokio::test]
async fn one_that_lets_timestamps_lie_far_ahead_is_not_deceived_by_an_epoch_that_another_began() {
    let durable = ["--appendonly", "yes", "--appendfsync", "always"];
    let Some((mut server, long, clock)) = served(&durable).await else { return };
    clock.advance_secs(10);
    let far_secs = START_SECS + 10 + AHEAD_SECS;
    assert!(is_admitted(by_nonce(&long, 1, far_secs + 1).await));
    drop(long);
    server.restart().await;
    let short = opened(brief(&server), &clock).await;
    forget(&short, 1).await;
    let epoch = short.shared.command("HGET", Name::Epoch(Shard::of_agent(agent(1)))).arg("since");
    let since = short.servers.ask(epoch).await.unwrap();
    assert_eq!(since, redis::Value::BulkString((far_secs + 1).to_string().into_bytes()));
    assert!(nonce_is_refused(by_nonce(&short, 1, far_secs).await));
}

#[tokio::test]
async fn an_epoch_of_a_release_that_did_not_say_how_long_it_kept_nonces_is_begun_anew() {
    let Some((_server, store, clock)) = served(&[]).await else { return };
    let forget = store.shared.command("HDEL", Name::Epoch(Shard::of_agent(agent(1)))).arg(&["ahead", "kept"]);
    store.servers.ask(forget).await.unwrap();
    clock.advance_secs(10);
    assert!(nonce_is_refused(by_nonce(&store, 1, SIGNED_SECS).await));
    assert!(is_admitted(by_nonce(&store, 2, SIGNED_SECS + 10).await));
}
