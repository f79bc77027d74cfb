//! Path patterns of routes, and which request paths another reader may see differently.
//!
//! Patterns are compared with the bytes of the path as they are forwarded. A path that servers read in more than one
//! way (dot segments, encoded slashes and the like) is ambiguous; its normal form is what the most helpful of them would
//! make of it.

use std::borrow::Cow;

/// The longest pattern, in bytes.
pub const PATTERN_BYTES_MAX: usize = 1_024;

/// What a route's path looks like.
///
/// Without `*` it is a prefix of whole segments: `/v1` takes `/v1` and `/v1/x`, not `/v10`. With `*` it takes the whole
/// path: a `*` stands for any characters but `/`, also none; a final `/*` stands for whatever is below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern {
    text: Box<str>,
}

impl PathPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    ///
    /// What is wrong with it, as a phrase.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.len() > PATTERN_BYTES_MAX {
            return Err("is longer than 1024 bytes");
        }
        let plain = text.bytes().all(|byte| byte == b'*' || byte == b'/' || is_pattern_byte(byte));
        if !text.starts_with('/') || !plain {
            return Err("is not a path pattern");
        }
        let dotted = text.split('/').any(|segment| matches!(segment, "." | ".."));
        if dotted || text.contains("//") {
            return Err("has empty or dot segments");
        }
        Ok(Self { text: text.into() })
    }

    /// Whether the pattern takes a path.
    #[must_use]
    pub fn matches(&self, path: &[u8]) -> bool {
        let pattern = self.text.as_bytes();
        if let Some(folder) = pattern.strip_suffix(b"*").filter(|folder| folder.ends_with(b"/")) {
            return glob(folder, path, true);
        }
        if pattern.contains(&b'*') {
            return glob(pattern, path, false);
        }
        let prefix = pattern.strip_suffix(b"/").unwrap_or(pattern);
        path.strip_prefix(prefix).is_some_and(|rest| rest.first().is_none_or(|byte| *byte == b'/'))
    }
}

/// What may stand in a pattern beside `/` and `*`: unreserved characters and those sub-delimiters that no server gives a
/// meaning (RFC 3986, sections 2.2 and 2.3).
const fn is_pattern_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'-' | b'.'
                | b'_'
                | b'~'
                | b'!'
                | b'$'
                | b'&'
                | b'\''
                | b'('
                | b')'
                | b'+'
                | b','
                | b'='
                | b':'
                | b'@'
        )
}

/// Classic glob with one point to come back to; `open_end`: whatever follows the pattern is taken.
fn glob(pattern: &[u8], path: &[u8], open_end: bool) -> bool {
    let (mut at, mut seen) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    loop {
        let wanted = pattern.get(at);
        if wanted == Some(&b'*') {
            back = Some((at, seen));
            at += 1;
            continue;
        }
        if wanted.is_none() && (open_end || seen == path.len()) {
            return true;
        }
        if wanted.is_some() && wanted == path.get(seen) {
            (at, seen) = (at + 1, seen + 1);
            continue;
        }
        match back {
            Some((star, from)) if path.get(from).is_some_and(|byte| *byte != b'/') => {
                back = Some((star, from + 1));
                (at, seen) = (star + 1, from + 1);
            }
            Some(_) | None => return false,
        }
    }
}

/// How a request's path reads.
#[derive(Debug, PartialEq, Eq)]
pub enum Reading {
    /// Every server reads the same.
    Plain,
    /// Servers differ; this is the path in normal form.
    Ambiguous(Vec<u8>),
}

/// Reads the path of a request target, without its query.
#[must_use]
pub fn read(path: &[u8]) -> Reading {
    if is_plain(path) { Reading::Plain } else { Reading::Ambiguous(normal(path)) }
}

fn is_plain(path: &[u8]) -> bool {
    let mut previous = 0;
    for (at, byte) in path.iter().enumerate() {
        match byte {
            b'/' if previous == b'/' => return false,
            b'\\' | b';' => return false,
            b'%' => {
                // An escape of what may stand in a pattern, or of what separates segments, can be read as either.
                let Some(decoded) = escape(path.get(at..).unwrap_or_default()) else { return false };
                if is_pattern_byte(decoded)
                    || matches!(decoded, b'/' | b'\\' | b';' | b'%' | b'*' | b'?' | b'#')
                    || decoded < b' '
                    || decoded == 0x7f
                {
                    return false;
                }
            }
            _ => {}
        }
        previous = *byte;
    }
    !path.split(|byte| *byte == b'/').any(|segment| segment == b"." || segment == b"..")
}

/// Decoded until nothing is left to decode, with `\` as `/`, without parameters, empty and dot segments.
fn normal(path: &[u8]) -> Vec<u8> {
    let mut decoded = Cow::Borrowed(path);
    while let Some(further) = decode(&decoded) {
        decoded = Cow::Owned(further);
    }
    let slash = |byte: &u8| *byte == b'/' || *byte == b'\\';
    let mut segments: Vec<&[u8]> = Vec::new();
    let mut is_folder = false;
    for segment in decoded.split(slash) {
        let bare = segment.split(|byte| *byte == b';').next().unwrap_or_default();
        is_folder = matches!(bare, b"" | b"." | b"..");
        match bare {
            b"" | b"." => {}
            b".." => {
                segments.pop();
            }
            name => segments.push(name),
        }
    }
    let mut text = Vec::with_capacity(decoded.len());
    for segment in &segments {
        text.push(b'/');
        text.extend_from_slice(segment);
    }
    if is_folder || text.is_empty() {
        text.push(b'/');
    }
    text
}

/// One round of percent-decoding; nothing when there is nothing to decode.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let (mut rest, mut changed) = (text, false);
    while let [first, others @ ..] = rest {
        if let Some(byte) = escape(rest) {
            decoded.push(byte);
            changed = true;
            rest = rest.get(3..).unwrap_or_default();
        } else {
            decoded.push(*first);
            rest = others;
        }
    }
    changed.then_some(decoded)
}

/// The byte that an escape at the beginning stands for.
fn escape(text: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = text else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()
}
