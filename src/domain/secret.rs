//! A text that must not show up anywhere: a password of a server of ours.

use std::{fmt, path::PathBuf};

use zeroize::Zeroizing;

/// A secret. It has no `Display`, its `Debug` shows nothing, and its memory is wiped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

/// A secret as it is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// The secret itself.
    Text(Secret),
    /// A file that holds it and nothing else; a line end behind it does not count.
    File(PathBuf),
}

impl Secret {
    /// Keeps this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// The text, for the one place that shows it to the server.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::Secret;

    #[test]
    fn a_secret_shows_nothing_when_debugged() {
        assert_eq!(format!("{:?}", Secret::new("hunter2")), "Secret(…)");
    }
}
