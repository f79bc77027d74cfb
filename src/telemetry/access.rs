//! Text that a client chose, for the log: it is escaped, cut, and shows no whole key or signature.

use std::fmt::{self, Write};

/// How much of a client's text a line shows, in bytes.
pub(crate) const SHOWN_BYTES_MAX: usize = 256;

/// Hex digits in a row that may be a key or a signature.
const HEX_RUN_MIN: usize = 64;

/// How much of such a run is shown.
const HEX_RUN_SHOWN: usize = 8;

/// Bytes that a client chose: blanks, control characters and what is no ASCII are escaped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shown<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_cut = self.0.len() > SHOWN_BYTES_MAX;
        let bytes = self.0.get(..SHOWN_BYTES_MAX).unwrap_or(self.0);
        for run in bytes.chunk_by(|one, next| one.is_ascii_hexdigit() == next.is_ascii_hexdigit()) {
            // A run that is cut may go on.
            let may_be_secret = run.len() >= HEX_RUN_MIN || (is_cut && bytes.ends_with(run));
            let is_secret = run.first().is_some_and(u8::is_ascii_hexdigit) && may_be_secret;
            let shown = if is_secret { run.get(..HEX_RUN_SHOWN).unwrap_or(run) } else { run };
            for &byte in shown {
                match byte {
                    b' ' => out.write_str("\\x20")?,
                    _ => write!(out, "{}", byte.escape_ascii())?,
                }
            }
            if is_secret {
                out.write_str("...")?;
            }
        }
        if is_cut { out.write_char('~') } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::{SHOWN_BYTES_MAX, Shown};

    // threat: Keys in paths, and forged lines, in the log
    #[test]
    fn keys_and_signatures_in_a_path_are_cut() {
        let (key, signature) = ("0123456789abcdef".repeat(4), "AB".repeat(65));
        for (path, shown) in [
            ("/v1/users/0xdeadbeef".to_owned(), "/v1/users/0xdeadbeef".to_owned()),
            (format!("/svc_live_v1_{key}/x"), "/svc_live_v1_01234567.../x".to_owned()),
            (format!("/0x{signature}"), "/0xABABABAB...".to_owned()),
            (format!("/{}", &key[1..]), format!("/{}", &key[1..])),
        ] {
            assert_eq!(Shown(path.as_bytes()).to_string(), shown);
        }
        let cut = format!("{}{key}", "/".repeat(SHOWN_BYTES_MAX - 40));
        assert!(Shown(cut.as_bytes()).to_string().ends_with("/01234567...~"));
    }
}
