//! The log: lines to standard error through a bounded queue, so that no request ever waits for a slow terminal or disk.

use std::io::Write;
use std::sync::OnceLock;

use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

/// Lines that may wait to be written; beyond that they are dropped, never waited for.
const LINES_QUEUED_MAX: usize = 16_384;

/// The environment variable that sets what is logged, in the syntax of `RUST_LOG`.
pub const LEVEL_VARIABLE: &str = "TIERGATE_LOG";

/// What is logged when nothing else is asked for: not what clients do wrong, which metrics count.
const LEVEL_DEFAULT: &str = "info";

/// Libraries that would log request bytes or node URLs, and with them credentials, or a line for every connection.
/// They stay quiet whatever is asked for, unless they are named.
///
/// So does the access log, a line for every request: `access=info` turns it on.
const QUIET: &str = "access=off,pingora_core=warn,pingora_core::apps=off,pingora_core::protocols=error,pingora_proxy=off,\
     pingora_timeout=warn,hyper_util=info,h2=error,rustls=info";

/// Counts the lines of the log that there was no room for.
static DROPPED: OnceLock<ErrorCounter> = OnceLock::new();

/// How many lines there was no room for.
#[must_use]
pub fn dropped_lines() -> u64 {
    DROPPED.get().map_or(0, |dropped| dropped.dropped_lines() as u64)
}

/// Starts the log. Lines are written until the guard is dropped.
///
/// # Errors
///
/// When the level variable can't be understood.
pub fn start() -> Result<WorkerGuard, String> {
    let level = std::env::var(LEVEL_VARIABLE).unwrap_or_else(|_| LEVEL_DEFAULT.to_owned());
    let filter = EnvFilter::try_new(format!("{QUIET},{level}"))
        .map_err(|_| format!("{LEVEL_VARIABLE} is not a log filter such as \"info\" or \"debug\""))?;
    let (writer, guard) = queue(std::io::stderr());
    let _ = DROPPED.set(writer.error_counter());
    let started =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_ansi(false).try_init();
    started.map_err(|_| "the log was started twice".to_owned())?;
    Ok(guard)
}

fn queue(out: impl Write + Send + 'static) -> (NonBlocking, WorkerGuard) {
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
