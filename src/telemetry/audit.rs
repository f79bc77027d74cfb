//! The audit log: a line of JSON for each key operation, in a place of its own, by a writer of its own.
//!
//! No request waits for it, unless it is required: then each operation of an owner has a line before it is done, and is not
//! done without it. A line that finds the queue or the disk full is lost, and the log says how many were. Requests that nobody
//! is known to have signed can't fill the disk: most of a flood of them are counted only.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{net::IpAddr, num::NonZeroU64, os::unix::fs::OpenOptionsExt, sync::Arc, thread, time::Duration};

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;
use tracing_appender::non_blocking::NonBlocking;

use crate::ports::Clock;
use crate::telemetry::faults::LineRate;
use crate::telemetry::log::{LogGuard, queue, write_whole};

/// The mode of the file: it names agents, owners and clients.
const MODE: u32 = 0o600;

/// Lines a second about requests that the agent's owner is not known to have signed.
const STRANGERS_PER_SECOND: u64 = 10;

/// How many required lines are waited for at once, and for how long.
const WAITING_MAX: usize = 16;
const WRITE_TIME_MAX: Duration = Duration::from_secs(2);

/// A key operation, for its line.
#[derive(Debug, Serialize)]
pub(crate) struct Record<'a> {
    /// The time of its answer.
    pub(crate) timestamp: String,
    /// `generate`, `rotate` or `revoke`.
    pub(crate) operation: &'static str,
    /// `begun`, `done`, `refused` or `failed`.
    pub(crate) outcome: &'static str,
    /// The `errorType` of its answer, if it was not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error_type: Option<&'static str>,
    /// The agent that the request names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) agent: Option<String>,
    /// The name of the key, where the request or the key that was made has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    /// The agent's owner, where it was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<String>,
    /// The address that signed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) signer: Option<String>,
    /// The address that the request is from.
    pub(crate) client: IpAddr,
    pub(crate) request_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trace_id: Option<&'a str>,
    /// How many requests were left out before it. [`Audit::record`] knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) suppressed: Option<NonZeroU64>,
}

pub(crate) struct Audit {
    queue: NonBlocking,
    clock: Arc<dyn Clock>,
    /// The file, if it is one.
    path: Option<PathBuf>,
    next: Arc<Mutex<Option<File>>>,
    strangers: LineRate,
    losses: LineRate,
    /// How many lines that the queue had no room for are in the log.
    reported: AtomicUsize,
    sink: Arc<Mutex<Sink>>,
    /// Places of lines that are waited for; `None` where none are required.
    required: Option<Arc<Semaphore>>,
}

/// The writer's side of the queue.
struct Sink {
    writer: Box<dyn Write + Send>,
    /// The file to go on in. Nobody holds the lock while a file is opened or written.
    next: Arc<Mutex<Option<File>>>,
    /// True if a part of a line was written.
    is_torn: bool,
    /// Lines that could not be written since the last that could.
    lost: u64,
}

/// The queue writes here, and lines that are waited for.
struct Shared(Arc<Mutex<Sink>>);

impl Audit {
    /// To standard output. Lines are written until the guard is dropped.
    pub(crate) fn to_stdout(clock: Arc<dyn Clock>) -> (Self, LogGuard) {
        Self::to(Box::new(io::stdout()), None, clock)
    }

    /// To the end of a file. Lines are written until the guard is dropped.
    pub(crate) fn to_file(path: &Path, clock: Arc<dyn Clock>) -> io::Result<(Self, LogGuard)> {
        Ok(Self::to(Box::new(open(path)?), Some(path.to_owned()), clock))
    }

    fn to(writer: Box<dyn Write + Send>, path: Option<PathBuf>, clock: Arc<dyn Clock>) -> (Self, LogGuard) {
        let next = Arc::default();
        let sink = Sink { writer, next: Arc::clone(&next), is_torn: false, lost: 0 };
        let sink = Arc::new(Mutex::new(sink));
        let (queue, guard) = queue(Shared(Arc::clone(&sink)));
        let audit = Self {
            queue,
            clock,
            path,
            next,
            strangers: LineRate::per_second(STRANGERS_PER_SECOND),
            losses: LineRate::per_second(1),
            reported: AtomicUsize::new(0),
            sink,
            required: None,
        };
        (audit, guard)
    }

