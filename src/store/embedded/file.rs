//! The file of the embedded store and its folder: created whole, locked, and verified before use.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt, FileExt as _, OpenOptionsExt};
use std::path::{self, Path, PathBuf};

use redb::backends::FileBackend;
use redb::{Builder, Database, DatabaseError, StorageBackend};

use crate::domain::{Binding, OtherChain};
use crate::panic_guard::panic_guard;
use crate::store::embedded::tables::{self, LAYOUT, Loaded};

/// How many bytes of the file redb may keep in memory. After the start only nonces are read.
const CACHE_BYTES: usize = 8 << 20;

const FILE_NAME: &str = "tiergate.redb";
const UNFINISHED_NAME: &str = "tiergate.redb.new";
/// Locked by the process that has the store. Its text is a copy of the store's binding, for [`look`].
const LOCK_NAME: &str = "tiergate.lock";

/// How much of the lock file is read.
const BINDING_BYTES_MAX: u64 = 1_024;

/// Advice for a store of another chain.
const INSTEAD: &str = "another store.embedded.path";

/// Why the store can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process, or another part of this one, has the store open.
    #[error("the store in {} is in use by another process, or twice by this one", .0.display())]
    InUse(PathBuf),
    /// The file is damaged, or is no store.
    #[error(
        "the store {} is damaged ({what}); restore it from a backup, or move it away to start with an empty one",
        file.display()
    )]
    Damaged {
        /// The store's file.
        file: PathBuf,
        /// The first problem that was found.
        what: String,
    },
    /// Another version of this program wrote it.
    #[error("the store {} has layout {found}, but this version of tiergate knows only layout {LAYOUT}", file.display())]
    UnknownLayout {
        /// The store's file.
        file: PathBuf,
        /// The layout that the file names.
        found: u64,
    },
    /// A store with keys of another chain's agents.
    #[error("the store {} {cause}", file.display())]
    OtherChain {
        /// The store's file.
        file: PathBuf,
        /// The two chains.
        cause: OtherChain,
    },
    /// The folder or the file can't be made, read or written, or there is no thread for the writer.
    #[error("the store {} can't be used: {cause}", path.display())]
    Unusable {
        /// The folder or the file.
        path: PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
}

/// The place of the database: the file, or in tests a disk that fails on command.
pub(super) trait Disk: Send {
    /// Opens the database and verifies all of it. Fails if there is none, or it is for another chain.
    fn open(&self, binding: &Binding) -> Result<(Database, Loaded), OpenError>;

    /// How large it is, in bytes.
    fn size(&self) -> Option<u64>;
}

/// The store's folder, held against every other process until this is dropped.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    file: PathBuf,
    lock: File,
}

impl Folder {
    /// Makes the folder if it is missing, locks it, and makes an empty store if there is none.
    /// A new one takes signatures made from this moment on.
    pub(super) fn take(path: &Path, binding: &Binding, from: u64) -> Result<Self, OpenError> {
        let failed = |cause| OpenError::Unusable { path: path.to_owned(), cause };
        make_folder(path).map_err(failed)?;
        let lock = private().truncate(false).open(path.join(LOCK_NAME)).map_err(failed)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => OpenError::InUse(path.to_owned()),
            TryLockError::Error(cause) => failed(cause),
        })?;
        let folder = Self { path: path.to_owned(), file: path.join(FILE_NAME), lock };
        if !is_there(path) {
            folder.make(binding, from).map_err(|error| refusal(error, &folder.file))?;
        }
        Ok(folder)
    }

    /// The file gets its name after the commit, so that a file with that name is always a whole store.
    fn make(&self, binding: &Binding, from: u64) -> Result<(), redb::Error> {
        let unfinished = self.path.join(UNFINISHED_NAME);
        let backend = FileBackend::new(private().truncate(true).open(&unfinished)?)?;
        tables::lay_out(&Builder::new().create_with_backend(backend)?, binding, from)?;
        fs::rename(&unfinished, &self.file)?;
        Ok(sync_folder(&self.path)?)
    }

    fn copy_binding(&self, binding: &Binding) -> io::Result<()> {
        self.lock.set_len(0)?;
        self.lock.write_all_at(binding.as_str().as_bytes(), 0)
    }
}

