//! A change of a key that ends after any of its steps: whatever it leaves refuses a key, and goes.

use redis::Value;

use crate::ports::store::{KeyChange, KeyChanged, Store};
use crate::store::contract::{agent, claim, digest, key};
use crate::store::redis::names::{self, Name, Shard};
use crate::store::redis::scripts::Request;
use crate::store::redis::tests::{SIGNED_SECS, by_key, is_admitted, opened, options, served};
use crate::store::redis::{RedisStore, RunningRedisStore};

/// The steps that a change took before its process died.
const STEPS: usize = 5;

/// Replaces agent 1's key 1 by key 2, and dies after so many steps.
async fn rotate_and_die_after(store: &RedisStore, steps: usize) {
    let claim = claim(2, SIGNED_SECS);
    let change = KeyChange::Rotate(key(2));
    store.note(agent(1), &claim).await.unwrap();
    if steps >= 2 {
        store.announce(agent(1), &key(2)).await.unwrap();
    }
    if steps >= 3 {
        let (changed, replaced) = store.swap(agent(1), &claim, &change).await.unwrap();
        assert_eq!(changed, KeyChanged::Done);
        if steps >= 4 {
            store.confirm(agent(1), &key(2)).await.unwrap();
        }
        if steps >= 5 {
            store.tidy(agent(1), &replaced).await.unwrap();
        }
    }
}

async fn ttl(store: &RedisStore, number: u64) -> Value {
    let ttl = Request::command("TTL").arg(names::entry(&digest(number)));
    store.servers.ask(Shard::of_digest(&digest(number)), ttl).await.unwrap()
}

async fn count(store: &RedisStore, command: &str, name: Name<'_>) -> Value {
    store.servers.ask(Shard::of_journal(), Request::command(command).arg(name)).await.unwrap()
}

async fn admits(store: &RunningRedisStore, number: u64) -> bool {
    let admission = by_key(store, number).await;
    assert!(admission.is_some(), "a fault");
    is_admitted(admission)
}

#[tokio::test]
async fn a_change_that_dies_after_any_step_leaves_no_wrong_key_and_nothing_that_stays() {
    const GONE: Value = Value::Int(-2);
    const STAYS: Value = Value::Int(-1);
    for steps in 1..=STEPS {
        let Some((server, store, clock)) = served(&[]).await else { return };
        let other = opened(options(&server.url()), &clock).await;
        store.change_key(agent(1), claim(1, SIGNED_SECS), KeyChange::Issue(key(1))).await.unwrap();
        assert_eq!(count(&store.store, "ZCARD", names::journal()).await, Value::Int(0));
        rotate_and_die_after(&store.store, steps).await;

        // The other replica sees one current key at most, and an entry that is no key's has an expiry.
        let swapped = steps >= 3;
        assert_eq!((admits(&other, 1).await, admits(&other, 2).await), (!swapped, swapped), "{steps}");
        match steps {
            1 => assert_eq!(ttl(&store.store, 2).await, GONE),
            2 | 3 => assert!(ttl(&store.store, 2).await != GONE && ttl(&store.store, 2).await != STAYS),
            _ => assert_eq!(ttl(&store.store, 2).await, STAYS),
        }

        // Not yet: it might still be going on.
        clock.advance_secs(299);
        other.store.tidy_overdue().await.unwrap();
        assert_eq!(count(&store.store, "ZCARD", names::journal()).await, Value::Int(1));
        clock.advance_secs(2);
        other.store.tidy_overdue().await.unwrap();
        assert_eq!(count(&store.store, "ZCARD", names::journal()).await, Value::Int(0), "{steps}");
        assert_eq!(count(&store.store, "SCARD", names::replaced(agent(1))).await, Value::Int(0), "{steps}");
        assert_eq!(ttl(&store.store, 1).await, if swapped { GONE } else { STAYS }, "{steps}");

        // Its owner may go on from there.
        let change = KeyChange::Rotate(key(3));
        let changed = other.change_key(agent(1), claim(3, SIGNED_SECS), change).await.unwrap();
        assert_eq!(changed, KeyChanged::Done);
        assert!(admits(&store, 3).await && !admits(&store, 2).await && !admits(&store, 1).await);
        assert_eq!(ttl(&store.store, 3).await, STAYS);
    }
}

#[tokio::test]
async fn a_change_whose_entry_expired_before_it_was_confirmed_tells_nobody_of_the_key() {
    let Some((_server, store, _)) = served(&[]).await else { return };
    rotate_and_die_after(&store.store, 3).await;
    let delete = Request::command("DEL").arg(names::entry(&digest(2)));
    store.store.servers.ask(Shard::of_digest(&digest(2)), delete).await.unwrap();
    assert!(store.store.confirm(agent(1), &key(2)).await.is_err());
    // Unless it was replaced since, which is no loss.
    store.change_key(agent(1), claim(3, SIGNED_SECS), KeyChange::Rotate(key(3))).await.unwrap();
    assert!(store.store.confirm(agent(1), &key(2)).await.is_ok());
}

#[tokio::test]
async fn a_refused_change_leaves_no_entry() {
    let Some((_server, store, _)) = served(&[]).await else { return };
    for (nonce, number, answer) in
        [(1, 1, KeyChanged::Done), (1, 2, KeyChanged::NonceUsed), (2, 2, KeyChanged::KeyExists)]
    {
        let change = KeyChange::Issue(key(number));
        assert_eq!(store.change_key(agent(1), claim(nonce, SIGNED_SECS), change).await.unwrap(), answer);
    }
    assert_eq!(ttl(&store.store, 2).await, Value::Int(-2));
    assert_eq!(count(&store.store, "ZCARD", names::journal()).await, Value::Int(0), "and no note");
}

#[tokio::test]
async fn twins_that_are_refused_leave_the_note_of_the_one_that_is_not_done() {
    let Some((_server, store, _)) = served(&[]).await else { return };
    // Its process dies before it has tidied up.
    rotate_and_die_after(&store.store, 3).await;
    let change = KeyChange::Rotate(key(3));
    let twin = store.change_key(agent(1), claim(2, SIGNED_SECS), change).await.unwrap();
    assert_eq!(twin, KeyChanged::NonceUsed);
    assert_eq!(count(&store.store, "ZCARD", names::journal()).await, Value::Int(1));
}

#[tokio::test]
async fn many_overdue_notes_go_at_once_and_one_that_cannot_be_dealt_with_holds_up_no_other() {
    let Some((_server, store, clock)) = served(&[]).await else { return };
    // The agent's set of replaced keys is a string: its note fails every time.
    let wrong = Request::command("SET").arg(names::replaced(agent(7))).arg("");
    store.store.servers.ask(Shard::of_agent(agent(7)), wrong).await.unwrap();
    store.store.note(agent(7), &claim(1, SIGNED_SECS)).await.unwrap();
    for nonce in 0..350 {
        store.store.note(agent(1), &claim(nonce, SIGNED_SECS)).await.unwrap();
    }
    clock.advance_secs(301);
    assert!(store.store.tidy_overdue().await.is_err());
    assert_eq!(count(&store.store, "ZCARD", names::journal()).await, Value::Int(1));
}
