//! Keys and variables that nobody asked for, each with the known one that was probably meant.

use toml::{Table, Value};

use crate::config::location::Location;
use crate::config::problem::Problem;
use crate::config::written::{quoted, type_of};

/// How many characters a misspelt name may be away from the known one.
const TYPING_ERRORS_MAX: usize = 2;

/// The longest name that is compared and shown as it is.
const NAME_BYTES_MAX: usize = 64;

/// Everything that is left of a table once the known paths have been taken out.
pub(super) fn keys(left: &Table, known: &[&'static str], location: &Location) -> Vec<Problem> {
    let mut left_over = LeftOver { known, location, problems: Vec::new() };
    left_over.walk(left, "");
    left_over.problems
}

/// Every variable that is none of the known ones.
pub(super) fn variables<'a>(
    names: impl Iterator<Item = &'a String>,
    known: &'a [String],
) -> impl Iterator<Item = Problem> {
    names.filter(|name| !known.contains(name)).map(|name| {
        let meant = closest(name, known.iter().map(String::as_str));
        Problem::new(named(name), format!("is not a known variable{}", suggestion(meant)))
    })
}

/// What is being found of one table.
struct LeftOver<'a> {
    known: &'a [&'static str],
    location: &'a Location,
    problems: Vec<Problem>,
}

impl LeftOver<'_> {
    fn walk(&mut self, left: &Table, section: &str) {
        for (key, value) in left {
            let path = format!("{section}{}", named(key));
            let inside = format!("{path}.");
            let is_section = self.known.iter().any(|known| known.starts_with(&inside));
            if !is_section {
                let phrase = format!("is not a known key{}", suggestion(meant(key, section, self.known)));
                self.problems.push(Problem::new(self.location.of_key(&path), phrase));
            } else if let Value::Table(table) = value {
                self.walk(table, &inside);
            } else {
                let header = self.location.header(&path);
                let phrase = format!("is {}; write a section that begins with [{header}]", type_of(value));
                self.problems.push(Problem::new(self.location.of_key(&path), phrase));
            }
        }
    }
}

/// A key or section beside it with nearly the same name, else a key of the same name elsewhere: a key that stands below
/// the header of another section has moved there.
fn meant<'a>(key: &str, section: &str, known: &'a [&'static str]) -> Option<&'a str> {
    let beside = known.iter().filter_map(|path| {
        let rest = path.strip_prefix(section)?;
        let name_len = rest.find('.').unwrap_or(rest.len());
        path.get(..section.len() + name_len)
    });
    let near = closest(&format!("{section}{key}"), beside);
    near.or_else(|| known.iter().copied().find(|path| path.rsplit('.').next() == Some(key)))
}

/// The known path or variable that differs least, if the last part of its name differs by little.
fn closest<'a>(written: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if written.len() > NAME_BYTES_MAX {
        return None;
    }
    let near = known.filter_map(|name| {
        let distance = edit_distance(written, name);
        let name_len = name.rsplit("__").next().and_then(|name| name.rsplit('.').next()).map_or(0, str::len);
        (distance <= TYPING_ERRORS_MAX && distance * 2 < name_len).then_some((distance, name))
    });
    near.min().map(|(_, name)| name)
}

/// How many characters must be added, removed or replaced to make one text the other (Levenshtein).
fn edit_distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (place, left) in one.chars().enumerate() {
        let mut next = vec![place + 1];
        let mut last = place + 1;
        for (pair, right) in row.windows(2).zip(&other) {
            if let [diagonal, above] = pair {
                last = (diagonal + usize::from(left != *right)).min(above + 1).min(last + 1);
                next.push(last);
            }
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

fn suggestion(meant: Option<&str>) -> String {
    meant.map(|name| format!("; did you mean {name}?")).unwrap_or_default()
}

/// A name as TOML writes it: bare when it can be, else in quotes.
fn named(name: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len());
    if fits && name.bytes().all(bare) { name.to_owned() } else { quoted(name) }
}
