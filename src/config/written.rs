//! One value as it was written: typed in the file, plain text in the environment, where the key's own type decides what
//! the text means; and texts that are words, names and durations.
//!
//! Must not know which key it belongs to.

use std::{fmt::Display, ops::RangeInclusive, path::PathBuf, time::Duration};

use toml::Value;

use crate::domain::{HostPattern, RedisUrl, RpcUrl, rpc_url::public_part};

/// How much of a wrong value a problem shows.
const SHOWN_CHARS_MAX: usize = 64;

/// How much of a key's value may be shown when it can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    Always,
    /// Of a URL scheme, host and port.
    Host,
    /// Nothing: it is a secret.
    Never,
}

impl Shown {
    fn of(self, text: &str) -> String {
        let public = match (self, RpcUrl::parse(text), RedisUrl::parse(text)) {
            (Self::Always, ..) => return text.to_owned(),
            (Self::Never, ..) => None,
            (Self::Host, Some(node), _) => Some(node.origin().to_owned()),
            (Self::Host, _, Ok(redis)) => Some(redis.to_string()),
            (Self::Host, ..) => public_part(text),
        };
        public.unwrap_or_else(|| "***".to_owned())
    }
}

/// The shortest and the longest duration that a key allows, as people write them.
pub(super) type Bounds = [&'static str; 2];

/// A value that nobody has checked yet.
#[derive(Clone)]
pub(super) enum Written {
    /// From the file, with the type it has there.
    Typed(Value),
    /// From the environment.
    Plain(String),
}

impl Written {
    /// The value as TOML writes it, as much as may be shown.
    pub(super) fn shown(&self, shown: Shown) -> String {
        fn masked(shown: Shown, value: &Value) -> Value {
            match (value.as_str(), value.as_array()) {
                (Some(text), _) => shown.of(text).into(),
                (_, Some(items)) => items.iter().map(|item| masked(shown, item)).collect::<Vec<_>>().into(),
                (None, None) => value.clone(),
            }
        }
        match self {
            Self::Typed(value) => masked(shown, value).to_string(),
            Self::Plain(text) => Value::from(shown.of(text)).to_string(),
        }
    }

    pub(super) fn text(self) -> Result<String, String> {
        match self {
            Self::Plain(text) | Self::Typed(Value::String(text)) => Ok(text),
            Self::Typed(other) => Err(format!("is {}; write a string in quotes", type_of(&other))),
        }
    }

    pub(super) fn boolean(self) -> Result<bool, String> {
        let found = match self {
            Self::Typed(Value::Boolean(value)) => return Ok(value),
            Self::Typed(other) => type_of(&other).to_owned(),
            Self::Plain(text) => match text.trim().parse() {
                Ok(value) => return Ok(value),
                Err(_) => quoted(&text),
            },
        };
        Err(format!("is {found}; write true or false"))
    }

    /// A whole number within its bounds, as the type that holds it.
    pub(super) fn integer<T: TryFrom<i64>>(self, allowed: &RangeInclusive<i64>) -> Result<T, String> {
        let (found, number) = match self {
            Self::Typed(Value::Integer(number)) => (number.to_string(), Some(number)),
            Self::Typed(other) => (type_of(&other).to_owned(), None),
            Self::Plain(text) => (quoted(&text), text.trim().parse().ok()),
        };
        let fitting =
            number.filter(|number| allowed.contains(number)).and_then(|number| T::try_from(number).ok());
        fitting.ok_or_else(|| {
            format!("is {found}; write a whole number from {} to {}", allowed.start(), allowed.end())
        })
    }

    /// A duration within its bounds, which is a string and never a number. With `or_none` 0 stands for none.
    pub(super) fn duration(self, [min, max]: Bounds, or_none: bool) -> Result<Option<Duration>, String> {
        let without_unit = |number: &str| {
            format!(
                "is {number}, a number without a unit; write one, such as \"300s\", \"24h\" or \"1m 30s\""
            )
        };
        if let Self::Typed(number @ (Value::Integer(_) | Value::Float(_))) = &self {
            return Err(without_unit(&number.to_string()));
        }
        let (text, none) = (self.text()?, if or_none { ", or \"0s\" for none" } else { "" });
        if text.trim().parse().is_ok_and(f64::is_finite) {
            return Err(without_unit(&quoted(&text)) + none);
        }
        match [&*text, min, max].map(humantime::parse_duration) {
            [Ok(duration), ..] if or_none && duration.is_zero() => Ok(None),
            [Ok(duration), Ok(least), Ok(most)] if (least..=most).contains(&duration) => Ok(Some(duration)),
            _ => Err(format!(
                "is {}; write a duration from {min} to {max}, such as \"300s\", \"24h\" or \"1m 30s\"{none}",
                quoted(&text)
            )),
        }
    }

    /// The items of a list: in the environment an array as TOML writes it, or texts between commas.
    pub(super) fn items(self) -> Result<Vec<Self>, String> {
        match self {
            Self::Typed(Value::Array(items)) => Ok(items.into_iter().map(Self::Typed).collect()),
            Self::Typed(other) => Err(format!("is {}; write a list in square brackets", type_of(&other))),
            Self::Plain(text) if text.trim_start().starts_with('[') => {
                match text.trim().parse() {
                    Ok(Value::Array(items)) => Ok(items.into_iter().map(Self::Typed).collect()),
                    _ => Err("begins with [ but is not a TOML array; write one, or items between commas"
                        .to_owned()),
                }
            }
            Self::Plain(text) if text.trim().is_empty() => Ok(Vec::new()),
            Self::Plain(text) => {
                Ok(text.split(',').map(|item| Self::Plain(item.trim().to_owned())).collect())
            }
        }
    }
}

/// A type of TOML with its article.
pub(super) const fn type_of(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "a string",
        Value::Integer(_) => "an integer",
        Value::Float(_) => "a float",
        Value::Boolean(_) => "a boolean",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "an array",
        Value::Table(_) => "a table",
    }
}

