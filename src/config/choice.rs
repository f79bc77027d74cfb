//! Keys that take one of a few words, or a plain name.

use std::ops::RangeInclusive;

use crate::config::written::quoted;

/// The longest name, in bytes.
const NAME_BYTES_MAX: usize = 64;

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

/// Reads a name that needs no quoting anywhere: in labels, logs and headers.
pub(super) fn name(text: &str) -> Result<Box<str>, String> {
    plain(text, &(1..=NAME_BYTES_MAX), &['-', '_', '.']).map(Box::from)
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
