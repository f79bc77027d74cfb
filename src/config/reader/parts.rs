//! Parts of a configuration that are used or refused by themselves, and everything that nobody asked for.

use super::Reader;
use crate::config::notes::Notes;
use crate::config::problem::Problem;
use crate::config::unknown;

/// How much is noted.
#[derive(Debug, Clone, Copy)]
pub(in crate::config) struct Mark {
    problems: usize,
    entries: usize,
    files: usize,
}

impl Reader {
    /// Records what nobody asked for; `of_tenants` are the keys that belong elsewhere.
    pub(in crate::config) fn report_unknown(&mut self, of_tenants: &[&str]) {
        let keys = unknown::keys(&self.file, &self.known, &self.location, of_tenants);
        let variables = self.unknown_variables();
        self.notes.problems.extend(keys.into_iter().chain(variables));
    }

    /// Forgets everything but these problems.
    pub(in crate::config) fn fail(&mut self, problems: Vec<Problem>) {
        self.notes = Notes::new(self.notes.wanted, problems);
    }

    /// The errors so far.
    pub(in crate::config) fn errors(&self) -> Vec<Problem> {
        errors(&self.notes.problems)
    }

    /// Reads something that is used as a whole or not at all: else nothing but its problems is noted. Gives what was read and
    /// its errors.
    pub(in crate::config) fn apart<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> (Option<T>, Vec<Problem>) {
        let mark = self.mark();
        let item = read(self);
        let found = errors(self.notes.problems.get(mark.problems..).unwrap_or_default());
        if item.is_none() || !found.is_empty() {
            self.forget(Mark { problems: self.notes.problems.len(), ..mark });
        }
        (item, found)
    }

    /// How much is noted.
    pub(in crate::config) const fn mark(&self) -> Mark {
        let Notes { problems, entries, files, .. } = &self.notes;
        Mark { problems: problems.len(), entries: entries.len(), files: files.len() }
    }

    /// Forgets what was noted later.
    pub(in crate::config) fn forget(&mut self, later_than: Mark) {
        self.notes.problems.truncate(later_than.problems);
        self.notes.entries.truncate(later_than.entries);
        self.notes.files.truncate(later_than.files);
    }
}

fn errors(problems: &[Problem]) -> Vec<Problem> {
    problems.iter().filter(|problem| !problem.is_warning()).cloned().collect()
}
