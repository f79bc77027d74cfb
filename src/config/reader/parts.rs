//! Parts of a configuration that are used or refused by themselves, and everything that nobody asked for.

use super::Reader;
use crate::config::notes::Notes;
use crate::config::problem::Problem;
use crate::config::unknown;

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

    /// Reads something that is used as a whole or not at all: else nothing but its problems is noted. Gives its errors.
    pub(in crate::config) fn apart<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Result<T, Vec<Problem>> {
        let Notes { problems, entries, files, .. } = &self.notes;
        let [problems, entries, files] = [problems.len(), entries.len(), files.len()];
        let item = read(self);
        let found = errors(self.notes.problems.get(problems..).unwrap_or_default());
        match item {
            Some(item) if found.is_empty() => Ok(item),
            Some(_) | None => {
                self.notes.entries.truncate(entries);
                self.notes.files.truncate(files);
                Err(found)
            }
        }
    }
}

fn errors(problems: &[Problem]) -> Vec<Problem> {
    problems.iter().filter(|problem| !problem.is_warning()).cloned().collect()
}
