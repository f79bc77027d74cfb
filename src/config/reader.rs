//! Takes the keys out of the file and the environment one by one, and writes down everything that is wrong on the way.
//!
//! Must not know any key: each section asks for its own, and what nobody asked for is unknown. A section that gets `None`
//! may go on, because the reason has been recorded. A table of an array, or of another file, has a reader of its own,
//! whose paths begin there and which no variable overrides.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use toml::{Table, Value};

use crate::config::document::{Document, Shown};
use crate::config::duration::DurationBounds;
use crate::config::location::Location;
use crate::config::notes::{Content, Entry, NamedFile, Notes, Place, Wanted};
use crate::config::problem::Problem;
use crate::config::reader::tables::{counted, holds, take_from};
use crate::config::unknown;
use crate::config::written::Written;

mod parts;
mod tables;

/// What every variable that overrides a key begins with.
const VARIABLE_PREFIX: &str = "TIERGATE__";

/// A configuration that is being read.
pub(super) struct Reader {
    /// The location of the table that is being read.
    location: Location,
    /// The keys that have not been asked for yet.
    file: Table,
    /// The variables that are meant for us, by name.
    variables: BTreeMap<String, String>,
    /// The paths that have been asked for.
    known: Vec<&'static str>,
    /// Those of them that hold tables, which no variable overrides.
    arrays: Vec<&'static str>,
    /// Those whose values are not always shown.
    masked: Vec<(&'static str, Shown)>,
    notes: Notes,
}

impl Reader {
    /// Reads a file; and notes its values and the files that they name if they are wanted.
    pub(super) fn new(
        document: Arc<Document>,
        file: Table,
        environment: impl Iterator<Item = (String, String)>,
        wanted: Wanted,
    ) -> Self {
        let variables = environment.filter(|(name, value)| unknown::is_ours(name, value)).collect();
        let notes = Notes::new(wanted, Vec::new());
        Self { variables, ..Self::part(Location::of_file(document, None), file, notes) }
    }

    fn part(location: Location, file: Table, notes: Notes) -> Self {
        let (variables, known, arrays, masked) = Default::default();
        Self { location, file, variables, known, arrays, masked, notes }
    }

    /// A string, or what it stands for.
    pub(super) fn text<T>(
        &mut self,
        path: &'static str,
        default: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let written = self.take_or(path, default);
        self.check(path, written.text().and_then(|text| parse(&text)))
    }

    /// A string that has no default.
    pub(super) fn required_text<T>(
        &mut self,
        path: &'static str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        if !self.is_given(path) {
            self.report(&[path], "is required");
        }
        self.optional_text(path, parse)
    }

    /// A string that may be left out.
    pub(super) fn optional_text<T>(
        &mut self,
        path: &'static str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let written = self.take(path)?;
        self.check(path, written.text().and_then(|text| parse(&text)))
    }

    /// One of two.
    pub(super) fn boolean(&mut self, path: &'static str, default: bool) -> Option<bool> {
        let written = self.take_or(path, default);
        self.check(path, written.boolean())
    }

    /// A duration within its bounds.
    pub(super) fn duration(
        &mut self,
        path: &'static str,
        default: &str,
        bounds: &DurationBounds,
    ) -> Option<Duration> {
        let written = self.take_or(path, default);
        self.check(path, written.duration_text().and_then(|text| bounds.parse(&text)))
    }

    /// A duration within its bounds, or 0 for none. The outer `None` is a problem.
    pub(super) fn duration_or_none(
        &mut self,
        path: &'static str,
        default: &str,
        bounds: &DurationBounds,
    ) -> Option<Option<Duration>> {
        let written = self.take_or(path, default);
        self.check(path, written.duration_text().and_then(|text| bounds.parse_or_none(&text)))
    }

    /// A whole number within its bounds.
    pub(super) fn integer<T: TryFrom<i64>>(
        &mut self,
        path: &'static str,
        default: i64,
        allowed: &RangeInclusive<i64>,
    ) -> Option<T> {
        let written = self.take_or(path, default);
        self.check(path, written.integer(allowed))
    }

