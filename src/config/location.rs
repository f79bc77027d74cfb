//! Where a table stands: what a problem says before the path of a key, and what headers inside it begin with.

/// Where a table stands; the default is the configuration file itself.
#[derive(Debug, Clone, Default)]
pub(super) struct Location {
    /// What stands before a path: nothing, `tenants[2].` or `tenants.d/acme.toml: `.
    before: String,
    /// What a section's header in this table begins with: nothing, or `tenants.`.
    headers: String,
}

impl Location {
    /// Another file.
    pub(super) fn of_file(name: &str) -> Self {
        Self { before: format!("{name}: "), headers: String::new() }
    }

    /// One table of an array of tables, counted from 1.
    pub(super) fn item(&self, path: &str, number: usize) -> Self {
        Self {
            before: format!("{}{path}[{number}].", self.before),
            headers: format!("{}{path}.", self.headers),
        }
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
}
