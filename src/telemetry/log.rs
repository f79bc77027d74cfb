//! The log: lines to standard error through a bounded queue, so that no request ever waits for a slow terminal or disk.

use std::io::Write;
use std::sync::OnceLock;

use parking_lot::Mutex;
use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

/// Lines that may wait to be written; beyond that they are dropped, never waited for.
pub(super) const LINES_QUEUED_MAX: usize = 16_384;

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
}

/// The rules of the log while the service runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRules {
    /// A level, or levels by target.
    pub level: String,
    /// True if each request has a line.
    pub access: bool,
}

impl Default for LogRules {
    /// Not what clients do wrong, which metrics count.
    fn default() -> Self {
        Self { level: "info".to_owned(), access: false }
    }
}

impl LogRules {
    /// The filter of these rules. The access log has a target of its own, so that other levels don't turn it on.
    fn filter(&self) -> Result<EnvFilter, String> {
        let access = if self.access { "info" } else { "off" };
        let filter = EnvFilter::try_new(format!("{QUIET},access={access},{}", self.level));
        filter.map_err(|_| {
            "log.level is not a log filter such as \"info\" or \"info,tiergate=debug\"".to_owned()
        })
    }
}

/// Starts the log. `is_json`: each line is an object. Lines are written until the guard is dropped.
///
/// # Errors
///
/// When the level can't be understood.
pub fn start(rules: LogRules, is_json: bool) -> Result<WorkerGuard, String> {
    let (layer, filter) = reload::Layer::new(rules.filter()?);
    let (writer, guard) = queue(std::io::stderr());
    let dropped = writer.error_counter();
    let registry = tracing_subscriber::registry().with(layer);
    let started = if is_json {
        registry.with(fmt::layer().json().flatten_event(true).with_writer(writer)).try_init()
    } else {
        registry.with(fmt::layer().with_ansi(false).with_writer(writer)).try_init()
    };
    started.map_err(|_| "the log was started twice".to_owned())?;
    // Nobody else sets it.
    let _ = LOG.set(Log { rules: Mutex::new(rules), filter, dropped });
    Ok(guard)
}

/// How many lines there was no room for.
#[must_use]
pub fn dropped_lines() -> u64 {
    LOG.get().map_or(0, |log| log.dropped.dropped_lines() as u64)
}

/// Puts other rules in force.
pub fn change(rules: LogRules) {
    let Some(log) = LOG.get() else { return };
    let former = std::mem::replace(&mut *log.rules.lock(), rules.clone());
    if former == rules {
        return;
    }
    let replaced =
        rules.filter().and_then(|filter| log.filter.reload(filter).map_err(|error| error.to_string()));
    if let Err(why) = replaced {
        tracing::error!("the log goes on as it was: {why}");
    }
    // Libraries that use the other facade ask it first.
    ::log::set_max_level(match LevelFilter::current() {
        LevelFilter::OFF => ::log::LevelFilter::Off,
        LevelFilter::ERROR => ::log::LevelFilter::Error,
        LevelFilter::WARN => ::log::LevelFilter::Warn,
        LevelFilter::INFO => ::log::LevelFilter::Info,
        LevelFilter::DEBUG => ::log::LevelFilter::Debug,
        LevelFilter::TRACE => ::log::LevelFilter::Trace,
    });
}

pub(super) fn queue(out: impl Write + Send + 'static) -> (NonBlocking, WorkerGuard) {
    NonBlockingBuilder::default().buffered_lines_limit(LINES_QUEUED_MAX).lossy(true).finish(out)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use tracing::Dispatch;
    use tracing::dispatcher::with_default;

    use super::{LINES_QUEUED_MAX, queue};

    /// A terminal that says when it is given a line, and takes it when the other end of `held` is gone.
    struct Stuck {
        given: Sender<()>,
        held: Receiver<()>,
    }

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let _ = (self.given.send(()), self.held.recv());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
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
            is_given.recv_timeout(Duration::from_secs(30)).unwrap();
            (0..LINES_QUEUED_MAX + 1_000).for_each(|_| tracing::info!("a line"));
        });
        assert_eq!(dropped.dropped_lines(), 1_000);
        drop((release, guard));
    }
}
