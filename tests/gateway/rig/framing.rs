//! Requests and bodies as RFC 9112 has them, read without any leniency. Knows nothing of who sends or answers.

use std::io;

use crate::rig::upstream::{Incoming, Seen, invalid};

/// How much of a body is still to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body {
    /// So many bytes.
    Length(usize),
    /// Chunks, up to one of no bytes, then trailers.
    Chunks,
    /// Bytes of a chunk that has begun.
    Chunk(usize),
}

/// The name and the value of a header line.
pub(crate) fn field(line: &[u8]) -> Result<(String, String), String> {
    let text = String::from_utf8_lossy(line);
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let (name, value) = text.split_once(':').ok_or_else(|| format!("no colon: {text:?}"))?;
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(format!("no header name: {text:?}"));
    }
    if line.iter().any(|byte| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f) {
        return Err(format!("a control character: {text:?}"));
    }
    Ok((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()))
}

/// Takes a head apart, and says how its body comes.
pub(crate) fn read_head(connection: usize, head: &[u8]) -> Result<(Seen, Body), String> {
    let text = head.strip_suffix(b"\r\n\r\n").ok_or("no empty line")?;
    let mut lines = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        lines.push(line);
    }
    let last = lines.len() - 1;
    for (at, line) in lines.iter_mut().enumerate() {
        if at < last {
            *line = line.strip_suffix(b"\r").ok_or("a bare LF")?;
        }
        if line.contains(&b'\r') {
            return Err("a bare CR".to_owned());
        }
    }
    let request_line = String::from_utf8_lossy(lines[0]).into_owned();
    let [method, target, "HTTP/1.1"] = request_line.split(' ').collect::<Vec<_>>()[..] else {
        return Err(format!("no request line: {request_line:?}"));
    };
    let headers = lines[1..].iter().map(|line| field(line)).collect::<Result<Vec<_>, _>>()?;
    let (method, target) = (method.to_owned(), target.to_owned());
    let seen = Seen { connection, head: head.to_vec(), method, target, headers, ..Seen::default() };
    let body = body_of(&seen)?;
    Ok((seen, body))
}

fn body_of(seen: &Seen) -> Result<Body, String> {
    if seen.all("host").len() != 1 {
        return Err("not one Host".to_owned());
    }
    match (&seen.all("content-length")[..], &seen.all("transfer-encoding")[..]) {
        ([], []) => Ok(Body::Length(0)),
        ([length], []) if !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit()) => {
            length.parse().map(Body::Length).map_err(|error| format!("{error}"))
        }
        ([], [coding]) if coding.eq_ignore_ascii_case("chunked") => Ok(Body::Chunks),
        other => Err(format!("the body's end is ambiguous: {other:?}")),
    }
}

/// Reads some of a body; false when there is no more.
pub(crate) fn read_piece(
    body: &mut Body,
    incoming: &mut Incoming,
    into: &mut Vec<u8>,
    trailers: &mut Vec<(String, String)>,
) -> io::Result<bool> {
    match *body {
        Body::Length(0) => return Ok(false),
        Body::Length(left) => {
            let piece = incoming.some(left)?;
            *body = Body::Length(left - piece.len());
            into.extend_from_slice(&piece);
        }
        Body::Chunks => {
            let line = String::from_utf8_lossy(&incoming.line()?).into_owned();
            let is_size = !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_hexdigit());
            if !is_size {
                return Err(invalid(format!("no chunk size: {line:?}")));
            }
            match usize::from_str_radix(&line, 16) {
                Ok(0) => {
                    *trailers = read_fields(incoming)?;
                    *body = Body::Length(0);
                    return Ok(false);
                }
                Ok(size) => *body = Body::Chunk(size),
                Err(error) => return Err(invalid(format!("{error}: {line:?}"))),
            }
        }
        Body::Chunk(left) => {
            let piece = incoming.some(left)?;
            into.extend_from_slice(&piece);
            *body = Body::Chunk(left - piece.len());
            if left == piece.len() {
                if !incoming.line()?.is_empty() {
                    return Err(invalid("a chunk that is longer than it says".to_owned()));
                }
                *body = Body::Chunks;
            }
        }
    }
    Ok(true)
}

/// Reads header lines or trailers, up to the empty line.
pub(crate) fn read_fields(incoming: &mut Incoming) -> io::Result<Vec<(String, String)>> {
    let mut fields = Vec::new();
    loop {
        let line = incoming.line()?;
        if line.is_empty() {
            return Ok(fields);
        }
        fields.push(field(&line).map_err(invalid)?);
    }
}
