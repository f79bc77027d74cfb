//! A Redis is for one chain, and several deployments share one by their prefixes.

use std::{collections::BTreeSet, sync::Arc};

use alloy::primitives::Address;
use redis::Value;
use tokio::task::spawn_blocking;

use crate::domain::{Binding, ClientNet, OtherChain, RedisUrl};
use crate::os::Os;
use crate::ports::{Admission, Budget, KeyBudget, KeyChange, KeyChanged, RouteScope, Store};
use crate::store::contract::{MANY, agent, claim, digest, key, until};
use crate::store::redis::names::{Name, Shard};
use crate::store::redis::tests::server::{RedisServer, say};
use crate::store::redis::tests::{
    SIGNED_SECS, binding, by_key, by_nonce, clock, connects, fitting, is_admitted, open, opened, options,
    ready, refused,
};
use crate::store::redis::{RedisStore, inspect, other_chain};
use crate::store::{redis::options::Options, redis::tests::cluster::TestCluster};
use crate::telemetry::Metrics;

/// Development's chain, with the same numbers.
fn other() -> Binding {
    Binding::new(8004, Address::repeat_byte(1), true)
}

fn for_other(options: Options) -> Options {
    Options { binding: other(), ..options }
}

async fn issue(store: &RedisStore, number: u64) {
    let changed =
        store.changed(agent(1), claim(number, SIGNED_SECS), KeyChange::Issue(key(fitting(1, number))));
    assert_eq!(changed.await.unwrap(), KeyChanged::Done);
}

/// Every name in a database.
async fn names(server: &RedisServer) -> BTreeSet<String> {
    let said = say(&mut server.connected().await, &["KEYS", "*"]).await.unwrap();
    redis::from_redis_value_ref(&said).unwrap()
}

// threat: Another chain's agent of the same number
#[tokio::test]
async fn a_redis_that_is_another_chains_is_refused_and_its_keys_open_nothing() {
    let Some(server) = RedisServer::start(&[]).await else { return };
    let own = opened(options(&server.url()), &clock()).await;
    issue(&own, 1).await;
    let options = for_other(options(&server.url()));
    let before = names(&server).await;

    let stranger = open(options.clone(), &clock());
    refused(&stranger).await;
    let said = stranger.find(&digest(fitting(1, 1))).await.unwrap_err().to_string();
    let expected = format!(
        "it is for {}, and the configuration is for {}; write another store.redis.prefix or database, or the chain \
         that it is for",
        binding(),
        other()
    );
    assert!(said.ends_with(&expected), "{said}");
    assert_eq!(by_key(&stranger, fitting(1, 1)).await, None);
    assert!(stranger.probe().await.is_err());
    assert_eq!(connects(&stranger, "connected"), 0);
    assert!(is_admitted(by_key(&own, fitting(1, 1)).await));

    // From outside: before a start, and by `check`.
    let seen = async |options: Options| -> Option<OtherChain> {
        let inspected = move || other_chain(options, Arc::new(Os::new()), Metrics::new().unwrap()).unwrap();
        spawn_blocking(inspected).await.unwrap()
    };
    assert!(expected.ends_with(&seen(options.clone()).await.unwrap().to_string()));
    let own_options = Options { binding: binding(), ..options.clone() };
    assert_eq!(seen(own_options.clone()).await, None);
    let nobody = Options { url: RedisUrl::parse("redis://127.0.0.1:1").unwrap(), ..options.clone() };
    assert_eq!(seen(nobody).await, None, "a Redis that is absent is waited for");
    let inspected = async |options| inspect(options, Arc::new(Os::new()), Metrics::new().unwrap()).await;
    assert_eq!(inspected(options).await.unwrap_err(), expected);
    inspected(own_options).await.unwrap();
    let now: BTreeSet<String> = names(&server).await;
    assert!(now.difference(&before).all(|name| name.contains("}w:") || name.contains("}p")), "{now:?}");
}

// threat: Another chain's agent of the same number
#[tokio::test]
async fn of_two_deployments_that_begin_at_once_on_one_redis_one_wins() {
    let Some(server) = RedisServer::start(&[]).await else { return };
    for round in 0..12 {
        say(&mut server.connected().await, &["FLUSHALL"]).await.unwrap();
        let (first, second) = (options(&server.url()), for_other(options(&server.url())));
        let mut pair = [first, second];
        if round % 2 == 1 {
            pair.reverse();
        }
        let stores = pair.map(|options| open(options, &clock()));
        until("each has begun or failed", async || {
            let has = |store| connects(store, "connected") + connects(store, "failed") > 0;
            stores.iter().all(has).then_some(())
        })
        .await;
        let connected = stores.each_ref().map(|store| connects(store, "connected") > 0);
        assert_eq!(connected.iter().filter(|won| **won).count(), 1, "{connected:?}");
        for (store, has_won) in stores.iter().zip(connected) {
            assert_eq!(store.has_key(agent(1)).await.is_ok(), has_won);
        }
    }
}

#[tokio::test]
async fn a_redis_that_has_lost_what_it_is_for_is_bound_again() {
    let Some(server) = RedisServer::start(&[]).await else { return };
    let store = opened(options(&server.url()), &clock()).await;
    let mut administrator = server.connected().await;
    say(&mut administrator, &["FLUSHALL"]).await.unwrap();
    let last = Shard::all().last().unwrap();
    let names = [Shard::all().next().unwrap(), last].map(|shard| Name::Binding(shard).to_string());
    until("it is bound again", async || {
        let mut bound = 0;
        for name in &names {
            let known = say(&mut administrator, &["HGET", name, "chain"]).await.unwrap();
            bound += u32::from(known == Value::BulkString(binding().as_str().into()));
        }
        (bound == 2).then_some(())
    })
    .await;
    ready(&store).await;
}

