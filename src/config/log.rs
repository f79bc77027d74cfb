//! `[log]`: what is logged, how, and where key operations are recorded.

use std::path::PathBuf;

use crate::config::choice::choice;
use crate::config::files::file;
use crate::config::reader::Reader;
use crate::config::written::quoted;

/// The words for levels.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The settings of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSettings {
    /// The format of lines.
    pub format: LogFormat,
    /// A level, or levels by target: `info,tiergate=debug`.
    pub level: String,
    /// True if each request has a line.
    pub access: bool,
    /// The place of the audit log; `None`: there is none.
    pub audit: Option<AuditPlace>,
    /// True if no key operation is done that has no line there.
    pub audit_required: bool,
}

/// The format of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// An object of JSON.
    Json,
}

/// The place of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditPlace {
    /// Standard output.
    Stdout,
    /// A file; a relative path is relative to the working directory of the process.
    File(PathBuf),
}

impl LogSettings {
    pub(super) fn read(reader: &mut Reader) -> Option<Self> {
        let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
        let settings = read_all!(Self {
            format: reader.text("log.format", "text", choice(&formats)),
            level: reader.text("log.level", "info", level),
            access: reader.boolean("log.access", false),
            audit: reader.text("log.audit", "", audit_place),
            audit_required: reader.boolean("log.audit_required", false),
        })?;
        if settings.audit_required && settings.audit.is_none() {
            reader.report(
                &["log.audit_required", "log.audit"],
                "is true, and log.audit names no place".to_owned(),
            );
        }
        Some(settings)
    }

    /// True if a restart is needed for the difference to another.
    pub(super) fn waits_for_restart(&self, other: &Self) -> bool {
        (self.format, &self.audit, self.audit_required) != (other.format, &other.audit, other.audit_required)
    }
}

/// A word alone would be taken for a target, and everything of it logged: a misspelled level is a mistake.
fn level(text: &str) -> Result<String, String> {
    let is_target = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_:".contains(&byte))
    };
    let is_directive = |part: &str| {
        let (target, level) = part.split_once('=').unwrap_or(("any", part));
        is_target(target) && LEVELS.contains(&level)
    };
    if text.split(',').all(is_directive) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "is {}; write {}, or levels by target: \"info,tiergate=debug\"",
        quoted(text),
        LEVELS.join(", ")
    ))
}

fn audit_place(text: &str) -> Result<Option<AuditPlace>, String> {
    match text {
        "" => Ok(None),
        "stdout" => Ok(Some(AuditPlace::Stdout)),
        path => file(path).map(|path| Some(AuditPlace::File(path))),
    }
}
