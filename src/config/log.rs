//! `[log]`: what is logged, how, and where key operations are recorded.

use std::path::PathBuf;

use crate::config::{files::file, reader::Reader, written::valid};
use crate::domain::LogRules;

/// The words for levels.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

settings! {
    /// The settings of the log.
    LogSettings(reader) {
        /// "text" for people, or "json": an object for each line.
        is_json: bool = reader.word("log.format", "text", &[("text", false), ("json", true)]),
        /// The audit log of key operations: "stdout", or a file, which is opened again after SIGHUP. Empty: there is none.
        audit: Option<AuditPlace> = reader.text("log.audit", "", audit_place),
        /// true: a key operation that the agent's owner has signed needs a line there before it is done: without one it is refused (500).
        audit_required: bool = reader.boolean("log.audit_required", false),
    } then {
        if audit_required == Some(true) && audit == Some(None) {
            reader.report(&["log.audit_required", "log.audit"], "is true, and log.audit names no place");
        }
    }
}

/// The place of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditPlace {
    /// Standard output.
    Stdout,
    /// A file; a relative path is relative to the working directory of the process.
    File(PathBuf),
}

impl LogRules {
    pub(super) fn read(reader: &mut Reader) -> Option<Self> {
        read_all!(reader: Self {
            /// off, error, warn, info, debug or trace; or levels by target: "info,tiergate=debug". This and access are read again
            /// while the service runs.
            level: reader.text("log.level", "info", level),
            /// A line for each request to api and gateway, with the client's address.
            access: reader.boolean("log.access", false),
        })
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
    let is_level = text.split(',').all(is_directive);
    let wanted = format!("{}, or levels by target: \"info,tiergate=debug\"", LEVELS.join(", "));
    valid(text, is_level.then(|| text.to_owned()), wanted)
}

fn audit_place(text: &str) -> Result<Option<AuditPlace>, String> {
    match text {
        "" => Ok(None),
        "stdout" => Ok(Some(AuditPlace::Stdout)),
        path => file(path).map(|path| Some(AuditPlace::File(path))),
    }
}
