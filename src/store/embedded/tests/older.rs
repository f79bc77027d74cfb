//! A file whose records are of version 1: it is opened, and a record becomes one of version 2 where an agent has more than that holds.

use std::fs;

use alloy::primitives::{Address, address};
use redb::{ReadableDatabase, TableDefinition};
use tempfile::TempDir;

use crate::domain::{ApiKeyFormat, Binding};
use crate::ports::{Admission, KeyChange, KeyChanged, Proof, Scope, Store};
use crate::store::contract::{MANY, agent, claim, digest, key, named};
use crate::store::embedded::tests::{clock, open_with, options, reopen_with};
use crate::store::embedded::{EmbeddedStore, Options};

/// `tests/fixtures/README.md` says how the file was made.
const FILE: &[u8] = include_bytes!("../../../../tests/fixtures/data-record-1/tiergate.redb");
const GENERATED: &str = "svc_live_v1_f864fedf4e4bf61aeeea2d3ece7160e934504f59c8b0f75e96065e2a7bd5c810";
const REVOKED: &str = "svc_live_v1_e485df4e98cc7873ef557853a6e68dead9650b1698d445f878641bae101e5574";
const ROTATED: &str = "svc_live_v1_9c744f0a71b4a2139f4142072a32b3f3051a58854db06d939b1e68ec89c21582";

/// After the file was made, so that signatures are taken.
const SIGNED_SECS: u64 = 1_900_000_000;

/// How former releases read a row.
const KEYS: TableDefinition<'_, [u8; 32], ([u8; 32], Option<&str>)> = TableDefinition::new("keys");

fn of(folder: &TempDir) -> Options {
    let registry = address!("0x5FbDB2315678afecb367f032d93F642f64180aa3");
    Options { binding: Binding::new(8004, registry, true), ..options(folder.path()) }
}

/// The agent, origin and signer of a key, if it is good.
async fn owner(store: &EmbeddedStore, key: &str) -> Option<(u64, Option<String>, Option<Address>)> {
    let digest = ApiKeyFormat::new("svc_live_v1_").digest(key.as_bytes()).unwrap();
    let owner = store.find(&digest).await.unwrap()?;
    let admission = store.admit(owner.agent, &Scope::Api, MANY, &Proof::Key(digest)).await.unwrap();
    assert!(matches!(admission, Admission::Admitted { .. }), "{admission:?}");
    let origin = owner.declared_origin.map(|origin| origin.as_str().to_owned());
    Some((owner.agent.token_id().to(), origin, owner.signer))
}

/// The text that a former release finds in the place of an endpoint.
fn endpoint(folder: &TempDir, number: u64) -> Option<String> {
    let database = redb::Database::open(folder.path().join("tiergate.redb")).unwrap();
    let table = database.begin_read().unwrap().open_table(KEYS).unwrap();
    table.get(agent(number).to_bytes()).unwrap().unwrap().value().1.map(str::to_owned)
}

#[tokio::test]
async fn a_store_with_records_of_version_1_is_opened_and_they_stay_so_until_an_agent_has_more() {
    let (folder, clock) = (TempDir::new().unwrap(), clock());
    fs::write(folder.path().join("tiergate.redb"), FILE).unwrap();
    let origin = Some("https://app.example".to_owned());
    let generated = Some((2, origin, Some(address!("0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC"))));
    let rotated = Some((4, None, Some(address!("0x15d34AAf54267DB7D7c367839AAf71A00a2C6A65"))));
    let store = open_with(of(&folder), &clock).unwrap();
    let all = async |store: &EmbeddedStore| {
        (owner(store, GENERATED).await, owner(store, REVOKED).await, owner(store, ROTATED).await)
    };
    let expected = (generated, None, rotated);
    assert_eq!(all(&store).await, expected);
    let change = async |store: &EmbeddedStore, nonce, change| {
        store.changed(agent(2), claim(nonce, SIGNED_SECS), change).await.unwrap()
    };
    assert_eq!(change(&store, 1, KeyChange::Issue(key(1))).await, KeyChanged::KeyExists);
    assert_eq!(change(&store, 1, KeyChange::Issue(named(1, "ci", 2))).await, KeyChanged::Done);
    assert_eq!((all(&store).await, store.keys(agent(2)).await.unwrap().len()), (expected.clone(), 2));
    drop(store);
    // A former release refuses what it can't read.
    assert!(endpoint(&folder, 2).unwrap().starts_with("2\n"));
    assert_eq!(endpoint(&folder, 4), None);
    let store = reopen_with(of(&folder), &clock).await;
    assert_eq!((all(&store).await, store.keys(agent(2)).await.unwrap().len()), (expected.clone(), 2));
    assert!(store.find(&digest(1)).await.unwrap().is_some());
    let days = store.keys(agent(2)).await.unwrap().into_iter().map(|key| key.days.is_some());
    assert_eq!(days.collect::<Vec<_>>(), [false, true], "nobody kept the days of the first one");
    // With one key without terms it is of version 1 again, which former releases go on with.
    let name = named(1, "ci", 2).terms.name;
    assert_eq!(change(&store, 2, KeyChange::Revoke(name)).await, KeyChanged::Done);
    drop(store);
    assert_eq!(endpoint(&folder, 2).as_deref(), Some("https://app.example"));
    assert_eq!(all(&reopen_with(of(&folder), &clock).await).await, expected);
}