    /// The same; an owner's operation has a line before it is done.
    #[must_use]
    pub(crate) fn required(self) -> Self {
        Self { required: Some(Arc::new(Semaphore::new(WAITING_MAX))), ..self }
    }

    /// True if no operation may be done without a line.
    pub(crate) const fn is_required(&self) -> bool {
        self.required.is_some()
    }

    /// Writes the line of an operation that is about to be done, where that is required.
    /// Error: it must not be done.
    pub(crate) async fn begin(&self, record: Record<'_>) -> io::Result<()> {
        let Some(places) = &self.required else { return Ok(()) };
        let place = Arc::clone(places).try_acquire_owned().map_err(|_| late())?;
        let mut line = serde_json::to_vec(&record)?;
        line.push(b'\n');
        let (tell, told) = oneshot::channel();
        let sink = Arc::clone(&self.sink);
        // A disk that hangs holds up no runtime, and not the end of the process.
        thread::Builder::new().name("audit".to_owned()).spawn(move || {
            let written = sink.lock().append(&line);
            // The place is taken for as long as the disk hangs.
            drop(place);
            let _ = tell.send(written);
        })?;
        let written = timeout(WRITE_TIME_MAX, told).await.map_err(|_| late())?;
        written.map_err(|_| late())?
    }

    /// Records an operation. All are recorded that the agent's owner is known to have signed.
    pub(crate) fn record(&self, mut record: Record<'_>, is_owners: bool) {
        let now = self.clock.monotonic_micros();
        let turn = if is_owners { Some(self.strangers.suppressed()) } else { self.strangers.turn(now) };
        let Some(suppressed) = turn else { return };
        record.suppressed = NonZeroU64::new(suppressed);
        let Ok(mut line) = serde_json::to_vec(&record) else { return };
        line.push(b'\n');
        // It drops what it has no room for, and never fails.
        let _ = self.queue.clone().write_all(&line);
        let dropped = self.queue.error_counter().dropped_lines();
        if dropped > self.reported.load(Ordering::Relaxed) && self.losses.turn(now).is_some() {
            let lost = dropped.saturating_sub(self.reported.fetch_max(dropped, Ordering::Relaxed));
            tracing::error!(lost, "the audit log has lost lines: its queue is full");
        }
    }

    /// Opens the file again, which may have been moved away: the next line goes there. Blocks as long as the disk does.
    pub(crate) fn reopen(&self) {
        let Some(path) = &self.path else { return };
        match open(path) {
            Ok(file) => *self.next.lock() = Some(file),
            Err(why) => tracing::error!("the audit log goes on in its old file: {why}"),
        }
    }
}

impl Sink {
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let next = self.next.lock().take();
        if let Some(file) = next {
            (self.writer, self.is_torn) = (Box::new(file), false);
        }
        // The part of a line that is there stays a line of its own.
        let end = if self.is_torn { "\n".as_bytes() } else { b"" };
        match write_whole(&mut self.writer, &[end, line].concat()) {
            Ok(()) => {
                self.is_torn = false;
                let lost = std::mem::take(&mut self.lost);
                if lost > 0 {
                    tracing::warn!(lost, "the audit log is written again");
                }
                Ok(())
            }
            Err((written, why)) => {
                self.is_torn |= written > end.len();
                if self.lost == 0 {
                    tracing::error!("the audit log can't be written, and loses lines: {why}");
                }
                self.lost += 1;
                Err(why)
            }
        }
    }
}

impl Write for Shared {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // It has counted a line that it loses.
        let _ = self.0.lock().append(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The disk or the reader hangs.
fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it takes no line in time")
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(MODE).open(path)
}

#[cfg(test)]
mod tests;
