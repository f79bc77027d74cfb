//! The folder, the file and the lock.

use std::sync::{Arc, atomic::Ordering};
use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use redb::{Database, TableDefinition};

use crate::ports::simulated::SimulatedClock;
use crate::store::embedded::tests::{clock, options, reopen};
use crate::store::{
    contract::until, embedded::EmbeddedStore, embedded::file::OpenError, embedded::tests::platter::Platter,
};

/// Makes it where it is not there.
fn open(path: &Path, clock: &Arc<SimulatedClock>) -> Result<EmbeddedStore, OpenError> {
    EmbeddedStore::open(options(path), Arc::clone(clock) as _)
}

#[test]
fn folder_and_files_are_made_for_the_owner_alone() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("a/b");
    let store = open(&folder, &clock()).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    for name in ["tiergate.redb", "tiergate.lock"] {
        assert_eq!(mode(&folder.join(name)), 0o600, "{name}");
    }
    assert!(!folder.join("tiergate.redb.new").exists());
    drop(store);
}

#[tokio::test]
async fn the_size_of_the_file_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), &clock()).unwrap();
    let bytes = fs::metadata(folder.path().join("tiergate.redb")).unwrap().len();
    until("it is known", async || (store.shared.size.load(Ordering::Relaxed) == bytes).then_some(())).await;
}

#[tokio::test]
async fn a_second_open_is_refused_until_the_first_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), &clock()).unwrap();
    let error = open(folder.path(), &clock()).err().unwrap();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    assert!(error.to_string().contains(folder.path().to_str().unwrap()), "{error}");
    drop(store);
    reopen(folder.path(), &clock()).await;
}

#[test]
fn an_unfinished_new_file_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tiergate.redb.new"), "redb, half").unwrap();
    drop(open(folder.path(), &clock()).unwrap());
    assert!(!folder.path().join("tiergate.redb.new").exists());
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let parent = tempfile::tempdir().unwrap();
    let file = parent.path().join("file");
    fs::write(&file, "").unwrap();
    let error = open(&file.join("store"), &clock()).err().unwrap();
    assert!(matches!(error, OpenError::Unusable { .. }), "{error}");
    assert!(error.to_string().contains(file.to_str().unwrap()), "{error}");
}

#[test]
fn another_layout_is_refused_by_name() {
    let platter = Platter::with_store();
    let database = Database::builder().create_with_backend(platter.clone()).unwrap();
    let mut transaction = database.begin_write().unwrap();
    transaction.set_two_phase_commit(true);
    transaction.open_table(TableDefinition::<&str, u64>::new("meta")).unwrap().insert("layout", 2).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let error = platter.open().err().unwrap();
    assert!(matches!(error, OpenError::UnknownLayout { found: 2, .. }), "{error}");
}