    /// A whole number within its bounds that has no default; `advice` says what to write.
    pub(super) fn required_integer<T: TryFrom<i64>>(
        &mut self,
        path: &'static str,
        allowed: &RangeInclusive<i64>,
        advice: &str,
    ) -> Option<T> {
        if !self.is_given(path) {
            self.report(&[path], format!("is required; {advice}"));
        }
        self.optional_integer(path, allowed)
    }

    /// A whole number within its bounds, which may be left out.
    pub(super) fn optional_integer<T: TryFrom<i64>>(
        &mut self,
        path: &'static str,
        allowed: &RangeInclusive<i64>,
    ) -> Option<T> {
        let written = self.take(path)?;
        self.check(path, written.integer(allowed))
    }

    /// A list of strings, or of what they stand for.
    pub(super) fn texts<T>(
        &mut self,
        path: &'static str,
        default: &[&str],
        count: &RangeInclusive<usize>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let default = default.iter().map(|text| Value::from(*text)).collect();
        self.list(path, default, count, |item| item.text().and_then(|text| parse(&text)))
    }

    /// A list of strings, or of what they stand for, that has no default and at least one item.
    pub(super) fn required_texts<T>(
        &mut self,
        path: &'static str,
        most: usize,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        if !self.is_given(path) {
            self.report(&[path], "is required");
        }
        self.optional_texts(path, most, parse).filter(|items| !items.is_empty())
    }

    /// A list of strings, or of what they stand for, that has items when it is not left out.
    pub(super) fn optional_texts<T>(
        &mut self,
        path: &'static str,
        most: usize,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let least = usize::from(self.is_given(path));
        self.texts(path, &[], &(least..=most), parse)
    }

    /// A list of whole numbers, each within its bounds.
    pub(super) fn integers<T: TryFrom<i64>>(
        &mut self,
        path: &'static str,
        default: &[i64],
        count: &RangeInclusive<usize>,
        allowed: &RangeInclusive<i64>,
    ) -> Option<Vec<T>> {
        let default = default.iter().map(|number| Value::from(*number)).collect();
        self.list(path, default, count, |item| item.integer(allowed))
    }

