//! The lines of a head, byte by byte. Every line ends with CRLF, and holds no control character but the tab.

use std::ops::Range;

use crate::http1::fields::{Problem, Span, Spans};
use crate::http1::name::Name;

const VERSION: Problem = "the version is neither HTTP/1.1 nor HTTP/1.0";
const CONTROL: Problem = "there is a control character, or a bare CR";

/// How the end of a body is told (RFC 9112, section 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body {
    /// By its length in bytes; 0: there is none.
    Length(u64),
    Chunked,
    /// By the end of the connection. Answers only.
    ToClose,
}

/// A request's head that means one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestHead {
    pub(crate) method: Range<usize>,
    /// The span of the request target.
    pub(crate) target: Range<usize>,
    /// True if it is HTTP/1.0.
    pub(crate) is_http_1_0: bool,
    /// How its body ends.
    pub(crate) body: Body,
    /// True if `Connection` holds `close`, or the version is HTTP/1.0: no request follows on the connection.
    pub(crate) closes: bool,
    /// True if the client asks to go on with a WebSocket on this connection.
    pub(crate) upgrades: bool,
    /// True if the target has bytes that no URL has: libraries differ in what they make of them.
    pub(crate) has_odd_target: bool,
}

/// The classes of bytes: those of tokens, those of URLs (RFC 3986, section 2), and those that end a request target.
const OF_TOKENS: u8 = 1;
const OF_URLS: u8 = 2;
const ENDS_TARGET: u8 = 4;

static CLASSES: [u8; 256] = {
    let mut table = [0; 256];
    let (mut rest, mut byte) = (table.as_mut_slice(), 0_u8);
    while let [classes, others @ ..] = rest {
        if byte.is_ascii_alphanumeric() || is_one_of(b"!#$%&'*+-.^_`|~", byte) {
            *classes |= OF_TOKENS;
        }
        if byte.is_ascii_alphanumeric() || is_one_of(b"-._~!$&'()*+,;=:@/?%", byte) {
            *classes |= OF_URLS;
        }
        if byte <= b' ' || is_one_of(b"#\x7f", byte) {
            *classes |= ENDS_TARGET;
        }
        (rest, byte) = (others, byte.wrapping_add(1));
    }
    table
};

const fn is_one_of(mut bytes: &[u8], byte: u8) -> bool {
    while let [first, rest @ ..] = bytes {
        if *first == byte {
            return true;
        }
        bytes = rest;
    }
    false
}

const FRAGMENT: Problem = "the request target holds a fragment";
const NO_PATH: Problem = "the request target is not a path";
const BLANK: Problem = "the request target holds a blank or a control character";
const QUOTE: Problem = "the request target holds a double quote in its query";
const LESS: Problem = "the request target holds a less-than sign";
const GREATER: Problem = "the request target holds a greater-than sign";
const BACKTICK: Problem = "the request target holds a backtick in its path";
const NO_TEXT: Problem = "the request target holds bytes that are not UTF-8";

/// The problems that [`target_problem`] finds.
pub(crate) const TARGET_PROBLEMS: [Problem; 8] =
    [FRAGMENT, NO_PATH, BLANK, QUOTE, LESS, GREATER, BACKTICK, NO_TEXT];

/// The reason why the library can make no request of a target.
pub(crate) fn target_problem(target: &[u8]) -> Option<Problem> {
    if !target.starts_with(b"/") && target != b"*" {
        return Some(NO_PATH);
    }
    let mut is_query = false;
    let byte = target.iter().find_map(|byte| match byte {
        b'#' => Some(FRAGMENT),
        ..=b' ' | 0x7f => Some(BLANK),
        b'"' if is_query => Some(QUOTE),
        b'<' => Some(LESS),
        b'>' => Some(GREATER),
        b'`' if !is_query => Some(BACKTICK),
        _ => {
            is_query |= *byte == b'?';
            None
        }
    });
    byte.or_else(|| std::str::from_utf8(target).is_err().then_some(NO_TEXT))
}

fn classes(byte: u8) -> u8 {
    CLASSES.get(usize::from(byte)).copied().unwrap_or_default()
}

