//! Tests of what only the embedded store does: the contract that every store keeps is in `store/contract.rs`.

use std::{fs, path::Path, sync::Arc};

use alloy::primitives::{Address, U256};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use crate::domain::{AgentId, Binding, HeldKey, Nonce, UnixSeconds, WebOrigin};
use crate::ports::{
    Admission, KeyChange, KeyChanged, NewKey, NonceRefused, Proof, Scope, Store, simulated::SimulatedClock,
};
use crate::store::contract::{Bench, MANY, SIGNER, agent, claim, digest, key, store_contract, until};
use crate::store::embedded::file::{OpenError, is_there};
use crate::store::embedded::{EmbeddedStore, Options};
use crate::store::{embedded::book::Book, embedded::keys::Keys, embedded::tests::platter::Platter};

mod bound;
mod damage;
mod endpoints;
mod faults;
mod files;
mod forgetting;
mod hanging;
mod killed;
mod lost;
mod older;
mod platter;
mod sharing;
mod signers;

/// The wall clock at the start of a test, in Unix seconds.
const START_SECS: u64 = 1_700_000_000;
const DAY_SECS: u64 = 86_400;

fn binding() -> Binding {
    Binding::new(8004, Address::repeat_byte(1), false)
}

fn options(path: &Path) -> Options {
    Options { path: path.to_owned(), binding: binding(), nonce_retention_secs: DAY_SECS, max_ahead_secs: 60 }
}

fn open(path: &Path, clock: &Arc<SimulatedClock>) -> Result<EmbeddedStore, OpenError> {
    open_with(options(path), clock)
}

/// Opens a store. One that is not there yet was made long ago.
fn open_with(options: Options, clock: &Arc<SimulatedClock>) -> Result<EmbeddedStore, OpenError> {
    if !is_there(&options.path) && fs::create_dir_all(&options.path).is_ok() {
        let made = Platter::with_store_for(&options.binding).bytes();
        fs::write(options.path.join("tiergate.redb"), made).unwrap();
    }
    EmbeddedStore::open(options, Arc::clone(clock) as _)
}

/// Opens a store again. A program that another test just starts holds what is locked for a moment longer than the store.
async fn reopen(path: &Path, clock: &Arc<SimulatedClock>) -> EmbeddedStore {
    reopen_with(options(path), clock).await
}

async fn reopen_with(options: Options, clock: &Arc<SimulatedClock>) -> EmbeddedStore {
    until("the folder is free", async || match open_with(options.clone(), clock) {
        Err(OpenError::InUse { .. }) => None,
        opened => Some(opened.unwrap()),
    })
    .await
}

/// A store on a disk in memory.
fn on(platter: &Platter, clock: &Arc<SimulatedClock>) -> EmbeddedStore {
    let options = options(Path::new("platter"));
    EmbeddedStore::on(Box::new(platter.clone()), options, Arc::clone(clock) as _).unwrap()
}

/// Every nonce in a file, and whose it was.
fn used_nonces(database: &Database) -> Vec<(AgentId, Nonce)> {
    let transaction = database.begin_read().unwrap();
    let table = transaction.open_table(TableDefinition::<[u8; 64], u64>::new("nonces")).unwrap();
    let half = |bytes: &[u8]| <[u8; 32]>::try_from(bytes).unwrap();
    let read = |row: [u8; 64]| {
        (AgentId::from_bytes(half(&row[..32])), Nonce::new(U256::from_be_bytes(half(&row[32..]))))
    };
    table.iter().unwrap().map(|row| read(row.unwrap().0.value())).collect()
}

fn clock() -> Arc<SimulatedClock> {
    Arc::new(SimulatedClock::new(START_SECS))
}

// threat: A store made anew forgets
#[tokio::test]
async fn a_store_made_anew_takes_no_signature_that_the_lost_one_may_have_taken() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
    let made = || EmbeddedStore::open(options(folder.path()), Arc::clone(&clock) as _);
    let store = open(folder.path(), &clock).unwrap();
    for (nonce, signed_at_secs) in [(1, START_SECS), (2, START_SECS + 60)] {
        let proof = Proof::Nonce(claim(nonce, signed_at_secs));
        let admission = store.admit(agent(1), &Scope::Api, MANY, &proof).await.unwrap();
        assert!(matches!(admission, Admission::Admitted { .. }));
    }
    rotate(&store, 1, 3, 1).await;
    drop(store);
    fs::remove_file(folder.path().join("tiergate.redb")).unwrap();
    let store = until("the folder is free", async || made().ok()).await;
    let accepted_from = UnixSeconds(START_SECS + 61);
    for (nonce, signed_at_secs) in [(1, START_SECS), (2, START_SECS + 60), (4, START_SECS)] {
        let claim = claim(nonce, signed_at_secs);
        let admission = store.admit(agent(1), &Scope::Api, MANY, &Proof::Nonce(claim)).await.unwrap();
        let changed = store.changed(agent(1), claim, KeyChange::Issue(key(1))).await.unwrap();
        let (Admission::NonceRefused(refused), KeyChanged::NonceRefused(too)) = (admission, changed) else {
            panic!("{admission:?}, {changed:?}")
        };
        assert!(
            matches!(refused, NonceRefused::Forgotten { accepted_from: from, .. } if from == accepted_from)
        );
        assert_eq!(refused, too);
    }
    assert_eq!(store.signatures_accepted_from(), Some(accepted_from));
    clock.advance_secs(61);
    assert_eq!(store.signatures_accepted_from(), None);
    let proof = Proof::Nonce(claim(4, START_SECS + 61));
    let admission = store.admit(agent(1), &Scope::Api, MANY, &proof).await.unwrap();
    assert!(matches!(admission, Admission::Admitted { .. }));
}

