//! The lines of the log that are written.

/// The rules of the log while the service runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRules {
    /// A level, or levels by target: `info,tiergate=debug`.
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
