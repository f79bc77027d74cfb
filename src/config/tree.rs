//! A configuration file as a tree of values, each with its place in the file.
//!
//! Must not know sections and keys. No problem holds text of the file, which may be a secret.

use std::{collections::BTreeMap, ops::Range, path::Path, sync::Arc};

use toml::de::{DeTable, DeValue};
use toml::{Spanned, Value};
use zeroize::Zeroizing;

use crate::config::problem::{Position, Problem};
use crate::files;

/// The largest configuration file, in bytes.
pub(super) const CONFIG_BYTES_MAX: usize = 1_048_576;

/// Columns count bytes instead of characters behind so many of them: a file may be one line with a hundred thousand values.
const CHARS_COUNTED_MAX: usize = 1_000;

/// How many tables and lists may stand in each other.
const DEPTH_MAX: usize = 80;

/// The values of a table by their keys.
pub(super) type Table = BTreeMap<String, Node>;

/// A key and its value, or an item of a list.
pub(super) struct Node {
    /// The place of the key, or of the item.
    pub(super) key: Position,
    /// The place of the value; of a table its key.
    pub(super) at: Position,
    /// True once somebody has asked for it.
    pub(super) is_asked: bool,
    pub(super) item: Item,
}

/// A value that holds others with places of their own, or a plain one.
pub(super) enum Item {
    Table(Table),
    List(Vec<Node>),
    Plain(Value),
}

/// The text of a configuration file; wiped when it is dropped, for it may hold a secret.
pub(super) fn read_file(path: &Path) -> Result<Zeroizing<String>, String> {
    files::text(path, CONFIG_BYTES_MAX)
}

/// The path of a file as problems show it.
pub(super) fn name_of(path: &Path) -> Arc<str> {
    path.to_string_lossy().escape_debug().to_string().into()
}

/// Reads a text as TOML, or says what is wrong with it, line by line; a key that is given twice is wrong.
pub(super) fn parse(file: &Arc<str>, text: &str) -> Result<Table, Vec<Problem>> {
    let (table, problems) = recover(file, text);
    if problems.is_empty() { Ok(table) } else { Err(problems) }
}

/// Reads a text as TOML as far as it goes: the keys that are well-formed, and the problems of the rest.
pub(super) fn recover(file: &Arc<str>, text: &str) -> (Table, Vec<Problem>) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
    let mut source = SourceText { file, text, lines, problems: Vec::new() };
    let (parsed, mut errors) = DeTable::parse_recoverable(text);
    let start = |error: &toml::de::Error| error.span().map_or(0, |span| span.start);
    errors.sort_by_key(start);
    // Of several in one line only the first is certain not to follow from another.
    errors.dedup_by_key(|error| source.line(start(error)));
    for error in &errors {
        source.report(error.span().unwrap_or_default(), error.message());
    }
    let table = source.table(parsed.get_ref(), 0);
    if !errors.is_empty() {
        // Others may follow from these.
        source.problems.truncate(errors.len());
    }
    let line = |problem: &Problem| problem.position.as_ref().map(|position| position.line);
    source.problems.dedup_by_key(|problem| line(problem));
    (table, source.problems)
}

/// A text that is made into a tree.
struct SourceText<'t> {
    file: &'t Arc<str>,
    text: &'t str,
    /// The offset of each line.
    lines: Vec<usize>,
    problems: Vec<Problem>,
}

impl SourceText<'_> {
    fn line(&self, offset: usize) -> usize {
        self.lines.partition_point(|begin| *begin <= offset).max(1)
    }

    fn position(&self, offset: usize) -> Position {
        let line = self.line(offset);
        let begin = self.lines.get(line - 1).copied().unwrap_or(0);
        let before = self.text.get(begin..offset).unwrap_or_default();
        let column = if before.len() > CHARS_COUNTED_MAX { before.len() } else { before.chars().count() } + 1;
        Position { file: Arc::clone(self.file), line, column }
    }

    fn report(&mut self, span: Range<usize>, message: &str) {
        let problem = Problem::new(self.file, format!("is not TOML: {message}"));
        self.problems.push(problem.at(self.position(span.start)));
    }

    fn table(&mut self, table: &DeTable<'_>, depth: usize) -> Table {
        let nodes = table.iter().map(|(key, value)| {
            let node = self.node(key.span(), value, depth);
            (key.get_ref().clone().into_owned(), node)
        });
        nodes.collect()
    }

    fn node(&mut self, key: Range<usize>, value: &Spanned<DeValue<'_>>, depth: usize) -> Node {
        let (key, span) = (self.position(key.start), value.span());
        let item = match value.get_ref() {
            DeValue::Table(_) | DeValue::Array(_) if depth == DEPTH_MAX => {
                self.report(span.clone(), "a table in too many others");
                Item::List(Vec::new())
            }
            DeValue::Table(inside) => Item::Table(self.table(inside, depth + 1)),
            DeValue::Array(items) => {
                Item::List(items.iter().map(|item| self.node(item.span(), item, depth + 1)).collect())
            }
            DeValue::Integer(integer) => {
                let number = i64::from_str_radix(integer.as_str(), integer.radix());
                if number.is_err() {
                    // Without the number, which may be a password.
                    self.report(span.clone(), "an integer beyond 64 bits");
                }
                Item::Plain(number.unwrap_or_default().into())
            }
            // No key takes one.
            DeValue::Float(float) => Item::Plain(float.as_str().parse().unwrap_or(f64::NAN).into()),
            DeValue::String(text) => Item::Plain(text.as_ref().into()),
            DeValue::Boolean(value) => Item::Plain((*value).into()),
            DeValue::Datetime(value) => Item::Plain((*value).into()),
        };
        let at = if matches!(item, Item::Table(_)) { key.clone() } else { self.position(span.start) };
        Node { key, at, is_asked: false, item }
    }
}

impl Node {
    /// A table without values, which stands nowhere.
    pub(super) fn empty() -> Self {
        let (key, at) = <(Position, Position)>::default();
        Self { key, at, is_asked: false, item: Item::Table(Table::new()) }
    }

    /// The value without places.
    pub(super) fn value(&self) -> Value {
        match &self.item {
            Item::Plain(value) => value.clone(),
            Item::List(items) => items.iter().map(Self::value).collect::<Vec<_>>().into(),
            Item::Table(table) => {
                let values = table.iter().map(|(key, node)| (key.clone(), node.value()));
                Value::Table(values.collect())
            }
        }
    }
}

/// The value under a path; or the place of the innermost table in which it is missing, where `outer` is that of this one. A section
/// that is no table holds nothing.
pub(super) fn find<'t>(table: &'t Table, path: &str, outer: &'t Position) -> Result<&'t Node, &'t Position> {
    let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
    match (table.get(name), rest) {
        (None, _) => Err(outer),
        (Some(node), None) => Ok(node),
        (Some(Node { item: Item::Table(inside), key, .. }), Some(rest)) => find(inside, rest, key),
        (Some(node), Some(_)) => Err(&node.key),
    }
}

/// The value under a path, which counts as asked for from now on.
pub(super) fn ask<'t>(table: &'t mut Table, path: &str) -> Option<&'t mut Node> {
    let Some((section, rest)) = path.split_once('.') else {
        let node = table.get_mut(path)?;
        node.is_asked = true;
        return Some(node);
    };
    match &mut table.get_mut(section)?.item {
        Item::Table(inside) => ask(inside, rest),
        Item::List(_) | Item::Plain(_) => None,
    }
}
