//! Verdicts as answers over HTTP/1.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, StatusCode};

use crate::gateway::context::Context;
use crate::http1::Lines;
use crate::wire::{Answer, NO_STORE};

/// The names that Envoy strips from the request, in an answer that lets it pass.
const TO_REMOVE: &str = "x-envoy-auth-headers-to-remove";

/// The status that is meant. Only we set it: a gateway that demands it takes no other server's 200.
const STATUS: &str = "X-Authz-Status";

/// The head of the answer that lets a request pass, but for its end: 200 without a body, and the names to strip where the gateway
/// reads them.
pub(super) fn admitted(ctx: &Context, stripped: Option<&[Bytes]>) -> Vec<u8> {
    let mut text = Vec::with_capacity(1_024);
    text.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    ctx.write_identity(&mut text);
    ctx.write_answer_headers(&mut text);
    text.set(STATUS, b"200");
    text.set("Cache-Control", NO_STORE.as_bytes());
    text.set("Content-Length", b"0");
    if let Some(names) = stripped {
        text.set(TO_REMOVE, &names.join(&b','));
    }
    text
}

/// A refusal as nginx takes it: 403 without a body, which would cost a connection, and the true status and body in headers.
pub(super) fn for_nginx(answer: Answer) -> Answer {
    let (mut parts, _) = in_headers_too(answer).into_parts();
    parts.headers.remove(CONTENT_TYPE);
    parts.headers.insert(CONTENT_LENGTH, 0.into());
    parts.status = StatusCode::FORBIDDEN;
    Answer::from_parts(parts, Vec::new())
}

/// A refusal with its status and body in headers too: nginx reads nothing else of it.
pub(super) fn in_headers_too(mut answer: Answer) -> Answer {
    let (status, line) = (answer.status().as_u16().into(), HeaderValue::try_from(one_line(answer.body())));
    answer.headers_mut().insert(HeaderName::from_static("x-authz-status"), status);
    if let Ok(line) = line {
        answer.headers_mut().insert(HeaderName::from_static("x-authz-body"), line);
    }
    answer
}

/// JSON in printable ASCII.
fn one_line(json: &[u8]) -> String {
    let mut line = String::with_capacity(json.len());
    for character in String::from_utf8_lossy(json).chars() {
        match character {
            ' '..='~' => line.push(character),
            _ if character.is_control() => {}
            _ => character
                .encode_utf16(&mut [0; 2])
                .iter()
                .for_each(|unit| line.push_str(&format!("\\u{unit:04x}"))),
        }
    }
    line
}
