//! Settings of nonces that change, or differ between replicas: nobody uses a nonce twice because somebody else kept it for
//! a shorter time.

use crate::ports::store::{KeyChange, KeyChanged, Store};
use crate::store::contract::{agent, claim, key};
use crate::store::redis::RunningRedisStore;
use crate::store::redis::answers::number;
use crate::store::redis::names::{self, Shard};
use crate::store::redis::options::Options;
use crate::store::redis::scripts::Request;
use crate::store::redis::tests::server::RedisServer;
use crate::store::redis::tests::{
    AHEAD_SECS, SIGNED_SECS, START_SECS, by_nonce, clock, is_admitted, nonce_is_refused, opened, options,
    served,
};

/// As small as they may be where signatures are good for 5 s and lie at most 2 s ahead.
fn brief(server: &RedisServer) -> Options {
    Options { nonce_retention_secs: 7, max_ahead_secs: 2, ..options(&server.url()) }
}

/// Uses a nonce, and says for how many seconds Redis remembers it.
async fn used(store: &RunningRedisStore, nonce: u64, signed_at_secs: u64) -> u64 {
    assert!(is_admitted(by_nonce(store, nonce, signed_at_secs).await));
    let name = names::nonce(agent(1), claim(nonce, 0).nonce);
    let left = Request::command("PTTL").arg(name);
    let left = store.store.servers.ask(Shard::of_agent(agent(1)), left).await.unwrap();
    number(&left).unwrap().div_ceil(1_000)
}

/// Redis forgets by its own clock, which the simulated one does not move: this deletes the nonce in its place.
async fn forget(store: &RunningRedisStore, nonce: u64) {
    let delete = Request::command("DEL").arg(names::nonce(agent(1), claim(nonce, 0).nonce));
    store.store.servers.ask(Shard::of_agent(agent(1)), delete).await.unwrap();
}

#[tokio::test]
async fn a_signature_stays_used_when_nonces_are_kept_for_longer_afterwards() {
    // Before it is forgotten, in the moment when it is, and after.
    for pause_secs in [0, 1, 6, 7, 8, 100] {
        let Some(server) = RedisServer::start(&[]).await else { return };
        let clock = clock();
        let before = opened(brief(&server), &clock).await;
        clock.advance_secs(3);
        let signed_secs = START_SECS + 3;
        let kept_secs = used(&before, 1, signed_secs).await;
        assert_eq!(kept_secs, 7);
        drop(before);

        clock.advance_secs(pause_secs);
        let after = opened(options(&server.url()), &clock).await;
        for round in 0..10 {
            if pause_secs + round >= kept_secs {
                forget(&after, 1).await;
            }
            assert!(nonce_is_refused(by_nonce(&after, 1, signed_secs).await), "{pause_secs}");
            let change = KeyChange::Rotate(key(1));
            let changed = after.change_key(agent(1), claim(1, signed_secs), change).await.unwrap();
            assert!(
                matches!(changed, KeyChanged::NonceUsed | KeyChanged::NonceForgotten { .. }),
                "{pause_secs}: {changed:?}"
            );
            clock.advance_secs(1);
        }
        // Signatures that the old settings could not have admitted are good.
        let now_secs = START_SECS + 3 + pause_secs + 10;
        assert!(is_admitted(by_nonce(&after, 2, now_secs + AHEAD_SECS).await));
    }
}

#[tokio::test]
async fn replicas_with_different_settings_refuse_what_any_of_them_has_used() {
    let Some(server) = RedisServer::start(&[]).await else { return };
    let clock = clock();
    let short = opened(brief(&server), &clock).await;
    let long = opened(options(&server.url()), &clock).await;
    clock.advance_secs(AHEAD_SECS + 1);
    let kept_secs = [used(&short, 1, SIGNED_SECS).await, used(&long, 2, SIGNED_SECS).await];
    let mut passed_secs = 0;
    for pause_secs in [0, 6, 1, 1, 200, 3_600, 80_000] {
        clock.advance_secs(pause_secs);
        passed_secs += pause_secs;
        for (nonce, kept_secs) in (1..).zip(kept_secs) {
            if passed_secs >= kept_secs {
                forget(&short, nonce).await;
            }
        }
        for store in [&short, &long] {
            for nonce in [1, 2] {
                assert!(nonce_is_refused(by_nonce(store, nonce, SIGNED_SECS).await), "{pause_secs}");
            }
        }
    }
    let now_secs = SIGNED_SECS + 6 + 1 + 1 + 200 + 3_600 + 80_000;
    assert!(is_admitted(by_nonce(&short, 3, now_secs).await), "each goes on serving");
    assert!(is_admitted(by_nonce(&long, 4, now_secs - 300).await));
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
    // The nonce is gone, say: Redis died before it was written.
    let short = opened(brief(&server), &clock).await;
    forget(&short, 1).await;
    let epoch = Request::command("HGET").arg(names::epoch(Shard::of_agent(agent(1)))).arg("since");
    let since = short.store.servers.ask(Shard::of_agent(agent(1)), epoch).await.unwrap();
    assert_eq!(since, redis::Value::BulkString((far_secs + 1).to_string().into_bytes()));
    assert!(nonce_is_refused(by_nonce(&short, 1, far_secs).await));
}

#[tokio::test]
async fn an_epoch_of_a_release_that_did_not_say_how_long_it_kept_nonces_is_begun_anew() {
    let Some((_server, store, clock)) = served(&[]).await else { return };
    let forget =
        Request::command("HDEL").arg(names::epoch(Shard::of_agent(agent(1)))).arg(&["ahead", "kept"]);
    store.store.servers.ask(Shard::of_agent(agent(1)), forget).await.unwrap();
    clock.advance_secs(10);
    assert!(nonce_is_refused(by_nonce(&store, 1, SIGNED_SECS).await));
    assert!(is_admitted(by_nonce(&store, 2, SIGNED_SECS + 10).await));
}
