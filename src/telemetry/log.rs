//! The log: lines to standard error through a bounded queue, so that no request ever waits for a slow terminal or disk, and
//! neither does the end of the process. Lines that can't be written are counted.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::{thread, time::Duration};

use parking_lot::Mutex;
use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use crate::domain::LogRules;

/// Lines that may wait to be written; beyond that they are dropped, never waited for.
pub(super) const LINES_QUEUED_MAX: usize = 16_384;

/// How long the end waits for lines to be written. The queue's own guard takes as long, unless its reader has stopped.
const END_TIME_MAX: Duration = Duration::from_millis(1_500);

/// Libraries that would log request bytes or node URLs, and with them credentials, or a line for every connection.
/// They stay quiet whatever is asked for, unless they are named.
const QUIET: &str = "pingora_core=warn,pingora_core::apps=off,pingora_core::connectors=off,pingora_core::protocols=error,\
     pingora_proxy=off,pingora_timeout=warn,hyper_util=info,h2=error,rustls=info";

/// The log of this process.
static LOG: OnceLock<Log> = OnceLock::new();

/// The rules in force, and how they are replaced.
struct Log {
    rules: Mutex<LogRules>,
    filter: reload::Handle<EnvFilter, Registry>,
    dropped: ErrorCounter,
    lost: Arc<AtomicU64>,
}

/// Lines are written until this is dropped.
pub(crate) struct LogGuard(Option<WorkerGuard>);

impl Drop for LogGuard {
    /// Writes what waits, and does not wait for a reader that has stopped: the queue's own guard would then complain on
    /// standard output, which may have the same reader.
    fn drop(&mut self) {
        let guard = self.0.take();
        let (ends, has_ended) = mpsc::channel::<()>();
        let ending = thread::Builder::new().name("log-end".to_owned());
        if ending.spawn(move || drop((guard, ends))).is_ok() {
            let _ = has_ended.recv_timeout(END_TIME_MAX);
        }
    }
}

/// Counts the lines that can't be written.
struct Counting<W> {
    out: W,
    lost: Arc<AtomicU64>,
}

impl<W: Write> Write for Counting<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if write_whole(&mut self.out, line).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The filter of these rules. The access log has a target of its own, so that other levels don't turn it on.
fn filter_of(LogRules { level, access }: &LogRules) -> Result<EnvFilter, String> {
    let access = if *access { "info" } else { "off" };
    EnvFilter::try_new(format!("{QUIET},access={access},{level}"))
        .map_err(|_| "log.level is not a log filter such as \"info\" or \"info,tiergate=debug\"".to_owned())
}

/// Starts the log. `is_json`: each line is an object. Lines are written until the guard is dropped.
/// Error: when the level can't be understood.
pub(crate) fn start(rules: LogRules, is_json: bool) -> Result<LogGuard, String> {
    let (layer, filter) = reload::Layer::new(filter_of(&rules)?);
    let lost = Arc::<AtomicU64>::default();
    let (writer, guard) = queue(Counting { out: io::stderr(), lost: Arc::clone(&lost) });
    let dropped = writer.error_counter();
    let registry = tracing_subscriber::registry().with(layer);
    let started = if is_json {
        registry.with(fmt::layer().json().flatten_event(true).with_writer(writer)).try_init()
    } else {
        registry.with(fmt::layer().with_ansi(false).with_writer(writer)).try_init()
    };
    started.map_err(|_| "the log was started twice".to_owned())?;
    // Nobody else sets it.
    let _ = LOG.set(Log { rules: Mutex::new(rules), filter, dropped, lost });
    Ok(guard)
}

/// How many lines there was no room for, or could not be written.
pub(crate) fn dropped_lines() -> u64 {
    LOG.get().map_or(0, |log| log.dropped.dropped_lines() as u64 + log.lost.load(Ordering::Relaxed))
}

/// Puts other rules in force.
pub(crate) fn change(rules: LogRules) {
    let Some(log) = LOG.get() else { return };
    let former = std::mem::replace(&mut *log.rules.lock(), rules.clone());
    if former == rules {
        return;
    }
    let replaced =
        filter_of(&rules).and_then(|filter| log.filter.reload(filter).map_err(|error| error.to_string()));
    if let Err(why) = replaced {
        tracing::error!("the log goes on as it was: {why}");
    }
    // Libraries that use the other facade ask it first.
    let level = LevelFilter::current().to_string().parse();
    ::log::set_max_level(level.unwrap_or(::log::LevelFilter::Trace));
}

pub(super) fn queue(out: impl Write + Send + 'static) -> (NonBlocking, LogGuard) {
    let queue = NonBlockingBuilder::default().buffered_lines_limit(LINES_QUEUED_MAX).lossy(true);
    let (writer, guard) = queue.finish(out);
    (writer, LogGuard(Some(guard)))
}

/// Writes all of it, or says how much was written.
pub(super) fn write_whole(writer: &mut impl Write, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::{io::Write, time::Duration};

    use tracing::Dispatch;
    use tracing::dispatcher::with_default;

    use super::{Arc, AtomicU64, Counting, LINES_QUEUED_MAX, Ordering, io, queue};

    /// A terminal that says when it is given a line, and takes it when the other end of `held` is gone.
    struct Stuck {
        given: Sender<()>,
        held: Receiver<()>,
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

    #[test]
    fn a_full_queue_delays_nobody_and_drops_only_what_it_has_no_room_for() {
        let ((given, is_given), (release, held)) = (channel(), channel());
        let (writer, guard) = queue(Stuck { given, held });
        let dropped = writer.error_counter();
        let log = Dispatch::new(tracing_subscriber::fmt().with_writer(writer).finish());
        with_default(&log, || {
            tracing::info!("the terminal holds this line");
            is_given.recv_timeout(Duration::from_secs(120)).unwrap();
            (0..LINES_QUEUED_MAX + 1_000).for_each(|_| tracing::info!("a line"));
        });
        assert_eq!(dropped.dropped_lines(), 1_000);
        drop((release, guard));
    }

    #[test]
    fn the_end_does_not_wait_for_a_reader_that_has_stopped() {
        let ((given, is_given), (release, held)) = (channel(), channel());
        let (mut writer, guard) = queue(Stuck { given, held });
        writer.write_all(b"held").unwrap();
        is_given.recv_timeout(Duration::from_secs(120)).unwrap();
        (0..=LINES_QUEUED_MAX).for_each(|_| writer.write_all(b"a line").unwrap());
        let (told, is_told) = channel();
        std::thread::spawn(move || {
            drop(guard);
            told.send(()).unwrap();
        });
        is_told.recv_timeout(Duration::from_secs(120)).unwrap();
        drop(release);
    }

    /// A disk that is full.
    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let lost = Arc::<AtomicU64>::default();
        let (mut writer, guard) = queue(Counting { out: Full, lost: Arc::clone(&lost) });
        (0..100).for_each(|_| writer.write_all(b"a line\n").unwrap());
        drop(guard);
        assert_eq!(lost.load(Ordering::Relaxed), 100);
    }
}
