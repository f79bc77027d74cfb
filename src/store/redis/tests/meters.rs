//! Budgets of key management are exact over several replicas.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::domain::client::ClientNet;
use crate::domain::quota::Quota;
use crate::domain::window::Verdict;
use crate::ports::store::{Budget, KeyBudget, Store};
use crate::store::contract::agent;
use crate::store::redis::tests::{opened, options, served};

const TEN: Quota = Quota::per_hour(10);

fn client() -> ClientNet {
    ClientNet::of("192.0.2.1".parse().unwrap())
}

fn changes() -> Budget {
    Budget::Key(client(), agent(1), KeyBudget::Changes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_two_replicas_exactly_ten_proven_requests_an_hour_are_charged() {
    let Some((server, one, clock)) = served(&[]).await else { return };
    let stores = [Arc::new(one), Arc::new(opened(options(&server.url()), &clock).await)];
    let mut requests = JoinSet::new();
    for number in 0..40 {
        let store = Arc::clone(&stores[number % 2]);
        requests.spawn(async move { store.count(&changes(), TEN).await.unwrap() });
    }
    let answers = requests.join_all().await;
    let charged = answers.iter().filter(|answer| matches!(answer, Verdict::Admitted { .. })).count();
    assert_eq!(charged, 10);
    for store in &stores {
        assert_eq!(store.status(client(), agent(1), TEN).await.unwrap().left, 0);
        let charged = store.count(&changes(), TEN).await.unwrap();
        let Verdict::Limited { retry_after_micros } = charged else { panic!("both know that it is spent") };
        assert_eq!(retry_after_micros, 3_600_000_000);
    }
    // Of what a fault ended nothing counts.
    stores[1].give_back(client(), agent(1), KeyBudget::Changes).await;
    let charged = stores[0].count(&changes(), TEN).await.unwrap();
    assert_eq!(charged, Verdict::Admitted { remaining: 0 });
    assert!(matches!(stores[1].count(&changes(), TEN).await.unwrap(), Verdict::Limited { .. }));
    clock.advance_secs(3_600);
    let charged = stores[0].count(&changes(), TEN).await.unwrap();
    assert_eq!(charged, Verdict::Admitted { remaining: 9 });
}
