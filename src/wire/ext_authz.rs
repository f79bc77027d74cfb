//! The messages of `envoy.service.auth.v3.Authorization/Check`, as far as we read and write them, with Envoy's field numbers
//! (`envoy/service/auth/v3/external_auth.proto`, `attribute_context.proto`).

use std::{collections::HashMap, net::IpAddr};

use bytes::Bytes;
use prost::{Message, Oneof};

use crate::http1::Lines;
use crate::pipeline::permit::Permit;
use crate::wire::answers::Answer;

/// The method of the service.
pub(crate) const CHECK: &str = "/envoy.service.auth.v3.Authorization/Check";

/// `HeaderAppendAction`.
const APPEND_IF_EXISTS_OR_ADD: i32 = 0;
const OVERWRITE_IF_EXISTS_OR_ADD: i32 = 2;

/// `CheckRequest`.
#[derive(Message)]
pub(crate) struct CheckRequest {
    #[prost(message, optional, tag = "1")]
    attributes: Option<Attributes>,
}

#[derive(Message)]
struct Attributes {
    #[prost(message, optional, tag = "1")]
    source: Option<Peer>,
    #[prost(message, optional, tag = "4")]
    request: Option<Request>,
    #[prost(map = "string, string", tag = "10")]
    context_extensions: HashMap<String, String>,
}

#[derive(Message)]
struct Peer {
    #[prost(message, optional, tag = "1")]
    address: Option<Address>,
}

#[derive(Message)]
struct Address {
    #[prost(message, optional, tag = "1")]
    socket_address: Option<SocketAddress>,
}

#[derive(Message)]
struct SocketAddress {
    #[prost(string, tag = "2")]
    address: String,
}

#[derive(Message)]
struct Request {
    #[prost(message, optional, tag = "2")]
    http: Option<HttpRequest>,
}

#[derive(Message)]
pub(crate) struct HttpRequest {
    #[prost(string, tag = "2")]
    pub(crate) method: String,
    #[prost(map = "string, string", tag = "3")]
    headers: HashMap<String, String>,
    /// With its query.
    #[prost(string, tag = "4")]
    pub(crate) path: String,
    #[prost(string, tag = "5")]
    pub(crate) host: String,
    #[prost(string, tag = "6")]
    pub(crate) scheme: String,
    #[prost(message, optional, tag = "13")]
    header_map: Option<Headers>,
}

#[derive(Message)]
struct Headers {
    #[prost(message, repeated, tag = "1")]
    headers: Vec<Header>,
}

#[derive(Message)]
struct Header {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
    #[prost(bytes = "vec", tag = "3")]
    raw_value: Vec<u8>,
}

/// `CheckResponse`.
#[derive(Message)]
pub(crate) struct CheckResponse {
    #[prost(message, optional, tag = "1")]
    status: Option<Status>,
    #[prost(oneof = "Verdict", tags = "2, 3")]
    verdict: Option<Verdict>,
    #[prost(message, optional, tag = "4")]
    dynamic_metadata: Option<Struct>,
}

#[derive(Message)]
struct Status {
    #[prost(int32, tag = "1")]
    code: i32,
}

#[derive(Oneof)]
enum Verdict {
    #[prost(message, tag = "2")]
    Denied(Denied),
    #[prost(message, tag = "3")]
    Ok(Admitted),
}

#[derive(Message)]
struct Denied {
    #[prost(message, optional, tag = "1")]
    status: Option<Status>,
    #[prost(message, repeated, tag = "2")]
    headers: Vec<HeaderOption>,
    #[prost(string, tag = "3")]
    body: String,
}

#[derive(Message)]
struct Admitted {
    #[prost(message, repeated, tag = "2")]
    headers: Vec<HeaderOption>,
    /// Texts, which most of the time are constants.
    #[prost(bytes = "bytes", repeated, tag = "5")]
    headers_to_remove: Vec<Bytes>,
    #[prost(message, repeated, tag = "6")]
    response_headers_to_add: Vec<HeaderOption>,
}

#[derive(Message)]
struct HeaderOption {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(message, optional, tag = "2")]
    append: Option<bool>,
    #[prost(int32, tag = "3")]
    append_action: i32,
    #[prost(bool, tag = "4")]
    keep_empty_value: bool,
}

/// `google.protobuf.Struct`.
#[derive(Message, PartialEq)]
struct Struct {
    #[prost(map = "string, message", tag = "1")]
    fields: HashMap<String, Value>,
}

#[derive(Message, PartialEq)]
struct Value {
    #[prost(oneof = "Kind", tags = "2, 3")]
    kind: Option<Kind>,
}

#[derive(Oneof, PartialEq)]
enum Kind {
    #[prost(double, tag = "2")]
    Number(f64),
    #[prost(string, tag = "3")]
    Text(String),
}

