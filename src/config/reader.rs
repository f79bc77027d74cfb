//! Takes the keys out of the file and the environment one by one, and writes down everything that is wrong on the way.
//!
//! Must not know any key: each section asks for its own, and what nobody asked for is unknown. A section that gets `None`
//! may go on, because the reason has been recorded. A table of an array, or of another file, has a reader of its own,
//! whose paths begin there and which no variable overrides.
//!
//! Where a section reads a key, its path, type, default and bounds stand in that call, and its prose and example in the lines
//! above: its declaration. The reference, the schema and the walking test are made from these.

use std::collections::{BTreeMap, HashSet, btree_map::Entry};
use std::{fmt::Display, hash::Hash, ops::RangeInclusive, path::PathBuf, sync::Arc, time::Duration};

use toml::Value;

use crate::config::notes::{Claim, Claimed, Content, DEFAULT, NamedFile, Notes, Value as Noted};
use crate::config::problem::{Location, Problem, ValueLocation};
use crate::config::tree::{self, Item, Node, Table};
use crate::config::unknown;
use crate::config::written::{Bounds, Shown, Written, choice, file, quoted, type_of};
use crate::domain::{KeyPair, Secret, SecretSource};

/// What every variable that overrides a key begins with.
const VARIABLE_PREFIX: &str = "TIERGATE__";

/// A configuration that is being read.
pub(super) struct Reader {
    pub(super) scope: Scope,
    /// True while keys are read that are read again when the process runs.
    pub(super) is_live: bool,
    /// The keys that were asked for, where somebody wants to know, those of arrays of tables among them.
    pub(super) declared: Option<Vec<Declared>>,
    /// The prose of those that are asked for next, and how many were.
    about: (&'static str, usize),
    pub(super) notes: Notes,
}

/// The table that is being read.
#[derive(Default)]
pub(super) struct Scope {
    /// Where it stands.
    pub(super) location: Location,
    table: Table,
    /// The variables that are meant for us, by name.
    variables: BTreeMap<String, String>,
    /// The paths that have been asked for.
    pub(super) known: Vec<&'static str>,
    /// Those of them that hold tables, which no variable overrides.
    arrays: Vec<&'static str>,
    /// Those whose values are not always shown.
    masked: Vec<(&'static str, Shown)>,
}

impl Reader {
    /// Reads a file, and continues these notes.
    pub(super) fn new(
        location: Location,
        table: Table,
        environment: impl Iterator<Item = (String, String)>,
        notes: Notes,
    ) -> Self {
        let variables = environment.filter(|(name, value)| unknown::is_ours(name, value)).collect();
        Self {
            scope: Scope { location, table, variables, ..Scope::default() },
            is_live: true,
            declared: None,
            about: ("", 0),
            notes,
        }
    }

    /// A string, or what it stands for. As other keys it may be left out where it has no default.
    pub(super) fn text<'d, T>(
        &mut self,
        path: &'static str,
        default: impl Into<Option<&'d str>>,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let written = self.take(path, default.into(), || Kind::Text)?;
        self.check(path, written.text().and_then(|text| parse(&text)))
    }

    /// Reports a key that is not there.
    pub(super) fn require(&mut self, path: &'static str, advice: &str) {
        if !self.is_given(path) {
            self.report(&[path], format!("is required{advice}"));
        }
    }

    /// A string that has no default.
    pub(super) fn required_text<T>(
        &mut self,
        path: &'static str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        self.require(path, "");
        self.text(path, None, parse)
    }

    /// One of two.
    pub(super) fn boolean(&mut self, path: &'static str, default: impl Into<Option<bool>>) -> Option<bool> {
        let written = self.take(path, default.into(), || Kind::Flag)?;
        self.check(path, written.boolean())
    }

    /// A duration within its bounds.
    pub(super) fn duration(&mut self, path: &'static str, default: &str, bounds: Bounds) -> Option<Duration> {
        let written = self.take(path, Some(default), || Kind::Duration(bounds, false))?;
        self.check(path, written.duration(bounds, false))?
    }

    /// A duration within its bounds, or 0 for none. The outer `None` is a problem.
    pub(super) fn duration_or_none(
        &mut self,
        path: &'static str,
        default: &str,
        bounds: Bounds,
    ) -> Option<Option<Duration>> {
        let written = self.take(path, Some(default), || Kind::Duration(bounds, true))?;
        self.check(path, written.duration(bounds, true))
    }

