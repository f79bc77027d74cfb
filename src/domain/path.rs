//! Path patterns of routes, and which request paths another reader may see differently.
//!
//! Patterns are compared with the bytes of the path as they are forwarded, case included. A server behind us may read
//! them in another way: it decodes escapes, once or more often, cuts `;` parameters off, takes a backslash for a slash,
//! joins slashes, trims names. [`read`] says how far such readings of one path can lie apart.
//!
//! A server that folds more than that (letters' case, look-alikes of other alphabets, short file names) sees paths that
//! we do not.

use std::borrow::Cow;

/// The longest pattern, in bytes.
pub const PATTERN_BYTES_MAX: usize = 1_024;

/// The longest path that is read, in bytes.
pub const PATH_BYTES_MAX: usize = 4_096;

/// How many times in a row a path is percent-decoded: more layers than this are nobody's honest path.
pub const DECODINGS_MAX: usize = 8;

/// What a route's path looks like.
///
/// Without `*` it is a prefix of whole segments: `/v1` takes `/v1` and `/v1/x`, not `/v10`. With `*` it takes the whole
/// path: a `*` stands for any characters but `/`, also none; a final `/*` stands for whatever is below. An escape in a
/// path is one character here: a `*` takes all of it or nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern {
    text: Box<str>,
}

impl PathPattern {
    /// Reads a pattern.
    /// Error: what is wrong with it, as a phrase.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.len() > PATTERN_BYTES_MAX {
            return Err("is longer than 1024 bytes");
        }
        let plain = text.bytes().all(|byte| byte == b'*' || byte == b'/' || is_pattern_byte(byte));
        if !text.starts_with('/') || !plain {
            return Err("is not a path pattern");
        }
        // A path with such segments is ambiguous, so the rule could never loosen anything.
        let dotted = text.split('/').any(|segment| segment.ends_with('.'));
        if dotted || text.contains("//") {
            return Err("has empty segments or such that end with a dot");
        }
        Ok(Self { text: text.into() })
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The same for all patterns that are one: a final slash means nothing without a `*`.
    pub fn normal(&self) -> &str {
        self.text.strip_suffix('/').filter(|path| !path.contains('*')).unwrap_or(&self.text)
    }

    /// Whether the pattern takes a path.
    pub fn matches(&self, path: &[u8]) -> bool {
        let pattern = self.text.as_bytes();
        if let Some(folder) = pattern.strip_suffix(b"*").filter(|folder| folder.ends_with(b"/")) {
            return glob(folder, path, true);
        }
        if pattern.contains(&b'*') {
            return glob(pattern, path, false);
        }
        let prefix = pattern.strip_suffix(b"/").unwrap_or(pattern);
        let Some(rest) = path.strip_prefix(prefix) else { return false };
        rest.starts_with(b"/") || (rest.is_empty() && !prefix.is_empty())
    }

    /// Whether some reading of an ambiguous path, given in normal form, may be one that the pattern takes. Only what
    /// stands before the first `*` is sure to be the same in both.
    pub fn may_match(&self, normal: &[u8]) -> bool {
        match self.text.split_once('*') {
            Some((literal, _)) => normal.starts_with(literal.trim_end_matches('.').as_bytes()),
            None => self.matches(normal),
        }
    }
}

/// What may stand in a pattern beside `/` and `*`: unreserved characters and those sub-delimiters that no server gives a
/// meaning (RFC 3986, sections 2.2 and 2.3).
fn is_pattern_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()+,=:@".contains(&byte)
}

/// Classic glob with one point to come back to; `open_end`: whatever follows the pattern is taken. One point is enough:
/// a `*` does not leave its segment, so what was settled in earlier segments stays settled.
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
        let Some((star, from)) = back else { return false };
        let Some(width) = starred_width(path.get(from..).unwrap_or_default()) else { return false };
        back = Some((star, from + width));
        (at, seen) = (star + 1, from + width);
    }
}

/// How many bytes a `*` takes at once: an escape as a whole, never a slash.
fn starred_width(path: &[u8]) -> Option<usize> {
    match path.first()? {
        b'/' => None,
        b'%' if escape(path).is_some() => Some(3),
        _ => Some(1),
    }
}

/// How a request's path reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathForm {
    /// Every server reads the same.
    Plain,
    /// Some characters are escaped that mean nothing else when they are not; this is the path without escapes. What a
    /// pattern takes as it came, it takes decoded too, and with any part of the escapes decoded.
    Escaped(Vec<u8>),
    /// Servers read different segments; this is the path in normal form, which is that of every such reading too.
    Ambiguous(Vec<u8>),
    /// Some server may go anywhere with it: there are dot segments in some reading, or it is not text.
    Anywhere,
    /// No path of an honest request.
    Invalid,
}

