//! Errors as gRPC clients read them: status, message and details in the headers of an answer without a body ("PROTOCOL-HTTP2",
//! Responses, Trailers-Only; `google/rpc/status.proto` and `error_details.proto`).

use base64::Engine;
use base64::prelude::BASE64_STANDARD_NO_PAD as STANDARD_NO_PAD;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue};
use serde_json::Value;

use crate::http1::{Fields, Lines};

/// The type of every gRPC answer.
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// The domain of our reasons, as `ErrorInfo` names it.
const DOMAIN: &[u8] = b"tiergate";

/// True if the content type of a request is gRPC's. gRPC-Web is another protocol.
pub(crate) fn is_spoken(fields: &impl Fields) -> bool {
    let kind = fields.all().find(|(name, _)| name.eq_ignore_ascii_case(CONTENT_TYPE.as_str().as_bytes()));
    let kind = kind.map(|(_, kind)| kind).unwrap_or_default();
    let (name, rest) = kind.split_at_checked(GRPC.as_bytes().len()).unwrap_or_default();
    name.eq_ignore_ascii_case(GRPC.as_bytes()) && matches!(rest.first(), None | Some(b'+' | b';'))
}

/// Writes an error. The headers hold its `Retry-After` already.
pub(super) fn write(
    status: u16,
    error_type: &str,
    message: &str,
    details: Option<&Value>,
    headers: &mut HeaderMap,
) {
    let code = code_of(status);
    headers.insert(CONTENT_TYPE, GRPC);
    headers.set("grpc-status", code.to_string().as_bytes());
    headers.line("grpc-message", |out| escape(message, out));
    let mut whole = Vec::new();
    number(1, code, &mut whole);
    bytes(2, message.as_bytes(), &mut whole);
    bytes(3, &any(b"ErrorInfo", &error_info(error_type, details)), &mut whole);
    let retry_after = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    if let Some(seconds) = retry_after.and_then(|seconds| seconds.parse().ok()) {
        let (mut delay, mut retry) = (Vec::new(), Vec::new());
        number(1, seconds, &mut delay);
        bytes(1, &delay, &mut retry);
        bytes(3, &any(b"RetryInfo", &retry), &mut whole);
    }
    headers.set("grpc-status-details-bin", STANDARD_NO_PAD.encode(whole).as_bytes());
}

/// The headers of an error that say the same as trailers, behind an answer that breaks off.
pub(crate) fn trailers(headers: &HeaderMap) -> HeaderMap {
    let status = headers.iter().filter(|(name, _)| name.as_str().starts_with("grpc-"));
    status.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The `google.rpc.Code` of a status.
const fn code_of(status: u16) -> u64 {
    match status {
        400 => 3,             // INVALID_ARGUMENT
        408 | 504 => 4,       // DEADLINE_EXCEEDED
        404 => 5,             // NOT_FOUND
        403 => 7,             // PERMISSION_DENIED
        413 | 429 | 431 => 8, // RESOURCE_EXHAUSTED
        405 => 12,            // UNIMPLEMENTED
        502 | 503 => 14,      // UNAVAILABLE
        401 => 16,            // UNAUTHENTICATED
        _ => 13,              // INTERNAL
    }
}

/// `google.rpc.ErrorInfo`: the `errorType`, and the details as texts.
fn error_info(error_type: &str, details: Option<&Value>) -> Vec<u8> {
    let mut info = Vec::new();
    bytes(1, error_type.as_bytes(), &mut info);
    bytes(2, DOMAIN, &mut info);
    for (name, value) in details.and_then(Value::as_object).into_iter().flatten() {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let mut entry = Vec::new();
        bytes(1, name.as_bytes(), &mut entry);
        bytes(2, text.as_bytes(), &mut entry);
        bytes(3, &entry, &mut info);
    }
    info
}

/// `google.protobuf.Any` of a message in `google.rpc`.
fn any(name: &[u8], message: &[u8]) -> Vec<u8> {
    let mut any = Vec::new();
    bytes(1, &[b"type.googleapis.com/google.rpc.", name].concat(), &mut any);
    bytes(2, message, &mut any);
    any
}

fn number(field: u8, number: u64, out: &mut Vec<u8>) {
    out.push(field << 3);
    varint(number, out);
}

fn bytes(field: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(field << 3 | 2);
    varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Writes a message as `grpc-message` has it: percent-encoded, but for printable ASCII.
fn escape(message: &str, out: &mut Vec<u8>) {
    for byte in message.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => out.push(byte),
            _ => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};
    use serde_json::json;

    use super::{Engine, STANDARD_NO_PAD, is_spoken, write};

    #[test]
    fn grpc_is_told_by_its_content_type_and_its_sister_for_browsers_is_another() {
        let of = |kind: &'static str| {
            is_spoken(&HeaderMap::from_iter([(http::header::CONTENT_TYPE, HeaderValue::from_static(kind))]))
        };
        assert!(of("application/grpc") && of("application/grpc+proto") && of("Application/gRPC;x=y"));
        assert!(
            !of("application/grpc-web") && !of("application/grpcx") && !of("application/json") && !of("")
        );
        assert!(!is_spoken(&HeaderMap::new()));
    }

    // threat: A dead or broken upstream
    #[test]
    fn an_error_is_a_status_a_message_and_details() {
        let mut headers =
            HeaderMap::from_iter([(http::header::RETRY_AFTER, HeaderValue::from_static("300"))]);
        let details = json!({ "agentId": "7", "limit": 16 });
        write(429, "RATE_LIMITED", "100 %, \u{e9}", Some(&details), &mut headers);
        assert_eq!(
            (&headers["grpc-status"], &headers["grpc-message"]),
            (&"8".parse().unwrap(), &"100 %25, %C3%A9".parse().unwrap())
        );
        let info = [
            b"\x0a\x0cRATE_LIMITED\x12\x08tiergate".as_slice(),
            b"\x1a\x0c\x0a\x07agentId\x12\x017",
            b"\x1a\x0b\x0a\x05limit\x12\x0216",
        ]
        .concat();
        let any = |name: &str, message: &[u8]| {
            let url = format!("type.googleapis.com/google.rpc.{name}");
            let any =
                [&[0x0a, url.len() as u8], url.as_bytes(), &[0x12, message.len() as u8], message].concat();
            [&[0x1a, any.len() as u8], any.as_slice()].concat()
        };
        let expected = [
            b"\x08\x08\x12\x09100 %, \xc3\xa9".as_slice(),
            &any("ErrorInfo", &info),
            &any("RetryInfo", b"\x0a\x03\x08\xac\x02"),
        ]
        .concat();
        assert_eq!(headers["grpc-status-details-bin"], STANDARD_NO_PAD.encode(expected));
    }
}
