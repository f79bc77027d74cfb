//! From a file to text, and from text to TOML. What is wrong has a line and a column here, and shows nothing of the line: it
//! may hold a secret.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::Deserialize;
use toml::Table;
use toml::de::{DeTable, Deserializer, Error};

use crate::config::problem::{Problem, Problems};

/// The largest configuration file, in bytes.
pub(super) const CONFIG_BYTES_MAX: usize = 1_048_576;

/// The text of a configuration file.
pub(super) fn read_file(path: &Path) -> Result<String, String> {
    let unreadable = |why: io::Error| format!("cannot be read: {why}");
    let file = File::open(path).map_err(unreadable)?;
    let mut text = String::new();
    let read = file.take(CONFIG_BYTES_MAX as u64 + 1).read_to_string(&mut text).map_err(unreadable)?;
    if read > CONFIG_BYTES_MAX {
        return Err(format!("is longer than {CONFIG_BYTES_MAX} bytes"));
    }
    Ok(text)
}

/// Reads the text as TOML, or says what is wrong with it, line by line; a key that is given twice is wrong.
pub(super) fn table(text: &str) -> Result<Table, Problems> {
    let (parsed, mut errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        // A few things are found only now, such as an integer beyond 64 bits.
        return Table::deserialize(Deserializer::from(parsed)).map_err(|error| problem(text, &error).into());
    }
    errors.sort_by_key(start);
    // Of several in one line only the first is certain not to follow from another.
    errors.dedup_by_key(|error| position(text, error).0);
    Err(errors.iter().map(|error| problem(text, error)).collect::<Vec<_>>().into())
}

fn problem(text: &str, error: &Error) -> Problem {
    let (line, column) = position(text, error);
    Problem::new(format_args!("line {line}, column {column}"), format!("is not TOML: {}", error.message()))
}

/// Line and column of an error, both counted from 1.
fn position(text: &str, error: &Error) -> (usize, usize) {
    let before = text.get(..start(error)).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}

fn start(error: &Error) -> usize {
    error.span().map_or(0, |span| span.start)
}
