//! The audit log, under the settings.

use std::sync::Arc;

use crate::app::error::StartError;
use crate::config::{AuditPlace, log::LogSettings};
use crate::ports::Clock;
use crate::telemetry::{Audit, LogGuard};

/// The audit log, if there is one, and its guard: lines are written until that is dropped.
pub(super) fn audit(
    settings: &LogSettings,
    clock: Arc<dyn Clock>,
) -> Result<(Option<Arc<Audit>>, Option<LogGuard>), StartError> {
    let (audit, guard) = match &settings.audit {
        None => return Ok((None, None)),
        Some(AuditPlace::Stdout) => Audit::to_stdout(clock),
        Some(AuditPlace::File(path)) => Audit::to_file(path, clock)
            .map_err(|cause| format!("cannot open {} (log.audit): {cause}", path.display()))?,
    };
    let audit = if settings.audit_required { audit.required() } else { audit };
    Ok((Some(Arc::new(audit)), Some(guard)))
}
