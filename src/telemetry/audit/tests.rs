//! Lines of the audit log on disks that are full or hang, and in floods.

use std::io::{self, Write};
use std::sync::{Arc, mpsc};
use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use parking_lot::Mutex;
use tracing::dispatcher::with_default;

use super::{Audit, Record, Sink, WAITING_MAX};
use crate::ports::simulated::SimulatedClock;
use crate::telemetry::{fixture::LogCapture, log::LINES_QUEUED_MAX};

const LONG: Duration = Duration::from_secs(120);

fn clock() -> Arc<SimulatedClock> {
    Arc::new(SimulatedClock::new(1_700_000_000))
}

fn record(request_id: &str) -> Record<'_> {
    Record {
        timestamp: "2026-01-01T00:00:00.000Z".to_owned(),
        operation: "generate",
        outcome: "done",
        error_type: None,
        agent: Some("7".to_owned()),
        key: None,
        owner: None,
        signer: None,
        client: "192.0.2.1".parse().unwrap(),
        request_id,
        trace_id: None,
        suppressed: None,
    }
}

#[test]
fn a_file_that_was_moved_away_is_left_when_it_is_opened_again_and_nobody_else_may_read_it() {
    let folder = tempfile::tempdir().unwrap();
    let [path, moved] = ["audit", "audit.1"].map(|name| folder.path().join(name));
    let (audit, guard) = Audit::to_file(&path, clock()).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    audit.record(record("one"), true);
    while fs::read_to_string(&path).unwrap().is_empty() {
        std::thread::yield_now();
    }
    fs::rename(&path, &moved).unwrap();
    audit.reopen();
    audit.record(record("two"), true);
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

/// A disk that says when it is given a line, and takes it when the other end of `held` is gone.
struct Stuck {
    given: mpsc::Sender<()>,
    held: mpsc::Receiver<()>,
}

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = (self.given.send(()), self.held.recv());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// threat: Nobody knows who changed a key
#[test]
fn a_disk_that_hangs_delays_nobody_and_the_log_counts_what_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit");
    let ((given, is_given), (release, held)) = (mpsc::channel(), mpsc::channel());
    let clock = clock();
    let (audit, guard) = Audit::to(Box::new(Stuck { given, held }), Some(path.clone()), clock.clone());
    audit.record(record("one"), true);
    is_given.recv_timeout(LONG).unwrap();
    let (captured, audit) = (LogCapture::default(), Arc::new(audit));
    with_default(&captured.dispatch(), || {
        (0..LINES_QUEUED_MAX + 10).for_each(|_| audit.record(record("one"), true));
        clock.advance_secs(1);
        audit.record(record("one"), true);
    });
    let lines = captured.take();
    assert!(lines.len() == 2 && lines[0].contains("lost=1"), "one line a second: {lines:?}");
    assert!(lines[1].contains("lost=10"), "{lines:?}");
    let ((told, is_told), other) = (mpsc::channel(), Arc::clone(&audit));
    std::thread::spawn(move || {
        other.reopen();
        told.send(()).unwrap();
    });
    is_told.recv_timeout(LONG).expect("the file is opened again meanwhile");
    assert!(path.exists());
    drop((release, guard));
}

// threat: Nobody knows who changed a key
#[tokio::test(start_paused = true)]
async fn a_required_line_that_is_not_taken_in_time_counts_as_none_and_few_wait_for_it() {
    let ((given, is_given), (release, held)) = (mpsc::channel(), mpsc::channel());
    let (audit, guard) = Audit::to(Box::new(Stuck { given, held }), None, clock());
    let audit = audit.required();
    for _ in 0..=WAITING_MAX {
        assert_eq!(audit.begin(record("one")).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
    is_given.recv_timeout(LONG).unwrap();
    assert_eq!(audit.required.as_ref().unwrap().available_permits(), 0);
    drop((release, guard));
}

#[tokio::test]
async fn a_required_line_is_in_the_file_before_the_operation_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit");
    let (audit, _guard) = Audit::to_file(&path, clock()).unwrap();
    audit.begin(record("one")).await.unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "", "it is not required");
    let audit = audit.required();
    audit.begin(record("two")).await.unwrap();
    assert!(fs::read_to_string(&path).unwrap().contains("\"two\""));
    let (audit, _guard) = Audit::to_file("/dev/full".as_ref(), clock()).unwrap();
    let full = audit.required().begin(record("one")).await.unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
}

// threat: Nobody knows who changed a key
#[test]
fn in_a_flood_of_strangers_ten_a_second_are_recorded_and_every_operation_of_an_owner() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit");
    let clock = clock();
    let (audit, guard) = Audit::to_file(&path, clock.clone()).unwrap();
    let strangers = || {
        (0..1_000).for_each(|_| audit.record(record("stranger"), false));
    };
    strangers();
    audit.record(record("owner"), true);
    audit.record(record("owner"), true);
    clock.advance_secs(1);
    strangers();
    clock.advance_secs(1);
    audit.record(record("last"), false);
    drop(guard);
    let text = fs::read_to_string(path).unwrap();
    let count = |part: &str| text.lines().filter(|line| line.contains(part)).count();
    assert_eq!((count("\"stranger\""), count("\"owner\""), count("\"last\"")), (20, 2, 1));
    let told: Vec<_> = text.lines().filter(|line| line.contains("\"suppressed\":990")).collect();
    assert!(told.len() == 2 && told[0].contains("\"owner\"") && told[1].contains("\"last\""), "{told:?}");
}

#[test]
fn a_full_disk_loses_lines_that_the_log_counts_and_no_later_line_is_torn() {
    let disk = Disk(Arc::new(Mutex::new((Vec::new(), 9))));
    let mut sink = Sink { writer: Box::new(disk.clone()), next: Arc::default(), is_torn: false, lost: 0 };
    let captured = LogCapture::default();
    with_default(&captured.dispatch(), || {
        for line in ["{one}\n", "{two}\n", "{three}\n", "{four}\n"] {
            let _ = sink.append(line.as_bytes());
        }
        let lines = captured.take();
        assert!(lines.len() == 1 && lines[0].contains("can't be written"), "{lines:?}");
        disk.0.lock().1 = 100;
        sink.append(b"{five}\n").unwrap();
        sink.append(b"{six}\n").unwrap();
        let lines = captured.take();
        assert!(lines.len() == 1 && lines[0].contains("written again lost=3"), "{lines:?}");
    });
    assert_eq!(String::from_utf8(disk.0.lock().0.clone()).unwrap(), "{one}\n{tw\n{five}\n{six}\n");
}
