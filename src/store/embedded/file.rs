//! The file of the embedded store and the folder it lives in: made whole, locked, and verified before use.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use redb::backends::FileBackend;
use redb::{Builder, Database, DatabaseError, StorageBackend, StorageError};

use crate::store::embedded::header::{Finding, HEADER_BYTES, STATE_BYTE_AT, examine};
use crate::store::embedded::tables::{self, LAYOUT, LoadError, Loaded};

/// How much of the file redb may keep in memory. Only nonces are read after the start, and those that matter are young.
const CACHE_BYTES: usize = 8 << 20;

const FILE_NAME: &str = "tiergate.redb";
const UNFINISHED_NAME: &str = "tiergate.redb.new";
const LOCK_NAME: &str = "tiergate.lock";

/// Why the store can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Somebody else has it.
    #[error("the store in {} is in use by another process, or twice by this one", folder.display())]
    InUse {
        /// The store's folder.
        folder: PathBuf,
    },
    /// What was written is not what is there.
    #[error(
        "the store {} is damaged ({what}); restore it from a backup, or move it away to start with an empty one",
        file.display()
    )]
    Damaged {
        /// The store's file.
        file: PathBuf,
        /// What gave it away.
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
    /// The folder can't be made or used.
    #[error("the folder {} can't be used for the store: {cause}", folder.display())]
    Folder {
        /// The store's folder.
        folder: PathBuf,
        /// What the operating system said.
        cause: io::Error,
    },
    /// The file can't be made, read or written.
    #[error("the store {} can't be read or written: {cause}", file.display())]
    File {
        /// The store's file.
        file: PathBuf,
        /// What the operating system said.
        cause: io::Error,
    },
    /// The operating system gave no thread for the writer.
    #[error("the store in {} has no thread to write with: {cause}", folder.display())]
    NoThread {
        /// The store's folder.
        folder: PathBuf,
        /// What the operating system said.
        cause: io::Error,
    },
}

/// Where the database lives. The file is one such place; tests put a disk that fails on command here.
pub(super) trait Disk: Send {
    /// Opens the database and verifies all of it. It must have been made before: nothing missing is made up.
    fn open(&self) -> Result<(Database, Loaded), OpenError>;
}

/// The store's folder, held against every other process until this is dropped.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    file: PathBuf,
    _lock: File,
}

impl Folder {
    /// Makes the folder if it is missing and locks it.
    pub(super) fn take(path: &Path) -> Result<Self, OpenError> {
        let failed = |cause| OpenError::Folder { folder: path.to_owned(), cause };
        make_folder(path).map_err(failed)?;
        let lock = private().truncate(false).create(true).open(path.join(LOCK_NAME)).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), file: path.join(FILE_NAME), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(OpenError::InUse { folder: path.to_owned() }),
            Err(TryLockError::Error(cause)) => Err(failed(cause)),
        }
    }

    /// Makes an empty store when there is none. It gets its name only when all of it is on the disk, so that whatever
    /// bears that name was a store once and is never begun anew.
    pub(super) fn make_if_missing(&self) -> Result<(), OpenError> {
        let failed = |cause| OpenError::File { file: self.file.clone(), cause };
        match fs::symlink_metadata(&self.file) {
            Ok(_) => return Ok(()),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
            Err(cause) => return Err(failed(cause)),
        }
        let unfinished = self.path.join(UNFINISHED_NAME);
        let file = private().truncate(true).create(true).open(&unfinished).map_err(failed)?;
        let synced = file.try_clone().map_err(failed)?;
        let made = FileBackend::new(file)
            .and_then(|backend| builder().create_with_backend(backend))
            .map_err(redb::Error::from)
            .and_then(|database| tables::lay_out(&database));
        made.map_err(|error| failed(io::Error::other(error)))?;
        synced.sync_all().map_err(failed)?;
        fs::rename(&unfinished, &self.file).map_err(failed)?;
        sync_folder(&self.path).map_err(failed)
    }
}

impl Disk for Folder {
    fn open(&self) -> Result<(Database, Loaded), OpenError> {
        let opened = OpenOptions::new().read(true).write(true).open(&self.file);
        let file = opened.map_err(|cause| OpenError::File { file: self.file.clone(), cause })?;
        let backend = FileBackend::new(file).map_err(|error| refusal(error, &self.file))?;
        verified(backend, &self.file)
    }
}

/// Opens a database and verifies the checksum of every page in use, and every row that is loaded.
///
/// redb checks what it reads, but a page of garbage may still trip one of its assertions: that is damage too.
pub(super) fn verified(backend: impl StorageBackend, file: &Path) -> Result<(Database, Loaded), OpenError> {
    let damaged = |what: String| OpenError::Damaged { file: file.to_owned(), what };
    judge_header(&backend, file)?;
    let opened = catch_unwind(AssertUnwindSafe(|| -> Result<_, OpenError> {
        let mut database = builder().create_with_backend(backend).map_err(|error| refusal(error, file))?;
        match database.check_integrity() {
            Ok(true) => {}
            Ok(false) => return Err(damaged("its parts contradict each other".to_owned())),
            Err(error) => return Err(refusal(error, file)),
        }
        let loaded = tables::load(&database).map_err(|error| match error {
            LoadError::UnknownLayout(found) => OpenError::UnknownLayout { file: file.to_owned(), found },
            LoadError::Damaged(what) => damaged(what.to_owned()),
            LoadError::Redb(redb::Error::Io(cause)) => OpenError::File { file: file.to_owned(), cause },
            LoadError::Redb(error) => damaged(error.to_string()),
        })?;
        Ok((database, loaded))
    }));
    opened.unwrap_or_else(|_| Err(damaged("reading it fails".to_owned())))
}

/// Refuses a header that can't be ours. Has redb settle one that a process left when it died.
fn judge_header(backend: &impl StorageBackend, file: &Path) -> Result<(), OpenError> {
    let failed = |cause| OpenError::File { file: file.to_owned(), cause };
    let damaged = |what: &str| OpenError::Damaged { file: file.to_owned(), what: what.to_owned() };
    if backend.len().map_err(failed)? < HEADER_BYTES as u64 {
        return Err(damaged("it is too short to be a store"));
    }
    let mut header = [0; HEADER_BYTES];
    backend.read(0, &mut header).map_err(failed)?;
    match examine(&header).map_err(damaged)? {
        Finding::Settled => Ok(()),
        Finding::Unsettled { state_byte } => {
            backend.write(STATE_BYTE_AT, &[state_byte]).map_err(failed)?;
            backend.sync_data().map_err(failed)
        }
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "whatever else redb says of a file, it says of the content"
)]
fn refusal(error: DatabaseError, file: &Path) -> OpenError {
    let file = file.to_owned();
    if matches!(error, DatabaseError::DatabaseAlreadyOpen) {
        return OpenError::InUse { folder: file.parent().unwrap_or(&file).to_owned() };
    }
    match error {
        // Other kinds are how redb says that the file ends too early, or is none of its own.
        DatabaseError::Storage(StorageError::Io(cause))
            if !matches!(cause.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData) =>
        {
            OpenError::File { file, cause }
        }
        error => OpenError::Damaged { file, what: error.to_string() },
    }
}

/// Makes the folder and those above it that are missing, so that a power cut does not take them away again.
fn make_folder(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if parent != path {
        make_folder(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(cause) => Err(cause),
        Ok(()) => sync_folder(parent),
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}
