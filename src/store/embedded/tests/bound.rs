//! A store is for one chain, from its first moment on.

use std::{fs, path::Path, sync::Arc};

use alloy::primitives::Address;

use crate::domain::Binding;
use crate::ports::Store;
use crate::store::contract::{agent, digest};
use crate::store::embedded::file::{Disk, OpenError, inspect};
use crate::store::embedded::tests::platter::Platter;
use crate::store::embedded::tests::{binding, clock, open_with, options, reopen, rotate};
use crate::store::embedded::{EmbeddedStore, Options};

/// The file of release 0.1, which names no chain. One agent has a key.
const UNBOUND: &[u8] = include_bytes!("../../../../tests/fixtures/data-0.1/tiergate.redb");

fn open(folder: &Path, binding: &Binding) -> Result<EmbeddedStore, OpenError> {
    let options = Options { binding: binding.clone(), ..options(folder) };
    open_with(options, &clock())
}

/// Another chain, another registry, and development's with the same numbers.
fn others() -> [Binding; 3] {
    let registry = Address::repeat_byte(1);
    [
        Binding::new(8005, registry, false),
        Binding::new(8004, Address::repeat_byte(2), false),
        Binding::new(8004, registry, true),
    ]
}

#[track_caller]
fn is_refused(opened: Result<EmbeddedStore, OpenError>, known: &Binding, configured: &Binding) {
    let error = opened.err().unwrap();
    assert!(matches!(error, OpenError::OtherChain { .. }), "{error}");
    let said = error.to_string();
    let expected = format!(
        "tiergate.redb is for {known}, and the configuration is for {configured}; write another store.embedded.path, \
         or the chain that it is for"
    );
    assert!(said.ends_with(&expected), "{said}");
}

#[tokio::test]
async fn a_store_is_opened_for_its_own_chain_alone_and_loses_nothing_to_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), &binding()).unwrap();
    rotate(&store, 1, 1, 1).await;
    drop(store);
    for other in others() {
        is_refused(open(folder.path(), &other), &binding(), &other);
    }
    let store = reopen(folder.path(), &clock()).await;
    assert!(store.find(&digest(1)).await.unwrap().is_some());
}

// threat: Another chain's agent of the same number
#[tokio::test]
async fn a_store_of_the_development_chain_is_never_taken_over() {
    let [other_chain, other_registry, development] = others();
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), &development).unwrap();
    rotate(&store, 1, 1, 1).await;
    drop(store);
    for real in [binding(), other_chain, other_registry] {
        is_refused(open(folder.path(), &real), &development, &real);
    }
    assert!(open(folder.path(), &development).unwrap().has_key(agent(1)).await.unwrap());
}

// threat: Another chain's agent of the same number
#[test]
fn a_store_of_release_0_1_belongs_to_the_chain_of_its_first_start() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tiergate.redb"), UNBOUND).unwrap();
    let store = open(folder.path(), &binding()).unwrap();
    assert_eq!(store.shared.book.len(), 1, "its key is there");
    drop(store);
    for other in others() {
        is_refused(open(folder.path(), &other), &binding(), &other);
    }
}

/// The process is killed at each write of it, or loses power.
#[test]
fn a_crash_in_the_first_start_of_a_store_of_release_0_1_loses_nothing_and_half_binds_nothing() {
    let [other, ..] = others();
    let (mut bound, mut unbound) = (0, 0);
    for operations in 0.. {
        let killed = Platter::with(UNBOUND.to_vec());
        killed.fail_in(operations);
        let is_over = killed.open().is_ok() && !killed.is_dead();
        for crashed in [Platter::with(killed.bytes()), killed.after_power_cut(operations)] {
            match Disk::open(&crashed, &other) {
                Ok((_, loaded)) => {
                    unbound += 1;
                    assert_eq!(loaded.keys.len(), 1, "after {operations}");
                }
                Err(OpenError::OtherChain { .. }) => {
                    bound += 1;
                    assert_eq!(crashed.open().unwrap().1.keys.len(), 1, "after {operations}");
                }
                Err(error) => panic!("after {operations}: {error}"),
            }
        }
        if is_over {
            break;
        }
    }
    assert!(bound > 0 && unbound > 3, "{bound} bound and {unbound} unbound");
}

#[tokio::test]
async fn a_folder_says_what_its_store_is_for_while_it_is_in_use_and_afterwards() {
    let parent = tempfile::tempdir().unwrap();
    let (folder, [other, ..]) = (parent.path().join("data"), others());
    fs::create_dir(&folder).unwrap();
    assert!(inspect(&folder, &other).unwrap().starts_with("there is a folder"), "nobody knows yet");
    let store = Arc::new(open(&folder, &binding()).unwrap());
    let tells = || {
        assert_eq!(inspect(&folder, &binding()).unwrap(), format!("is for {}", binding()));
        let said = inspect(&folder, &other).unwrap_err().to_string();
        assert!(said.starts_with(&format!("is for {}, and the configuration is for {other}; ", binding())));
    };
    tells();
    assert!(matches!(open(&folder, &other), Err(OpenError::InUse(_))));
    tells();
    drop(store);
    tells();
    drop(reopen(&folder, &clock()).await);
    is_refused(open(&folder, &other), &binding(), &other);
    tells();
}
