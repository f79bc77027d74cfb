//! The record of key operations: a line of JSON for each, in a place of its own, by a writer of its own.
//!
//! No request waits for it. A line that finds the queue or the disk full is lost, and the log says how many were.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use serde::Serialize;
use tracing_appender::non_blocking::{NonBlocking, WorkerGuard};

use crate::telemetry::log::queue;

/// The mode of the file: it names agents, owners and clients.
const MODE: u32 = 0o600;

/// A key operation, for its line.
#[derive(Debug, Serialize)]
pub struct Record<'a> {
    /// The time of its answer.
    pub timestamp: String,
    /// `generate`, `rotate` or `revoke`.
    pub operation: &'static str,
    /// `done`, `refused` or `failed`.
    pub outcome: &'static str,
    /// The `errorType` of its answer, if it was not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_type: Option<&'static str>,
    /// The agent that the request names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The agent's owner, where it was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The address that signed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signer: Option<String>,
    /// The address that the request is from.
    pub client: IpAddr,
    /// The request's id.
    pub request_id: &'a str,
    /// The id of the client's trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<&'a str>,
}

/// The record of key operations.
pub struct Audit {
    queue: NonBlocking,
    out: Arc<Mutex<Out>>,
    /// How many lines that the queue had no room for are in the log.
    reported: AtomicUsize,
}

/// The place of the record.
struct Out {
    writer: Box<dyn Write + Send>,
    /// The file, if it is one.
    path: Option<PathBuf>,
    /// True if a part of a line was written.
    is_torn: bool,
    /// Lines that could not be written since the last that could.
    lost: u64,
}

/// The writer's side of the queue.
struct Lines(Arc<Mutex<Out>>);

impl Audit {
    /// To standard output. Lines are written until the guard is dropped.
    pub fn to_stdout() -> (Self, WorkerGuard) {
        Self::to(Box::new(io::stdout()), None)
    }

    /// To the end of a file. Lines are written until the guard is dropped.
    ///
    /// # Errors
    ///
    /// When it can't be opened.
    pub fn to_file(path: &Path) -> io::Result<(Self, WorkerGuard)> {
        Ok(Self::to(Box::new(open(path)?), Some(path.to_owned())))
    }

    fn to(writer: Box<dyn Write + Send>, path: Option<PathBuf>) -> (Self, WorkerGuard) {
        let out = Arc::new(Mutex::new(Out { writer, path, is_torn: false, lost: 0 }));
        let (queue, guard) = queue(Lines(Arc::clone(&out)));
        (Self { queue, out, reported: AtomicUsize::new(0) }, guard)
    }

    /// Records an operation.
    pub fn record(&self, record: &Record<'_>) {
        let Ok(mut line) = serde_json::to_vec(record) else { return };
        line.push(b'\n');
        // It drops what it has no room for, and never fails.
        let _ = self.queue.clone().write_all(&line);
        let dropped = self.queue.error_counter().dropped_lines();
        let lost = dropped.saturating_sub(self.reported.swap(dropped, Ordering::Relaxed));
        if lost > 0 {
            tracing::error!(lost, "the audit log has lost lines: its queue is full");
        }
    }

    /// Opens the file again, which may have been moved away. Blocks.
    pub fn reopen(&self) {
        let Some(path) = self.out.lock().path.clone() else { return };
        match open(&path) {
            Ok(file) => {
                let mut out = self.out.lock();
                (out.writer, out.is_torn) = (Box::new(file), false);
            }
            Err(why) => tracing::error!("the audit log goes on in its old file: {why}"),
        }
    }
}

