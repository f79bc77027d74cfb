//! Warnings about real servers: one for each setting that loses data, and none about sound settings.

use crate::store::redis::RunningRedisStore;
use crate::store::redis::findings::Finding;
use crate::store::redis::options::Options;
use crate::store::redis::tests::server::{RedisServer, say};
use crate::store::redis::tests::{clock, opened, options};

const SOUND: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];

/// A store that has just been connected.
async fn store(server: &RedisServer, wait_replicas: u32) -> RunningRedisStore {
    opened(Options { wait_replicas, ..options(&server.url()) }, &clock()).await
}

/// The findings at the server that the store is connected to.
fn found(store: &RunningRedisStore, server: &RedisServer) -> Vec<Finding> {
    store.store.shared.told.of(&server.host).unwrap()
}

#[tokio::test]
async fn what_a_server_may_lose_in_a_restart_or_for_lack_of_memory_is_found() {
    let everysec = ["--appendonly", "yes", "--appendfsync", "everysec"];
    let hidden = ["--user", "default", "on", "nopass", "~*", "&*", "+@all", "-config"];
    for (arguments, expected) in [
        (SOUND.to_vec(), None),
        (vec![], Some(Finding::KeepsNothing)),
        (vec!["--save", "3600", "1"], Some(Finding::SnapshotsAlone)),
        (everysec.to_vec(), Some(Finding::SyncsEverySecond)),
        (vec!["--appendonly", "yes", "--appendfsync", "no"], Some(Finding::NeverSyncs)),
        (
            [SOUND, &["--maxmemory-policy", "allkeys-lru"]].concat(),
            Some(Finding::Evicts("allkeys-lru".to_owned())),
        ),
        // Without CONFIG the store does not guess; INFO still tells.
        ([&everysec[..], &hidden].concat(), None),
        (hidden.to_vec(), Some(Finding::SnapshotsAlone)),
    ] {
        let Some(server) = RedisServer::start(&arguments).await else { return };
        let found = found(&store(&server, 0).await, &server);
        assert_eq!(found, Vec::from_iter(expected), "{arguments:?}");
    }
}

#[tokio::test]
async fn replicas_that_are_missing_or_not_waited_for_are_found() {
    let Some(master) = RedisServer::start(SOUND).await else { return };
    let none = found(&store(&master, 1).await, &master);
    assert_eq!(none, [Finding::TooFewReplicas { wanted: 1, has: 0 }]);
    let _replica = master.replica().await;
    assert_eq!(found(&store(&master, 0).await, &master), [Finding::NobodyWaits, Finding::GoesOnAlone]);
    assert_eq!(found(&store(&master, 1).await, &master), [Finding::GoesOnAlone]);
    say(&mut master.connected().await, &["CONFIG", "SET", "min-replicas-to-write", "1"]).await.unwrap();
    assert_eq!(found(&store(&master, 1).await, &master), []);
}