/// True if the folder holds a store. An error of any other kind than a missing file comes again when the file is opened.
pub fn is_there(folder: &Path) -> bool {
    !fs::symlink_metadata(folder.join(FILE_NAME)).is_err_and(|cause| cause.kind() == io::ErrorKind::NotFound)
}

/// Looks from outside at what a folder's store is for, as the process said that opened it last.
///
/// # Errors
///
/// [`OtherChain`] for another than this.
pub fn inspect(folder: &Path, binding: &Binding) -> Result<String, OtherChain> {
    let mut known = String::new();
    let read = File::open(folder.join(LOCK_NAME))
        .and_then(|file| file.take(BINDING_BYTES_MAX).read_to_string(&mut known));
    if read.is_err() || known.is_empty() {
        return Ok("there is a folder; only the service itself opens the store in it".to_owned());
    }
    binding.check(&known, INSTEAD).map(|()| format!("is for {known}"))
}

impl Disk for Folder {
    fn open(&self, binding: &Binding) -> Result<(Database, Loaded), OpenError> {
        let file = OpenOptions::new().read(true).write(true).open(&self.file);
        let backend = file.map_err(DatabaseError::from).and_then(FileBackend::new);
        let backend = backend.map_err(|error| refusal(error.into(), &self.file))?;
        let opened = verified(backend, &self.file, binding)?;
        // Without the copy `look` says less.
        let _ = self.copy_binding(binding);
        Ok(opened)
    }

    fn size(&self) -> Option<u64> {
        fs::metadata(&self.file).map(|file| file.len()).ok()
    }
}

/// Opens a database and verifies the checksum of every page in use, and every row that is loaded.
///
/// redb checks what it reads, but a page of garbage may still trip one of its assertions: that is damage too.
/// A file of release 0.1 is bound here.
pub(super) fn verified(
    backend: impl StorageBackend,
    file: &Path,
    binding: &Binding,
) -> Result<(Database, Loaded), OpenError> {
    let corrupted = |what: &str| Err(redb::Error::Corrupted(what.to_owned()));
    let opened = panic_guard(|| {
        // redb would make a new database of an empty file.
        if backend.len()? == 0 {
            return corrupted("it is empty");
        }
        let mut database = Builder::new().set_cache_size(CACHE_BYTES).create_with_backend(backend)?;
        if !database.check_integrity()? {
            return corrupted("its parts contradict each other");
        }
        let found = tables::layout(&database)?;
        if found != LAYOUT {
            return Ok(Err(OpenError::UnknownLayout { file: file.to_owned(), found }));
        }
        let known = tables::binding(&database)?;
        if let Some(Err(cause)) = known.as_ref().map(|known| binding.check(known, INSTEAD)) {
            return Ok(Err(OpenError::OtherChain { file: file.to_owned(), cause }));
        }
        let loaded = tables::load(&database)?;
        if known.is_none() {
            tables::bind(&database, binding)?;
            tracing::warn!("the store named no chain: from now on it is for {binding}");
        }
        Ok(Ok((database, loaded)))
    });
    let opened = opened.unwrap_or_else(|_| corrupted("reading it fails"));
    opened.unwrap_or_else(|error| Err(refusal(error, file)))
}

#[expect(clippy::wildcard_enum_match_arm, reason = "redb's other errors here are about the content")]
fn refusal(error: redb::Error, file: &Path) -> OpenError {
    let file = file.to_owned();
    match error {
        redb::Error::DatabaseAlreadyOpen => OpenError::InUse(file),
        // With these two kinds redb reports a file that ends too early or is not its own.
        redb::Error::Io(cause)
            if !matches!(cause.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData) =>
        {
            OpenError::Unusable { path: file, cause }
        }
        error => OpenError::Damaged { file, what: error.to_string() },
    }
}

/// Makes the folder and those above it that are missing, so that a power cut does not take them away again.
fn make_folder(path: &Path) -> io::Result<()> {
    let path = path::absolute(path)?;
    let missing: Vec<_> = path.ancestors().take_while(|folder| !folder.is_dir()).collect();
    DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
    missing.into_iter().filter_map(Path::parent).try_for_each(sync_folder)
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Opens a file for the owner alone, which is made where it is missing.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).mode(0o600);
    options
}
