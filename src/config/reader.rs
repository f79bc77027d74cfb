//! Takes the keys out of the file and the environment one by one, and writes down everything that is wrong on the way.
//!
//! Must not know any key: each section asks for its own, and what nobody asked for is unknown. Whoever gets `None` may
//! go on, because the reason has been recorded; [`Reader::finish`] hands nothing out then. A table of an array, or of
//! another file, has a reader of its own, whose paths begin there and which no variable overrides.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use toml::{Table, Value};

use crate::config::duration::DurationBounds;
use crate::config::location::Location;
use crate::config::problem::{Problem, Problems};
use crate::config::unknown;
use crate::config::written::Written;

mod tables;

/// What every variable that overrides a key begins with.
const VARIABLE_PREFIX: &str = "TIERGATE__";

/// A configuration that is being read.
pub(super) struct Reader {
    /// Where the table stands that is being read.
    location: Location,
    /// What has not been asked for yet.
    file: Table,
    /// The variables that override keys, by name.
    variables: BTreeMap<String, String>,
    /// The paths that have been asked for.
    known: Vec<&'static str>,
    /// Those of them that hold tables, which no variable overrides.
    arrays: Vec<&'static str>,
    problems: Vec<Problem>,
}

impl Reader {
    pub(super) fn new(file: Table, environment: impl Iterator<Item = (String, String)>) -> Self {
        let variables = environment.filter(|(name, _)| name.starts_with(VARIABLE_PREFIX)).collect();
        Self { variables, ..Self::part(Location::default(), file) }
    }

    fn part(location: Location, file: Table) -> Self {
        Self {
            location,
            file,
            variables: BTreeMap::new(),
            known: Vec::new(),
            arrays: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// A string, or what it stands for.
    pub(super) fn text<T>(
        &mut self,
        path: &'static str,
        default: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let written = self.take(path).unwrap_or_else(|| Written::Plain(default.to_owned()));
        self.check(path, written.text().and_then(|text| parse(&text)))
    }

    /// A string that has no default.
    pub(super) fn required_text<T>(
        &mut self,
        path: &'static str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let Some(written) = self.take(path) else {
            self.report(&[path], "is required");
            return None;
        };
        self.check(path, written.text().and_then(|text| parse(&text)))
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
        let written = self.take(path).unwrap_or(Written::Typed(Value::Boolean(default)));
        self.check(path, written.boolean())
    }

    /// A duration within its bounds.
    pub(super) fn duration(
        &mut self,
        path: &'static str,
        default: &str,
        bounds: &DurationBounds,
    ) -> Option<Duration> {
        let written = self.take(path).unwrap_or_else(|| Written::Plain(default.to_owned()));
        self.check(path, written.duration_text().and_then(|text| bounds.parse(&text)))
    }

    /// A duration within its bounds, or 0 for none. The outer `None` is a problem.
    pub(super) fn duration_or_none(
        &mut self,
        path: &'static str,
        default: &str,
        bounds: &DurationBounds,
    ) -> Option<Option<Duration>> {
        let written = self.take(path).unwrap_or_else(|| Written::Plain(default.to_owned()));
        self.check(path, written.duration_text().and_then(|text| bounds.parse_or_none(&text)))
    }

    /// A whole number within its bounds.
    pub(super) fn integer<T: TryFrom<i64>>(
        &mut self,
        path: &'static str,
        default: i64,
        allowed: &RangeInclusive<i64>,
    ) -> Option<T> {
        let written = self.take(path).unwrap_or(Written::Typed(Value::Integer(default)));
        self.check(path, written.integer(allowed))
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
            self.known.push(path);
            self.report(&[path], "is required");
            return None;
        }
        self.texts(path, &[], &(1..=most), parse)
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
        let numbered = checked.zip(1_usize..);
        let items: Vec<Option<T>> = numbered
            .map(|(item, number)| self.check(path, item.map_err(|phrase| format!("item {number} {phrase}"))))
            .collect();
        items.into_iter().collect()
    }

