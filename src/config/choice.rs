//! Keys that take one of a few words.

use crate::config::written::quoted;

/// Reads one of the words, or says which there are.
pub(super) fn choice<T: Copy>(words: &[(&str, T)]) -> impl Fn(&str) -> Result<T, String> {
    |text| {
        let chosen = words.iter().find(|(word, _)| *word == text).map(|(_, meaning)| *meaning);
        chosen.ok_or_else(|| format!("is {}; write {}", quoted(text), listed(words)))
    }
}

/// `"a", "b" or "c"`.
fn listed<T>(words: &[(&str, T)]) -> String {
    let quoted: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
    match quoted.as_slice() {
        [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        few => few.concat(),
    }
}
