//! The file of the embedded store and its folder: created whole, locked, and verified before use.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{self, Path, PathBuf};

use redb::backends::FileBackend;
use redb::{Builder, Database, DatabaseError, StorageBackend};

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
    /// Opens the database and verifies all of it. Fails if there is none.
    fn open(&self) -> Result<(Database, Loaded), OpenError>;

    /// How large it is, in bytes.
    fn size(&self) -> Option<u64>;
}

/// The store's folder, held against every other process until this is dropped.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    file: PathBuf,
    _lock: File,
}

impl Folder {
    /// Makes the folder if it is missing, locks it, and makes an empty store if there is none.
    pub(super) fn take(path: &Path) -> Result<Self, OpenError> {
        let failed = |cause| OpenError::Unusable { path: path.to_owned(), cause };
        make_folder(path).map_err(failed)?;
        let lock = create(&path.join(LOCK_NAME)).map_err(failed)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => OpenError::InUse(path.to_owned()),
            TryLockError::Error(cause) => failed(cause),
        })?;
        let folder = Self { path: path.to_owned(), file: path.join(FILE_NAME), _lock: lock };
        // An error of any other kind comes again when the file is opened.
        if fs::symlink_metadata(&folder.file).is_err_and(|cause| cause.kind() == io::ErrorKind::NotFound) {
            folder.make().map_err(|error| refusal(error, &folder.file))?;
        }
        Ok(folder)
    }

    /// The file gets its name after the commit, so that a file with that name is always a whole store.
    fn make(&self) -> Result<(), redb::Error> {
        let unfinished = self.path.join(UNFINISHED_NAME);
        let backend = FileBackend::new(create(&unfinished)?)?;
        tables::lay_out(&Builder::new().create_with_backend(backend)?)?;
        fs::rename(&unfinished, &self.file)?;
        Ok(sync_folder(&self.path)?)
    }
}

impl Disk for Folder {
    fn open(&self) -> Result<(Database, Loaded), OpenError> {
        let file = OpenOptions::new().read(true).write(true).open(&self.file);
        let backend = file.map_err(DatabaseError::from).and_then(FileBackend::new);
        verified(backend.map_err(|error| refusal(error.into(), &self.file))?, &self.file)
    }

    fn size(&self) -> Option<u64> {
        fs::metadata(&self.file).map(|file| file.len()).ok()
    }
}

/// Opens a database and verifies the checksum of every page in use, and every row that is loaded.
///
/// redb checks what it reads, but a page of garbage may still trip one of its assertions: that is damage too.
pub(super) fn verified(backend: impl StorageBackend, file: &Path) -> Result<(Database, Loaded), OpenError> {
    let corrupted = |what: &str| Err(redb::Error::Corrupted(what.to_owned()));
    let opened = catch_unwind(AssertUnwindSafe(|| {
        // redb would make a new database of an empty file.
        if backend.len()? == 0 {
            return corrupted("it is empty");
        }
        let mut database = Builder::new().set_cache_size(CACHE_BYTES).create_with_backend(backend)?;
        if !database.check_integrity()? {
            return corrupted("its parts contradict each other");
        }
        match tables::layout(&database)? {
            LAYOUT => tables::load(&database).map(|loaded| Ok((database, loaded))),
            found => Ok(Err(OpenError::UnknownLayout { file: file.to_owned(), found })),
        }
    }));
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

/// An empty file for the owner alone.
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)
}
