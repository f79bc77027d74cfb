//! A change of a key is one step, which leaves nothing behind.

use std::time::Duration;

use alloy::primitives::B256;
use redis::Value;

use crate::domain::KeyDigest;
use crate::ports::{KeyChange, KeyChanged, NonceRefused, Store};
use crate::store::contract::{SIGNER, agent, claim, digest, key};
use crate::store::redis::names::{Name, Shard};
use crate::store::redis::tests::lost_answers::{Then, proxy};
use crate::store::redis::tests::{SIGNED_SECS, by_key, is_admitted, opened, options, served};
use crate::store::{
    redis::RedisStore, redis::answers::read, redis::options::Options, redis::scripts::Request,
};

/// For how many seconds an entry and its signer are there: -1 is for ever, -2 for one that is not there.
async fn ttl(store: &RedisStore, number: u64) -> Value {
    let ttl = async |name| store.servers.ask(store.shared.command("TTL", name)).await.unwrap();
    let digest = digest(number);
    let (entry, signer) = (ttl(Name::Entry(&digest)).await, ttl(Name::Signer(&digest)).await);
    assert_eq!(entry, signer);
    entry
}

async fn size(store: &RedisStore) -> u64 {
    let size = store.servers.ask(Request::command("DBSIZE", Shard::FIRST)).await;
    read(&size.unwrap()).unwrap()
}

#[tokio::test]
async fn a_key_has_one_entry_that_stays_until_the_key_is_replaced_or_revoked_by_anybody() {
    let Some((server, store, clock)) = served(&[]).await else { return };
    let other = opened(options(&server.url()), &clock).await;
    let changes = [KeyChange::Issue(key(1)), KeyChange::Rotate(key(2)), KeyChange::Revoke(None)];
    let mut nonces = 0;
    for (changed_by, change) in [&store, &other, &store].into_iter().zip(changes) {
        nonces += 1;
        let done = changed_by.changed(agent(1), claim(nonces, SIGNED_SECS), change).await.unwrap();
        assert_eq!(done, KeyChanged::Done);
        for number in [1, 2] {
            let there = Value::Int(if number == nonces { -1 } else { -2 });
            assert_eq!(ttl(&store, number).await, there, "{number} after {nonces}");
        }
    }
}

/// The owner was told of a fault, and may have made another change since.
// threat: A change of a key comes late
#[tokio::test]
async fn a_change_that_comes_to_redis_after_its_caller_has_given_up_does_nothing() {
    let Some((server, store, clock)) = served(&[]).await else { return };
    let issue = KeyChange::Issue(key(1));
    assert_eq!(store.changed(agent(1), claim(1, SIGNED_SECS), issue).await.unwrap(), KeyChanged::Done);
    let (ip, loss) = proxy(&server, Then::GoesOn).await;
    let hasty = Options { timeout: Duration::from_secs(5), ..options(&format!("redis://{ip}")) };
    let hasty = opened(hasty, &clock).await;
    loss.of(Name::Entry(&digest(2)).to_string());
    hasty.changed(agent(1), claim(2, SIGNED_SECS), KeyChange::Rotate(key(2))).await.unwrap_err();
    loss.held().await;
    let late = loss.answer().await;
    assert!(late.starts_with("-LATE"), "{late}");
    assert!(is_admitted(by_key(&store, 1).await), "the record is as it was");
    let later = store.changed(agent(1), claim(2, SIGNED_SECS), KeyChange::Rotate(key(3))).await.unwrap();
    assert_eq!(later, KeyChanged::Done, "the nonce is unused");
    assert_eq!(ttl(&store, 3).await, Value::Int(-1));
}

#[tokio::test]
async fn a_refused_change_leaves_nothing() {
    let Some((_server, store, _)) = served(&[]).await else { return };
    let mut before = 0;
    for (nonce, number, answer) in [
        (1, 1, KeyChanged::Done),
        (1, 2, KeyChanged::NonceRefused(NonceRefused::Used)),
        (2, 2, KeyChanged::KeyExists),
    ] {
        let change = KeyChange::Issue(key(number));
        assert_eq!(store.changed(agent(1), claim(nonce, SIGNED_SECS), change).await.unwrap(), answer);
        if answer == KeyChanged::Done {
            before = size(&store).await;
        }
    }
    assert_eq!((ttl(&store, 2).await, size(&store).await), (Value::Int(-2), before));
}

#[tokio::test]
async fn a_key_of_a_release_that_kept_no_signers_is_nobodys_until_it_is_replaced() {
    let Some((server, store, clock)) = served(&[]).await else { return };
    let change =
        async |nonce, change| store.changed(agent(1), claim(nonce, SIGNED_SECS), change).await.unwrap();
    change(1, KeyChange::Issue(key(1))).await;
    let forget = store.shared.command("DEL", Name::Signer(&digest(1)));
    store.servers.ask(forget).await.unwrap();
    for replica in [&store, &opened(options(&server.url()), &clock).await] {
        let owner = replica.find(&digest(1)).await.unwrap().unwrap();
        assert_eq!((owner.agent, owner.signer), (agent(1), None));
    }
    change(2, KeyChange::Rotate(key(2))).await;
    assert_eq!(store.find(&digest(2)).await.unwrap().unwrap().signer, Some(SIGNER));
}

#[tokio::test]
async fn one_key_in_a_thousand_fits_an_agent() {
    let Some((_server, store, _)) = served(&[]).await else { return };
    let keys: Vec<_> = (0..100_000_u32)
        .map(|number| KeyDigest::from_bytes(alloy::primitives::keccak256(number.to_be_bytes()).0))
        .collect();
    for number in [1, 2, 3, 1_000_003] {
        let fitting = keys.iter().filter(|digest| store.fits(agent(number), digest)).count();
        assert!((50..150).contains(&fitting), "{number}: {fitting}");
    }
    let record = Name::Record(agent(1)).shard();
    let fitting = keys.iter().find(|digest| store.fits(agent(1), digest)).unwrap();
    assert_eq!(Name::Entry(fitting).shard(), record, "{}", B256::from(fitting.to_bytes()));
}

#[tokio::test]
async fn a_key_that_is_replaced_while_it_is_looked_up_is_not_taken_for_one_without_a_signer() {
    let Some((server, store, clock)) = served(&[]).await else { return };
    let change = async |number, change| {
        let done = store.changed(agent(1), claim(number, SIGNED_SECS), change).await.unwrap();
        assert_eq!(done, KeyChanged::Done);
    };
    change(1, KeyChange::Issue(key(1))).await;
    let (ip, loss) = proxy(&server, Then::GoesOn).await;
    let other = opened(options(&format!("redis://{ip}")), &clock).await;
    let found = digest(1);
    loss.of(Name::Signer(&found).to_string());
    let replaced = async {
        loss.held().await;
        change(2, KeyChange::Rotate(key(2))).await;
        loss.answer().await
    };
    let (owner, signer) = tokio::join!(other.find(&found), replaced);
    assert_eq!((owner.unwrap(), signer.as_str(), other.known_keys()), (None, "$-1\r\n", 0));
}
