//! Several replicas of the product at one Redis, asked at once: what is counted is counted once. Keys that one replaces and
//! another is asked about are in `sequences.rs` and `history.rs`.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::domain::{ClientNet, Quota, Verdict};
use crate::ports::{Admission, Budget, KeyBudget, KeyChange, Proof, RouteScope, Scope, Store};
use crate::store::contract::{agent, claim, digest, key};
use crate::store::redis::tests::{SIGNED_SECS, opened, options, served};

// threat: One visitor takes a public route
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_replicas_that_are_hammered_at_once_admit_exactly_the_limit_of_whatever_is_counted() {
    let Some((server, one, clock)) = served(&[]).await else { return };
    let stores = [Arc::new(one), Arc::new(opened(options(&server.url()), &clock).await)];
    stores[0].changed(agent(1), claim(0, SIGNED_SECS), KeyChange::Issue(key(0))).await.unwrap();
    let client = ClientNet::of("192.0.2.1".parse().unwrap());
    // An agent's requests, a client's on a public route, and its changes of a key.
    for (budget, quota) in [
        (None, Quota::per_minute(166)),
        (Some(Budget::Route((client, RouteScope("acme/docs/* ".into())))), Quota::per_minute(166)),
        (Some(Budget::Key(client, agent(1), KeyBudget::Changes)), Quota::per_hour(10)),
    ] {
        let mut requests = JoinSet::new();
        for number in 0..1_000 {
            let (store, budget) = (Arc::clone(&stores[number % 2]), budget.clone());
            requests.spawn(async move {
                if let Some(budget) = budget {
                    let Verdict::Admitted { remaining } = store.count(&budget, quota).await.unwrap() else {
                        return None;
                    };
                    return Some(remaining);
                }
                let proof = Proof::Key(digest(0));
                let admission = store.admit(agent(1), &Scope::Api, quota, &proof).await.unwrap();
                let Admission::Admitted { remaining } = admission else { return None };
                Some(remaining)
            });
        }
        let mut left: Vec<u32> = requests.join_all().await.into_iter().flatten().collect();
        left.sort_unstable();
        assert_eq!(left, (0..quota.limit).collect::<Vec<_>>(), "{budget:?}");
    }
}
