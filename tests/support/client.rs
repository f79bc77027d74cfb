//! An HTTP/1.1 client for whole requests, and what answers have in common.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};

use serde_json::{Map, Value, json};

use crate::support::time::{SOON, unix_millis, until};
use crate::support::wire::{Request, Wire, connect_from};

/// An answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// A header's value; it must not stand twice.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut named = self.headers.iter().filter(|(header, _)| header.eq_ignore_ascii_case(name));
        let value = named.next().map(|(_, value)| value.as_str());
        assert!(named.next().is_none(), "{name} stands twice: {self:?}");
        value
    }

    /// The body as JSON, which its content type must announce.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.header("content-type"), Some("application/json"), "{}", self.text());
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The JSON body of an answer that must have this status, and be no error.
    #[track_caller]
    pub(crate) fn success(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.header("retry-after").is_some(), status >= 500, "not on a success");
        self.json()
    }

    /// The limit and what is left of it, as the headers say.
    #[track_caller]
    pub(crate) fn allowance(&self) -> (u32, u32) {
        let number = |name: &str| self.header(name).unwrap_or_else(|| panic!("no {name}")).parse().unwrap();
        for spelling in ["X-RateLimit-Limit", "X-RateLimit-Remaining"] {
            assert!(self.headers.iter().any(|(name, _)| name == spelling), "spelled as in the contract");
        }
        (number("X-RateLimit-Limit"), number("X-RateLimit-Remaining"))
    }

    /// The details of an error answer. Checks all that errors have in common: the body's fields and no others, the
    /// time, and which headers come with it.
    #[track_caller]
    pub(crate) fn error(&self, status: u16, error_type: &str) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        let body = self.json();
        assert_eq!(body["errorType"], json!(error_type), "{body}");
        let message = body["error"].as_str().unwrap();
        assert!(!message.is_empty(), "{body}");
        let age = unix_millis().abs_diff(body["timestamp"].as_u64().unwrap());
        assert!(age < 120_000, "the timestamp is in milliseconds: {body}");
        let fields = body.as_object().unwrap();
        let known = ["error", "errorType", "details", "timestamp", "error_description"];
        assert!(fields.get("error_description").is_none_or(|text| text == message), "{body}");
        assert!(fields.keys().all(|field| known.contains(&field.as_str())), "{body}");
        if status != 429 {
            for name in ["x-ratelimit-limit", "x-ratelimit-remaining"] {
                assert_eq!(self.header(name), None, "{name} comes with successes and 429 only");
            }
            let ends_by_itself = message.starts_with("Nonces may have been lost");
            let has_wait = ends_by_itself || matches!(status, 500 | 503);
            assert_eq!(self.header("retry-after").is_some(), has_wait, "{body}");
        }
        fields.get("details").cloned().unwrap_or(Value::Null)
    }

    /// An error with exactly these details.
    #[track_caller]
    pub(crate) fn is_error(&self, status: u16, error_type: &str, details: Value) {
        assert_eq!(self.error(status, error_type), details);
    }

    /// A 503 that names this node and this call. A contract's call that got an empty answer goes on to ask for the
    /// contract's code, so that may be what failed in its place.
    #[track_caller]
    pub(crate) fn is_unreadable(&self, node: SocketAddr, method: &str) {
        let details = self.error(503, "RPC_ERROR");
        let failed = if details["method"] == "eth_getCode" { "eth_getCode" } else { method };
        assert_eq!(details, json!({ "rpcUrl": format!("http://{node}"), "method": failed }));
    }

    /// A validation error for this field, with this echo.
    #[track_caller]
    pub(crate) fn is_invalid(&self, field: &str, received: Value) {
        self.is_error(400, "VALIDATION_ERROR", json!({ "field": field, "received": received }));
    }

    /// A 429 whose headers and details agree; gives the seconds to wait.
    #[track_caller]
    pub(crate) fn is_limited(&self, agent_id: Value, tier: Value, limit: u32) -> u64 {
        let details = self.error(429, "RATE_LIMITED");
        let retry_after = details["retryAfter"].as_u64().unwrap();
        let expected =
            json!({ "agentId": agent_id, "tier": tier, "limit": limit, "retryAfter": retry_after });
        assert_eq!(details, expected);
        assert_eq!(self.allowance(), (limit, 0));
        assert!(self.headers.iter().any(|(name, _)| name == "Retry-After"), "spelled as in the contract");
        assert_eq!(self.header("Retry-After"), Some(retry_after.to_string().as_str()));
        assert!(retry_after >= 1, "a client must not be told to come back at once");
        retry_after
    }
}

/// The answer once it is no 503: on a busy machine a read of the chain may take too long.
#[track_caller]
pub(crate) fn once_read(ask: impl Fn() -> Answer) -> Answer {
    until("the chain is read", SOON, || Some(ask()).filter(|answer| answer.status != 503))
}

/// A kept-alive connection.
pub(crate) struct Connection {
    wire: Wire,
    host: SocketAddr,
}

impl Connection {
    pub(crate) fn open(server: SocketAddr) -> io::Result<Self> {
        Ok(Self { wire: Wire::over(TcpStream::connect(server)?)?, host: server })
    }

    /// A connection from this address of the loopback network.
    pub(crate) fn open_from(from: IpAddr, server: SocketAddr) -> io::Result<Self> {
        Ok(Self { wire: Wire::over(connect_from(from, server)?)?, host: server })
    }

    /// Sends a request and reads its answer.
    pub(crate) fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&[u8]>,
    ) -> io::Result<Answer> {
        self.write(&request_bytes(self.host, method, path, headers, body))?;
        self.read(method == "HEAD")
    }

    pub(crate) fn post(&mut self, path: &str, body: &Value) -> io::Result<Answer> {
        self.send("POST", path, &[], Some(body.to_string().as_bytes()))
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.wire.write(bytes)
    }

    /// Reads one answer; `head_only` for the answer to HEAD, which announces a body that does not come.
    pub(crate) fn read(&mut self, head_only: bool) -> io::Result<Answer> {
        if head_only { self.wire.head() } else { self.wire.try_answer() }
    }

    /// Everything that comes until the other side closes.
    #[track_caller]
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        self.wire.rest()
    }
}

/// A whole request.
pub(crate) fn request_bytes(
    host: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<&[u8]>,
) -> Vec<u8> {
    let request = Request::new(method, &host.to_string(), path);
    let request = headers.iter().fold(request, |request, (name, value)| request.with(name, value));
    match body {
        Some(body) => request.with("Content-Type", "application/json").body(body).bytes(),
        None => request.bytes(),
    }
}

/// A body with one field replaced, or taken away.
pub(crate) fn with(body: &Value, field: &str, value: impl Into<Option<Value>>) -> Value {
    let mut fields: Map<String, Value> = body.as_object().unwrap().clone();
    match value.into() {
        Some(value) => fields.insert(field.to_owned(), value),
        None => fields.remove(field),
    };
    Value::Object(fields)
}
