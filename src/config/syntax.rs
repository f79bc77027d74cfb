//! From a file to text, and from text to TOML.

use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use toml::Table;
use toml::de::{DeTable, Deserializer, Error};
use zeroize::Zeroizing;

use crate::config::document::{Document, Mark, Site};
use crate::config::problem::Problem;
use crate::files;

/// The largest configuration file, in bytes.
pub(super) const CONFIG_BYTES_MAX: usize = 1_048_576;

/// The text of a configuration file; wiped when it is dropped, for it may hold a secret.
pub(super) fn read_file(path: &Path) -> Result<Zeroizing<String>, String> {
    files::text(path, CONFIG_BYTES_MAX)
}

/// Reads a document as TOML, or says what is wrong with it, line by line; a key that is given twice is wrong.
pub(super) fn table(document: &Arc<Document>) -> Result<Table, Vec<Problem>> {
    let text = document.text.as_str();
    let (parsed, mut errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        // The message of this error would repeat the number, which may be a password.
        let beyond = "an integer beyond 64 bits, or a table in too many others";
        return Table::deserialize(Deserializer::from(parsed))
            .map_err(|error| vec![problem(document, &error, beyond)]);
    }
    errors.sort_by_key(start);
    // Of several in one line only the first is certain not to follow from another.
    errors.dedup_by(|next, first| {
        text.get(start(first)..start(next)).is_some_and(|between| !between.contains('\n'))
    });
    Err(errors.iter().map(|error| problem(document, error, error.message())).collect())
}

fn problem(document: &Arc<Document>, error: &Error, message: &str) -> Problem {
    let problem = Problem::new(&document.name, format!("is not TOML: {message}"));
    match error.span() {
        Some(span) => problem.at(Site { document: Arc::clone(document), mark: Mark::Syntax(span) }),
        None => problem,
    }
}

fn start(error: &Error) -> usize {
    error.span().map_or(0, |span| span.start)
}