/// The request that a gateway asks about.
pub(crate) struct Asked<'a> {
    /// The tenant that it is for, by the gateway's configuration.
    pub tenant: &'a str,
    /// The client that the gateway sees.
    pub client: Option<IpAddr>,
    /// The request itself.
    pub http: &'a HttpRequest,
}

impl CheckRequest {
    /// The request that it is about; `None`: there is none.
    #[must_use]
    pub(crate) fn asked(&self) -> Option<Asked<'_>> {
        let attributes = self.attributes.as_ref()?;
        let http = attributes.request.as_ref()?.http.as_ref()?;
        let source =
            attributes.source.as_ref().and_then(|source| source.address.as_ref()?.socket_address.as_ref());
        Some(Asked {
            tenant: attributes.context_extensions.get("tenant").map(String::as_str).unwrap_or_default(),
            client: source.and_then(|source| source.address.parse().ok()),
            http,
        })
    }
}

impl HttpRequest {
    /// The fields, without what stands in fields of its own here.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let raw = self.header_map.iter().flat_map(|map| &map.headers).map(|header| {
            let value =
                if header.raw_value.is_empty() { header.value.as_bytes() } else { &*header.raw_value };
            (header.key.as_bytes(), value)
        });
        let joined = self.headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        raw.chain(joined).filter(|(name, _)| !name.starts_with(b":") && !name.eq_ignore_ascii_case(b"host"))
    }
}

impl CheckResponse {
    /// The request passes with these headers for its upstream, without those of these names, and with these for its client.
    /// The rest is for the gateway's own log and rules: the tenant, and the permit where an agent passes.
    #[must_use]
    pub(crate) fn admitted(
        HeaderList(headers): HeaderList,
        headers_to_remove: Vec<Bytes>,
        HeaderList(response_headers_to_add): HeaderList,
        tenant: &str,
        permit: Option<&Permit>,
    ) -> Self {
        Self {
            status: Some(Status { code: 0 }),
            verdict: Some(Verdict::Ok(Admitted { headers, headers_to_remove, response_headers_to_add })),
            dynamic_metadata: Some(facts(tenant, permit)),
        }
    }

    /// The request is answered with this.
    #[must_use]
    pub(crate) fn denied(answer: Answer) -> Self {
        const PERMISSION_DENIED: i32 = 7;
        let (parts, body) = answer.into_parts();
        // The length is the gateway's.
        let headers = parts.headers.iter().filter(|(name, _)| *name != http::header::CONTENT_LENGTH);
        let denied = Denied {
            status: Some(Status { code: parts.status.as_u16().into() }),
            headers: headers
                // An answer of the gateway's own has none to add to: Envoy would drop what is added.
                .map(|(name, value)| {
                    option(name.as_str().to_owned(), value.as_bytes(), OVERWRITE_IF_EXISTS_OR_ADD)
                })
                .collect(),
            body: String::from_utf8(body).unwrap_or_default(),
        };
        let status = Some(Status { code: PERMISSION_DENIED });
        Self { status, verdict: Some(Verdict::Denied(denied)), dynamic_metadata: None }
    }
}

fn facts(tenant: &str, permit: Option<&Permit>) -> Struct {
    let text = |name: &str, text: String| (name.to_owned(), Value { kind: Some(Kind::Text(text)) });
    let number = |name: &str, number: f64| (name.to_owned(), Value { kind: Some(Kind::Number(number)) });
    let of_agent = permit.map(|permit| {
        [
            text("agent_id", permit.agent().to_string()),
            number("tier", permit.tier().number().into()),
            number("limit", permit.allowance().limit.into()),
        ]
    });
    Struct { fields: of_agent.into_iter().flatten().chain([text("tenant", tenant.to_owned())]).collect() }
}

/// Headers that stand there once each, but for `Vary` and `Cache-Control`, which add to the upstream's.
#[derive(Default)]
pub(crate) struct HeaderList(Vec<HeaderOption>);

impl Lines for HeaderList {
    fn line(&mut self, name: &'static str, write: impl FnOnce(&mut Vec<u8>)) {
        let mut value = Vec::new();
        write(&mut value);
        let action = match name {
            "Vary" | "Cache-Control" => APPEND_IF_EXISTS_OR_ADD,
            _ => OVERWRITE_IF_EXISTS_OR_ADD,
        };
        self.0.push(option(name.to_ascii_lowercase(), &value, action));
    }
}

fn option(key: String, value: &[u8], append_action: i32) -> HeaderOption {
    let value = String::from_utf8_lossy(value).into_owned();
    HeaderOption {
        header: Some(Header { key, value, raw_value: Vec::new() }),
        append: Some(append_action == APPEND_IF_EXISTS_OR_ADD),
        append_action,
        keep_empty_value: true,
    }
}
