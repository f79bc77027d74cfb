//! Files of releases that did not keep who signed for a key.

use redb::TableDefinition;

use crate::ports::{Admission, Store};
use crate::store::contract::{SIGNER, agent, digest};
use crate::store::embedded::tests::{by_key, clock, on, rotate};
use crate::store::{embedded::tests::endpoints::overwrite, embedded::tests::platter::Platter};

const SIGNERS: TableDefinition<'_, [u8; 32], ([u8; 32], [u8; 20])> = TableDefinition::new("signers");

#[tokio::test]
async fn a_file_of_a_release_that_kept_no_signers_opens_and_its_keys_are_nobodys() {
    let (platter, clock) = (Platter::with_store(), clock());
    let store = on(&platter, &clock);
    rotate(&store, 1, 1, 1).await;
    drop(store);
    let (database, _) = platter.open().unwrap();
    let transaction = database.begin_write().unwrap();
    assert!(transaction.delete_table(SIGNERS).unwrap());
    transaction.commit().unwrap();
    drop(database);
    let store = on(&platter, &clock);
    let owner = store.find(&digest(1)).await.unwrap().unwrap();
    assert_eq!((owner.agent, owner.signer), (agent(1), None));
    assert!(matches!(by_key(&store, 1, 1).await, Admission::Admitted { .. }));
    rotate(&store, 1, 2, 2).await;
    drop(store);
    let owner = on(&platter, &clock).find(&digest(2)).await.unwrap().unwrap();
    assert_eq!(owner.signer, Some(SIGNER), "a key that replaces it is somebody's");
}

#[tokio::test]
async fn a_key_that_a_former_release_put_in_place_of_another_is_nobodys() {
    let (platter, clock) = (Platter::with_store(), clock());
    let store = on(&platter, &clock);
    rotate(&store, 1, 1, 1).await;
    rotate(&store, 2, 1, 2).await;
    drop(store);
    overwrite(&platter, 9, None);
    let store = on(&platter, &clock);
    assert_eq!(store.find(&digest(9)).await.unwrap().unwrap().signer, None);
    assert_eq!(store.find(&digest(2)).await.unwrap().unwrap().signer, Some(SIGNER));
}
