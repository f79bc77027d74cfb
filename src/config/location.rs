//! The location of a table: for problems the text before the path of a key, the beginning of headers inside it, and the way
//! to it in its file.

use std::sync::Arc;

use crate::config::document::{Document, Mark, Shown, Site};

/// The location of a table.
#[derive(Debug, Clone)]
pub(super) struct Location {
    document: Arc<Document>,
    /// The text before a path: nothing, `tenants[2].` or `tenants.d/acme.toml: `.
    before: String,
    /// The beginning of a section's header in this table: nothing, or `tenants.`.
    headers: String,
    /// The way to it in its file: names of tables, and numbers of items from 0.
    trail: Vec<String>,
}

impl Location {
    /// A whole file; `name` stands before its paths.
    pub(super) fn of_file(document: Arc<Document>, name: Option<&str>) -> Self {
        let before = name.map(|name| format!("{name}: ")).unwrap_or_default();
        Self { document, before, headers: String::new(), trail: Vec::new() }
    }

    /// One table of an array of tables, counted from 1.
    pub(super) fn item(&self, path: &str, number: usize) -> Self {
        let mut trail = self.trail_of(path);
        trail.push((number - 1).to_string());
        Self {
            document: Arc::clone(&self.document),
            before: format!("{}{path}[{number}].", self.before),
            headers: format!("{}{path}.", self.headers),
            trail,
        }
    }

    /// The file that it is in.
    pub(super) fn file(&self) -> &str {
        &self.document.name
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

    /// The value under a path, or one item of it, counted from 1. `shown`: how much of it may be.
    pub(super) fn site(&self, path: &str, item: Option<usize>, shown: Shown) -> Site {
        let mut trail = self.trail_of(path);
        trail.extend(item.map(|number| (number - 1).to_string()));
        let is_shown = shown == Shown::Always;
        self.site_of(if is_shown { Mark::Value(trail) } else { Mark::Hidden(trail) })
    }

    /// The table as a whole.
    pub(super) fn site_of_table(&self) -> Site {
        self.site_of(Mark::Key(self.trail.clone()))
    }

    /// A name in the table, whatever characters are in it.
    pub(super) fn site_of_name(&self, sections: &[&str], name: &str) -> Site {
        let names = sections.iter().copied().chain([name]).map(str::to_owned);
        self.site_of(Mark::Key(self.trail.iter().cloned().chain(names).collect()))
    }

    fn site_of(&self, mark: Mark) -> Site {
        Site { document: Arc::clone(&self.document), mark }
    }

    fn trail_of(&self, path: &str) -> Vec<String> {
        self.trail.iter().cloned().chain(path.split('.').map(str::to_owned)).collect()
    }
}