/// True if a byte may stand in a URL (RFC 3986, section 2), brackets apart.
pub(crate) fn is_of_urls(byte: u8) -> bool {
    classes(byte) & OF_URLS != 0
}

/// True if a byte may stand in a token (RFC 9110, section 5.6.2).
pub(crate) fn is_token(byte: u8) -> bool {
    classes(byte) & OF_TOKENS != 0
}

/// True if a byte may stand in a field's value (RFC 9110, section 5.5).
pub(crate) const fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

/// Reads a head line by line.
pub(super) struct Lines<'a> {
    head: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Lines<'a> {
    /// At the beginning of a head that ends with an empty line.
    pub(super) fn of(head: &'a [u8]) -> Result<Self, Problem> {
        if !head.ends_with(b"\r\n\r\n") {
            return Err("the head does not end with an empty line");
        }
        Ok(Self { head, rest: head })
    }

    /// Begins a request's head, as if no field said more.
    pub(super) fn request_line(&mut self) -> Result<RequestHead, Problem> {
        const PARTS: Problem = "the request line does not have three parts";
        let behind_method = after_token(self.head);
        let method = self.range(self.head, behind_method);
        let path = match behind_method {
            [b' ', rest @ ..] if !method.is_empty() => rest,
            _ => return Err(problem(behind_method, PARTS, "the method is not a token")),
        };
        let (mut behind_target, mut shared) = (path, OF_URLS);
        while let [byte, rest @ ..] = behind_target
            && classes(*byte) & ENDS_TARGET == 0
        {
            (behind_target, shared) = (rest, shared & classes(*byte));
        }
        let target = self.range(path, behind_target);
        let rest = match behind_target {
            [b' ', rest @ ..] if !target.is_empty() => rest,
            [b'#', ..] => return Err(FRAGMENT),
            _ => return Err(problem(behind_target, PARTS, "the request target is empty or has blanks")),
        };
        let is_path = path.starts_with(b"/") || path.starts_with(b"* ");
        if !is_path && self.head.get(method.clone()) != Some(b"CONNECT") {
            return Err(NO_PATH);
        }
        let (is_http_1_0, rest) = version(rest)?;
        self.rest = end_line(rest, if rest.starts_with(b" ") { PARTS } else { VERSION })?;
        let (body, closes, has_odd_target) = (Body::Length(0), is_http_1_0, shared == 0);
        Ok(RequestHead { method, target, is_http_1_0, body, closes, upgrades: false, has_odd_target })
    }

    /// The status, the span of the reason phrase, and whether it is HTTP/1.0.
    pub(super) fn status_line(&mut self) -> Result<(u16, Range<usize>, bool), Problem> {
        const STATUS: Problem = "the status is not a number of three digits";
        let (is_http_1_0, rest) = version(self.head)?;
        let [b' ', hundreds @ b'1'..=b'9', tens @ b'0'..=b'9', ones @ b'0'..=b'9', rest @ ..] = rest else {
            return Err(problem(rest, STATUS, STATUS));
        };
        let digit = |byte: &u8| u16::from(byte - b'0');
        let status = digit(hundreds) * 100 + digit(tens) * 10 + digit(ones);
        let begin = rest.strip_prefix(b" ").unwrap_or(rest);
        let end = if begin.len() < rest.len() { after_text(begin) } else { rest };
        self.rest = end_line(end, STATUS)?;
        Ok((status, self.range(begin, end), is_http_1_0))
    }

    /// Adds the next field, and says its name and value; `None` at the empty line.
    pub(super) fn field(&mut self, fields: &mut Spans) -> Result<Option<(Name, &'a [u8])>, Problem> {
        let line = self.rest;
        let behind_name = after_token(line);
        let name = self.range(line, behind_name);
        let begin = match behind_name {
            [b':', rest @ ..] if !name.is_empty() => rest,
            b"\r\n" if name.is_empty() => return Ok(None),
            [b' ' | b'\t', ..] if name.is_empty() => return Err("a header line is folded"),
            _ => {
                return Err(problem(
                    behind_name,
                    "a header line has no colon",
                    "a header name is not a token",
                ));
            }
        };
        let end = after_text(begin);
        self.rest = end_line(end, CONTROL)?;
        let mut value = begin.get(..begin.len() - end.len()).unwrap_or_default();
        let mut at = self.head.len() - begin.len();
        // Text below the space is the tab.
        while let [..=b' ', rest @ ..] = value {
            (value, at) = (rest, at + 1);
        }
        while let [rest @ .., ..=b' '] = value {
            value = rest;
        }
        let id = Name::of(line.get(..name.len()).unwrap_or_default());
        fields.push(Span { id, name, value: at..at + value.len() })?;
        Ok(Some((id, value)))
    }

    /// The range of the bytes from `begin` to `end`; each is the rest of the head from there on.
    fn range(&self, begin: &[u8], end: &[u8]) -> Range<usize> {
        self.head.len() - begin.len()..self.head.len() - end.len()
    }
}

