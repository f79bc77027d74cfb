//! The log, under the settings.

use tracing_appender::non_blocking::WorkerGuard;

use crate::config::log::{LogFormat, LogSettings};
use crate::telemetry::log::{self, LogRules};

/// Starts the log. Lines are written until the guard is dropped.
///
/// # Errors
///
/// When the level variable can't be understood.
pub(crate) fn start(settings: &LogSettings) -> Result<WorkerGuard, String> {
    log::start(rules(settings), settings.format == LogFormat::Json)
}

/// What is logged, under these settings.
pub(super) fn rules(settings: &LogSettings) -> LogRules {
    LogRules { level: settings.level.clone(), access: settings.access }
}