impl Out {
    fn append(&mut self, line: &[u8]) {
        // The part of a line that is there stays a line of its own.
        let end = if self.is_torn { "\n".as_bytes() } else { b"" };
        match write_whole(&mut self.writer, &[end, line].concat()) {
            Ok(()) => {
                self.is_torn = false;
                let lost = std::mem::take(&mut self.lost);
                if lost > 0 {
                    tracing::warn!(lost, "the audit log is written again");
                }
            }
            Err((written, why)) => {
                self.is_torn |= written > end.len();
                if self.lost == 0 {
                    tracing::error!("the audit log can't be written, and loses lines: {why}");
                }
                self.lost += 1;
            }
        }
    }
}

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.lock().append(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes all of it, or says how much was written.
fn write_whole(writer: &mut impl Write, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut written = 0;
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        match writer.write(rest) {
            Ok(0) => return Err((written, io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((written, error)),
        }
    }
    writer.flush().map_err(|error| (written, error))
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(MODE).open(path)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{self, Write};
    use std::os::unix::fs::PermissionsExt;
    use std::sync::{Arc, mpsc};

    use parking_lot::Mutex;
    use tracing::dispatcher::with_default;

    use super::{Audit, Out, Record};
    use crate::telemetry::log::LINES_QUEUED_MAX;
    use crate::telemetry::paper::Paper;

    fn record(request_id: &str) -> Record<'_> {
        Record {
            timestamp: "2026-01-01T00:00:00.000Z".to_owned(),
            operation: "generate",
            outcome: "done",
            error_type: None,
            agent: Some("7".to_owned()),
            owner: None,
            signer: None,
            client: "192.0.2.1".parse().unwrap(),
            request_id,
            trace_id: None,
        }
    }

    #[test]
    fn a_file_that_was_moved_away_is_left_when_it_is_opened_again_and_nobody_else_may_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let [path, moved] = ["audit", "audit.1"].map(|name| folder.path().join(name));
        let (audit, guard) = Audit::to_file(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        audit.record(&record("one"));
        // The queue is in order: what comes after the switch of files can't overtake.
        while fs::read_to_string(&path).unwrap().is_empty() {
            std::thread::yield_now();
        }
        fs::rename(&path, &moved).unwrap();
        audit.reopen();
        audit.record(&record("two"));
        drop(guard);
        for (path, id) in [(moved, "one"), (path, "two")] {
            let text = fs::read_to_string(path).unwrap();
            assert!(text.ends_with("}\n") && text.lines().count() == 1 && text.contains(id), "{text}");
        }
    }

    /// A disk with room for so many bytes.
    #[derive(Clone)]
    struct Disk(Arc<Mutex<(Vec<u8>, usize)>>);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut disk = self.0.lock();
            let taken = bytes.len().min(disk.1);
            if taken == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            disk.0.extend_from_slice(&bytes[..taken]);
            disk.1 -= taken;
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A disk that takes nothing until the other end is gone.
    struct Stuck(mpsc::Receiver<()>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_disk_that_hangs_delays_nobody_and_the_log_counts_what_is_lost() {
        let (release, held) = mpsc::channel();
        let (audit, guard) = Audit::to(Box::new(Stuck(held)), None);
        let paper = Paper::default();
        with_default(&paper.dispatch(), || {
            (0..LINES_QUEUED_MAX + 10).for_each(|_| audit.record(&record("one")))
        });
        let lines = paper.take();
        assert!(lines.len() >= 8 && lines.iter().all(|line| line.contains("lost=1")), "{lines:?}");
        drop((release, guard));
    }

    #[test]
    fn a_full_disk_loses_lines_that_the_log_counts_and_no_later_line_is_torn() {
        let disk = Disk(Arc::new(Mutex::new((Vec::new(), 9))));
        let mut out = Out { writer: Box::new(disk.clone()), path: None, is_torn: false, lost: 0 };
        let paper = Paper::default();
        with_default(&paper.dispatch(), || {
            for line in ["{one}\n", "{two}\n", "{three}\n", "{four}\n"] {
                out.append(line.as_bytes());
            }
            let lines = paper.take();
            assert!(lines.len() == 1 && lines[0].contains("can't be written"), "{lines:?}");
            disk.0.lock().1 = 100;
            out.append(b"{five}\n");
            out.append(b"{six}\n");
            let lines = paper.take();
            assert!(lines.len() == 1 && lines[0].contains("written again lost=3"), "{lines:?}");
        });
        assert_eq!(String::from_utf8(disk.0.lock().0.clone()).unwrap(), "{one}\n{tw\n{five}\n{six}\n");
    }
}
