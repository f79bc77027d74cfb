//! A configuration file's text, and the places of problems in it: line, column, and the line itself, in which every value
//! is blanked that may be a secret.
//!
//! A file is parsed for places only when it has problems, and once for all of them. Must not know sections and keys: whoever
//! reads a key says how much of its value may be shown.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use zeroize::Zeroizing;

use crate::domain::redis_url::RedisUrl;
use crate::domain::rpc_url::{RpcUrl, public_part};

/// The longest line that is shown, in bytes. Blanking a longer one for each of its mistakes would take minutes.
const LINE_BYTES_MAX: usize = 1_000;

/// A file. `Debug` shows nothing of its text, which is wiped when it is dropped.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Document {
    /// Its path as it is shown.
    pub(super) name: String,
    pub(super) text: Zeroizing<String>,
}

impl Document {
    /// The text of the file at a path, without a mark of its byte order.
    pub(super) fn new(path: &Path, text: &str) -> Arc<Self> {
        let name = path.to_string_lossy().escape_debug().to_string();
        let text = text.strip_prefix('\u{feff}').unwrap_or(text).to_owned().into();
        Arc::new(Self { name, text })
    }
}

/// A place in a file that has not been looked for yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Site {
    pub(super) document: Arc<Document>,
    pub(super) mark: Mark,
}

/// The marked part of a file. A trail has names of tables, and numbers of items from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mark {
    /// A value of a known key, or the table in which it is missing.
    Value(Vec<String>),
    /// The same, and nothing of the value is shown.
    Hidden(Vec<String>),
    /// A key, or a table.
    Key(Vec<String>),
    /// Something that is not TOML.
    Syntax(Range<usize>),
}

/// A place in a file, and the line around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    /// The path of the file.
    pub file: String,
    /// Counted from 1.
    pub line: usize,
    /// Counted from 1, in characters.
    pub column: usize,
    /// The line, in which values that may be secrets are blanked; empty if it is too long for that.
    pub text: String,
    /// The bytes of the line that are marked.
    pub marked: Range<usize>,
}

impl Excerpt {
    /// The place alone: `tiergate.toml:3:7`.
    #[must_use]
    pub fn position(&self) -> String {
        let Self { file, line, column, .. } = self;
        format!("{file}:{line}:{column}")
    }
}

/// How much of a key's value may be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// All of it.
    Always,
    /// All of it when it can be used. A wrong one may be a secret that belongs under another key.
    Right,
    /// Of a URL scheme, host and port.
    Host,
    /// Nothing: it is a secret.
    Never,
}

impl Shown {
    /// As much of a value that can be used as may be shown.
    pub(super) fn of(self, text: &str) -> String {
        let public = match (self, RpcUrl::parse(text), RedisUrl::parse(text)) {
            (Self::Always | Self::Right, ..) => return text.to_owned(),
            (Self::Never, ..) => None,
            (Self::Host, Ok(node), _) => Some(node.origin().to_owned()),
            (Self::Host, _, Ok(redis)) => Some(redis.to_string()),
            (Self::Host, ..) => public_part(text),
        };
        public.unwrap_or_else(|| "***".to_owned())
    }
}

/// True for a URL, which may have a login and more behind its host, and for a text with a login.
pub(super) fn may_hold_login(text: &str) -> bool {
    text.contains("://") || text.contains('@')
}

/// The maps of files that are looked at one after the other.
#[derive(Default)]
pub(super) struct Maps(Option<Map>);

impl Maps {
    /// The place of a site.
    pub(super) fn excerpt(&mut self, site: &Site) -> Excerpt {
        let map = self.0.take().filter(|map| Arc::ptr_eq(&map.document, &site.document));
        self.0.get_or_insert(map.unwrap_or_else(|| Map::of(&site.document))).excerpt(&site.mark)
    }
}

/// A document with the places of everything in it.
struct Map {
    document: Arc<Document>,
    /// The offset of each line.
    lines: Vec<usize>,
    nodes: HashMap<Vec<String>, Node>,
    /// Every value, and every key that may hold a secret, in order; true: blank it always.
    blanks: Vec<(Range<usize>, bool)>,
}

/// A key and its value, or an item of a list.
struct Node {
    /// The key, or the item.
    name: Range<usize>,
    /// The value, if it is no table.
    value: Option<Range<usize>>,
}

impl Map {
    /// Parses a document as far as it is TOML.
    fn of(document: &Arc<Document>) -> Self {
        let (tree, _) = DeTable::parse_recoverable(&document.text);
        let lines =
            std::iter::once(0).chain(document.text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let mut map =
            Self { document: Arc::clone(document), lines, nodes: HashMap::new(), blanks: Vec::new() };
        map.add_table(&mut Vec::new(), tree.get_ref());
        map.blanks.sort_unstable_by_key(|(span, _)| span.start);
        map
    }

    fn add_table(&mut self, trail: &mut Vec<String>, table: &DeTable<'_>) {
        for (key, value) in table {
            let is_url = may_hold_login(key.get_ref());
            self.blanks.extend(is_url.then(|| (key.span(), true)));
            self.add(trail, key.get_ref(), key.span(), value);
        }
    }

    fn add(&mut self, trail: &mut Vec<String>, name: &str, span: Range<usize>, value: &Spanned<DeValue<'_>>) {
        trail.push(name.to_owned());
        let is_table = matches!(value.get_ref(), DeValue::Table(_));
        self.nodes.insert(trail.clone(), Node { name: span, value: (!is_table).then(|| value.span()) });
        match value.get_ref() {
            DeValue::Table(inside) => self.add_table(trail, inside),
            DeValue::Array(items) => {
                for (number, item) in items.iter().enumerate() {
                    self.add(trail, &number.to_string(), item.span(), item);
                }
            }
            DeValue::String(text) => self.blanks.push((value.span(), may_hold_login(text))),
            DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) | DeValue::Datetime(_) => {
                self.blanks.push((value.span(), false));
            }
        }
        trail.pop();
    }

