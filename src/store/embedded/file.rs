//! The file of the embedded store and its folder: created whole, locked, and verified before use.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use redb::backends::FileBackend;
use redb::{Builder, Database, StorageBackend};

use crate::store::embedded::tables::{self, LAYOUT, Loaded};

/// How many bytes of the file redb may keep in memory. After the start only nonces are read.
const CACHE_BYTES: usize = 8 << 20;

const FILE_NAME: &str = "tiergate.redb";
const UNFINISHED_NAME: &str = "tiergate.redb.new";
const LOCK_NAME: &str = "tiergate.lock";

/// Why the store can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process, or another part of this one, has the store open.
    #[error("the store in {} is in use by another process, or twice by this one", folder.display())]
    InUse {
        /// The store's folder.
        folder: PathBuf,
    },
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
    /// The folder or the file can't be made, read or written, or there is no thread for the writer.
    #[error("the store {} can't be used: {cause}", path.display())]
    Unusable {
        /// The folder or the file.
        path: PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
}

/// Where the database lives. The file is one such place; tests put a disk that fails on command here.
pub(super) trait Disk: Send {
    /// Opens the database and verifies all of it. Fails if there is none.
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
        let failed = |cause| OpenError::Unusable { path: path.to_owned(), cause };
        make_folder(path).map_err(failed)?;
        let lock = private().truncate(false).create(true).open(path.join(LOCK_NAME)).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), file: path.join(FILE_NAME), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(OpenError::InUse { folder: path.to_owned() }),
            Err(TryLockError::Error(cause)) => Err(failed(cause)),
        }
    }

    /// Makes an empty store if there is none. The file gets its name when all of it is on the disk, so that a file with
    /// that name is always a whole store.
    pub(super) fn make_if_missing(&self) -> Result<(), OpenError> {
        let failed = |cause| OpenError::Unusable { path: self.file.clone(), cause };
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
        let file = opened.map_err(|cause| OpenError::Unusable { path: self.file.clone(), cause })?;
        let backend = FileBackend::new(file).map_err(|error| refusal(error.into(), &self.file))?;
        verified(backend, &self.file)
    }
}

/// Opens a database and verifies the checksum of every page in use, and every row that is loaded.
///
/// redb checks what it reads, but a page of garbage may still trip one of its assertions: that is damage too.
pub(super) fn verified(backend: impl StorageBackend, file: &Path) -> Result<(Database, Loaded), OpenError> {
    let damaged = |what: &str| OpenError::Damaged { file: file.to_owned(), what: what.to_owned() };
    // redb would make a new database of an empty file.
    if backend.len().map_err(|cause| OpenError::Unusable { path: file.to_owned(), cause })? == 0 {
        return Err(damaged("it is empty"));
    }
    let opened = catch_unwind(AssertUnwindSafe(|| -> Result<_, redb::Error> {
        let mut database = builder().create_with_backend(backend)?;
        if !database.check_integrity()? {
            return Err(redb::Error::Corrupted("its parts contradict each other".to_owned()));
        }
        match tables::layout(&database)? {
            LAYOUT => tables::load(&database).map(|loaded| Ok((database, loaded))),
            found => Ok(Err(OpenError::UnknownLayout { file: file.to_owned(), found })),
        }
    }));
    match opened {
        Ok(Ok(opened)) => opened,
        Ok(Err(error)) => Err(refusal(error, file)),
        Err(_) => Err(damaged("reading it fails")),
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "every other error of redb while it opens a file is about the content"
)]
fn refusal(error: redb::Error, file: &Path) -> OpenError {
    let file = file.to_owned();
    match error {
        redb::Error::DatabaseAlreadyOpen => {
            OpenError::InUse { folder: file.parent().unwrap_or(&file).to_owned() }
        }
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
