//! A header that goes with every call to the nodes of one origin. Providers take keys in them, so its value is a secret.

use crate::domain::secret::Secret;

/// A header as it is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RpcHeader<V> {
    /// Scheme, host and port of the nodes that it goes to, as `RpcUrl::origin` writes them. It goes nowhere else.
    pub origin: String,
    /// Its name, in lower case.
    pub name: String,
    /// Its value, or where that is.
    pub value: V,
}

/// The longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 8 * 1024;

/// Why a text is no header's value. Says nothing of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not 1 to {VALUE_BYTES_MAX} characters of printable ASCII without blanks around them")]
pub struct NotAHeaderValue;

/// A value that can be sent.
pub fn value(text: &str) -> Result<Secret, NotAHeaderValue> {
    let printable = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let acceptable = !text.is_empty() && text.len() <= VALUE_BYTES_MAX && text.trim() == text && printable;
    if acceptable { Ok(Secret::new(text)) } else { Err(NotAHeaderValue) }
}

#[cfg(test)]
mod tests {
    use super::{VALUE_BYTES_MAX, value};

    #[test]
    fn a_value_is_printable_and_has_no_blanks_around_it() {
        for text in ["k", "Bearer abc.def", "~!\"#$%&'()*", &"k".repeat(VALUE_BYTES_MAX)] {
            assert_eq!(value(text).unwrap().reveal(), text);
        }
        for text in
            ["", " ", " k", "k ", "k\n", "a\r\nb: c", "\0", "k\t", "ü", &"k".repeat(VALUE_BYTES_MAX + 1)]
        {
            let why = value(text).unwrap_err();
            assert!(!format!("{why} {why:?}").contains(&format!("{text:?}")), "{text:?}");
        }
    }
}