    /// A whole number within its bounds.
    pub(super) fn integer<T: TryFrom<i64>>(
        &mut self,
        path: &'static str,
        default: impl Into<Option<i64>>,
        allowed: &RangeInclusive<i64>,
    ) -> Option<T> {
        let written = self.take(path, default.into(), || Kind::Integer(allowed.clone()))?;
        self.check(path, written.integer(allowed))
    }

    /// Says how much may be shown of the values of keys; to be said before they are read.
    pub(super) fn mask(&mut self, shown: Shown, paths: &[&'static str]) {
        self.scope.masked.extend(paths.iter().map(|path| (*path, shown)));
    }

    /// The keys that were asked for below a path and are there, right or wrong.
    pub(super) fn given_below(&self, path: &str) -> Vec<&'static str> {
        let below = self.scope.known.iter().copied().filter(|known| known.starts_with(path));
        below.filter(|known| self.is_given(known)).collect()
    }

    /// True if a key is there, right or wrong.
    pub(super) fn is_given(&self, path: &str) -> bool {
        let Scope { table, location, .. } = &self.scope;
        self.variable(path).is_some() || tree::find(table, path, &location.position).is_ok()
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

    /// The items of a list of which each stands there once.
    pub(super) fn distinct<T: Clone + Eq + Hash + Display>(
        &mut self,
        path: &'static str,
        items: Vec<T>,
    ) -> Option<Vec<T>> {
        let mut seen = HashSet::new();
        let checked = items.into_iter().map(|item| {
            let is_new = seen.insert(item.clone());
            is_new
                .then_some(())
                .ok_or_else(|| format!("is {} again; write each once", quoted(&item.to_string())))?;
            Ok(item)
        });
        self.check_items(path, checked)
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
        self.notes.problems.push(self.scope.location.problem(phrase));
    }

    /// Notes what the tenant claims by an item of a key. What its file claims already is a problem.
    pub(super) fn claim(&mut self, path: &str, number: usize, claim: Claim) {
        let (table, place) = (Arc::from(self.scope.location.of_table()), self.place(path, Some(number)));
        let claimed = Claimed { table, place, number };
        match self.notes.claims.entry(claim) {
            Entry::Occupied(first) => {
                self.notes.problems.push(claimed.problem(first.key(), &first.get().table));
            }
            Entry::Vacant(place) => drop(place.insert(claimed)),
        }
    }

    /// Notes files that these keys name.
    pub(super) fn note_file(&mut self, paths: &[&'static str], content: Content) {
        let places = paths.iter().map(|path| self.place(path, None)).collect();
        self.notes.files.push(NamedFile { content, is_live: self.is_live, places });
    }

    fn place_of(&self, paths: &[&'static str]) -> ValueLocation {
        let overridden = paths.iter().find(|path| self.variable(path).is_some());
        self.place(overridden.or(paths.first()).copied().unwrap_or_default(), None)
    }

    /// The origin of a value, or of one item of it, counted from 1: the variable that overrides it, or its path in the file.
    pub(super) fn place(&self, path: &str, number: Option<usize>) -> ValueLocation {
        let Scope { location, table, .. } = &self.scope;
        match self.variable(path) {
            Some(_) => ValueLocation { name: variable_of(path), position: None },
            None => {
                let position = match tree::find(table, path, &location.position) {
                    Ok(Node { item: Item::List(items), at, .. }) => {
                        number.and_then(|number| items.get(number - 1)).map_or(at, |item| &item.at)
                    }
                    Ok(node) => &node.at,
                    Err(place) => place,
                };
                ValueLocation { name: location.of_key(path), position: Some(position.clone()) }
            }
        }
    }

    /// The value in the environment, which replaces that of the file.
    fn variable(&self, path: &str) -> Option<&String> {
        // Most tables have no variables; there may be a hundred thousand of them.
        if self.scope.variables.is_empty() {
            return None;
        }
        self.scope.variables.get(&variable_of(path))
    }

    /// Everything that was written down, and what nobody asked for.
    pub(super) fn finish(mut self) -> Notes {
        self.scope.unknown(&mut self.notes.problems);
        self.notes.problems.extend(self.unknown_variables());
        // A section may have keys that are read again, which come later.
        let mut sections = Vec::new();
        self.notes.values.sort_by_cached_key(|value| {
            let section = value.key.split(['.', '[']).next().unwrap_or_default().to_owned();
            sections.iter().position(|known| *known == section).unwrap_or_else(|| {
                sections.push(section);
                sections.len() - 1
            })
        });
        self.notes
    }

    /// A problem for each variable that nobody asked for.
    pub(super) fn unknown_variables(&self) -> Vec<Problem> {
        let Scope { known, arrays, variables, .. } = &self.scope;
        let overridable = known.iter().filter(|path| !arrays.contains(path));
        let known: Vec<String> = overridable.map(|path| variable_of(path)).collect();
        unknown::variables(variables.keys(), &known).collect()
    }

    /// Forgets the values below a path, which are not in force.
    pub(super) fn forget_values(&mut self, path: &str) {
        self.notes.values.retain(|value| !value.key.starts_with(path));
    }

    /// What is written under a path, or its default; the environment comes before the file.
    fn take(
        &mut self,
        path: &'static str,
        default: Option<impl Into<Value>>,
        kind: impl FnOnce() -> Kind,
    ) -> Option<Written> {
        let default = default.map(Into::into);
        self.declare(path, default.as_ref(), kind);
        self.scope.known.push(path);
        let typed = tree::ask(&mut self.scope.table, path).map(|node| Written::Typed(node.value()));
        let written = self.variable(path).cloned().map(Written::Plain).or(typed);
        let is_default = written.is_none();
        let written = written.or(default.map(Written::Typed))?;
        if self.notes.values.len() < self.notes.values_max {
            self.notes.values.push(Noted {
                key: self.scope.location.of_key(path),
                value: written.shown(self.shown(path)),
                origin: if is_default { DEFAULT.to_owned() } else { self.place(path, None).origin() },
                is_live: self.is_live,
            });
        }
        Some(written)
    }

    /// One of a few words.
    pub(super) fn word<T: Copy>(
        &mut self,
        path: &'static str,
        default: &str,
        words: &[(&'static str, T)],
    ) -> Option<T> {
        let kind = || Kind::Words(words.iter().map(|(word, _)| *word).collect());
        let written = self.take(path, Some(default), kind)?;
        self.check(path, written.text().and_then(|text| choice(words)(&text)))
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
        self.list(path, Some(default), count, || Kind::Text, |item| item.text().and_then(|text| parse(&text)))
    }

    /// A list of strings, or of what they stand for, that has no default and at least one item.
    pub(super) fn required_texts<T>(
        &mut self,
        path: &'static str,
        most: usize,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        self.require(path, "");
        self.optional_texts(path, most, parse).filter(|items| !items.is_empty())
    }

    /// A list of strings, or of what they stand for, that has items when it is not left out.
    pub(super) fn optional_texts<T>(
        &mut self,
        path: &'static str,
        most: usize,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        self.list(path, None, &(1..=most), || Kind::Text, |item| item.text().and_then(|text| parse(&text)))
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
        self.list(path, Some(default), count, || Kind::Integer(allowed.clone()), |item| item.integer(allowed))
    }

    fn list<T>(
        &mut self,
        path: &'static str,
        default: Option<Vec<Value>>,
        count: &RangeInclusive<usize>,
        kind: impl FnOnce() -> Kind,
        parse: impl Fn(Written) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let kind = || Kind::List(Box::new(kind()), count.clone());
        let Some(written) = self.take(path, default, kind) else { return Some(Vec::new()) };
        let items = self.check(path, written.items())?;
        let counted = self.check(path, counted(items.len(), count));
        let checked = self.check_items(path, items.into_iter().map(parse));
        counted.and(checked)
    }

    /// An array of tables, each read on its own; it may be left out.
    pub(super) fn tables<T>(
        &mut self,
        path: &'static str,
        most: usize,
        mut read: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        self.declare(path, None, || Kind::Tables(most));
        self.scope.known.push(path);
        self.scope.arrays.push(path);
        let header = format!("[[{}]]", self.scope.location.header(path));
        let nodes = match tree::ask(&mut self.scope.table, path) {
            None if self.declared.is_some() => vec![Node::empty()],
            None => Vec::new(),
            Some(Node { item: Item::List(nodes), .. }) => std::mem::take(nodes),
            Some(other) => {
                let other = type_of(&other.value());
                let phrase = format!("is {other}; write tables, each of which begins with {header}");
                return self.check(path, Err(phrase));
            }
        };
        // So many are not looked at one by one.
        self.check(path, counted(nodes.len(), &(0..=most)))?;
        let mut items = Vec::with_capacity(nodes.len());
        for (node, number) in nodes.into_iter().zip(1_usize..) {
            let location = self.scope.location.item(path, number, node.key.clone());
            let Item::Table(table) = node.item else {
                let phrase =
                    format!("is {}; write a table that begins with {header}", type_of(&node.value()));
                self.notes.problems.push(location.problem(phrase));
                items.push(None);
                continue;
            };
            let inner = Scope { location, table, ..Scope::default() };
            let outer = std::mem::replace(&mut self.scope, inner);
            items.push(read(self));
            let inner = std::mem::replace(&mut self.scope, outer);
            inner.unknown(&mut self.notes.problems);
        }
        items.into_iter().collect()
    }

    /// A file that is noted for those who look into it. Whether it exists is found out by whoever opens it.
    pub(super) fn file(
        &mut self,
        path: &'static str,
        content: impl FnOnce(PathBuf) -> Content,
    ) -> Option<PathBuf> {
        let named = self.text(path, None, file)?;
        self.note_file(&[path], content(named.clone()));
        Some(named)
    }

    /// A certificate chain and its key under two paths that are both there or both not. The outer `None` is a problem.
    pub(super) fn key_pair(
        &mut self,
        cert_path: &'static str,
        key_path: &'static str,
    ) -> Option<Option<KeyPair>> {
        let (cert, key) = (self.text(cert_path, None, file), self.text(key_path, None, file));
        let found = self.both_or_neither([cert_path, key_path], cert, key)?;
        let pair = found.map(|(cert, key)| KeyPair { cert, key });
        if let Some(pair) = &pair {
            self.note_file(&[cert_path, key_path], Content::Pair(pair.clone()));
        }
        Some(pair)
    }

    /// The values of two keys that go together. The outer `None` is a problem, placed at the key that is missing.
    pub(super) fn both_or_neither<A, B>(
        &mut self,
        paths @ [one, other]: [&'static str; 2],
        value: Option<A>,
        other_value: Option<B>,
    ) -> Option<Option<(A, B)>> {
        let missing_first = match paths.map(|path| self.is_given(path)) {
            [false, false] => return Some(None),
            [true, true] => return value.zip(other_value).map(Some),
            [true, false] => [other, one],
            [false, true] => paths,
        };
        let [name, other_name] = paths.map(|path| path.rsplit('.').next().unwrap_or_default());
        let phrase = format!("{name} and {other_name} go together; write both or neither");
        self.report(&missing_first, phrase);
        None
    }

    /// A secret under one path, or its file under another; both are a problem.
    pub(super) fn secret_or_file(
        &mut self,
        [text_path, file_path]: [&'static str; 2],
        parse: impl FnOnce(&str) -> Result<Secret, String>,
        content: impl FnOnce(PathBuf) -> Content,
    ) -> Option<SecretSource> {
        self.mask(Shown::Never, &[text_path]);
        if self.is_given(text_path) && self.is_given(file_path) {
            self.report(&[text_path, file_path], format!("stands beside {file_path}; write one of them"));
        }
        let text = self.text(text_path, None, parse).map(SecretSource::Text);
        let file = self.file(file_path, content).map(SecretSource::File);
        text.or(file)
    }

    /// Gives the keys that are asked for next their prose.
    pub(super) fn about(&mut self, about: &'static str) {
        self.about = (about, 0);
    }

    /// Notes a key.
    fn declare(&mut self, path: &'static str, default: Option<&Value>, kind: impl FnOnce() -> Kind) {
        let shown = self.shown(path);
        let Some(declared) = &mut self.declared else { return };
        let (about, number) = self.about;
        self.about.1 += 1;
        declared.push(Declared {
            path: self.scope.location.of_key(path).replace("[1]", "[]"),
            about,
            kind: kind(),
            default: default.cloned(),
            number,
            is_live: self.is_live,
            shown,
        });
    }

    fn shown(&self, path: &str) -> Shown {
        let masked = self.scope.masked.iter().find(|(masked, _)| *masked == path);
        masked.map_or(Shown::Always, |(_, shown)| *shown)
    }
}

impl Scope {
    fn unknown(&self, problems: &mut Vec<Problem>) {
        unknown::keys(&self.table, "", &self.known, &self.location, problems);
    }
}

/// The variable that overrides a key: `TIERGATE__CHAIN__CONTRACTS__IDENTITY`.
fn variable_of(path: &str) -> String {
    format!("{VARIABLE_PREFIX}{}", path.replace('.', "__").to_uppercase())
}

fn counted(found: usize, allowed: &RangeInclusive<usize>) -> Result<(), String> {
    allowed.contains(&found).then_some(()).ok_or_else(|| {
        let (least, most) = (allowed.start(), allowed.end());
        let wanted = if least == most { most.to_string() } else { format!("{least} to {most}") };
        format!("has {found} items; write {wanted}")
    })
}

/// A key.
#[derive(Debug, Clone)]
pub(super) struct Declared {
    /// Its path; `[]` stands behind the name of an array of tables.
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
