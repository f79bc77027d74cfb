//! Whether the bytes of an HTTP/1 request head mean one thing only (RFC 9112; request smuggling).
//!
//! HTTP libraries repair or accept several shapes that two readers may read differently. Here they are refused, before
//! anything else looks at the request.

/// What is wrong with a request head, as a phrase.
pub type Problem = &'static str;

/// A request head that means one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// From the request line to the empty line, in bytes.
    pub length: usize,
    /// What follows it.
    pub body: Body,
    /// Whether the client asks to go on with another protocol on this connection.
    pub upgrades: bool,
    /// Where the request target stands, if it has bytes that no URL has: libraries differ in what they make of them.
    pub odd_target: Option<(usize, usize)>,
}

/// How the end of a body is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// By its length in bytes; 0: there is none.
    Length(u64),
    /// In chunks.
    Chunked,
}

/// What has been seen of the headers that frame a request.
#[derive(Default)]
struct Seen {
    hosts: u32,
    headers: usize,
    options: usize,
    length: Option<u64>,
    chunked: bool,
    upgrades: bool,
}

/// The most options of a request's `Connection`.
const OPTIONS_MAX: usize = 9;

/// Headers that `Connection` must not take away.
const PROTECTED: [&[u8]; 4] = [b"host", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto"];

/// What is wrong with a head of more than [`HEADERS_MAX`] headers.
pub const TOO_MANY_HEADERS: Problem = "there are more than 128 headers";

/// The most headers of a request.
pub const HEADERS_MAX: usize = 128;

/// Checks a whole request head, from the request line to the empty line.
///
/// # Errors
///
/// The first thing that is wrong.
pub fn check(head: &[u8]) -> Result<Head, Problem> {
    let length = head.len();
    let head = head.strip_suffix(b"\r\n\r\n").ok_or("the head does not end with an empty line")?;
    let mut lines = head.split(|byte| *byte == b'\n');
    let last_line_at = head.iter().filter(|byte| **byte == b'\n').count();
    let request_line = plain(lines.next().unwrap_or_default(), last_line_at == 0)?;
    let (http_1_0, odd_target) = check_request_line(request_line)?;
    let mut seen = Seen::default();
    for (at, line) in (1..).zip(lines) {
        check_header(plain(line, at == last_line_at)?, http_1_0, &mut seen)?;
    }
    if seen.hosts > 1 {
        return Err("there is more than one Host header");
    }
    if seen.hosts == 0 && !http_1_0 {
        return Err("there is no Host header");
    }
    let body = match (seen.length, seen.chunked) {
        (Some(_), true) => return Err("there are both Content-Length and Transfer-Encoding"),
        (Some(length), false) => Body::Length(length),
        (None, true) => Body::Chunked,
        (None, false) => Body::Length(0),
    };
    Ok(Head { length, body, upgrades: seen.upgrades, odd_target })
}

/// A line without the CR before its LF. The last one has lost its CRLF to the empty line.
fn plain(line: &[u8], last: bool) -> Result<&[u8], Problem> {
    let line = if last { line } else { line.strip_suffix(b"\r").ok_or("a line ends with a bare LF")? };
    if line.iter().any(|byte| *byte == 0x7f || (*byte < b' ' && *byte != b'\t')) {
        return Err("there is a control character, or a bare CR");
    }
    Ok(line)
}

/// Whether it is HTTP/1.0, and where its target is odd.
fn check_request_line(line: &[u8]) -> Result<(bool, Option<(usize, usize)>), Problem> {
    let mut parts = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err("the request line does not have three parts");
    };
    if method.is_empty() || !method.iter().all(|byte| is_token(*byte)) {
        return Err("the method is not a token");
    }
    if target.is_empty() || target.contains(&b'\t') {
        return Err("the request target is empty or has blanks");
    }
    if !target.starts_with(b"/") && method != b"CONNECT" && target != b"*" {
        return Err("the request target is not a path");
    }
    if target.contains(&b'#') {
        return Err("the request target holds a fragment");
    }
    let begin = method.len() + 1;
    let odd_target = (!target.iter().all(|byte| is_url_byte(*byte))).then(|| (begin, begin + target.len()));
    match version {
        b"HTTP/1.1" => Ok((false, odd_target)),
        b"HTTP/1.0" => Ok((true, odd_target)),
        _ => Err("the version is neither HTTP/1.1 nor HTTP/1.0"),
    }
}

