//! The log: lines to standard error through a bounded queue, so that no request ever waits for a slow terminal or disk.

use tracing_appender::non_blocking::WorkerGuard;
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

/// Starts the log. Lines are written until the guard is dropped.
///
/// # Errors
///
/// When the level variable can't be understood.
pub fn start() -> Result<WorkerGuard, String> {
    let level = std::env::var(LEVEL_VARIABLE).unwrap_or_else(|_| LEVEL_DEFAULT.to_owned());
    let filter = EnvFilter::try_new(format!("{QUIET},{level}"))
        .map_err(|_| format!("{LEVEL_VARIABLE} is not a log filter such as \"info\" or \"debug\""))?;
    let (writer, guard) = tracing_appender::non_blocking::NonBlockingBuilder::default()
        .buffered_lines_limit(LINES_QUEUED_MAX)
        .lossy(true)
        .finish(std::io::stderr());
    let started =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_ansi(false).try_init();
    started.map_err(|_| "the log was started twice".to_owned())?;
    Ok(guard)
}