/// Reads the path of a request target, without its query.
///
/// Refused is what does not begin with a slash, is longer than [`PATH_BYTES_MAX`], holds what can't stand in a path
/// (blanks, control characters also when escaped, `?`, `#`, a `%` without two hex digits), or is encoded more than
/// [`DECODINGS_MAX`] times. Bytes beyond ASCII are no URI (RFC 3986, section 2) but in use, and are read like their
/// escapes: as text when they are UTF-8, which no pattern can name but by `*`. Otherwise they lead anywhere: overlong
/// forms are a slash or a dot to some.
pub fn read(path: &[u8]) -> PathForm {
    if is_plain(path) {
        return PathForm::Plain;
    }
    if path.first() != Some(&b'/') || path.len() > PATH_BYTES_MAX || has_foreign_bytes(path) {
        return PathForm::Invalid;
    }
    let Some(decoded) = decode_fully(path) else { return PathForm::Invalid };
    if decoded.iter().any(u8::is_ascii_control) {
        return PathForm::Invalid;
    }
    if leads_anywhere(path, &decoded) {
        return PathForm::Anywhere;
    }
    let normal = normal(&decoded);
    if normal == *decoded && !hides_separators(path) {
        return PathForm::Escaped(normal);
    }
    PathForm::Ambiguous(normal)
}

/// The usual case, told without allocating.
fn is_plain(path: &[u8]) -> bool {
    let mut previous = 0;
    for byte in path {
        match byte {
            b'/' if previous == b'/' || previous == b'.' => return false,
            b'%' | b'\\' | b';' | b'?' | b'#' => return false,
            b'!'..=b'~' => {}
            _ => return false,
        }
        previous = *byte;
    }
    path.first() == Some(&b'/') && path.len() <= PATH_BYTES_MAX && previous != b'.'
}

/// What can't stand in the path of a request target.
fn has_foreign_bytes(path: &[u8]) -> bool {
    (0_usize..).zip(path).any(|(at, byte)| match byte {
        b' ' | b'?' | b'#' => true,
        b'%' => escape(path.get(at..).unwrap_or_default()).is_none(),
        other => other.is_ascii_control(),
    })
}

/// Whether an escape stands for what separates, or begins another escape: then some readers see more segments.
fn hides_separators(path: &[u8]) -> bool {
    path.windows(3).filter_map(escape).any(|byte| matches!(byte, b'/' | b'\\' | b'?' | b'#' | b'%'))
}

fn leads_anywhere(path: &[u8], decoded: &[u8]) -> bool {
    let mut pieces = decoded.split(|byte| matches!(byte, b'/' | b'\\' | b';' | b'?' | b'#'));
    let has_dot_segments = pieces.any(|piece| trimmed(piece).is_empty() && piece.contains(&b'.'));
    // Whether a separator belongs to the parameters before it or ends them is a matter of who reads first.
    let has_parameters = decoded.contains(&b';');
    let parameters_are_unclear = has_parameters && (path.contains(&b'\\') || hides_separators(path));
    has_dot_segments || parameters_are_unclear || std::str::from_utf8(decoded).is_err()
}

/// Names without parameters, blanks around them and dots after them, after one slash each, up to a query or fragment.
fn normal(decoded: &[u8]) -> Vec<u8> {
    let path = decoded.split(|byte| matches!(byte, b'?' | b'#')).next().unwrap_or_default();
    let mut text = Vec::with_capacity(path.len() + 1);
    let mut is_folder = true;
    for segment in path.split(|byte| matches!(byte, b'/' | b'\\')) {
        let name = trimmed(segment.split(|byte| *byte == b';').next().unwrap_or_default());
        is_folder = name.is_empty();
        if !is_folder {
            text.push(b'/');
            text.extend_from_slice(name);
        }
    }
    if is_folder {
        text.push(b'/');
    }
    text
}

fn trimmed(mut segment: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] | [rest @ .., b' ' | b'.'] = segment {
        segment = rest;
    }
    segment
}

/// Decoded until nothing is left to decode; nothing when that takes too long.
fn decode_fully(path: &[u8]) -> Option<Cow<'_, [u8]>> {
    let mut decoded = Cow::Borrowed(path);
    for _ in 0..=DECODINGS_MAX {
        match decode(&decoded) {
            Some(further) => decoded = Cow::Owned(further),
            None => return Some(decoded),
        }
    }
    None
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
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

#[cfg(test)]
mod tests;