fn check_header(line: &[u8], http_1_0: bool, seen: &mut Seen) -> Result<(), Problem> {
    if line.first().is_some_and(|byte| matches!(byte, b' ' | b'\t')) {
        return Err("a header line is folded");
    }
    let colon = line.iter().position(|byte| *byte == b':').ok_or("a header line has no colon")?;
    let (name, value) = line.split_at(colon);
    if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
        return Err("a header name is not a token");
    }
    let value = value.get(1..).unwrap_or_default().trim_ascii();
    seen.headers += 1;
    if seen.headers > HEADERS_MAX {
        return Err(TOO_MANY_HEADERS);
    }
    if name.eq_ignore_ascii_case(b"host") {
        seen.hosts += 1;
        if value.contains(&b'@') {
            return Err("the Host header holds user info");
        }
    } else if name.eq_ignore_ascii_case(b"content-length") {
        if seen.length.replace(decimal(value)?).is_some() {
            return Err("a header that frames the body stands more than once");
        }
    } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
        if http_1_0 {
            return Err("HTTP/1.0 has no Transfer-Encoding");
        }
        if !value.eq_ignore_ascii_case(b"chunked") {
            return Err("Transfer-Encoding is not chunked alone");
        }
        if std::mem::replace(&mut seen.chunked, true) {
            return Err("a header that frames the body stands more than once");
        }
    } else if name.eq_ignore_ascii_case(b"upgrade") {
        seen.upgrades = true;
    } else if name.eq_ignore_ascii_case(b"connection") {
        check_connection(value, seen)?;
    }
    Ok(())
}

/// What `Connection` names is for one hop (RFC 9110, section 7.6.1). The HTTP library would refuse these later, when the
/// request has been charged.
fn check_connection(value: &[u8], seen: &mut Seen) -> Result<(), Problem> {
    let options = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    for option in options.filter(|option| !option.is_empty()) {
        seen.options += 1;
        if seen.options > OPTIONS_MAX || !option.iter().all(|byte| is_token(*byte)) {
            return Err("Connection holds too many options, or one that is not a token");
        }
        if PROTECTED.iter().any(|name| option.eq_ignore_ascii_case(name)) {
            return Err("Connection names a header that is not for one hop");
        }
    }
    Ok(())
}

fn decimal(text: &[u8]) -> Result<u64, Problem> {
    const PHRASE: Problem = "Content-Length is not one decimal number";
    if text.is_empty() || text.len() > 19 || !text.iter().all(u8::is_ascii_digit) {
        return Err(PHRASE);
    }
    std::str::from_utf8(text).ok().and_then(|digits| digits.parse().ok()).ok_or(PHRASE)
}

/// What may stand in a request target (RFC 3986, section 2).
const fn is_url_byte(byte: u8) -> bool {
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
                | b'*'
                | b'+'
                | b','
                | b';'
                | b'='
                | b':'
                | b'@'
                | b'/'
                | b'?'
                | b'%'
        )
}

/// RFC 9110, section 5.6.2.
pub(super) const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}

#[cfg(test)]
#[path = "../../tests/support/corpus/heads.rs"]
mod heads;

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::{Body, HEADERS_MAX, check, heads};

    const GOOD: &[&str] = &[
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "POST /verify HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n",
        "POST /verify HTTP/1.1\r\nhost:a\r\nTRANSFER-ENCODING: Chunked\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX-Empty:\r\nX-Tab: a\tb\r\nX-Utf8: \u{e9}\r\n\r\n",
    ];

    #[test]
    fn heads_that_mean_one_thing_pass() {
        for head in GOOD {
            let read = check(head.as_bytes());
            assert_eq!(read.map(|read| read.length), Ok(head.len()), "{head:?}");
        }
    }

    #[test]
    fn a_head_says_what_follows_it() {
        let body =
            |header: &str| check(format!("POST / HTTP/1.1\r\nHost: a\r\n{header}\r\n").as_bytes()).unwrap();
        assert_eq!(body("").body, Body::Length(0));
        assert_eq!(body("content-length: 0012\r\n").body, Body::Length(12));
        assert_eq!(body("Transfer-Encoding: chunked\r\n").body, Body::Chunked);
        assert!(body("upgrade: h2c\r\n").upgrades && !body("").upgrades);
        assert_eq!(body("").odd_target, None);
        let odd = "GET /a\"b HTTP/1.1\r\nHost: a\r\n\r\n";
        let (begin, end) = check(odd.as_bytes()).unwrap().odd_target.unwrap();
        assert_eq!(&odd[begin..end], "/a\"b");
    }

    #[test]
    fn more_headers_than_the_limit_are_refused() {
        let head =
            |headers: usize| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(headers - 1));
        assert!(check(head(HEADERS_MAX).as_bytes()).is_ok());
        assert!(check(head(HEADERS_MAX + 1).as_bytes()).is_err());
    }

    #[test]
    fn heads_that_two_readers_may_read_differently_are_refused() {
        for request in heads::ambiguous("/").iter().map(String::as_str).chain([""]) {
            let head = request.strip_suffix(heads::NO_CHUNKS).unwrap_or(request);
            assert!(check(head.as_bytes()).is_err(), "{head:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(head in any::<Vec<u8>>()) {
            let _ = check(&head);
            let _ = check(&[b"GET / HTTP/1.1\r\n".as_slice(), &head, b"\r\n\r\n"].concat());
        }
    }
}
