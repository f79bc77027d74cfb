//! Budgets of key management over several replicas: owners' are exact, and strangers leave nothing in Redis.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::domain::client::ClientNet;
use crate::domain::quota::Quota;
use crate::ports::store::{Metered, Store};
use crate::store::contract::agent;
use crate::store::redis::answers::number;
use crate::store::redis::names::{self, Shard};
use crate::store::redis::scripts::Request;
use crate::store::redis::tests::{only, opened, options, served};

const TEN: Quota = Quota::per_hour(10);

fn client() -> ClientNet {
    ClientNet::of("192.0.2.1".parse().unwrap())
}

#[tokio::test]
async fn a_thousand_requests_that_prove_nothing_leave_nothing_in_redis() {
    let Some((_server, store, _)) = served(&[]).await else { return };
    let size = async || {
        let size = store.store.servers.ask(Shard::FIRST, Request::command("DBSIZE")).await;
        number(&size.unwrap()).unwrap()
    };
    // The probe's key would expire meanwhile.
    let probe = Request::command("DEL").arg(names::probe(only(&store).first_shard()));
    store.store.servers.ask(Shard::FIRST, probe).await.unwrap();
    // Epochs are there.
    let before = size().await;
    assert!(before > 0);
    for number in 0..1_000_u64 {
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
    let Some((server, one, clock)) = served(&[]).await else { return };
    let stores = [Arc::new(one), Arc::new(opened(options(&server.url()), &clock).await)];
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
        assert_eq!(store.status(client(), agent(1), TEN).await.unwrap().left, 0);
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
