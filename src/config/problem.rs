//! Problems of a configuration: all at once, each with its place; and the location of a table, from which
//! places are made.
//!
//! Must not hold a secret: phrases show values through `written::quoted` only.

use std::{collections::HashSet, fmt, sync::Arc};

/// How many problems of the configuration one reload may write into the log.
pub const LINES_MAX: usize = 100;

/// A place in a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Position {
    /// The path of the file.
    pub file: Arc<str>,
    /// Counted from 1.
    pub line: usize,
    /// Counted from 1, in characters; far behind the beginning of a line in bytes.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// One thing that is wrong, or looks so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// A path in the file (`chain.contracts.identity`, `tenants[1].hosts`), an environment variable, or the file itself; in a
    /// tenant's own file with its name in front.
    pub place: String,
    /// What was found and what is allowed.
    pub phrase: String,
    /// True if the configuration can be used nevertheless.
    pub is_warning: bool,
    /// The place in its file, if it has one there.
    pub position: Option<Position>,
}

impl Problem {
    /// A problem of something that is no place in a file, such as an environment variable.
    pub fn new(place: impl fmt::Display, phrase: impl Into<String>) -> Self {
        Self { place: place.to_string(), phrase: phrase.into(), is_warning: false, position: None }
    }

    /// The same at a place in a file.
    pub(super) fn at(self, position: impl Into<Option<Position>>) -> Self {
        Self { position: position.into(), ..self }
    }

    /// The same as something that works and is probably not meant.
    pub fn as_warning(self) -> Self {
        Self { is_warning: true, ..self }
    }

    /// The problem on one line, with its place in the file.
    pub fn on_one_line(&self) -> String {
        match &self.position {
            Some(position) => format!("{self} ({position})"),
            None => self.to_string(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.place, self.phrase)
    }
}

/// Everything that is wrong, in the order of the sections; what is unknown stands at the end of its table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// The warnings that were not among those of before, whose place they take.
    pub(super) fn new_warnings(&self, before: &mut HashSet<String>) -> Vec<String> {
        let warnings = || self.0.iter().filter(|problem| problem.is_warning);
        // On another line it is the same.
        let told = std::mem::replace(before, warnings().map(Problem::to_string).collect());
        warnings().filter(|warning| !told.contains(&warning.to_string())).map(Problem::on_one_line).collect()
    }
}

impl fmt::Display for Problems {
    /// One problem per line.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(Problem::to_string).collect();
        out.write_str(&lines.join("\n"))
    }
}

/// The place of a value.
#[derive(Debug, Clone)]
pub(super) struct ValueLocation {
    /// Its path, or a variable.
    pub(super) name: String,
    /// In a file.
    pub(super) position: Option<Position>,
}

impl ValueLocation {
    pub(super) fn problem(self, phrase: impl Into<String>) -> Problem {
        Problem::new(self.name, phrase).at(self.position)
    }

    /// The file and the line, or the variable.
    pub(super) fn origin(self) -> String {
        self.position.map_or(self.name, |position| position.to_string())
    }
}

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

    /// The text between the brackets of a header.
    pub(super) fn header(&self, path: &str) -> String {
        format!("{}{path}", self.headers)
    }

    /// A problem of the table as a whole.
    pub(super) fn problem(&self, phrase: impl Into<String>) -> Problem {
        Problem::new(self.of_table(), phrase).at(self.position.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::{HashSet, Problem, Problems};

    #[test]
    fn a_warning_is_told_again_only_when_it_was_gone_meanwhile() {
        let mut told = HashSet::new();
        for (warnings, new) in [("ab", "ab"), ("ab", ""), ("bc", "c"), ("", ""), ("ab", "ab")] {
            let warnings = warnings.chars().map(|place| Problem::new(place, "x").as_warning());
            let problems = Problems(warnings.chain([Problem::new("error", "x")]).collect());
            let lines: Vec<String> = new.chars().map(|place| format!("{place}: x")).collect();
            assert_eq!(problems.new_warnings(&mut told), lines);
        }
    }
}