async fn bench() -> Bench {
    let clock = clock();
    Bench {
        // A busy machine's own disk may take longer than a store waits.
        store: Arc::new(on(&Platter::with_store(), &clock)),
        advance_secs: Box::new(move |secs| clock.advance_secs(secs)),
        signed_at_secs: START_SECS,
        _keep: Box::new(()),
    }
}

store_contract!(bench);

async fn by_nonce(store: &EmbeddedStore, agent_number: u64, nonce: u64) -> Admission {
    let proof = Proof::Nonce(claim(nonce, START_SECS));
    store.admit(agent(agent_number), &Scope::Api, MANY, &proof).await.unwrap()
}

async fn by_key(store: &EmbeddedStore, agent_number: u64, key: u64) -> Admission {
    store.admit(agent(agent_number), &Scope::Api, MANY, &Proof::Key(digest(key))).await.unwrap()
}

async fn rotate(store: &EmbeddedStore, agent_number: u64, nonce: u64, new: u64) -> KeyChanged {
    let change = KeyChange::Rotate(key(new));
    store.changed(agent(agent_number), claim(nonce, START_SECS), change).await.unwrap()
}

#[tokio::test]
async fn keys_endpoints_and_nonces_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let origin = WebOrigin::parse("https://app.example:8443/hook?x=1").unwrap();
    let clock = clock();
    let store = open(folder.path(), &clock).unwrap();
    let new_key = NewKey { origin: Some(origin.clone()), ..key(1) };
    store.changed(agent(1), claim(1, START_SECS), KeyChange::Issue(new_key)).await.unwrap();
    rotate(&store, 2, 1, 2).await;
    rotate(&store, 2, 2, 22).await;
    rotate(&store, 3, 1, 3).await;
    store.changed(agent(3), claim(2, START_SECS), KeyChange::Revoke(None)).await.unwrap();
    by_nonce(&store, 4, 1).await;
    drop(store);

    let store = reopen(folder.path(), &clock).await;
    let owner = store.find(&digest(1)).await.unwrap().unwrap();
    assert_eq!((owner.agent, owner.declared_origin.as_ref()), (agent(1), Some(&origin)));
    assert_eq!(owner.signer, Some(SIGNER));
    assert!(matches!(by_key(&store, 2, 22).await, Admission::Admitted { .. }));
    for (agent_number, gone) in [(2, 2), (3, 3)] {
        assert_eq!(store.find(&digest(gone)).await.unwrap(), None);
        assert_eq!(by_key(&store, agent_number, gone).await, Admission::KeyRevoked);
    }
    for (agent_number, nonce) in [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (4, 1)] {
        assert_eq!(by_nonce(&store, agent_number, nonce).await, Admission::NonceRefused(NonceRefused::Used));
    }
}

// threat: Made-up keys fill memory
#[tokio::test]
async fn unknown_keys_and_refused_changes_leave_nothing_in_memory() {
    let store = on(&Platter::with_store(), &clock());
    for number in 0..1_000 {
        assert_eq!(store.find(&digest(number)).await.unwrap(), None);
        assert_eq!(by_key(&store, number, number).await, Admission::KeyRevoked);
    }
    rotate(&store, 1, 7, 1).await;
    rotate(&store, 1, 6, 2).await;
    assert_eq!(store.shared.book.census(), (1, 1));
    assert_eq!(by_nonce(&store, 1, 7).await, Admission::NonceRefused(NonceRefused::Used));
    store.changed(agent(1), claim(8, START_SECS), KeyChange::Revoke(None)).await.unwrap();
    store.changed(agent(2), claim(8, START_SECS), KeyChange::Revoke(None)).await.unwrap();
    assert_eq!(store.shared.book.census(), (0, 0));
}

#[tokio::test]
async fn idle_windows_go_and_live_ones_stay() {
    let clock = clock();
    let store = on(&Platter::with_store(), &clock);
    for number in 0..500 {
        by_nonce(&store, number, 1).await;
    }
    rotate(&store, 1_000, 1, 1).await;
    assert_eq!(store.shared.book.census(), (501, 1));
    for second in 0..100 {
        clock.advance_secs(1);
        by_nonce(&store, 0, 2 + second).await;
    }
    assert_eq!(store.shared.book.census(), (2, 1), "the one that is busy and the one with a key");
    assert_eq!(by_nonce(&store, 0, 1_000).await, Admission::Admitted { remaining: 2_699 - 60 });
}

/// Computed from the tables, so that it says the same on every machine; `scripts/measure-agents` weighs a process.
#[test]
fn a_known_agent_takes_less_than_400_bytes() {
    const AGENTS: u64 = 3_125;
    let book = Book::default();
    let mut origins = 0;
    for number in 0..AGENTS {
        let origin = WebOrigin::parse(&format!("https://agent-{number}.example")).unwrap();
        // An origin is shared by reference counts: two words beside its text.
        origins += origin.as_str().len() + 16;
        let key = HeldKey::plain(digest(number), Some(origin), Some(SIGNER));
        book.set_keys(agent(number), Keys::of(vec![key]));
    }
    let bytes = (book.table_bytes() + origins) / AGENTS as usize;
    assert!((100..400).contains(&bytes), "{bytes} bytes");
}
