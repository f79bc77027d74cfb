//! Verdicts as answers over HTTP/1.

use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::http1::writing::Lines;
use crate::wire::answers::Answer;
use crate::wire::headers::NO_STORE;

/// The names that Envoy strips from the request, in an answer that lets it pass.
const TO_REMOVE: &str = "x-envoy-auth-headers-to-remove";

/// The answer that lets a request pass: 200 without a body, with the headers for its upstream, and those of the names to strip
/// where the gateway reads them.
pub(super) fn admitted(mut answer: Answer, identity: HeaderMap, stripped: Option<Vec<String>>) -> Answer {
    let headers = answer.headers_mut();
    headers.extend(identity);
    headers.insert(CACHE_CONTROL, NO_STORE);
    headers.insert(CONTENT_LENGTH, 0.into());
    if let Some(names) = stripped {
        headers.set(TO_REMOVE, names.join(",").as_bytes());
    }
    answer
}

/// An answer as nginx takes it: 200 or 403 without a body, which would cost a connection, and the true status and body in headers.
pub(super) fn for_nginx(answer: Answer) -> Answer {
    if answer.status() == StatusCode::OK {
        return answer;
    }
    let (mut parts, body) = answer.into_parts();
    parts.headers.remove(CONTENT_TYPE);
    parts.headers.insert(CONTENT_LENGTH, 0.into());
    parts.headers.insert(HeaderName::from_static("x-authz-status"), parts.status.as_u16().into());
    if let Ok(line) = HeaderValue::try_from(one_line(&body)) {
        parts.headers.insert(HeaderName::from_static("x-authz-body"), line);
    }
    parts.status = StatusCode::FORBIDDEN;
    Answer::from_parts(parts, Vec::new())
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