    /// Records a problem of one key, or of several that do not go together: it belongs to the first of them that the
    /// environment overrides, else to the first.
    pub(super) fn report(&mut self, paths: &[&'static str], phrase: impl Into<String>) {
        let overridden = paths.iter().find(|path| self.variable(path).is_some());
        if let Some(path) = overridden.or(paths.first()) {
            self.problems.push(Problem::new(self.place(path), phrase));
        }
    }

    /// Records a problem of the table as a whole.
    pub(super) fn report_table(&mut self, phrase: impl Into<String>) {
        self.problems.push(Problem::new(self.location.of_table(), phrase));
    }

    /// Records problems that another file had before it could be read.
    pub(super) fn report_elsewhere(&mut self, problems: impl IntoIterator<Item = Problem>) {
        self.problems.extend(problems);
    }

    /// Where a value came from: the variable that overrides it, or its path in the file.
    fn place(&self, path: &str) -> String {
        match self.variable(path) {
            Some(_) => variable_of(path),
            None => self.location.of_key(path),
        }
    }

    /// What the environment says instead of the file.
    fn variable(&self, path: &str) -> Option<&String> {
        // Most readers have no variables; there may be a hundred thousand of them.
        if self.variables.is_empty() {
            return None;
        }
        self.variables.get(&variable_of(path))
    }

    /// Every path that has been asked for.
    #[cfg(test)]
    pub(super) fn known(&self) -> &[&'static str] {
        &self.known
    }

    /// Adds what nobody asked for to the problems, and hands out what was read when there are none.
    pub(super) fn finish<T>(mut self, read: Option<T>) -> Result<T, Problems> {
        let overridable = self.known.iter().filter(|path| !self.arrays.contains(path));
        let known: Vec<String> = overridable.map(|path| variable_of(path)).collect();
        let variables = std::mem::take(&mut self.variables);
        let mut problems = self.into_problems();
        problems.extend(unknown::variables(variables.keys(), &known));
        match read {
            Some(read) if problems.is_empty() => Ok(read),
            _ => Err(Problems::from(problems)),
        }
    }

    /// Everything that is wrong with this table, with what nobody asked for.
    fn into_problems(mut self) -> Vec<Problem> {
        self.problems.extend(unknown::keys(&self.file, &self.known, &self.location));
        self.problems
    }

    fn list<T>(
        &mut self,
        path: &'static str,
        default: Vec<Value>,
        count: &RangeInclusive<usize>,
        parse: impl Fn(Written) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let written = self.take(path).unwrap_or(Written::Typed(Value::Array(default)));
        let items = self.check(path, written.items())?;
        let counted = self.check(path, counted(items.len(), count));
        let checked = self.check_items(path, items.into_iter().map(parse));
        counted.and(checked)
    }

    /// What is written under a path; the environment comes before the file.
    fn take(&mut self, path: &'static str) -> Option<Written> {
        self.known.push(path);
        let typed = take_from(&mut self.file, path).map(Written::Typed);
        self.variable(path).cloned().map(Written::Plain).or(typed)
    }
}

/// The variable that overrides a key: `TIERGATE__CHAIN__CONTRACTS__IDENTITY`.
fn variable_of(path: &str) -> String {
    format!("{VARIABLE_PREFIX}{}", path.replace('.', "__").to_uppercase())
}

/// Removes a value. A section that is no table holds nothing; it stays, and so is reported in the end.
fn take_from(table: &mut Table, path: &str) -> Option<Value> {
    match path.split_once('.') {
        None => table.remove(path),
        Some((section, rest)) => take_from(table.get_mut(section)?.as_table_mut()?, rest),
    }
}

/// Whether a table has a value under a path.
fn holds(table: &Table, path: &str) -> bool {
    match path.split_once('.') {
        None => table.contains_key(path),
        Some((section, rest)) => {
            table.get(section).and_then(Value::as_table).is_some_and(|inside| holds(inside, rest))
        }
    }
}

fn counted(found: usize, allowed: &RangeInclusive<usize>) -> Result<(), String> {
    let (least, most) = (allowed.start(), allowed.end());
    if allowed.contains(&found) {
        Ok(())
    } else if least == most {
        Err(format!("has {found} items; write {most}"))
    } else {
        Err(format!("has {found} items; write {least} to {most}"))
    }
}
