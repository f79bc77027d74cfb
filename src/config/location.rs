//! The location of a table: its place in its file, the text before the path of a key in problems, and the beginning of headers
//! inside it.

use std::sync::Arc;

use crate::config::problem::{Position, Problem};

/// The location of a table.
#[derive(Debug, Clone, Default)]
pub(super) struct Location {
    pub(super) position: Position,
    /// The text before a path: nothing, `tenants[2].` or `tenants.d/acme.toml: `.
    before: String,
    /// The beginning of a section's header in this table: nothing, or `tenants.`.
    headers: String,
}

impl Location {
    /// A whole file; `name` stands before its paths.
    pub(super) fn of_file(file: Arc<str>, name: Option<&str>) -> Self {
        let before = name.map(|name| format!("{name}: ")).unwrap_or_default();
        Self { position: Position { file, line: 1, column: 1 }, before, headers: String::new() }
    }

    /// One table of an array of tables, counted from 1.
    pub(super) fn item(&self, path: &str, number: usize, position: Position) -> Self {
        let before = format!("{}{path}[{number}].", self.before);
        Self { position, before, headers: format!("{}{path}.", self.headers) }
    }

    /// The place of a key.
    pub(super) fn of_key(&self, path: &str) -> String {
        format!("{}{path}", self.before)
    }

    /// The place of the table as a whole.
    pub(super) fn of_table(&self) -> &str {
        self.before.trim_end_matches(['.', ':', ' '])
    }

    /// What is written between the brackets of a header.
    pub(super) fn header(&self, path: &str) -> String {
        format!("{}{path}", self.headers)
    }

    /// A problem of the table as a whole.
    pub(super) fn problem(&self, phrase: impl Into<String>) -> Problem {
        Problem::new(self.of_table(), phrase).at(self.position.clone())
    }
}
