//! A disk in memory that fails on command, stops on command, forgets on command, and loses power.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::{io, path::Path, sync::Arc};

use parking_lot::{Condvar, Mutex};
use redb::{Database, StorageBackend};

use crate::domain::Binding;
use crate::store::embedded::file::{Disk, OpenError, verified};
use crate::store::embedded::tables::{self, Loaded};
use crate::store::{contract::PATIENCE, embedded::tests::binding};

/// A shared handle to the disk; a store opens it again and again.
#[derive(Debug, Clone, Default)]
pub(super) struct Platter(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The content that everybody reads.
    bytes: Vec<u8>,
    /// The content that a power cut leaves.
    synced: Vec<u8>,
    /// Operations since the last sync.
    unsynced: Vec<Unsynced>,
    syncs: u64,
    opens: u64,
    /// After so many more writes, lengthenings and syncs all of them fail.
    failing_in: Option<u64>,
    /// After so many more reads all of them fail.
    failing_reads_in: Option<u64>,
    /// After so many more syncs one fails and drops what it was to write, which is still seen or not.
    losing: Option<(u64, bool)>,
    /// Writes from this place on fail.
    full_from: Option<usize>,
    /// After so many more syncs all of them wait.
    holding_after: Option<u64>,
    waiting: usize,
}

/// A disk whose syncs wait until this is dropped, so that no store waits for ever when a test fails.
pub(super) struct Held<'a>(&'a Platter);

impl Held<'_> {
    /// Returns when a sync is waiting.
    pub(super) fn is_met(&self) {
        let mut state = self.0.0.state.lock();
        while state.waiting == 0 {
            assert!(!self.0.0.moved.wait_for(&mut state, PATIENCE).timed_out(), "nobody syncs");
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.0.state.lock().holding_after = None;
        self.0.0.moved.notify_all();
    }
}

#[derive(Debug, Clone)]
enum Unsynced {
    Write(u64, Vec<u8>),
    Length(u64),
}

impl Platter {
    /// A disk with an empty store on it, which was made long ago.
    pub(super) fn with_store() -> Self {
        Self::with_store_for(&binding())
    }

    /// The same for a chain.
    pub(super) fn with_store_for(binding: &Binding) -> Self {
        let platter = Self::default();
        let database = Database::builder().create_with_backend(platter.clone()).unwrap();
        tables::lay_out(&database, binding, 0).unwrap();
        platter
    }

    /// A disk with these bytes on it.
    pub(super) fn with(bytes: Vec<u8>) -> Self {
        let platter = Self::default();
        platter.0.state.lock().synced.clone_from(&bytes);
        platter.0.state.lock().bytes = bytes;
        platter
    }

    /// Opens what is on it, as a store of the tests does.
    pub(super) fn open(&self) -> Result<(Database, Loaded), OpenError> {
        Disk::open(self, &binding())
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.0.state.lock().bytes.clone()
    }

    pub(super) fn syncs(&self) -> u64 {
        self.0.state.lock().syncs
    }

    /// How often a store has tried to open what is on the disk.
    pub(super) fn opens(&self) -> u64 {
        self.0.state.lock().opens
    }

    /// Lets so many more operations succeed.
    pub(super) fn fail_in(&self, operations: u64) {
        self.0.state.lock().failing_in = Some(operations);
    }

    /// True once no further operation succeeds.
    pub(super) fn is_dead(&self) -> bool {
        self.0.state.lock().failing_in == Some(0)
    }

    /// Lets writes in front of this place succeed, and no others.
    pub(super) fn full_from(&self, place: usize) {
        self.0.state.lock().full_from = Some(place);
    }

    /// Lets so many more reads succeed.
    pub(super) fn fail_reads_in(&self, reads: u64) {
        self.0.state.lock().failing_reads_in = Some(reads);
    }

    /// True once no further read succeeds.
    pub(super) fn cannot_be_read(&self) -> bool {
        self.0.state.lock().failing_reads_in == Some(0)
    }

    /// Has one sync fail, after so many more. What was written since the sync before never gets to the disk, but may still
    /// be seen until then; later syncs know nothing of it.
    pub(super) fn lose_in(&self, syncs: u64, is_seen: bool) {
        self.0.state.lock().losing = Some((syncs, is_seen));
    }

