//! Budgets of key management over several replicas: owners' are exact, and strangers leave nothing in Redis.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::domain::client::ClientNet;
use crate::domain::quota::Quota;
use crate::ports::simulated::SimulatedClock;
use crate::ports::store::{Metered, Store};
use crate::store::contract::agent;
use crate::store::redis::answers::number;
use crate::store::redis::names::Shard;
use crate::store::redis::scripts::Request;
use crate::store::redis::tests::server::RedisServer;
use crate::store::redis::tests::{START_SECS, open, options, ready};

const TEN: Quota = Quota::per_hour(10);

fn client() -> ClientNet {
    ClientNet::of("192.0.2.1".parse().unwrap())
}

#[tokio::test]
async fn twenty_thousand_requests_that_prove_nothing_leave_nothing_in_redis() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let store = open(options(&server.url()), &Arc::new(SimulatedClock::new(START_SECS)));
    ready(&store).await;
    let size = async || {
        let size = store.store.servers.ask(Shard::of_journal(), Request::command("DBSIZE")).await;
        number(&size.unwrap()).unwrap()
    };
    // Epochs are there, and what the probe wrote.
    let before = size().await;
    assert!(before > 0);
    for number in 0..20_000_u64 {
        let agent = agent(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let hit = store.hit(client(), agent, TEN).await.unwrap();
        assert_eq!(hit, Metered::Counted { remaining: 9 });
    }
    assert_eq!(size().await, before);
    // One that is proven does.
    store.charge(client(), agent(1), TEN).await.unwrap();
    assert!(size().await > before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_two_replicas_exactly_ten_proven_requests_an_hour_are_charged() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let clock = Arc::new(SimulatedClock::new(START_SECS));
    let stores = [(), ()].map(|()| Arc::new(open(options(&server.url()), &clock)));
    for store in &stores {
        ready(store).await;
    }
    let mut requests = JoinSet::new();
    for number in 0..40 {
        let store = Arc::clone(&stores[number % 2]);
        requests.spawn(async move {
            match store.hit(client(), agent(1), TEN).await.unwrap() {
                Metered::Counted { .. } => store.charge(client(), agent(1), TEN).await.unwrap(),
                limited @ Metered::Limited { .. } => limited,
            }
        });
    }
    let answers = requests.join_all().await;
    let charged = answers.iter().filter(|answer| matches!(answer, Metered::Counted { .. })).count();
    assert_eq!(charged, 10);
    for store in &stores {
        assert_eq!(store.left(client(), agent(1), TEN).await.unwrap(), 0);
        let Metered::Limited { retry_after } = store.hit(client(), agent(1), TEN).await.unwrap() else {
            panic!("both know that it is spent")
        };
        assert_eq!(retry_after.seconds(), 3_600);
    }
    clock.advance_secs(3_600);
    for store in &stores {
        assert_eq!(store.hit(client(), agent(1), TEN).await.unwrap(), Metered::Counted { remaining: 9 });
    }
}
