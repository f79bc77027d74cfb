//! Endpoints that another release has stored and this one refuses.

use redb::TableDefinition;

use crate::ports::{Admission, KeyChange, KeyChanged, NonceRefused, Store};
use crate::store::contract::{agent, claim, digest, key};
use crate::store::embedded::tests::platter::Platter;
use crate::store::embedded::tests::{START_SECS, by_key, by_nonce, clock, on, rotate};

const KEYS: TableDefinition<'_, [u8; 32], ([u8; 32], Option<&str>)> = TableDefinition::new("keys");

/// Writes the row of agent 1's key as earlier releases do, which know nothing beside it.
pub(super) fn overwrite(platter: &Platter, number: u64, endpoint: Option<&str>) {
    let (database, _) = platter.open().unwrap();
    let transaction = database.begin_write().unwrap();
    let row = (digest(number).to_bytes(), endpoint);
    transaction.open_table(KEYS).unwrap().insert(agent(1).to_bytes(), row).unwrap();
    transaction.commit().unwrap();
}

/// A disk whose agents 1 and 2 have the keys of their numbers, the first with this endpoint.
async fn with_endpoint(endpoint: &str) -> Platter {
    let (platter, clock) = (Platter::with_store(), clock());
    let store = on(&platter, &clock);
    rotate(&store, 1, 1, 1).await;
    rotate(&store, 2, 1, 2).await;
    drop(store);
    overwrite(&platter, 1, Some(endpoint));
    platter
}

#[tokio::test]
async fn an_endpoint_that_cannot_be_read_refuses_its_own_key_and_no_other() {
    for endpoint in ["gopher://agent.example", "", "https://u:p@agent.example"] {
        let (platter, clock) = (with_endpoint(endpoint).await, clock());
        let store = on(&platter, &clock);
        assert_eq!(store.find(&digest(1)).await.unwrap(), None, "{endpoint:?}");
        assert_eq!(by_key(&store, 1, 1).await, Admission::KeyRevoked);
        assert!(!store.has_key(agent(1)).await.unwrap());
        assert!(matches!(by_key(&store, 2, 2).await, Admission::Admitted { .. }));
        assert!(matches!(by_nonce(&store, 1, 2).await, Admission::Admitted { .. }));
        assert_eq!(by_nonce(&store, 1, 1).await, Admission::NonceRefused(NonceRefused::Used));
    }
}

#[tokio::test]
async fn the_owner_of_such_a_key_makes_another_one() {
    for issues in [true, false] {
        let (platter, clock) = (with_endpoint("gopher://agent.example").await, clock());
        let store = on(&platter, &clock);
        let change = if issues { KeyChange::Issue(key(9)) } else { KeyChange::Rotate(key(9)) };
        let changed = store.changed(agent(1), claim(7, START_SECS), change).await.unwrap();
        assert_eq!(changed, KeyChanged::Done);
        for _ in 0..2 {
            let store = on(&Platter::with(platter.bytes()), &clock);
            assert!(matches!(by_key(&store, 1, 9).await, Admission::Admitted { .. }));
            assert_eq!(by_key(&store, 1, 1).await, Admission::KeyRevoked);
        }
    }
}