    /// The place of a mark.
    fn excerpt(&self, mark: &Mark) -> Excerpt {
        let (span, shown) = match mark {
            Mark::Syntax(span) => (span.clone(), 0..0),
            Mark::Key(trail) => (self.find(trail).map_or(0..0, |(node, _)| node.name.clone()), 0..0),
            Mark::Value(trail) => (self.value(trail), self.shown(trail)),
            Mark::Hidden(trail) => (self.value(trail), 0..0),
        };
        let number = self.lines.partition_point(|begin| *begin <= span.start).max(1);
        let begin = self.lines.get(number - 1).copied().unwrap_or(0);
        let line = self.document.text.get(begin..).and_then(|rest| rest.lines().next()).unwrap_or_default();
        let start = span.start.saturating_sub(begin).min(line.len());
        let marked = start..span.end.saturating_sub(begin).clamp(start, line.len());
        let text = match mark {
            _ if line.len() > LINE_BYTES_MAX => String::new(),
            Mark::Syntax(_) => without_value(line),
            Mark::Value(_) | Mark::Hidden(_) | Mark::Key(_) => self.blanked(begin, line, &shown),
        };
        let column = line.get(..start).unwrap_or(line).chars().count() + 1;
        let marked = marked.start.min(text.len())..marked.end.min(text.len());
        Excerpt { file: self.document.name.clone(), line: number, column, text, marked }
    }

    /// The value, or the name of the innermost table in which it is missing.
    fn value(&self, trail: &[String]) -> Range<usize> {
        let Some((node, is_whole)) = self.find(trail) else { return 0..0 };
        node.value.clone().filter(|_| is_whole).unwrap_or_else(|| node.name.clone())
    }

    /// The value of which everything may be shown: the whole list for an item.
    fn shown(&self, trail: &[String]) -> Range<usize> {
        let is_item = trail.last().is_some_and(|name| name.parse::<usize>().is_ok());
        let key = trail.get(..trail.len() - usize::from(is_item)).unwrap_or_default();
        self.nodes.get(key).and_then(|node| node.value.clone()).unwrap_or(0..0)
    }

    /// As much of a trail as there is; true if that is all of it.
    fn find(&self, trail: &[String]) -> Option<(&Node, bool)> {
        (1..=trail.len()).rev().find_map(|len| Some((self.nodes.get(trail.get(..len)?)?, len == trail.len())))
    }

    /// The line without its values, but for those that may be shown, and without the comment at its end.
    fn blanked(&self, begin: usize, line: &str, shown: &Range<usize>) -> String {
        let first = self.blanks.partition_point(|(span, _)| span.end <= begin);
        let rest = self.blanks.iter().skip(first);
        let here: Vec<_> = rest.take_while(|(span, _)| span.start < begin + line.len()).collect();
        let is_inside = |at: usize| here.iter().any(|(span, _)| span.contains(&(begin + at)));
        let comment = line.match_indices('#').map(|(at, _)| at).find(|at| !is_inside(*at));
        let line = comment.and_then(|at| line.get(..at)).unwrap_or(line).trim_end();
        blank(line, |at| {
            let hides = |(span, always): &&(Range<usize>, bool)| {
                span.contains(&(begin + at)) && (*always || span.start < shown.start || span.end > shown.end)
            };
            here.iter().any(hides)
        })
    }
}

/// A line that is not TOML, of which nothing is shown but the header of a table, or what looks like a key before `=`. Keys of
/// ours have no digits, and most secrets have some.
fn without_value(line: &str) -> String {
    let plain = |text: &str, others: &[u8]| {
        text.bytes()
            .all(|byte| byte.is_ascii_lowercase() || b"_. \t".contains(&byte) || others.contains(&byte))
    };
    let shown = match line.split_once('=') {
        Some((key, _)) if plain(key, b"") => key.len() + 1,
        None if line.trim_start().starts_with('[') && plain(line, b"[]") => line.len(),
        _ => 0,
    };
    blank(line, |at| at >= shown)
}

/// The line with stars instead of some of its bytes; quotes and blanks stay.
fn blank(line: &str, hides: impl Fn(usize) -> bool) -> String {
    let mut shown = String::with_capacity(line.len());
    for (at, character) in line.char_indices() {
        if hides(at) && !matches!(character, '"' | '\'' | ' ') {
            shown.extend(std::iter::repeat_n('*', character.len_utf8()));
        } else {
            shown.push(character);
        }
    }
    shown
}
