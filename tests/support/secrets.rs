//! Every secret that a suite handed out, and the search for them in everything that the service writes: its log with the
//! access log, the audit log, metrics, and the bodies of errors.

use std::sync::{Arc, Mutex, PoisonError};
use std::{collections::HashSet, fs, path::Path};

/// How much of a secret in hex must not be seen, in digits.
const HEX_PART: usize = 32;

/// The secrets of this process, in small letters.
static KNOWN: Mutex<Option<Arc<Known>>> = Mutex::new(None);

/// The secrets that are searched for. A search has its own, so that nobody waits for its end.
#[derive(Clone, Default)]
struct Known {
    /// Every part of the secrets in hex.
    hex: HashSet<[u8; HEX_PART]>,
    /// The other secrets.
    words: HashSet<String>,
}

/// Remembers a key, a signature or a password.
pub(crate) fn keep(secret: &str) {
    let secret = secret.to_ascii_lowercase();
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = Arc::make_mut(known.get_or_insert_default());
    let parts = hex_runs(secret.as_bytes()).flat_map(|run| run.windows(HEX_PART));
    let parts: Vec<[u8; HEX_PART]> = parts.map(|part| part.try_into().unwrap()).collect();
    if parts.is_empty() {
        assert!(secret.len() >= 8, "{secret} may stand anywhere");
        known.words.insert(secret);
    }
    known.hex.extend(parts);
}

/// Checks that none of the secrets stands in a text.
pub(crate) fn are_not_in(text: &[u8], place: &str) {
    let text = text.to_ascii_lowercase();
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let Some(known) = known else { return };
    // A secret has at least twice as many digits as a part.
    let parts = hex_runs(&text).flat_map(|run| run.windows(HEX_PART).step_by(HEX_PART));
    let found =
        parts.filter(|part| known.hex.contains(*part)).map(|part| String::from_utf8_lossy(part).into_owned());
    let text = String::from_utf8_lossy(&text);
    let words = known.words.iter().filter(|word| text.contains(*word)).cloned();
    let Some(secret) = found.chain(words).next() else { return };
    let line = text.lines().find(|line| line.contains(&secret)).unwrap_or_default();
    panic!("a secret is in {place}: {secret} in {line}");
}

/// Checks the files that a process of the service wrote.
pub(crate) fn are_not_in_files(folder: &Path) {
    let log = fs::read(folder.join("log")).unwrap();
    // Not every process has an audit log.
    let audit = fs::read(folder.join(AUDIT)).unwrap_or_default();
    are_not_in(&log, "the log");
    are_not_in(&audit, "the audit log");
}

/// The name of the audit log, beside the log.
pub(crate) const AUDIT: &str = "audit.log";

fn hex_runs(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| !byte.is_ascii_hexdigit())
}
