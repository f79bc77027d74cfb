//! Whether the bytes of an HTTP/1 request head mean one thing only (RFC 9112; request smuggling).
//!
//! The server framework repairs or accepts several shapes that two HTTP readers may read differently. Here they are
//! refused, before anything else looks at the request.

/// What is wrong with a request head, as a phrase.
pub type Problem = &'static str;

/// What has been seen of the headers that frame a request.
#[derive(Default)]
struct Seen {
    hosts: u32,
    lengths: u32,
    transfer_encodings: u32,
}

/// Checks a whole request head, from the request line to the empty line.
///
/// # Errors
///
/// The first thing that is wrong.
pub fn check(head: &[u8]) -> Result<(), Problem> {
    let head = head.strip_suffix(b"\r\n\r\n").ok_or("the head does not end with an empty line")?;
    let mut lines = head.split(|byte| *byte == b'\n');
    let last_line_at = head.iter().filter(|byte| **byte == b'\n').count();
    let request_line = plain(lines.next().unwrap_or_default(), last_line_at == 0)?;
    let http_1_0 = check_request_line(request_line)?;
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
    if seen.lengths > 0 && seen.transfer_encodings > 0 {
        return Err("there are both Content-Length and Transfer-Encoding");
    }
    if seen.lengths > 1 || seen.transfer_encodings > 1 {
        return Err("a header that frames the body stands more than once");
    }
    Ok(())
}

/// A line without the CR before its LF. The last one has lost its CRLF to the empty line.
fn plain(line: &[u8], last: bool) -> Result<&[u8], Problem> {
    let line = if last { line } else { line.strip_suffix(b"\r").ok_or("a line ends with a bare LF")? };
    if line.iter().any(|byte| *byte == 0x7f || (*byte < b' ' && *byte != b'\t')) {
        return Err("there is a control character, or a bare CR");
    }
    Ok(line)
}

/// True for HTTP/1.0.
fn check_request_line(line: &[u8]) -> Result<bool, Problem> {
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
    // Control characters in the target arrive here percent-encoded by the server framework, and no honest path holds any.
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    if path.windows(3).any(is_encoded_control) {
        return Err("the path holds a control character");
    }
    if target.contains(&b'#') {
        return Err("the request target holds a fragment");
    }
    match version {
        b"HTTP/1.1" => Ok(false),
        b"HTTP/1.0" => Ok(true),
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
    if name.eq_ignore_ascii_case(b"host") {
        seen.hosts += 1;
    } else if name.eq_ignore_ascii_case(b"content-length") {
        seen.lengths += 1;
        if value.is_empty() || value.len() > 19 || !value.iter().all(u8::is_ascii_digit) {
            return Err("Content-Length is not one decimal number");
        }
    } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
        seen.transfer_encodings += 1;
        if http_1_0 {
            return Err("HTTP/1.0 has no Transfer-Encoding");
        }
        if !value.eq_ignore_ascii_case(b"chunked") {
            return Err("Transfer-Encoding is not chunked alone");
        }
    }
    Ok(())
}

/// Whether a target may have been mended by the server framework, which percent-encodes blanks and control characters
/// that it finds in a request line: another reader may have seen another end of that line.
#[must_use]
pub fn may_be_mended(target: &[u8]) -> bool {
    target.windows(3).any(|piece| piece == b"%20" || is_encoded_control(piece))
}

fn is_encoded_control(piece: &[u8]) -> bool {
    match piece {
        [b'%', b'0' | b'1', low] => low.is_ascii_hexdigit(),
        [b'%', b'7', low] => low.eq_ignore_ascii_case(&b'f'),
        _ => false,
    }
}

/// RFC 9110, section 5.6.2.
const fn is_token(byte: u8) -> bool {
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
mod tests {
    use proptest::prelude::{any, proptest};

    use super::check;

    const GOOD: &[&str] = &[
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "POST /verify HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n",
        "POST /verify HTTP/1.1\r\nhost:a\r\nTRANSFER-ENCODING: Chunked\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX-Empty:\r\nX-Tab: a\tb\r\nX-Utf8: \u{e9}\r\n\r\n",
    ];

    const BAD: &[&str] = &[
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5 5\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \"chunked\"\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\x0bchunked\r\n\r\n",
        "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\n Transfer-Encoding: chunked\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
        "GET / HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n: empty\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.2\r\nHost: a\r\n\r\n",
        "GET / HTTP/2.0\r\nHost: a\r\n\r\n",
        "GET /\r\nHost: a\r\n\r\n",
        "G(T / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /\tx HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\r\n\r\n",
        "GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /%0dHost:%20b HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /%7F HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /#f HTTP/1.1\r\nHost: a\r\n\r\n",
        "",
    ];

    #[test]
    fn heads_that_mean_one_thing_pass() {
        for head in GOOD {
            assert_eq!(check(head.as_bytes()), Ok(()), "{head:?}");
        }
    }

    #[test]
    fn heads_that_two_readers_may_read_differently_are_refused() {
        for head in BAD {
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
