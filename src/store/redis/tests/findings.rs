//! Warnings about real servers: one for each setting that loses data, and none about durable settings.

use redis::Value;

use crate::store::redis::findings::{
    Finding, GOES_ON_ALONE, KEEPS_NOTHING, NEVER_SYNCS, NOBODY_WAITS, SNAPSHOTS_ALONE, SYNCS_EVERY_SECOND,
    TOO_FEW_REPLICAS,
};
use crate::store::redis::options::Options;
use crate::store::redis::tests::cluster::TestCluster;
use crate::store::redis::tests::server::{RedisServer, say};
use crate::store::redis::tests::{clock, only, opened, options};
use crate::store::redis::{RedisStore, look};
use crate::telemetry::metrics::Metrics;

const DURABLE: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];

/// A store that has just been connected.
async fn store(server: &RedisServer, wait_replicas: u32) -> RedisStore {
    opened(Options { wait_replicas, ..options(&server.url()) }, &clock()).await
}

/// The findings at the server that the store is connected to.
fn found(store: &RedisStore) -> Vec<Finding> {
    only(store).reported()
}

#[tokio::test]
async fn settings_that_lose_data_in_a_restart_are_found() {
    let everysec = ["--appendonly", "yes", "--appendfsync", "everysec"];
    let hidden = ["--user", "default", "on", "nopass", "~*", "&*", "+@all", "-config"];
    for (arguments, expected) in [
        (DURABLE.to_vec(), None),
        (vec![], Some(KEEPS_NOTHING)),
        (vec!["--save", "3600", "1"], Some(SNAPSHOTS_ALONE)),
        (everysec.to_vec(), Some(SYNCS_EVERY_SECOND)),
        (vec!["--appendonly", "yes", "--appendfsync", "no"], Some(NEVER_SYNCS)),
        // Without CONFIG the store does not guess; INFO still tells.
        ([&everysec[..], &hidden].concat(), None),
        (hidden.to_vec(), Some(SNAPSHOTS_ALONE)),
    ] {
        let Some(server) = RedisServer::start(&arguments).await else { return };
        let found = found(&store(&server, 0).await);
        assert_eq!(found, Vec::from_iter(expected), "{arguments:?}");
    }
}

#[tokio::test]
async fn replicas_that_are_missing_or_not_waited_for_are_found() {
    let Some(master) = RedisServer::start(DURABLE).await else { return };
    let none = found(&store(&master, 1).await);
    assert_eq!(none, [TOO_FEW_REPLICAS]);
    let _replica = master.replica().await;
    assert_eq!(found(&store(&master, 0).await), [NOBODY_WAITS, GOES_ON_ALONE]);
    assert_eq!(found(&store(&master, 1).await), [GOES_ON_ALONE]);
    say(&mut master.connected().await, &["CONFIG", "SET", "min-replicas-to-write", "1"]).await.unwrap();
    assert!(found(&store(&master, 1).await).is_empty());
}

#[tokio::test]
async fn a_look_finds_the_same_at_every_kind_of_url_and_writes_nothing() {
    let Some(master) = RedisServer::start(&[]).await else { return };
    let sentinel = RedisServer::start_sentinel(&master.host).await.unwrap();
    let mut cluster = TestCluster::form().await.unwrap();
    let looked = async |url: &str| look(options(url), clock(), Metrics::new().unwrap()).await;
    let of_sentinel = format!("redis-sentinel://{}/service", sentinel.host);
    let of_cluster = format!("redis+cluster://{}", cluster.nodes[0].host);
    for url in [&master.url(), &of_sentinel, &of_cluster] {
        assert_eq!(looked(url).await, Ok([KEEPS_NOTHING].into()), "{url}");
    }
    let replica = master.replica().await;
    assert_eq!(looked(&replica.url()).await, Err("it is a replica".to_owned()));
    // Only a node that holds no key gives its slots away.
    cluster.say(0, &["CLUSTER", "FLUSHSLOTS"]).await;
    let torn = looked(&of_cluster).await.unwrap_err();
    assert!(torn.ends_with("not every slot of the cluster has a node"), "{torn}");
    for server in cluster.nodes.iter().chain([&master]) {
        assert_eq!(say(&mut server.connected().await, &["DBSIZE"]).await, Ok(Value::Int(0)));
    }
}