    pub(super) fn heal(&self) {
        let mut state = self.0.state.lock();
        (state.failing_in, state.failing_reads_in) = (None, None);
    }

    /// Every sync waits from now on, after so many that don't.
    pub(super) fn hold_after(&self, syncs: u64) -> Held<'_> {
        self.0.state.lock().holding_after = Some(syncs);
        Held(self)
    }

    /// The disk after a power cut: any part of the unsynced operations may be there.
    pub(super) fn after_power_cut(&self, seed: u64) -> Self {
        let hasher = BuildHasherDefault::<DefaultHasher>::new();
        let state = self.0.state.lock();
        let mut bytes = state.synced.clone();
        for (place, operation) in state.unsynced.iter().enumerate() {
            let lucky = |part: usize| hasher.hash_one((seed, place, part)) % 2 == 0;
            match operation {
                Unsynced::Length(len) => bytes.resize(usize::try_from(*len).unwrap(), 0),
                Unsynced::Write(offset, data) => {
                    for (part, sector) in data.chunks(512).enumerate().filter(|(part, _)| lucky(*part)) {
                        let start = usize::try_from(*offset).unwrap() + part * 512;
                        bytes[start..start + sector.len()].copy_from_slice(sector);
                    }
                }
            }
        }
        Self::with(bytes)
    }

    fn operate(&self, operation: Unsynced) -> io::Result<()> {
        let mut state = self.0.state.lock();
        count_down(&mut state.failing_in, io::ErrorKind::StorageFull)?;
        if let (Unsynced::Write(offset, data), Some(full_from)) = (&operation, state.full_from)
            && usize::try_from(*offset).unwrap() + data.len() > full_from
        {
            return Err(io::ErrorKind::StorageFull.into());
        }
        operation.apply(&mut state.bytes);
        state.unsynced.push(operation);
        Ok(())
    }
}

impl Unsynced {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Length(len) => bytes.resize(usize::try_from(*len).unwrap(), 0),
            Self::Write(offset, data) => {
                let start = usize::try_from(*offset).unwrap();
                // A length may have been lost.
                bytes.resize(bytes.len().max(start + data.len()), 0);
                bytes[start..start + data.len()].copy_from_slice(data);
            }
        }
    }
}

impl State {
    /// Fails the sync whose turn it is, and forgets what it was to write.
    fn lose(&mut self) -> io::Result<()> {
        match &mut self.losing {
            None => Ok(()),
            Some((0, is_seen)) => {
                if !*is_seen {
                    let len = self.bytes.len();
                    self.bytes.clone_from(&self.synced);
                    self.bytes.resize(len, 0);
                }
                self.unsynced.clear();
                self.losing = None;
                Err(io::ErrorKind::Other.into())
            }
            Some((left, _)) => {
                *left -= 1;
                Ok(())
            }
        }
    }
}

fn count_down(left: &mut Option<u64>, error: io::ErrorKind) -> io::Result<()> {
    match left {
        None => Ok(()),
        Some(0) => Err(error.into()),
        Some(left) => {
            *left -= 1;
            Ok(())
        }
    }
}

impl StorageBackend for Platter {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.state.lock().bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut state = self.0.state.lock();
        count_down(&mut state.failing_reads_in, io::ErrorKind::Other)?;
        let start = usize::try_from(offset).unwrap();
        let bytes = state.bytes.get(start..start + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.operate(Unsynced::Length(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.0.state.lock();
        if let Some(syncs @ 1..) = &mut state.holding_after {
            *syncs -= 1;
        } else {
            state.waiting += 1;
            self.0.moved.notify_all();
            while state.holding_after == Some(0) {
                self.0.moved.wait(&mut state);
            }
            state.waiting -= 1;
        }
        count_down(&mut state.failing_in, io::ErrorKind::StorageFull)?;
        state.lose()?;
        state.syncs += 1;
        let State { unsynced, synced, .. } = &mut *state;
        unsynced.drain(..).for_each(|operation| operation.apply(synced));
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.operate(Unsynced::Write(offset, data.to_vec()))
    }
}

impl Disk for Platter {
    fn open(&self, binding: &Binding) -> Result<(Database, Loaded), OpenError> {
        self.0.state.lock().opens += 1;
        verified(self.clone(), Path::new("platter"), binding)
    }

    fn size(&self) -> Option<u64> {
        None
    }
}