#[tokio::test]
async fn whoever_loses_a_redis_to_another_chain_while_it_runs_stops_using_it() {
    let Some(server) = RedisServer::start(&[]).await else { return };
    let store = opened(options(&server.url()), &clock()).await;
    let text = other().as_str().to_owned();
    let taken = [
        "EVAL",
        "redis.call('FLUSHALL') for shard = 0, 1023 do \
         redis.call('HSET', string.format('tg2:{%x}b', shard), 'chain', ARGV[1]) end",
        "0",
        &text,
    ];
    say(&mut server.connected().await, &taken).await.unwrap();
    refused(&store).await;
    assert!(store.find(&digest(fitting(1, 1))).await.unwrap_err().to_string().contains(&text));
}

/// All verbs, so that no name is left without the prefix.
pub(super) async fn use_everything(store: &RedisStore) {
    let (client, route) = (ClientNet::of([192, 0, 2, 1].into()), RouteScope("acme/docs GET".into()));
    issue(store, 1).await;
    let rotated = store.changed(agent(1), claim(2, SIGNED_SECS), KeyChange::Rotate(key(fitting(1, 2)))).await;
    assert_eq!(rotated.unwrap(), KeyChanged::Done);
    assert!(
        is_admitted(by_key(store, fitting(1, 2)).await) && is_admitted(by_nonce(store, 3, SIGNED_SECS).await)
    );
    assert!(
        store.is_current(agent(1), &digest(fitting(1, 2))).await.unwrap()
            && store.has_key(agent(1)).await.unwrap()
    );
    store.count(&Budget::Route((client, route)), MANY).await.unwrap();
    for budget in [KeyBudget::Changes, KeyBudget::Revocations] {
        store.count(&Budget::Key(client, agent(1), budget), MANY).await.unwrap();
    }
    assert!(store.status(client, agent(1), MANY).await.unwrap().has_key);
    store.probe().await.unwrap();
}

// threat: Another chain's agent of the same number
#[tokio::test]
async fn deployments_with_prefixes_of_their_own_share_a_redis_and_nothing_in_it() {
    let Some(server) = RedisServer::start(&[]).await else { return };
    let with = |prefix: &str| Options { prefix: prefix.to_owned(), ..options(&server.url()) };
    let blue = opened(with("blue:"), &clock()).await;
    use_everything(&blue).await;
    let of_blue = names(&server).await;
    assert!(
        of_blue.len() > 2_048 && of_blue.iter().all(|name| name.starts_with("blue:tg2:{")),
        "{of_blue:?}"
    );

    let green = opened(for_other(with("green:")), &clock()).await;
    assert_eq!(green.find(&digest(fitting(1, 2))).await.unwrap(), None);
    assert_eq!(by_key(&green, fitting(1, 2)).await, Some(Admission::KeyRevoked));
    use_everything(&green).await;
    let plain = opened(with(""), &clock()).await;
    use_everything(&plain).await;
    for (prefix, store) in [("blue:", &blue), ("green:", &green), ("", &plain)] {
        let starts = |name: &&String| name.starts_with(&format!("{prefix}tg2:{{"));
        assert!(names(&server).await.iter().filter(starts).count() >= of_blue.len(), "{prefix:?}");
        let revoked = store.changed(agent(1), claim(9, SIGNED_SECS), KeyChange::Revoke(None)).await;
        assert_eq!(revoked.unwrap(), KeyChanged::Done);
        assert_eq!(by_key(store, fitting(1, 2)).await, Some(Admission::KeyRevoked));
    }
}

#[tokio::test]
async fn in_a_cluster_every_node_refuses_another_chain_and_a_prefix_moves_no_slot() {
    let Some(cluster) = TestCluster::form().await else { return };
    let own = opened(options(&cluster.url()), &clock()).await;
    issue(&own, 1).await;
    let stranger = open(for_other(options(&cluster.url())), &clock());
    until("each node has refused it", async || (connects(&stranger, "failed") >= 3).then_some(())).await;
    assert_eq!(connects(&stranger, "connected"), 0);
    for number in 0..50 {
        assert!(stranger.has_key(agent(number)).await.is_err());
    }
    let prefixed = for_other(Options { prefix: "blue:".to_owned(), ..options(&cluster.url()) });
    use_everything(&opened(prefixed, &clock()).await).await;
    assert!(is_admitted(by_key(&own, fitting(1, 1)).await));
}

#[tokio::test]
async fn in_a_cluster_no_node_is_bound_before_that_of_the_first_shard() {
    let Some(cluster) = TestCluster::form().await else { return };
    let first = TestCluster::home(Shard::FIRST.slot());
    let frozen = cluster.nodes[first].freeze();
    let store = open(options(&cluster.url()), &clock());
    until("the others wait for it", async || (connects(&store, "failed") >= 4).then_some(())).await;
    for number in (0..3).filter(|number| *number != first) {
        let names = names(&cluster.nodes[number]).await;
        assert!(!names.iter().any(|name| name.ends_with("}b")), "{names:?}");
    }
    drop(frozen);
    ready(&store).await;
    let _frozen = cluster.nodes[first].freeze();
    let later = open(options(&cluster.url()), &clock());
    until("those that are bound wait for none", async || (connects(&later, "connected") == 2).then_some(()))
        .await;
}
