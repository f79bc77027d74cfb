//! Budgets of key management over several replicas: both know what is spent and what was given back.

use crate::domain::{ClientNet, Quota, Verdict};
use crate::ports::{Budget, KeyBudget, Store};
use crate::store::contract::agent;
use crate::store::redis::tests::{opened, options, served};

const TWO: Quota = Quota::per_hour(2);

// threat: A fault spends an owner's budget
#[tokio::test]
async fn what_one_replica_charges_is_spent_at_the_other_and_what_it_gives_back_is_not() {
    let Some((server, one, clock)) = served(&[]).await else { return };
    let other = opened(options(&server.url()), &clock).await;
    let client = ClientNet::of("192.0.2.1".parse().unwrap());
    let changes = Budget::Key(client, agent(1), KeyBudget::Changes);
    for (store, remaining) in [(&one, 1), (&other, 0)] {
        assert_eq!(store.count(&changes, TWO).await.unwrap(), Verdict::Admitted { remaining });
    }
    for store in [&one, &other] {
        assert_eq!(store.status(client, agent(1), TWO).await.unwrap().left, 0);
        let charged = store.count(&changes, TWO).await.unwrap();
        assert_eq!(charged, Verdict::Limited { retry_after_micros: 3_600_000_000 });
    }
    // Of what a fault ended nothing counts.
    other.give_back(client, agent(1), KeyBudget::Changes).await;
    assert_eq!(one.count(&changes, TWO).await.unwrap(), Verdict::Admitted { remaining: 0 });
    assert!(matches!(other.count(&changes, TWO).await.unwrap(), Verdict::Limited { .. }));
    clock.advance_secs(3_600);
    assert_eq!(one.count(&changes, TWO).await.unwrap(), Verdict::Admitted { remaining: 1 });
}