/// Goes behind the version; says whether it is HTTP/1.0.
fn version(bytes: &[u8]) -> Result<(bool, &[u8]), Problem> {
    match bytes.split_first_chunk::<8>() {
        Some((b"HTTP/1.1", rest)) => Ok((false, rest)),
        Some((b"HTTP/1.0", rest)) => Ok((true, rest)),
        _ => Err(VERSION),
    }
}

/// Goes behind the line's end; `otherwise` is the problem where there is text.
fn end_line(bytes: &[u8], otherwise: Problem) -> Result<&[u8], Problem> {
    bytes.strip_prefix(b"\r\n").ok_or_else(|| problem(bytes, otherwise, otherwise))
}

/// The problem with a line that ends here well, ends here badly, or goes on.
#[cold]
fn problem(bytes: &[u8], at_end: Problem, otherwise: Problem) -> Problem {
    match bytes {
        [b'\r', b'\n', ..] => at_end,
        [b'\n', ..] => "a line ends with a bare LF",
        [byte, ..] if !is_text(*byte) => CONTROL,
        _ => otherwise,
    }
}

/// The bytes from the first one on that is not one of a token.
fn after_token(bytes: &[u8]) -> &[u8] {
    after(bytes, is_token, not_of_names)
}

/// The bytes from the first control character on that is not a tab.
fn after_text(bytes: &[u8]) -> &[u8] {
    after(bytes, is_text, controls)
}

/// The bytes from the first one on that does not belong. `suspects` looks at eight bytes: its lowest bit stands in the
/// first byte that may not belong.
#[inline]
fn after(mut bytes: &[u8], belongs: impl Fn(u8) -> bool, suspects: impl Fn(u64) -> u64) -> &[u8] {
    while let Some((word, rest)) = bytes.split_first_chunk::<8>() {
        let suspects = suspects(u64::from_le_bytes(*word));
        if suspects == 0 {
            bytes = rest;
            continue;
        }
        match bytes.get((suspects.trailing_zeros() / 8) as usize..) {
            Some([byte, rest @ ..]) if belongs(*byte) => bytes = rest,
            found => return found.unwrap_or_default(),
        }
    }
    while let [byte, rest @ ..] = bytes
        && belongs(*byte)
    {
        bytes = rest;
    }
    bytes
}

const ONES: u64 = u64::from_le_bytes([1; 8]);

/// The bytes that are control characters, tabs too, by their highest bits. Above the first one they may be wrong.
const fn controls(word: u64) -> u64 {
    // A borrow sets the highest bit of a byte below its subtrahend. Bytes that have it already are no control characters.
    let below_space = word.wrapping_sub(ONES * 0x20);
    let is_delete = (word ^ (ONES * 0x7f)).wrapping_sub(ONES);
    (below_space | is_delete) & !word & (ONES * 0x80)
}

/// The bytes that are neither letters nor hyphens, as nearly all of names are, by their highest bits.
const fn not_of_names(word: u64) -> u64 {
    let low = word & (ONES * 0x7f);
    // A carry sets the highest bit.
    let is_letter = {
        let lower_case = low | (ONES * 0x20);
        (lower_case + ONES * (0x80 - 0x61)) & !(lower_case + ONES * (0x80 - 0x7b))
    };
    let is_other_than_hyphen = (low ^ (ONES * 0x2d)) + ONES * 0x7f;
    ((is_other_than_hyphen & !is_letter) | word) & (ONES * 0x80)
}