    /// Says how much may be shown of the values of keys; to be said before they are read.
    pub(super) fn mask(&mut self, shown: Shown, paths: &[&'static str]) {
        self.masked.extend(paths.iter().map(|path| (*path, shown)));
    }

    fn shown(&self, path: &str) -> Shown {
        self.masked.iter().find(|(masked, _)| *masked == path).map_or(Shown::Always, |(_, shown)| *shown)
    }

    /// Whether a key is there, right or wrong; to be asked before it is read.
    pub(super) fn is_given(&self, path: &str) -> bool {
        self.variable(path).is_some() || holds(&self.file, path)
    }

    /// Where the table stands that is being read.
    pub(super) fn location(&self) -> &Location {
        &self.location
    }

    /// Records why a value is wrong.
    pub(super) fn check<T>(&mut self, path: &'static str, checked: Result<T, String>) -> Option<T> {
        checked.map_err(|phrase| self.report(&[path], phrase)).ok()
    }

    /// Records why items of a list are wrong, each of them.
    pub(super) fn check_items<T>(
        &mut self,
        path: &'static str,
        checked: impl Iterator<Item = Result<T, String>>,
    ) -> Option<Vec<T>> {
        let mut items = Vec::new();
        let mut is_right = true;
        for (item, number) in checked.zip(1_usize..) {
            match item {
                Ok(item) => items.push(item),
                Err(phrase) => {
                    is_right = false;
                    let phrase = format!("item {number} {phrase}");
                    self.notes.problems.push(self.place(path, Some(number)).problem(phrase));
                }
            }
        }
        is_right.then_some(items)
    }

    /// Records a problem of one key, or of several that do not go together: it belongs to the first of them that the
    /// environment overrides, else to the first.
    pub(super) fn report(&mut self, paths: &[&'static str], phrase: impl Into<String>) {
        let problem = self.place_of(paths).problem(phrase);
        self.notes.problems.push(problem);
    }

    /// Records something that works and is probably not meant.
    pub(super) fn warn(&mut self, paths: &[&'static str], phrase: impl Into<String>) {
        let problem = self.place_of(paths).problem(phrase).as_warning();
        self.notes.problems.push(problem);
    }

    /// Records a problem of the table as a whole.
    pub(super) fn report_table(&mut self, phrase: impl Into<String>) {
        let problem = Problem::new(self.location.of_table(), phrase).at(self.location.site_of_table());
        self.notes.problems.push(problem);
    }

    /// Records problems that another file had before it could be read.
    pub(super) fn report_elsewhere(&mut self, problems: impl IntoIterator<Item = Problem>) {
        self.notes.problems.extend(problems);
    }

    /// Notes files that these keys name.
    pub(super) fn note_file(&mut self, paths: &[&'static str], content: impl FnOnce() -> Content) {
        if self.notes.wanted != Wanted::Settings {
            let places = paths.iter().map(|path| self.place(path, None)).collect();
            self.notes.files.push(NamedFile { content: content(), places });
        }
    }

    fn place_of(&self, paths: &[&'static str]) -> Place {
        let overridden = paths.iter().find(|path| self.variable(path).is_some());
        self.place(overridden.or(paths.first()).copied().unwrap_or_default(), None)
    }

    /// The origin of a value: the variable that overrides it, or its path in the file.
    fn place(&self, path: &str, item: Option<usize>) -> Place {
        match self.variable(path) {
            Some(_) => Place { name: variable_of(path), site: None },
            None => {
                let site = self.location.site(path, item, self.shown(path));
                Place { name: self.location.of_key(path), site: Some(site) }
            }
        }
    }

    /// The value in the environment, which replaces that of the file.
    fn variable(&self, path: &str) -> Option<&String> {
        // Most readers have no variables; there may be a hundred thousand of them.
        if self.variables.is_empty() {
            return None;
        }
        self.variables.get(&variable_of(path))
    }

    /// Every path that has been asked for.
    pub(super) fn known(&self) -> &[&'static str] {
        &self.known
    }

    /// Everything that was written down.
    pub(super) fn finish(self) -> Notes {
        self.notes
    }

    /// A problem for each variable that nobody asked for.
    pub(super) fn unknown_variables(&self) -> Vec<Problem> {
        let overridable = self.known.iter().filter(|path| !self.arrays.contains(path));
        let known: Vec<String> = overridable.map(|path| variable_of(path)).collect();
        unknown::variables(self.variables.keys(), &known).collect()
    }

    /// Forgets the values below a path, which are not in force.
    pub(super) fn forget_values(&mut self, path: &str) {
        self.notes.entries.retain(|entry| !entry.key.starts_with(path));
    }

    fn into_notes(mut self, of_tenants: &[&str]) -> Notes {
        let unknown = unknown::keys(&self.file, &self.known, &self.location, of_tenants);
        self.notes.problems.extend(unknown);
        self.notes
    }

    fn list<T>(
        &mut self,
        path: &'static str,
        default: Vec<Value>,
        count: &RangeInclusive<usize>,
        parse: impl Fn(Written) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let written = self.take_or(path, default);
        let items = self.check(path, written.items())?;
        let counted = self.check(path, counted(items.len(), count));
        let checked = self.check_items(path, items.into_iter().map(parse));
        counted.and(checked)
    }

    /// The value under a path, or its default.
    fn take_or(&mut self, path: &'static str, default: impl Into<Value>) -> Written {
        self.take(path).unwrap_or_else(|| {
            let default = Written::Typed(default.into());
            self.note_value(path, &default, true);
            default
        })
    }

    /// What is written under a path; the environment comes before the file.
    fn take(&mut self, path: &'static str) -> Option<Written> {
        self.known.push(path);
        let typed = take_from(&mut self.file, path).map(Written::Typed);
        let written = self.variable(path).cloned().map(Written::Plain).or(typed)?;
        self.note_value(path, &written, false);
        Some(written)
    }

    fn note_value(&mut self, path: &str, value: &Written, is_default: bool) {
        if self.notes.entries.len() < self.notes.wanted.values_max() {
            let place = (!is_default).then(|| self.place(path, None));
            let entry =
                Entry { key: self.location.of_key(path), value: value.shown(self.shown(path)), place };
            self.notes.entries.push(entry);
        }
    }
}

/// The variable that overrides a key: `TIERGATE__CHAIN__CONTRACTS__IDENTITY`.
fn variable_of(path: &str) -> String {
    format!("{VARIABLE_PREFIX}{}", path.replace('.', "__").to_uppercase())
}
