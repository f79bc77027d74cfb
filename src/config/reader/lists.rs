//! Keys that hold lists, or one of a few words.

use std::ops::RangeInclusive;

use toml::Value;

use super::Reader;
use crate::config::choice::choice;
use crate::config::declared::Kind;
use crate::config::reader::tables::counted;
use crate::config::written::Written;

impl Reader {
    /// One of a few words.
    pub(in crate::config) fn word<T: Copy>(
        &mut self,
        path: &'static str,
        default: &str,
        words: &[(&'static str, T)],
    ) -> Option<T> {
        let kind = || Kind::Words(words.iter().map(|(word, _)| *word).collect());
        let written = self.take_or(path, default, kind);
        self.check(path, written.text().and_then(|text| choice(words)(&text)))
    }

    /// A list of strings, or of what they stand for.
    pub(in crate::config) fn texts<T>(
        &mut self,
        path: &'static str,
        default: &[&str],
        count: &RangeInclusive<usize>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let default = default.iter().map(|text| Value::from(*text)).collect();
        self.list(path, default, count, || Kind::Text, |item| item.text().and_then(|text| parse(&text)))
    }

    /// A list of strings, or of what they stand for, that has no default and at least one item.
    pub(in crate::config) fn required_texts<T>(
        &mut self,
        path: &'static str,
        most: usize,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        self.require(path, "");
        self.optional_texts(path, most, parse).filter(|items| !items.is_empty())
    }

    /// A list of strings, or of what they stand for, that has items when it is not left out.
    pub(in crate::config) fn optional_texts<T>(
        &mut self,
        path: &'static str,
        most: usize,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let least = usize::from(self.is_given(path));
        let items = self.texts(path, &[], &(least..=most), parse);
        if let Some(key) = self.declared.as_mut().and_then(|declared| declared.last_mut()) {
            (key.default, key.kind) = (None, Kind::List(Box::new(Kind::Text), 1..=most));
        }
        items
    }

    /// A list of whole numbers, each within its bounds.
    pub(in crate::config) fn integers<T: TryFrom<i64>>(
        &mut self,
        path: &'static str,
        default: &[i64],
        count: &RangeInclusive<usize>,
        allowed: &RangeInclusive<i64>,
    ) -> Option<Vec<T>> {
        let default = default.iter().map(|number| Value::from(*number)).collect();
        self.list(path, default, count, || Kind::Integer(allowed.clone()), |item| item.integer(allowed))
    }

    fn list<T>(
        &mut self,
        path: &'static str,
        default: Vec<Value>,
        count: &RangeInclusive<usize>,
        kind: impl FnOnce() -> Kind,
        parse: impl Fn(Written) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let written = self.take_or(path, default, || Kind::List(Box::new(kind()), count.clone()));
        let items = self.check(path, written.items())?;
        let counted = self.check(path, counted(items.len(), count));
        let checked = self.check_items(path, items.into_iter().map(parse));
        counted.and(checked)
    }
}
