//! Tables inside a table, each of which is read on its own: arrays of tables, and files of their own.
//!
//! Problems of all of them come together in the reader that they stand in.

use std::ops::RangeInclusive;

use toml::{Table, Value};

use super::Reader;
use crate::config::document::Shown;
use crate::config::location::Location;
use crate::config::problem::Problem;
use crate::config::written::type_of;

impl Reader {
    /// Reads a table that stands somewhere else, with all its problems.
    pub(in crate::config) fn inside<T>(
        &mut self,
        location: Location,
        table: Table,
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<T> {
        let mut part = Self::part(location, table, self.notes.taken());
        let item = read(&mut part);
        self.notes = part.into_notes(&[]);
        item
    }

    /// An array of tables, each read on its own; it may be left out.
    pub(in crate::config) fn tables<T>(
        &mut self,
        path: &'static str,
        most: usize,
        mut read: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        self.known.push(path);
        self.arrays.push(path);
        // What stands where tables belong may be a value of theirs.
        self.mask(Shown::Never, &[path]);
        let header = format!("[[{}]]", self.location.header(path));
        let tables = match take_from(&mut self.file, path) {
            None => Vec::new(),
            Some(Value::Array(tables)) => tables,
            Some(other) => {
                let phrase =
                    format!("is {}; write tables, each of which begins with {header}", type_of(&other));
                return self.check(path, Err(phrase));
            }
        };
        // So many are not looked at one by one.
        self.check(path, counted(tables.len(), &(0..=most)))?;
        let mut items = Vec::with_capacity(tables.len());
        for (table, number) in tables.into_iter().zip(1_usize..) {
            let location = self.location.item(path, number);
            items.push(self.table(location, table, &header, &mut read));
        }
        items.into_iter().collect()
    }

    fn table<T>(
        &mut self,
        location: Location,
        value: Value,
        header: &str,
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<T> {
        if let Value::Table(table) = value {
            return self.inside(location, table, read);
        }
        let phrase = format!("is {}; write a table that begins with {header}", type_of(&value));
        let problem = Problem::new(location.of_table(), phrase).at(location.site_of_table());
        self.notes.problems.push(problem);
        None
    }
}

/// Removes a value. A section that is no table holds nothing; it stays, and so is reported in the end.
pub(super) fn take_from(table: &mut Table, path: &str) -> Option<Value> {
    match path.split_once('.') {
        None => table.remove(path),
        Some((section, rest)) => take_from(table.get_mut(section)?.as_table_mut()?, rest),
    }
}

/// Whether a table has a value under a path.
pub(super) fn holds(table: &Table, path: &str) -> bool {
    match path.split_once('.') {
        None => table.contains_key(path),
        Some((section, rest)) => {
            table.get(section).and_then(Value::as_table).is_some_and(|inside| holds(inside, rest))
        }
    }
}

pub(super) fn counted(found: usize, allowed: &RangeInclusive<usize>) -> Result<(), String> {
    let (least, most) = (allowed.start(), allowed.end());
    if allowed.contains(&found) {
        Ok(())
    } else if least == most {
        Err(format!("has {found} items; write {most}"))
    } else {
        Err(format!("has {found} items; write {least} to {most}"))
    }
}
