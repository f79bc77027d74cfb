//! Warnings about real servers: one for each setting that loses data, and none about durable settings.

use std::collections::BTreeSet;

use redis::Value;

use crate::store::redis::info::{
    Finding, GOES_ON_ALONE, KEEPS_NOTHING, NEVER_SYNCS, NOBODY_WAITS, SNAPSHOTS_ALONE, SYNCS_EVERY_SECOND,
    TOO_FEW_REPLICAS,
};
use crate::store::redis::tests::server::{RedisServer, say};
use crate::store::redis::tests::{clock, options};
use crate::store::{redis::inspect, redis::options::Options, redis::tests::cluster::TestCluster};
use crate::telemetry::Metrics;

const DURABLE: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];

/// What a look finds at the server.
async fn found(server: &RedisServer, wait_replicas: u32) -> BTreeSet<Finding> {
    let options = Options { wait_replicas, ..options(&server.url()) };
    inspect(options, clock(), Metrics::new().unwrap()).await.unwrap()
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
        assert_eq!(found(&server, 0).await, BTreeSet::from_iter(expected), "{arguments:?}");
    }
}

#[tokio::test]
async fn replicas_that_are_missing_or_not_waited_for_are_found() {
    let Some(master) = RedisServer::start(DURABLE).await else { return };
    assert_eq!(found(&master, 1).await, [TOO_FEW_REPLICAS].into());
    let _replica = master.replica().await;
    assert_eq!(found(&master, 0).await, [NOBODY_WAITS, GOES_ON_ALONE].into());
    assert_eq!(found(&master, 1).await, [GOES_ON_ALONE].into());
    say(&mut master.connected().await, &["CONFIG", "SET", "min-replicas-to-write", "1"]).await.unwrap();
    assert!(found(&master, 1).await.is_empty());
}

#[tokio::test]
async fn a_look_finds_the_same_at_every_kind_of_url_and_writes_nothing() {
    let Some(master) = RedisServer::start(&[]).await else { return };
    let sentinel = RedisServer::start_sentinel(&master.host).await.unwrap();
    let mut cluster = TestCluster::form().await.unwrap();
    let inspected = async |url: &str| inspect(options(url), clock(), Metrics::new().unwrap()).await;
    let of_sentinel = format!("redis-sentinel://{}/service", sentinel.host);
    let of_cluster = format!("redis+cluster://{}", cluster.nodes[0].host);
    for url in [&master.url(), &of_sentinel, &of_cluster] {
        assert_eq!(inspected(url).await, Ok([KEEPS_NOTHING].into()), "{url}");
    }
    let replica = master.replica().await;
    assert_eq!(inspected(&replica.url()).await, Err("it is a replica".to_owned()));
    // Only a node that holds no key gives its slots away.
    cluster.say(0, &["CLUSTER", "FLUSHSLOTS"]).await;
    let torn = inspected(&of_cluster).await.unwrap_err();
    assert!(torn.ends_with("not every slot of the cluster has a node"), "{torn}");
    for server in cluster.nodes.iter().chain([&master]) {
        assert_eq!(say(&mut server.connected().await, &["DBSIZE"]).await, Ok(Value::Int(0)));
    }
}
