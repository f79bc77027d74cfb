//! Slots of a cluster that are on their way, and masters that are gone: a fault for whom it concerns and for nobody else.
//! A master that dies and slots that move under load are in `history.rs`.

use crate::ports::{Admission, KeyChange, KeyChanged, Proof, Scope, Store};
use crate::store::contract::{MANY, agent, claim, digest, key};
use crate::store::redis::names::{Name, Shard};
use crate::store::redis::tests::history_load::{home, slot};
use crate::store::redis::tests::{
    SIGNED_SECS, clock, connected_after, connects, fitting, is_admitted, open, opened, options, ready,
    refused,
};
use crate::store::{redis::RedisStore, redis::tests::cluster::TestCluster, redis::tests::server::say};

/// A cluster, and a store in which each of these agents has a key.
async fn scene(agents: &[u64]) -> Option<(TestCluster, RedisStore)> {
    let cluster = TestCluster::form().await?;
    let store = opened(options(&cluster.url()), &clock()).await;
    for number in agents {
        let change = KeyChange::Issue(key(fitting(*number, 0)));
        let changed = store.changed(agent(*number), claim(1, SIGNED_SECS), change).await.unwrap();
        assert_eq!(changed, KeyChanged::Done);
    }
    Some((cluster, store))
}

/// Asks for an agent with its key; nothing: a fault.
async fn by_own_key(store: &RedisStore, number: u64) -> Option<Admission> {
    let proof = Proof::Key(digest(fitting(number, 0)));
    store.admit(agent(number), &Scope::Api, MANY, &proof).await.ok()
}

#[tokio::test]
async fn a_slot_that_is_on_its_way_is_a_fault_for_its_agents_and_for_nobody_else() {
    let (moving, resting) = (5, 6);
    assert_ne!(slot(moving), slot(resting));
    let Some((mut cluster, store)) = scene(&[moving, resting]).await else { return };
    let (home, text) = (home(moving), slot(moving).to_string());
    let other = cluster.id((home + 1) % 3).await;
    cluster.say(home, &["CLUSTER", "SETSLOT", &text, "MIGRATING", &other]).await;
    // Its window is not there yet, and might be on the other side.
    assert_eq!(by_own_key(&store, moving).await, None);
    assert!(is_admitted(by_own_key(&store, resting).await));
    cluster.say(home, &["CLUSTER", "SETSLOT", &text, "STABLE"]).await;
    assert_eq!(by_own_key(&store, moving).await, Some(Admission::Admitted { remaining: 2_699 }));
}

#[tokio::test]
async fn a_node_with_a_slot_on_its_way_is_connected_to_anew_and_is_ready() {
    // The shard that its node is probed with.
    let moving = Shard::all().find(|shard| TestCluster::home(shard.slot()) == 0).unwrap();
    let resting = (1..).find(|number| home(*number) == 0 && Shard::of_agent(agent(*number)) != moving);
    let resting = resting.unwrap();
    let Some((mut cluster, store)) = scene(&[resting]).await else { return };
    let (slot, id) = (moving.slot().to_string(), cluster.id(1).await);
    cluster.say(0, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id]).await;
    // As when they are on the other side already.
    cluster.say(0, &["DEL", &Name::Epoch(moving).to_string()]).await;
    cluster.say(0, &["DEL", &Name::Probe(moving).to_string()]).await;
    let asked =
        say(&mut cluster.connections[0], &["SET", &Name::Probe(moving).to_string(), ""]).await.unwrap_err();
    assert_eq!(asked.code(), Some("ASK"));
    store.probe().await.unwrap();

    let before = connects(&store, "connected");
    cluster.say(0, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
    connected_after(&store, before).await;
    ready(&store).await;
    assert!(is_admitted(by_own_key(&store, resting).await));
    let signed = Proof::Nonce(claim(2, SIGNED_SECS));
    assert!(is_admitted(store.admit(agent(resting), &Scope::Api, MANY, &signed).await.ok()));
}

#[tokio::test]
async fn keys_change_while_any_other_master_is_gone() {
    for gone in 0..3 {
        let elsewhere: Vec<u64> = (1..).filter(|number| home(*number) != gone).take(16).collect();
        let Some((mut cluster, store)) = scene(&elsewhere).await else { return };
        cluster.nodes[gone].kill();
        for number in &elsewhere {
            let rotate = KeyChange::Rotate(key(fitting(*number, 1)));
            for (nonce, change) in [(2, rotate), (3, KeyChange::Revoke(None))] {
                let changed = store.changed(agent(*number), claim(nonce, SIGNED_SECS), change).await;
                assert_eq!(changed.unwrap(), KeyChanged::Done, "{number} without {gone}");
            }
            for old in [0, 1] {
                assert_eq!(store.find(&digest(fitting(*number, old))).await.unwrap(), None);
                let proof = Proof::Key(digest(fitting(*number, old)));
                let asked = store.admit(agent(*number), &Scope::Api, MANY, &proof).await;
                assert_eq!(asked.unwrap(), Admission::KeyRevoked);
            }
        }
    }
}

#[tokio::test]
async fn one_node_of_a_cluster_is_not_taken_for_a_server_that_has_everything() {
    let Some(cluster) = TestCluster::form().await else { return };
    let store = open(options(&cluster.nodes[0].url()), &clock());
    refused(&store).await;
    assert!(store.probe().await.is_err());
}
