//! Keys as they are declared: where a section reads one, its path, type, default and bounds stand in that call, and its prose
//! and example in the lines above. The reference, the schema and the walking test are made from these.

use std::ops::RangeInclusive;

use toml::Value;

use crate::config::duration::Bounds;
use crate::config::written::Shown;

/// A key.
#[derive(Debug, Clone)]
pub(super) struct Declared {
    /// Its path in its file, or in a table of an array.
    pub(super) path: String,
    /// Its prose, a line each, and its example.
    pub(super) about: &'static str,
    /// The values that it takes.
    pub(super) kind: Kind,
    /// Its value where it is left out.
    pub(super) default: Option<Value>,
    /// Which of the keys below the same prose it is.
    pub(super) number: usize,
    /// True if another value counts without a restart.
    pub(super) is_live: bool,
    /// How much of a value is shown.
    pub(super) shown: Shown,
}

/// The values that a key takes.
#[derive(Debug, Clone)]
pub(super) enum Kind {
    Text,
    Words(Vec<&'static str>),
    Flag,
    Integer(RangeInclusive<i64>),
    /// Between these, or 0 where that stands for none.
    Duration(Bounds, bool),
    List(Box<Self>, RangeInclusive<usize>),
    /// So many tables, which have keys of their own.
    Tables(usize),
}

/// The beginning of the line that holds an example. It ends the prose of its key: what follows is that of the next.
const EXAMPLE: &str = " Example: ";

impl Declared {
    /// Its prose.
    pub(super) fn prose(&self) -> impl Iterator<Item = &'static str> {
        let own = self.about.split_inclusive('\n').scan(0, |examples, line| {
            let before = *examples;
            *examples += usize::from(line.starts_with(EXAMPLE));
            Some((before, line))
        });
        let own = own.filter(|(before, line)| *before == self.number && !line.starts_with(EXAMPLE));
        own.map(|(_, line)| line.trim_end_matches('\n'))
    }

    /// Its value in the reference.
    pub(super) fn example(&self) -> Option<Value> {
        let mut examples = self.about.lines().filter_map(|line| line.strip_prefix(EXAMPLE));
        self.default.clone().or_else(|| examples.nth(self.number)?.parse().ok())
    }
}
