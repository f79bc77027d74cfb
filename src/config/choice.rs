//! Keys that take one of a few words, or a plain name.

use crate::config::written::quoted;

/// The longest name, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Reads one of the words, or says which there are.
pub(super) fn choice<T: Copy>(words: &[(&str, T)]) -> impl Fn(&str) -> Result<T, String> {
    |text| {
        let chosen = words.iter().find(|(word, _)| *word == text).map(|(_, meaning)| *meaning);
        chosen.ok_or_else(|| format!("is {}; write {}", quoted(text), listed(words)))
    }
}

/// Reads a name that needs no quoting anywhere: in labels, logs and headers.
pub(super) fn name<T: for<'a> From<&'a str>>(text: &str) -> Result<T, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(plain) {
        Ok(text.into())
    } else {
        Err(format!(
            "is {}; write 1 to {NAME_BYTES_MAX} characters of A-Z, a-z, 0-9, -, _ and .",
            quoted(text)
        ))
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