/// The value of a text, or a problem that says which text would have one.
pub(super) fn valid<T>(text: &str, value: Option<T>, wanted: impl Display) -> Result<T, String> {
    value.ok_or_else(|| format!("is {}; write {wanted}", quoted(text)))
}

/// The same for a URL, of which the problem shows scheme and host at most, and nothing of a text that is none.
pub(super) fn valid_url<T>(text: &str, value: Option<T>, wanted: impl Display) -> Result<T, String> {
    let shown = || public_part(text).unwrap_or_else(|| "not a URL".to_owned());
    value.ok_or_else(|| format!("is {}; write {wanted}", shown()))
}

/// An http(s) URL without a login. `advice` ends the problem.
pub(super) fn open_url(text: &str, advice: &str) -> Result<RpcUrl, String> {
    let is_open = |url: &RpcUrl| url.reveal().username().is_empty() && url.reveal().password().is_none();
    let wanted = format_args!("an http:// or https:// URL without a login, {advice}");
    valid_url(text, RpcUrl::parse(text).filter(is_open), wanted)
}

/// A host, or the hosts below one.
pub(super) fn host(text: &str) -> Result<HostPattern, String> {
    let wanted = "a host, such as \"api.example\", \"*.example\" for those below it, or \"*\" for all";
    valid(text, HostPattern::parse(text), wanted)
}

/// The path of a file; a relative one is relative to the working directory of the process.
pub(super) fn file(text: &str) -> Result<PathBuf, String> {
    path(text, "file")
}

/// The path of a file or a folder, relative to the same.
pub(super) fn path(text: &str, of: &str) -> Result<PathBuf, String> {
    let is_path = !text.is_empty() && !text.contains('\0');
    valid(text, is_path.then(|| text.into()), format_args!("the path of a {of}"))
}

/// A number of which 0 stands for none.
pub(super) fn unless_zero<T: Default + PartialEq>(number: T) -> Option<T> {
    (number != T::default()).then_some(number)
}

/// A wrong value as a problem may show it: in quotes, on one line, cut, and of a URL nothing behind the host and of a login
/// nothing at all, because that may be a secret under whatever key it was pasted.
pub(super) fn quoted(text: &str) -> String {
    if text.contains("://") || text.contains('@') {
        return public_part(text).unwrap_or_else(|| "a text with a login, or a URL".to_owned());
    }
    let rest = if text.chars().nth(SHOWN_CHARS_MAX).is_some() { "…" } else { "" };
    let shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    format!("\"{}{rest}\"", shown.escape_debug())
}

/// Reads one of the words, or says which there are.
pub(super) fn choice<T: Copy>(words: &[(&str, T)]) -> impl Fn(&str) -> Result<T, String> {
    |text| {
        let chosen = words.iter().find(|(word, _)| *word == text).map(|(_, meaning)| *meaning);
        chosen.ok_or_else(|| {
            let words = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
            format!("is {}; write {}", quoted(text), listed(words, "or"))
        })
    }
}

/// Reads a text of letters, digits and a few other characters.
pub(super) fn plain<'t>(
    text: &'t str,
    count: &RangeInclusive<usize>,
    others: &[char],
) -> Result<&'t str, String> {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || others.contains(&character);
    if count.contains(&text.len()) && text.chars().all(is_plain) {
        return Ok(text);
    }
    let all = ["A-Z", "a-z", "0-9"].into_iter().map(str::to_owned).chain(others.iter().map(char::to_string));
    let (least, most, all) = (count.start(), count.end(), listed(all.collect(), "and"));
    Err(format!("is {}; write {least} to {most} characters of {all}", quoted(text)))
}

/// `"a", "b" or "c"`.
fn listed(items: Vec<String>, last_word: &str) -> String {
    match items.as_slice() {
        [others @ .., last] if !others.is_empty() => format!("{} {last_word} {last}", others.join(", ")),
        few => few.concat(),
    }
}
